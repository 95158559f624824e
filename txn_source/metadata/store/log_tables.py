"""The rows of the tables about a log, as of one database transaction.

Positions are ``Position.key``, times microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from txn_source.metadata.store import (
    backlogs,
    consumers,
    counts,
    subscriptions,
    topics,
    transaction_listing,
    transactions,
    views,
)
from txn_source.metadata.store.tables import copies, ledgers, partitions
from txn_source.metadata.store.transaction_listing import ListedTransaction
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import index_of, message_key, position_of
from txn_source.model.position import PositionRange
from txn_source.model.topic import PartitionView, Topic
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TransactionState, id_of

PAGE_TRANSACTIONS = 2000
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table; ``next`` and ``decisions`` say where the next page begins, None if there is none."""

    rows: Sequence[Row]
    next: int | None = None
    decisions: int = 0


def read(
    connection: Connection, table: str, topic: str | None, now_ms: int, start: int = 0, decisions: int = 0
) -> Rows:
    """Return a table's rows of a topic, or of all.

    Only ``transactions`` have pages. The first one has all open transactions, and the others none: what is decided
    among the log's first so many decisions doesn't change, so all pages together are as of the first one's moment.

    Args:
        connection: a database transaction that shows no transaction past its deadline as open.
        table: its name.
        topic: full name; None: all.
        now_ms: the time.
        start: the first ended transaction of a page.
        decisions: how many decisions the first page knew; 0: this is the first one.
    """
    names = [TopicName.parse(topic)] if topic is not None else _all_names(connection)
    found = topics.find_all(connection, names) if names else []
    if table == "transactions":
        only = found[0] if topic is not None else None
        return _transactions(connection, only, now_ms, start, decisions)
    of_topics = views.partition_views(connection, [each.topic_id for each in found]) if found else {}
    places = [(each, view) for each in found for view in of_topics[each.topic_id]]
    if table == "partitions":
        return Rows(sorted(_partitions(connection, places), key=lambda row: (row["topic"], row["partition"])))
    if table == "ledgers":
        return Rows(sorted(_ledgers(connection, places), key=lambda row: (row["topic"], row["partition"])))
    return Rows([row for each in found for row in _subscriptions(connection, each, of_topics[each.topic_id], now_ms)])


def _all_names(connection: Connection) -> list[TopicName]:
    return [TopicName.parse(name) for name in topics.names(connection, None)]


def _partitions(connection: Connection, places: Sequence[tuple[Topic, PartitionView]]) -> Iterator[Row]:
    query = select(ledgers.c.partition_id, func.count()).group_by(ledgers.c.partition_id)
    there: dict[int, int] = {row[0]: row[1] for row in connection.execute(query)}
    of_each = select(partitions.c.partition_id, partitions.c.last_publish_time_us)
    times: dict[int, int] = {row[0]: row[1] for row in connection.execute(of_each)}
    for topic, view in places:
        bounds = view.bounds
        waiting = PositionRange(bounds.last_stable, bounds.high_watermark)
        held_back = counts.count(connection, view.partition_id, waiting, IsolationLevel.READ_UNCOMMITTED)
        yield {
            "topic": topic.name.short,
            "partition": view.index,
            "log_start": bounds.log_start.key,
            "last_stable": bounds.last_stable.key,
            "high_watermark": bounds.high_watermark.key,
            "log_end": bounds.log_end.key,
            "ledgers": there[view.partition_id],
            "messages": view.messages,
            "bytes": view.bytes,
            "held_back_messages": 0 if held_back is None else held_back.messages,
            "last_publish_time": times[view.partition_id] or None,
        }


def _ledgers(connection: Connection, places: Sequence[tuple[Topic, PartitionView]]) -> Iterator[Row]:
    of = {view.partition_id: (topic, view) for topic, view in places}
    query = (
        select(ledgers, copies.c.uri, copies.c.size)
        .outerjoin(copies, (copies.c.ledger_id == ledgers.c.ledger_id) & (copies.c.complete == 1))
        .order_by(ledgers.c.ledger_id)
    )
    if len(of) == 1:
        query = query.where(ledgers.c.partition_id == next(iter(of)))
    for row in connection.execute(query):
        if row.partition_id not in of:
            continue
        topic, view = of[row.partition_id]
        yield {
            "topic": topic.name.short,
            "partition": view.index,
            "ledger_id": row.ledger_id,
            "entries": row.entries,
            "messages": row.messages,
            "bytes": row.bytes,
            "open": row.closed_at_ms is None,
            "created_at": _us(row.created_at_ms),
            "closed_at": _us(row.closed_at_ms),
            "hot": row.hot_deleted_at_ms is None,
            "hot_deleted_at": _us(row.hot_deleted_at_ms),
            "tiered": row.offloaded_at_ms is not None,
            "offloaded_at": _us(row.offloaded_at_ms),
            "object_uri": None if row.uri is None else row.uri.partition("?")[0],
            "object_bytes": row.size,
        }


def _subscriptions(
    connection: Connection, topic: Topic, of_topic: Sequence[PartitionView], now_ms: int
) -> Iterator[Row]:
    by_id = {view.partition_id: view for view in of_topic}
    for subscription in subscriptions.of_topic(connection, topic.topic_id):
        level = subscription.isolation_level
        connected = consumers.alive(consumers.connected(connection, subscription.subscription_id), now_ms)
        for partition_id, cursor in subscriptions.cursors_of(connection, subscription.subscription_id).items():
            view = by_id[partition_id]
            mark = max(cursor.mark, message_key(view.bounds.log_start))
            waits = position_of(mark) < view.bounds.high_watermark > view.bounds.last_stable
            held_by = transactions.open_on(connection, [partition_id]) if waits and _is_committed(level) else []
            yield {
                "topic": topic.name.short,
                "subscription": subscription.name,
                "type": subscription.type.value,
                "isolation_level": level.value,
                "durable": subscription.durable,
                "epoch": subscription.epoch,
                "consumers": len(connected),
                "partition": view.index,
                "next_position": position_of(mark).key,
                "next_index": index_of(mark),
                "backlog": backlogs.backlog(connection, view, level, cursor),
                "held_back_by": [str(id_of(txn)) for txn in held_by],
            }


def _transactions(connection: Connection, topic: Topic | None, now_ms: int, start: int, decisions: int) -> Rows:
    topic_id = None if topic is None else topic.topic_id
    rows: list[Row] = []
    if not decisions:
        decisions = views.decisions(connection)
        for txn in transaction_listing.all_open(connection, topic_id):
            rows += _rows_of(txn, topic, now_ms)
    ended = transaction_listing.ended(connection, topic_id, start, decisions, PAGE_TRANSACTIONS + 1)
    for txn in ended[:PAGE_TRANSACTIONS]:
        rows += _rows_of(txn, topic, now_ms)
    more = len(ended) > PAGE_TRANSACTIONS
    return Rows(rows, ended[PAGE_TRANSACTIONS].txn if more else None, decisions)


def _rows_of(txn: ListedTransaction, topic: Topic | None, now_ms: int) -> Iterator[Row]:
    whole = {
        "txn_id": str(id_of(txn.txn)),
        "state": txn.state.value,
        "began_at": _us(txn.created_at_ms),
        "age_seconds": (now_ms - txn.created_at_ms) / 1000,
        "timeout_seconds": txn.timeout_ms / 1000,
        "deadline": _us(txn.created_at_ms + txn.timeout_ms) if txn.state is TransactionState.OPEN else None,
        "ended_at": _us(txn.ended_at_ms),
        "end_reason": None if txn.end_reason is None else txn.end_reason.value,
        "producers": sorted(txn.producers),
    }
    names = ("first_position", "marker_position", "messages", "bytes", "held_back_messages", "held_back_bytes")
    for part in txn.partitions:
        if topic is None or part.topic == str(topic.name):
            values = {name: getattr(part, name) for name in names}
            yield whole | values | {"topic": TopicName.parse(part.topic).short, "partition": part.partition}
    if topic is None and not txn.partitions:
        yield whole | dict.fromkeys(("topic", "partition", *names)) | dict.fromkeys(names[2:], 0)


def _is_committed(level: IsolationLevel) -> bool:
    return level is IsolationLevel.READ_COMMITTED


def _us(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * 1000
