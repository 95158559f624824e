"""The database: totals, bounds, pages and states, counted anew; files and offloads that wait; consumers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

from txn_source.metadata.store import checkup, recount
from txn_source.metadata.store.copy_changes import LEASE_MS
from txn_source.model.errors import TopicNotFoundError
from txn_source.model.message_ranges import position_of
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import COORDINATOR, TxnId
from txn_source.upkeep.doctor.findings import MOST_SHOWN, Finding, finding
from txn_source.upkeep.doctor.subject import DAY_S, Subject


def check_totals(subject: Subject) -> Iterator[Finding]:
    """Count anew what ledgers and entries have as totals, and compare pages with rows."""
    partitions = subject.look(recount.counted_partitions)
    subject.watch.begin("totals", "entries", sum(one.entries for one in partitions))
    for one in partitions:
        yield from _of_partition(subject, one)
        subject.watch.advance(one.entries)


def _of_partition(subject: Subject, one: recount.Counted) -> Iterator[Finding]:
    topic = TopicName.parse(one.topic).short
    for wrong in subject.look(lambda c: list(recount.recount(c, one.partition_id))):
        where = f"partition {one.index} of {topic}"
        where = where if wrong.ledger_id is None else f"ledger {wrong.ledger_id} in {where}"
        stored, found = (recount.shown(wrong.what, value) for value in (wrong.stored, wrong.found))
        fact = f"The {wrong.what} of {where}: {stored} in the database, {found} when counted."
        yield finding("database-totals", f"topic {topic}", fact, topic=topic, partition=one.index)
    for page in subject.look(lambda c: recount.sealed_pages(c, one.partition_id)):
        if subject.look(partial(recount.page_differs, partition_id=one.partition_id, first=page[0], last=page[1])):
            span = " to ".join(recount.shown("position", key) for key in page)
            fact = f"The page of entries {span} of partition {one.index} of {topic} differs from their rows."
            yield finding("database-pages", f"topic {topic}", fact, topic=topic, partition=one.index)


def check_transactions_table(subject: Subject) -> Iterator[Finding]:
    """Look for what the tables say of transactions that can't be."""
    for wrong in subject.look(lambda c: list(recount.contradictions(c))):
        txn = str(TxnId(COORDINATOR, wrong.txn))
        fact = f"{wrong.rows:,} rows: transactions that {wrong.what}; the first one is {txn}."
        yield finding("database-transactions", "transactions", fact, txn=txn, rows=wrong.rows)
    for fenced in subject.look(checkup.fenced_transactions):
        txn = str(TxnId(COORDINATOR, fenced.txn))
        fact = (
            f"Transaction {txn} is open, of the producer {fenced.transactional_id!r} of epoch {fenced.epoch}; there is"
            f" one of epoch {fenced.newest_epoch}."
        )
        yield finding("transaction-fenced", f"transaction {txn}", fact, txn=txn)


def check_waiting_files(subject: Subject) -> Iterator[Finding]:
    """Look for files that should have been deleted, and offloads that should have ended."""
    now_ms = subject.now_ms
    doomed = subject.look(lambda c: checkup.doomed_before(c, now_ms - int(DAY_S * 1000)))
    if doomed:
        age = _hours(now_ms - doomed[0].since_ms)
        fact = f"{len(doomed):,} files wait to be deleted, the first one for {age}."
        first = [one.uri.partition("?")[0] for one in doomed[:MOST_SHOWN]]
        yield finding("doomed-old", "files", fact, files=len(doomed), first=first)
    stuck = subject.look(lambda c: checkup.offloads_before(c, now_ms - LEASE_MS))
    for one in stuck:
        shown = one.uri.partition("?")[0]
        fact = f"The offload of {shown} was begun {_hours(now_ms - one.since_ms)} ago, and has not ended."
        yield finding("offload-stuck", shown, fact, uri=shown)


def check_consumers(subject: Subject) -> Iterator[Finding]:
    """Look for what waits for consumers that are gone, and for subscriptions that stand where nothing is."""
    for name, subscription, count in subject.look(checkup.orphaned_deliveries):
        at = _where_it_stands(subject, TopicName.parse(name), subscription)
        if at is None:
            continue  # deleted meanwhile
        topic = TopicName.parse(name).short
        fact = f"{count:,} deliveries of {subscription!r} wait for consumers that aren't there."
        yield finding("deliveries-orphaned", f"topic {topic}", fact, topic=topic, subscription=subscription, at=at)
    for cursor in subject.look(checkup.stray_cursors):
        topic = TopicName.parse(cursor.topic).short
        at, end = (recount.shown("position", key) for key in (cursor.mark_position, cursor.log_end))
        fact = (
            f"Subscription {cursor.subscription!r} stands at {at} of partition {cursor.partition}, which ends at {end}."
        )
        yield finding("subscription-beyond-end", f"topic {topic}", fact, topic=topic, subscription=cursor.subscription)


def _where_it_stands(subject: Subject, topic: TopicName, name: str) -> str | None:
    """Return the positions below which a subscription has acknowledged all, as a seek takes them; None if it is
    gone."""
    stub = subject.access.metadata
    try:
        [view] = stub.get_view([topic]).topics
        found = next((one for one in stub.list_subscriptions(topic, brief=True) if one.name == name), None)
    except TopicNotFoundError:
        return None
    if found is None:
        return None
    marks = {one.partition_id: str(position_of(one.mark)) for one in found.partitions}
    stands = {str(one.index): marks[one.partition_id] for one in view.partitions if one.partition_id in marks}
    return json.dumps({topic.short: stands})


def _hours(age_ms: int) -> str:
    hours = age_ms / 3_600_000
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
