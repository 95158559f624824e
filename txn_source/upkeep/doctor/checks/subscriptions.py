"""Subscriptions that nobody reads, and that keep what retention would trim."""

from __future__ import annotations

from collections.abc import Iterator

from txn_source.client.ledgers import ledgers_of
from txn_source.metadata.stub.subscriptions import SubscriptionInfo
from txn_source.model.message_ranges import position_of
from txn_source.model.position import Position
from txn_source.model.retention import CopyPolicies, TrimLimits, trimmed_by
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName
from txn_source.upkeep.doctor.findings import Finding, finding
from txn_source.upkeep.doctor.subject import Subject


def check_subscriptions(subject: Subject) -> Iterator[Finding]:
    """Look at the subscriptions of topics that retention trims: what would go without each."""
    yield from subject.of_each_topic(lambda topic: _of_topic(subject, topic))


def _of_topic(subject: Subject, topic: TopicName) -> Iterator[Finding]:
    stub = subject.access.metadata
    policies = CopyPolicies.of(stub.policies_in_force(topic))
    if not policies.trims:
        return
    found = [one for one in stub.list_subscriptions(topic) if one.durable and not one.consumers and one.backlog]
    if not found:
        return
    limits = policies.trim_limits(subject.now_ms)
    [view] = stub.get_view([topic]).topics
    kept = {one.name: [0, 0] for one in found}
    for partition in view.partitions:
        for name, (ledgers, size) in _kept(subject, partition, found, limits).items():
            kept[name][0] += ledgers
            kept[name][1] += size
    for one in found:
        ledgers, size = kept[one.name]
        if ledgers:
            fact = (
                f"Subscription {one.name!r} has no consumer and a backlog of {one.backlog:,} messages; it keeps"
                f" {ledgers:,} ledgers, {size:,} bytes, that retention would trim."
            )
            yield finding(
                "subscription-keeps-data", f"topic {topic.short}", fact, topic=topic.short, subscription=one.name,
                ledgers=ledgers, bytes=size, backlog=one.backlog,
            )  # fmt: skip


def _kept(
    subject: Subject, partition: PartitionView, found: list[SubscriptionInfo], limits: TrimLimits
) -> dict[str, tuple[int, int]]:
    """Return by subscription how many ledgers of a partition, and bytes, stay because of it."""
    ledgers = [ledger for ledger in ledgers_of(subject.access.metadata, partition) if ledger.closed]
    stable = partition.bounds.last_stable
    free, _ = trimmed_by(limits, ledgers, stable, partition.bytes, lambda _: None)
    kept = {}
    for one in found:
        mark = next((p for p in one.partitions if p.partition_id == partition.partition_id and p.backlog), None)
        if mark is None:
            continue
        at = position_of(mark.mark)

        def needs(end: Position, at: Position = at, name: str = one.name) -> str | None:
            return name if at < end else None

        with_it, _ = trimmed_by(limits, ledgers, stable, partition.bytes, needs)
        stay = free[len(with_it) :]
        kept[one.name] = (len(stay), sum(ledger.bytes for ledger in stay))
    return kept
