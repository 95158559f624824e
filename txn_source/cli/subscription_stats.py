"""What the command line tells about a subscription, as a table for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txn_source.cli.output import console, table
from txn_source.cli.units import format_duration, format_size
from txn_source.model.errors import TransactionNotFoundError
from txn_source.model.position import MessageId
from txn_source.model.topic_name import TopicName

if TYPE_CHECKING:
    from rich.table import Table

    from txn_source.client.log import Log
    from txn_source.metadata.stub.metadata_stub import TransactionInfo
    from txn_source.metadata.stub.subscriptions import SubscriptionInfo


def place_text(key: int) -> str:
    """Return a place (``message_key``) as ``12:40:3``, which ``seek --to`` takes."""
    from txn_source.model.message_ranges import index_of, position_of  # needs NumPy: not for --help

    at = position_of(key)
    return str(MessageId(at.ledger_id, at.entry_id, index_of(key)))


def backlog(info: SubscriptionInfo) -> int:
    """Return how many messages its level shows that are not acknowledged."""
    return sum(p.backlog for p in info.partitions)


def facts(log: Log, topic: str, info: SubscriptionInfo) -> dict[str, Any]:
    """Return all that is known about a subscription, for JSON; the isolation level's name is Pulsar's."""
    return {
        "topic": TopicName.parse(topic).short,
        "subscription": info.name,
        "type": info.type,
        "subscriptionIsolationLevel": info.isolation_level,
        "durable": info.durable,
        "epoch": info.epoch,
        "backlog": backlog(info),
        "unacknowledged_messages": _unacknowledged(info),
        "ignored_acknowledgements": info.ignored_acknowledgements,
        "redeliverable_messages": info.redeliverable,
        "consumers": [
            {"name": c.name, "active": c.active, "connected_at": c.connected_at, "unacknowledged": c.unacknowledged}
            for c in info.consumers
        ],
        "partitions": [
            {
                "partition": p.partition,
                "mark": place_text(p.mark),
                "bound": p.bound,
                "backlog": p.backlog,
                "acknowledged_above_mark": [
                    {"start": place_text(r.start), "end": place_text(r.end), "messages": r.messages}
                    for r in p.acknowledged
                ],
            }
            for p in info.partitions
        ],
        "held_by": [
            {
                "id": txn.id,
                "age": txn.age,
                "timeout": txn.timeout,
                "producers": txn.producers,
                "held_back_messages": messages,
                "held_back_bytes": size,
            }
            for txn, messages, size in _holding(log, topic, info)
        ],
    }


def listing(title: str, found: Sequence[SubscriptionInfo], topics: Sequence[str] | None = None) -> Table:
    """Return a table with a row for each subscription, which begins with its topic if these are given."""
    numbers = ("Epoch", "Backlog", "Unacknowledged")
    names = ("Subscription", "Type", "Isolation level", *numbers, "Consumers", "Held by")
    shown = table(title, *(() if topics is None else ("Topic",)), *names, right=numbers)
    for topic, info in zip([None] * len(found) if topics is None else topics, found, strict=True):
        shown.add_row(
            *(() if topic is None else (topic,)),
            info.name if info.durable else f"{info.name} (not durable)",
            info.type.value,
            info.isolation_level.value,
            f"{info.epoch:,}",
            f"{backlog(info):,}",
            f"{_unacknowledged(info):,}",
            "\n".join(c.name if c.active else f"{c.name} (waits)" for c in info.consumers) or "none",
            "\n".join(map(str, info.held_by)),
        )
    return shown


def print_stats(log: Log, topic: str, info: SubscriptionInfo) -> None:
    """Print all that is known about a subscription, for people."""
    out = console()
    shown = table("", "Subscription", info.name)
    shown.add_row("topic", TopicName.parse(topic).short)
    shown.add_row("type", info.type.value)
    shown.add_row("isolation level", info.isolation_level.value)
    if not info.durable:
        shown.add_row("durable", "no: it goes with its consumers")
    shown.add_row("epoch", f"{info.epoch:,}")
    shown.add_row("backlog", f"{backlog(info):,} messages")
    shown.add_row("unacknowledged", f"{_unacknowledged(info):,} messages were delivered")
    if info.redeliverable:
        shown.add_row("", f"{info.redeliverable:,} of them wait to be delivered again")
    shown.add_row("ignored acknowledgements", f"{info.ignored_acknowledgements:,}, from before a seek or a redelivery")
    out.print(shown, "")

    numbers = ("Partition", "Acknowledged above it", "Backlog")
    marks = table("Partitions", "Partition", "Next not acknowledged", *numbers[1:], "Readable up to", right=numbers)
    for p in info.partitions:
        above = sum(r.messages for r in p.acknowledged)
        marks.add_row(str(p.partition), place_text(p.mark), f"{above:,}", f"{p.backlog:,}", str(p.bound))
    out.print(marks, "")

    if info.consumers:
        consumers = table("Consumers", "Consumer", "State", "Connected at", "Unacknowledged", right=("Unacknowledged",))
        for c in info.consumers:
            state = "active" if c.active else "waits for its turn"
            consumers.add_row(c.name, state, f"{c.connected_at:%Y-%m-%d %H:%M:%S} UTC", f"{c.unacknowledged:,}")
        out.print(consumers)
    else:
        print("No consumer is connected.")
    _print_holding(_holding(log, topic, info))


def _print_holding(found: Sequence[tuple[TransactionInfo, int, int]]) -> None:
    if not found:
        return
    numbers = ("Age", "Timeout", "Held back", "Held back size")
    holding = table(
        "Open transactions, behind which this read_committed subscription waits",
        "Transaction", *numbers, "Producers",
        right=numbers,
    )  # fmt: skip
    for txn, messages, size in found:
        holding.add_row(
            str(txn.id),
            format_duration(txn.age),
            format_duration(txn.timeout),
            f"{messages:,}",
            format_size(size),
            ", ".join(txn.producers),
        )
    console().print("", holding)
    print("`txnlog transactions abort ID` ends one by force.")


def _holding(log: Log, topic: str, info: SubscriptionInfo) -> list[tuple[TransactionInfo, int, int]]:
    """Return the transactions that hold the backlog, oldest first, with the messages and bytes each holds back here."""
    name, found = TopicName.parse(topic).short, []
    for id in info.held_by:
        try:
            txn = log.transaction(id)
        except TransactionNotFoundError:
            continue  # it has ended since, and was forgotten
        here = [p for p in txn.partitions if p.topic == name]
        found.append((txn, sum(p.held_back_messages for p in here), sum(p.held_back_bytes for p in here)))
    return found


def _unacknowledged(info: SubscriptionInfo) -> int:
    return info.redeliverable + sum(c.unacknowledged for c in info.consumers)
