"""Rows of the database for a topic that was found in storage."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.rebuilt_rows import add_columns, add_rows, add_subscription, seal_ledgers
from txn_source.model.kinds import ABORTED, COMMITTED, DATA
from txn_source.model.position import entry_of, key_of, ledger_of
from txn_source.model.roots import ONLY_MAIN
from txn_source.model.values import dataclass
from txn_source.storage.segment import SegmentName
from txn_source.upkeep.placing import PlacedPartition
from txn_source.upkeep.rebuild_sources import FoundTopic
from txn_source.upkeep.segment_scan import NO_SEGMENT, NO_TXN, IntArray, ScannedProducer

_SEVERAL = 0
_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class EndedTransactions:
    """How transactions ended, COMMITTED or ABORTED, and the numbers of these decisions, by transaction; ``begun`` is
    how many have begun in all."""

    states: Mapping[int, int]
    decisions: Mapping[int, int]
    begun: int


def add_topic(
    connection: Connection, topic: FoundTopic, ended: EndedTransactions, new_ledger: Callable[[], int], now_ms: int
) -> None:
    """Insert all rows of a topic but its transactions.

    Args:
        connection: a write transaction.
        topic: what was found; its markers are placed.
        ended: all transactions that wrote to it.
        new_ledger: gives an id for the open ledger of a partition of which no ledger is known.
        now_ms: the time, in milliseconds since the epoch.
    """
    _TopicRows(connection, topic, new_ledger, now_ms).add(ended)


class _TopicRows:
    """Inserts a topic's rows. Entries wait until the segments and producers that they refer to are there."""

    def __init__(self, connection: Connection, topic: FoundTopic, new_ledger: Callable[[], int], now_ms: int) -> None:
        self._connection = connection
        self._topic = topic
        self._topic_id = topic.described.topic_id
        self._new_ledger = new_ledger
        self._now_ms = now_ms
        self._segments = _Segments(topic)
        self._entries: list[_Entries] = []
        self._sequences: dict[int, int] = {}
        """The last ones of producers: what isn't known below them was trimmed, or lost, and isn't stored anew."""
        self._starts: dict[int, int] = {}
        """Where partitions begin, as keys."""
        self._closed: dict[int, dict[int, int]] = {}
        """By partition, the closed ledgers' numbers of entries."""

    def add(self, ended: EndedTransactions) -> None:
        """Insert them."""
        of = self._topic.described.text
        schema = of["schema"]
        entries, size, age = of["limits"]
        names = (
            "topic_id", "name", "schema", "ledger_max_entries", "ledger_max_bytes", "ledger_max_age_ms",
            "created_at_ms",
        )  # fmt: skip
        schema = None if schema is None else base64.b64decode(schema)
        row = (self._topic_id, of["name"], schema, entries, size, age, of["created_at_ms"])
        add_rows(self._connection, "topics", names, [row])
        for partition_id, placed in sorted(self._topic.placed.items()):
            self._add_partition(partition_id, placed)
        self._segments.add(self._connection)
        _add_producers(self._connection, self._topic, self._sequences)
        for part in self._entries:
            part.add(self._connection, self._topic_id)
        _add_traces(self._connection, self._topic, ended)
        for partition_id, ledgers in self._closed.items():
            seal_ledgers(self._connection, partition_id, ledgers)
        for each in of.get("subscriptions", ()):
            add_subscription(self._connection, self._topic_id, each, self._starts, self._now_ms)

    def _add_partition(self, partition_id: int, placed: PlacedPartition) -> None:
        """Insert a partition and its ledgers, and keep its entries for later."""
        of = self._topic.described.partitions.get(partition_id, {})
        rows = placed.rows
        ledgers = ledger_of(rows["position"])
        log_start = int(of.get("log_start", 0))
        known = {*np.unique(ledgers).tolist(), ledger_of(log_start), ledger_of(int(of.get("log_end", 0)))}
        ids = sorted(known - {0})
        if not ids or ids[-1] in self._topic.objects:
            ids.append(self._new_ledger())
        self._starts[partition_id] = log_start = max(log_start, key_of(ids[0], 0))
        names = (
            "partition_id", "topic_id", "partition_index", "log_start", "trimmed_end", "open_ledger_id",
            "last_publish_time_us",
        )  # fmt: skip
        last_us = int(rows["time_us"].max()) if len(rows["time_us"]) else 0
        index, trimmed_end = self._topic.indexes[partition_id], int(of.get("trimmed_end", 0))
        row = (partition_id, self._topic_id, index, log_start, trimmed_end, ids[-1], last_us)
        add_rows(self._connection, "partitions", names, [row])
        self._add_ledgers(partition_id, placed, ids, ledgers)
        _note_sequences(rows, self._sequences)
        hot = ~np.isin(ledgers, list(self._topic.without_hot))
        with_bytes = hot & (rows["segment"] != NO_SEGMENT)
        self._segments.reach(partition_id, rows["segment"][with_bytes], ledgers[with_bytes])
        if hot.any():
            columns = {name: column[hot] for name, column in rows.items()}
            totals = {
                f"{name}_before": (np.cumsum(rows[of_rows]) - rows[of_rows])[hot]
                for name, of_rows in (("messages", "messages"), ("bytes", "length"))
            }
            self._entries.append(_Entries(partition_id, columns, totals))

    def _add_ledgers(self, partition_id: int, placed: PlacedPartition, ids: list[int], ledgers: IntArray) -> None:
        """Insert the ledgers of a partition, of which the last one is open; ``ledgers`` are those of its entries."""
        objects = self._topic.objects
        closed = self._closed[partition_id] = {}
        found = []
        messages_before = bytes_before = 0
        for ledger in ids:
            mine = ledgers == ledger
            rows = {name: placed.rows[name][mine] for name in ("position", "kind", "messages", "length", "time_us")}
            times = rows["time_us"]
            of_data = times[rows["kind"] == DATA]
            count = entry_of(int(rows["position"].max())) + 1 if len(times) else 0
            if ledger == placed.last_ledger:
                count = max(count, placed.last_ledger_entries)
            messages, size = int(rows["messages"].sum()), int(rows["length"].sum())
            first_ms = last_ms = self._now_ms
            if len(times):
                first_ms, last_ms = int(times.min()) // 1000, int(times.max()) // 1000
            copy = objects.get(ledger)
            is_open, without_hot = ledger == ids[-1], ledger in self._topic.without_hot
            if not is_open:
                closed[ledger] = count
            found.append((
                ledger, partition_id, count, messages, size, messages_before, bytes_before,
                int(of_data.max()) if len(of_data) else None,
                copy.summary.ledger.created_at_ms if copy else first_ms,
                None if is_open else copy.summary.ledger.closed_at_ms if copy else last_ms,
                self._now_ms if copy else None, self._now_ms if without_hot else None, int(without_hot),
            ))  # fmt: skip
            messages_before, bytes_before = messages_before + messages, bytes_before + size
        names = (
            "ledger_id", "partition_id", "entries", "messages", "bytes", "messages_before", "bytes_before",
            "last_publish_time_us", "created_at_ms", "closed_at_ms", "offloaded_at_ms", "hot_deleted_at_ms", "purged",
        )  # fmt: skip
        add_rows(self._connection, "ledgers", names, found)
        copies = [(ledger, objects[ledger].copy) for ledger in ids if ledger in objects]
        add_rows(
            self._connection, "copies",
            ("ledger_id", "uri", "begun_at_ms", "complete", "size", "footer_bytes", "footer_crc32c"),
            [(ledger, c.uri, self._now_ms, 1, c.size, c.footer_bytes, c.footer_crc32c) for ledger, c in copies],
        )  # fmt: skip


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
        add_rows(
            connection, "segments",
            ("segment_id", "topic_id", "path", "partition_id", "first_ledger_id", "last_ledger_id"), rows,
        )  # fmt: skip
        names = ("partition_id", "segment_id", "first_ledger_id", "last_ledger_id")
        add_rows(connection, "segment_parts", names, parts)
        roots = [(segment_id(self._topic_id, segment), self._roots[segment]) for segment in sorted(by_segment)]
        add_rows(connection, "segment_copies", ("segment_id", "roots"), [row for row in roots if row[1] != ONLY_MAIN])


def segment_id(topic_id: int, number: int) -> int:
    """Return the id of a topic's segment: unique in the log."""
    return (topic_id << 24) + number + 1


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


def _note_sequences(rows: Mapping[str, IntArray], last: dict[int, int]) -> None:
    """Note the last sequence of each producer, by its id."""
    data = rows["kind"] == DATA
    for producer_id in np.unique(rows["producer_id"][data]).tolist():
        mine = data & (rows["producer_id"] == producer_id)
        end = int((rows["base_sequence"][mine] + rows["messages"][mine]).max())
        last[producer_id] = max(last.get(producer_id, -1), end - 1)


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
    add_rows(connection, "producers", names_of, rows)


def _add_traces(connection: Connection, topic: FoundTopic, ended: EndedTransactions) -> None:
    rows = []
    joined: set[tuple[int, int]] = set()
    for partition_id, placed in sorted(topic.placed.items()):
        markers = placed.markers
        for txn, (first, last, messages, size) in sorted(placed.traces.items()):
            marker, _ = markers[txn]
            state, decision = ended.states[txn], ended.decisions[txn]
            rows.append((txn, partition_id, state, first, last, marker, decision, messages, size, 0, ended.begun, 0))
        of, who = placed.rows["txn"], placed.rows["producer_id"]
        mine = (of != NO_TXN) & (placed.rows["kind"] == DATA)
        joined |= set(zip(of[mine].tolist(), who[mine].tolist(), strict=True))
    assert {COMMITTED, ABORTED} >= {row[2] for row in rows}
    names = (
        "txn", "partition_id", "state", "first_position", "last_position", "marker_position", "decision", "messages",
        "bytes", "sealed", "begun", "decided",
    )  # fmt: skip
    add_rows(connection, "transaction_partitions", names, rows)
    add_rows(connection, "transaction_producers", ("txn", "producer_id"), sorted(joined))
