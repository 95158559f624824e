"""Rows of the database for a topic that was found in storage."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sqlalchemy import Connection

from txn_source.metadata.store.rebuilt_rows import add_columns, add_subscription, seal_ledgers
from txn_source.model.kinds import ABORTED, COMMITTED, DATA
from txn_source.model.roots import ONLY_MAIN
from txn_source.model.values import dataclass
from txn_source.storage.segment import SegmentName
from txn_source.upkeep.placing import LEDGER_BITS, PlacedPartition
from txn_source.upkeep.rebuild_decisions import Decisions
from txn_source.upkeep.rebuild_sources import FoundTopic
from txn_source.upkeep.segment_scan import NO_SEGMENT, NO_TXN, IntArray, ScannedProducer

_SEVERAL = 0
_AT_ONCE = 10_000


def add_topic(
    connection: Connection,
    topic: FoundTopic,
    decisions: Decisions,
    numbers: Mapping[int, int],
    begun: int,
    new_ledger: Callable[[], int],
    now_ms: int,
) -> None:
    """Insert all rows of a topic but its transactions.

    Args:
        connection: a write transaction.
        topic: what was found; its markers are placed.
        decisions: how transactions ended.
        numbers: of decisions, by transaction.
        begun: how many transactions have begun.
        new_ledger: gives an id for the open ledger of a partition of which no ledger is known.
        now_ms: the time.
    """
    of = topic.described.text
    topic_id = topic.described.topic_id
    schema = of["schema"]
    entries, size, age = of["limits"]
    one = {
        "topic_id": topic_id, "name": of["name"], "schema": None if schema is None else base64.b64decode(schema),
        "ledger_max_entries": entries, "ledger_max_bytes": size, "ledger_max_age_ms": age,
        "created_at_ms": of["created_at_ms"],
    }  # fmt: skip
    add_columns(connection, "topics", {name: [value] for name, value in one.items()})
    segments = _Segments(topic)
    producers: dict[int, int] = {}
    closed: dict[int, dict[int, int]] = {}
    starts: dict[int, int] = {}
    pending: list[_Entries] = []
    for partition_id, placed in sorted(topic.placed.items()):
        starts[partition_id], closed[partition_id] = _add_partition(
            connection, topic, partition_id, placed, segments, producers, new_ledger, now_ms, pending
        )
    segments.add(connection)
    _add_producers(connection, topic, producers)
    for entries in pending:
        entries.add(connection, topic_id)
    _add_traces(connection, topic, decisions, numbers, begun)
    for partition_id, ledgers in closed.items():
        seal_ledgers(connection, partition_id, ledgers)
    for each in of.get("subscriptions", ()):
        add_subscription(connection, topic_id, each, starts, now_ms)


class _Segments:
    """The segments that have registered entries, and the ledgers that these lie in."""

    def __init__(self, topic: FoundTopic) -> None:
        self._topic_id = topic.described.topic_id
        self._paths = topic.segments.paths
        self._roots = topic.segments.roots
        self._parts: dict[tuple[int, int], tuple[int, int]] = {}

    def reach(self, partition_id: int, segments: IntArray, ledgers: IntArray) -> None:
        """Note in which ledgers of a partition segments have entries."""
        for segment in np.unique(segments).tolist():
            mine = ledgers[segments == segment]
            self._parts[segment, partition_id] = int(mine.min()), int(mine.max())

    def add(self, connection: Connection) -> None:
        rows, parts = [], []
        by_segment: dict[int, list[tuple[int, int, int]]] = {}
        for (segment, partition_id), (first, last) in self._parts.items():
            by_segment.setdefault(segment, []).append((partition_id, first, last))
        for segment, of in sorted(by_segment.items()):
            path = self._paths[segment]
            name = SegmentName.parse(path)
            shared = name is not None and name.partition is None
            ends = (min(first for _, first, _ in of), max(last for _, _, last in of))
            number, partition_id = segment_id(self._topic_id, segment), _SEVERAL if shared else of[0][0]
            rows.append((number, self._topic_id, path, partition_id, *ends))
            if shared:
                parts += [(p, number, first, last) for p, first, last in of]
        _add_rows(
            connection, "segments",
            ("segment_id", "topic_id", "path", "partition_id", "first_ledger_id", "last_ledger_id"), rows,
        )  # fmt: skip
        names = ("partition_id", "segment_id", "first_ledger_id", "last_ledger_id")
        _add_rows(connection, "segment_parts", names, parts)
        roots = [(segment_id(self._topic_id, segment), self._roots[segment]) for segment in sorted(by_segment)]
        _add_rows(connection, "segment_copies", ("segment_id", "roots"), [row for row in roots if row[1] != ONLY_MAIN])


def segment_id(topic_id: int, number: int) -> int:
    """Return the id of a topic's segment: unique in the log."""
    return (topic_id << 24) + number + 1


def _add_partition(
    connection: Connection,
    topic: FoundTopic,
    partition_id: int,
    placed: PlacedPartition,
    segments: _Segments,
    producers: dict[int, int],
    new_ledger: Callable[[], int],
    now_ms: int,
    pending: list[_Entries],
) -> tuple[int, dict[int, int]]:
    """Insert a partition and its ledgers, and keep its entries for later; return where it starts, and the closed ones'
    numbers of entries."""
    of = topic.described.partitions.get(partition_id, {})
    rows = placed.rows
    ledger_of = rows["position"] >> LEDGER_BITS
    log_start = int(of.get("log_start", 0))
    known = set(np.unique(ledger_of).tolist()) | {key >> LEDGER_BITS for key in (log_start, int(of.get("log_end", 0)))}
    ids = sorted(known - {0})
    if not ids or ids[-1] in topic.objects:
        ids.append(new_ledger())
    log_start = max(log_start, ids[0] << LEDGER_BITS)
    before_messages = np.cumsum(rows["messages"]) - rows["messages"]
    before_bytes = np.cumsum(rows["length"]) - rows["length"]
    ledgers, closed = [], {}
    messages_before = bytes_before = 0
    for ledger in ids:
        mine = ledger_of == ledger
        positions, times = rows["position"][mine], rows["time_us"][mine]
        data = rows["kind"][mine] == DATA
        count = int(positions.max() & ((1 << LEDGER_BITS) - 1)) + 1 if len(positions) else 0
        if ledger == placed.last_ledger:
            count = max(count, placed.last_ledger_entries)
        messages, size = int(rows["messages"][mine].sum()), int(rows["length"][mine].sum())
        first_ms = int(times.min()) // 1000 if len(times) else now_ms
        last_ms = int(times.max()) // 1000 if len(times) else now_ms
        copy = topic.objects.get(ledger)
        is_open = ledger == ids[-1]
        without_hot = ledger in topic.without_hot
        if not is_open:
            closed[ledger] = count
        ledgers.append((
            ledger, partition_id, count, messages, size, messages_before, bytes_before,
            int(times[data].max()) if data.any() else None,
            copy.summary.ledger.created_at_ms if copy else first_ms,
            None if is_open else copy.summary.ledger.closed_at_ms if copy else last_ms,
            now_ms if copy else None, now_ms if without_hot else None, int(without_hot),
        ))  # fmt: skip
        messages_before, bytes_before = messages_before + messages, bytes_before + size
    one = {
        "partition_id": partition_id, "topic_id": topic.described.topic_id,
        "partition_index": topic.indexes[partition_id], "log_start": log_start,
        "trimmed_end": int(of.get("trimmed_end", 0)), "open_ledger_id": ids[-1],
        "last_publish_time_us": int(rows["time_us"].max()) if len(rows["time_us"]) else 0,
    }  # fmt: skip
    add_columns(connection, "partitions", {name: [value] for name, value in one.items()})
    names = (
        "ledger_id", "partition_id", "entries", "messages", "bytes", "messages_before", "bytes_before",
        "last_publish_time_us", "created_at_ms", "closed_at_ms", "offloaded_at_ms", "hot_deleted_at_ms", "purged",
    )  # fmt: skip
    _add_rows(connection, "ledgers", names, ledgers)
    copies = [topic.objects[ledger] for ledger in ids if ledger in topic.objects]
    _add_rows(
        connection, "copies",
        ("ledger_id", "uri", "begun_at_ms", "complete", "size", "footer_bytes", "footer_crc32c"),
        [(c.summary.ledger.ledger_id, c.copy.uri, now_ms, 1, c.copy.size, c.copy.footer_bytes, c.copy.footer_crc32c)
         for c in copies],
    )  # fmt: skip
    _note_producers(rows, producers)
    hot = ~np.isin(ledger_of, list(topic.without_hot))
    with_bytes = hot & (rows["segment"] != NO_SEGMENT)
    segments.reach(partition_id, rows["segment"][with_bytes], ledger_of[with_bytes])
    if hot.any():
        columns = {name: column[hot] for name, column in rows.items()}
        totals = {"messages_before": before_messages[hot], "bytes_before": before_bytes[hot]}
        pending.append(_Entries(partition_id, columns, totals))
    return log_start, closed


@dataclass(frozen=True, slots=True)
class _Entries:
    """Entries of a partition that are to be inserted once what they refer to is there."""

    partition_id: int
    rows: dict[str, IntArray]
    totals: dict[str, IntArray]

    def add(self, connection: Connection, topic_id: int) -> None:
        """Insert them, a part at a time: as Python's values they take much more memory than as arrays."""
        for start in range(0, len(self.rows["position"]), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            rows, totals = ({name: column[some] for name, column in of.items()} for of in (self.rows, self.totals))
            add_columns(connection, "entries", _entry_columns(topic_id, self.partition_id, rows, totals))


def _entry_columns(
    topic_id: int, partition_id: int, rows: Mapping[str, IntArray], totals: Mapping[str, IntArray]
) -> dict[str, Any]:
    data = (rows["kind"] == DATA).tolist()

    def of_data(name: str) -> list[int | None]:
        return [value if is_data else None for value, is_data in zip(rows[name].tolist(), data, strict=True)]

    found: dict[str, Any] = {"partition_id": [partition_id] * len(data)}
    found |= {name: rows[name].tolist() for name in ("position", "kind", "messages", "length")}
    found |= {name: column.tolist() for name, column in totals.items()}
    found["txn"] = [None if txn == NO_TXN else txn for txn in rows["txn"].tolist()]
    found |= {name: of_data(name) for name in ("producer_id", "base_sequence", "offset", "crc32c")}
    found["publish_time_us"] = rows["time_us"].tolist()
    numbers = of_data("segment")
    found["segment_id"] = [None if number is None else segment_id(topic_id, number) for number in numbers]
    return found


def _note_producers(rows: Mapping[str, IntArray], producers: dict[int, int]) -> None:
    """Note the last sequences of producers: what isn't known below them was trimmed, or lost, and isn't stored anew."""
    data = rows["kind"] == DATA
    for producer_id in np.unique(rows["producer_id"][data]).tolist():
        mine = data & (rows["producer_id"] == producer_id)
        last = int((rows["base_sequence"][mine] + rows["messages"][mine]).max()) - 1
        producers[producer_id] = max(producers.get(producer_id, -1), last)


def _add_producers(connection: Connection, topic: FoundTopic, purged: Mapping[int, int]) -> None:
    names: dict[int, ScannedProducer] = {}
    for each in topic.objects.values():
        names |= {producer_id: ScannedProducer(name) for producer_id, name in each.summary.producers.items()}
    names |= topic.segments.producers
    rows = []
    for producer_id in sorted({*purged, *topic.segments.producers} - {0}):
        of = names.get(producer_id, ScannedProducer(f"producer-{producer_id}"))
        last = purged.get(producer_id, -1)
        rows.append((producer_id, topic.described.topic_id, of.name, of.transactional_id, of.epoch, last))
    names_of = ("producer_id", "topic_id", "name", "transactional_id", "epoch", "purged_sequence")
    _add_rows(connection, "producers", names_of, rows)


def _add_traces(
    connection: Connection, topic: FoundTopic, decisions: Decisions, numbers: Mapping[int, int], begun: int
) -> None:
    rows = []
    joined: set[tuple[int, int]] = set()
    for partition_id, placed in sorted(topic.placed.items()):
        markers = placed.markers
        for txn, (first, last, messages, size) in sorted(placed.traces.items()):
            marker, _ = markers[txn]
            state = decisions.states[txn]
            rows.append((txn, partition_id, state, first, last, marker, numbers[txn], messages, size, 0, begun, 0))
        of, who = placed.rows["txn"], placed.rows["producer_id"]
        mine = (of != NO_TXN) & (placed.rows["kind"] == DATA)
        joined |= set(zip(of[mine].tolist(), who[mine].tolist(), strict=True))
    assert {COMMITTED, ABORTED} >= {row[2] for row in rows}
    names = (
        "txn", "partition_id", "state", "first_position", "last_position", "marker_position", "decision", "messages",
        "bytes", "sealed", "begun", "decided",
    )  # fmt: skip
    _add_rows(connection, "transaction_partitions", names, rows)
    _add_rows(connection, "transaction_producers", ("txn", "producer_id"), sorted(joined))


def _add_rows(connection: Connection, table: str, names: tuple[str, ...], rows: list[Any]) -> None:
    if rows:
        add_columns(connection, table, dict(zip(names, zip(*rows, strict=True), strict=True)))
