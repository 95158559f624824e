"""How far a stream is behind: what its level shows by now and it hasn't read, on each partition."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from txn_source.client.access import Access
from txn_source.client.reading.count import count
from txn_source.client.reading.source import ReadPartition, Source, resolve
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, PositionRange
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TransactionState
from txn_source.reading.places import Side
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream_offset import StreamOffset


@dataclass(frozen=True, slots=True)
class PartitionBehind:
    """A partition: messages that can be read by now and weren't, and how long ago the first of them was published.

    ``seconds`` is 0 without such messages, None if the log doesn't tell; of an old ledger it is about so much.
    ``held_back`` are messages behind them that open transactions keep from a read_committed stream.
    """

    topic: str
    partition: int
    messages: int
    seconds: float | None
    held_back: int = 0


def behind(access: Access, at: StreamOffset, level: IsolationLevel, *, if_there: bool = False) -> list[PartitionBehind]:
    """Return how far a stream at an offset is behind; partitions that it doesn't read are left out.

    Raises:
        TopicNotFoundError: a topic is gone. With ``if_there`` it is left out.
    """
    topics = sorted({topic for topic, _ in at.positions})
    source = resolve(access.metadata, replace(Selection.of([str(topic) for topic in topics], ()), if_there=if_there))
    found = []
    for partition in source.partitions:
        place = partition.topic, partition.view.index
        if place not in at.positions:
            continue
        bounds = partition.view.bounds
        start = max(at.positions[place], bounds.log_start)
        messages = _count(access, partition, source, at, level)
        seconds = 0.0
        if messages:
            unread = PositionRange(start, bounds.upper(level))
            seconds = round(max(0.0, time.time() - published_s(access, partition, unread)), 3)
        held = 0
        if level is IsolationLevel.READ_COMMITTED and bounds.last_stable < bounds.high_watermark:
            waiting = PositionRange(max(start, bounds.last_stable), bounds.high_watermark)
            counted = access.metadata.count_range(partition.view.partition_id, waiting, IsolationLevel.READ_UNCOMMITTED)
            held = 0 if counted is None else counted.messages
        found.append(PartitionBehind(partition.topic.short, partition.view.index, messages, seconds, held))
    return found


def figures(access: Access, at: StreamOffset, level: IsolationLevel, selection: Selection) -> dict[str, Any]:
    """Return how far a stream of a selection is behind at an offset, for a query's progress.

    ``messagesBehind`` can be read; the first of them was published ``secondsBehind`` ago. ``heldBackBy`` is the
    transaction that is open for longest of those that keep ``heldBackMessages`` from being read; both are missing if
    no transaction does.
    """
    messages, seconds = total(behind(access, at, level, if_there=True))
    found: dict[str, Any] = {"messagesBehind": messages, "secondsBehind": seconds or 0.0}
    if level is not IsolationLevel.READ_COMMITTED:
        return found
    return found | _held_back(access, resolve(access.metadata, replace(selection, columns=())))


def _held_back(access: Access, source: Source) -> dict[str, Any]:
    held = {(p.topic, p.view.index) for p in source.partitions if p.bounds.last_stable < p.bounds.high_watermark}
    holders, waiting = [], dict.fromkeys(held, 0)
    for topic in sorted({topic for topic, _ in held}):
        for txn in access.metadata.list_transactions(TransactionState.OPEN, topic):
            for part in txn.partitions:
                place = TopicName.parse(part.topic), part.partition
                if place in held:
                    holders.append(txn)
                    waiting[place] = max(waiting[place], part.held_back_messages)
    if not holders:
        return {}
    oldest = min(holders, key=lambda txn: (-txn.age, txn.id))
    return {"heldBackBy": str(oldest.id), "heldBackMessages": sum(waiting.values())}


def published_s(access: Access, partition: ReadPartition, of: PositionRange) -> float:
    """Return when the first message of a range was published, in seconds since the epoch; of an old ledger about."""
    page = next(iter(access.metadata.list_entries(partition.view.partition_id, of)), None)
    if page is not None and len(page.entries):
        return float(page.entries["publish_time_us"][0].as_py()) / 1e6
    ledgers = access.metadata.list_ledgers(partition.view.partition_id, of)
    return float(ledgers["created_at_ms"][0].as_py()) / 1e3 if len(ledgers) else time.time()


def _count(access: Access, partition: ReadPartition, source: Source, at: StreamOffset, level: IsolationLevel) -> int:
    place = partition.topic, partition.view.index
    only = Source((partition,), source.payload, source.decisions)
    start = Side(EARLIEST, {place: at.positions[place]})
    return count(access, only, ReadRequest(level, start, consistent_cut=False, fail_on_data_loss=False))


def total(parts: Sequence[PartitionBehind]) -> tuple[int, float | None]:
    """Return the messages of all partitions, and the longest wait."""
    waits = [part.seconds for part in parts if part.seconds is not None]
    return sum(part.messages for part in parts), max(waits, default=None)
