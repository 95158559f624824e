"""Writing files for a later commit: nothing is lost, order is kept, and a key picks the partition that it always does.

What a writer returns is read back from its files, without the service: nothing has to be registered for that.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import txn_source
from tests.log.reading import rows
from tests.selection import examples
from txn_source import Log
from txn_source.client.writing import batch_buffer, bulk_writer
from txn_source.client.writing.bulk_writer import BulkWriter, join_batches
from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError, StorageWriteError
from txn_source.model.routing import partition_of
from txn_source.model.spark_commit import Sink, TopicBatch
from txn_source.model.topic_name import TopicName
from txn_source.storage.schema import EVENT_TIME, PROPERTIES
from txn_source.storage.segment import SegmentReader

TYPED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
PARTITIONS = (1, 2, 7)
SMALL_ENTRY_ROWS = 5


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """A log with raw and typed topics of several numbers of partitions; nothing is registered in most tests."""
    with txn_source.connect(tmp_path_factory.mktemp("bulk") / "log") as log:
        for count in PARTITIONS:
            log.create_topic(f"raw-{count}", partitions=count)
            log.create_topic(f"typed-{count}", partitions=count, schema=TYPED)
        yield log


def writer_of(log: Log, topic: str, turn: int = 0) -> BulkWriter:
    return BulkWriter(log.access, TopicName.parse(topic), turn)


def stored(log: Log, batch: TopicBatch) -> dict[int, list[pa.RecordBatch]]:
    """Read the entries of a batch back, by the index of their partition."""
    [view] = log.metadata.get_view([batch.topic]).topics
    index_of = {p.partition_id: index for index, p in enumerate(view.partitions)}
    found = defaultdict(list)
    for entry in batch.entries:
        with SegmentReader(log.root, entry.segment) as reader:
            [read] = reader.read([entry.offset], [entry.offset + entry.length], [entry.crc32c], [0])
        assert read.num_rows == entry.messages
        assert entry.segment.split("/")[2] == str(index_of[entry.partition_id])
        found[index_of[entry.partition_id]].append(read)
    return dict(found)


def column(entries: list[pa.RecordBatch], name: str) -> list[Any]:
    return [value for entry in entries for value in entry.column(name).to_pylist()]


def files(log: Log) -> set[Path]:
    return set((log.root / "segments").rglob("*.arrow"))


KEYS = st.none() | st.sampled_from([b"", b"a", b"b", "naïve".encode(), b"\x00\xff"]) | st.binary(max_size=4)
ROWS = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 6)), max_size=14)


@settings(deadline=None, max_examples=examples(30))
@given(
    batches=st.lists(ROWS, max_size=6),
    count=st.sampled_from(PARTITIONS),
    kind=st.sampled_from(["raw", "typed"]),
    turn=st.integers(0, 8),
    open_segments=st.integers(1, 3),
    has_keys=st.booleans(),
    has_partitions=st.booleans(),
)
def test_each_row_is_stored_once_where_it_belongs_in_order(
    log: Log,
    batches: list[list[tuple[bytes | None, int | None]]],
    count: int,
    kind: str,
    turn: int,
    open_segments: int,
    has_keys: bool,
    has_partitions: bool,
) -> None:
    """Write any batches with small limits: each row is in one entry, on the partition that it asked for, or else on
    that of its key, or else on any; and each partition has its rows in the order in which they came."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (batch_buffer, bulk_writer):
            patch.setattr(module, "ENTRY_MAX_ROWS", SMALL_ENTRY_ROWS)
        patch.setattr(bulk_writer, "_MAX_OPEN_SEGMENTS", open_segments)
        writer = writer_of(log, f"{kind}-{count}", turn)
        number, expected = 0, []
        for batch in batches:
            keys = [key if has_keys else None for key, _ in batch]
            partitions = [None if p is None or not has_partitions else p % count for _, p in batch]
            numbers = list(range(number, number + len(batch)))
            number += len(batch)
            columns = {"value": pa.array([b"%d" % n for n in numbers], pa.binary())}
            if kind == "typed":
                columns = {"id": pa.array(numbers, pa.int64()), "name": pa.nulls(len(batch), pa.string())}
            if has_keys:
                columns["key" if kind == "raw" else "__key"] = pa.array(keys, pa.binary())
            if has_partitions:
                columns["__partition"] = pa.array(partitions, pa.int32())
            writer.write(pa.record_batch(columns))
            expected += list(zip(numbers, keys, partitions, strict=True))
        found = stored(log, writer.finish())

    place = {}
    for partition, entries in found.items():
        assert all(0 < entry.num_rows <= SMALL_ENTRY_ROWS for entry in entries)
        numbers = [int(value) for value in column(entries, "value" if kind == "raw" else "id")]
        assert numbers == sorted(numbers)
        place |= dict.fromkeys(numbers, partition)
        if kind == "raw":
            assert column(entries, "key") == [expected[n][1] for n in numbers]
    assert sum(entry.num_rows for entries in found.values() for entry in entries) == len(expected) == len(place)
    for n, key, partition in expected:
        if partition is not None:
            assert place[n] == partition
        elif key is not None:
            assert place[n] == partition_of(key, count)


@pytest.mark.parametrize(("topic", "text"), [("raw-7", pa.string()), ("typed-7", pa.large_string())])
def test_key_goes_where_a_producer_sends_it(log: Log, topic: str, text: pa.DataType) -> None:
    """Write 500 keys as text and as bytes, with a producer and in bulk: each key is on one partition."""
    keys = [f"key {n} ü" for n in range(499)] + [""]
    name, payload = ("key", {}) if topic.startswith("raw") else ("__key", {"id": range(500)})
    payload = payload or {"value": [b"x"] * 500}
    log.create_topic(f"{topic}-both", partitions=7, schema=None if topic.startswith("raw") else TYPED)
    optional = {} if topic.startswith("raw") else {"name": keys}
    batches = []
    for array in (pa.array(keys, text), pa.array([key.encode() for key in keys])):
        bulk = writer_of(log, f"{topic}-both")
        bulk.write(pa.record_batch({**payload, **optional, name: array}))
        batches.append(bulk.finish())
    log.metadata.commit_batch(Sink(None, 0, "bulk", None), join_batches(batches), topic)
    with log.producer(f"{topic}-both") as producer:
        for n, key in enumerate(keys):
            producer.send(b"x" if name == "key" else {"id": n, "name": key}, key)
    places = defaultdict(list)
    for row in rows(log, f"{topic}-both", columns=["__partition", "key" if name == "key" else "name"]):
        places[row.get("key", row.get("name"))].append(row["__partition"])
    assert {len(found) for found in places.values()} == {3}
    assert {len(set(found)) for found in places.values()} == {1}
    assert len({found[0] for found in places.values()}) == 7


def test_rows_without_a_key_are_spread_over_partitions_by_entries(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write many batches without keys, in two tasks: entries are full, and partitions differ by at most one entry."""
    for module in (batch_buffer, bulk_writer):
        monkeypatch.setattr(module, "ENTRY_MAX_ROWS", 100)
    first_of = []
    for turn in (0, 3):
        writer = writer_of(log, "raw-7", turn)
        for _ in range(70):
            writer.write(pa.record_batch({"value": [b"x"] * 40}))
        batch = writer.finish()
        found = stored(log, batch)
        assert sorted(found) == list(range(7))
        per_partition = [sum(entry.num_rows for entry in entries) for entries in found.values()]
        assert sum(per_partition) == 2800
        assert max(per_partition) - min(per_partition) <= 200
        assert max(len(entries) for entries in found.values()) <= 6
        first_of.append(next(iter(found)))
    assert first_of == [0, 3], "tasks begin with different partitions"


def test_large_values_make_smaller_entries(log: Log) -> None:
    """Write rows of a megabyte: an entry has at most 16 MiB."""
    writer = writer_of(log, "raw-1")
    for _ in range(3):
        writer.write(pa.record_batch({"value": [b"x" * (1 << 20)] * 12}))
    batch = writer.finish()
    assert sum(entry.messages for entry in batch.entries) == 36
    assert all(entry.length <= 17 << 20 for entry in batch.entries)


def test_memory_is_bounded_over_many_partitions(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let little wait for all partitions together: entries are written early, and no row is lost or out of order."""
    monkeypatch.setattr(bulk_writer, "_MAX_WAITING_BYTES", 1000)
    writer = writer_of(log, "raw-7")
    for start in range(0, 700, 70):
        numbers = range(start, start + 70)
        partitions = pa.array([n % 7 for n in numbers], pa.int32())
        writer.write(pa.record_batch({"value": [b"%03d" % n for n in numbers], "__partition": partitions}))
        assert writer.waiting_bytes <= 1000
    found = stored(log, writer.finish())
    assert {p: column(entries, "value") for p, entries in found.items()} == {
        p: [b"%03d" % n for n in range(p, 700, 7)] for p in range(7)
    }


def test_times_and_properties_are_stored_beside_the_payload(log: Log) -> None:
    """Write batches with and without optional columns: each row keeps its own, and none gets another's."""
    writer = writer_of(log, "raw-1")
    writer.write(pa.record_batch({"value": [b"plain"]}))
    writer.write(
        pa.record_batch(
            {
                "__properties": pa.array([[("a", "1")], None], PROPERTIES.type),
                "value": [b"full", b"empty"],
                "__event_time": pa.array([5, None], EVENT_TIME.type),
            }
        )
    )
    writer.write(pa.record_batch({"value": [b"plain too"]}))
    entries = stored(log, writer.finish())[0]
    by_value = {row["value"]: row for entry in entries for row in entry.to_pylist()}
    assert sorted(by_value) == [b"empty", b"full", b"plain", b"plain too"]
    assert by_value[b"full"]["__properties"] == [("a", "1")]
    assert by_value[b"full"]["__event_time"].microsecond == 5
    assert (by_value[b"empty"]["__properties"], by_value[b"empty"]["__event_time"]) == (None, None)
    assert "__properties" not in by_value[b"plain"]


@pytest.mark.parametrize("wrong", [-1, 2, 2**31 - 1])
def test_wrong_partition_is_named(log: Log, wrong: int) -> None:
    """Ask for a partition that isn't there in one row of many."""
    writer = writer_of(log, "raw-2")
    batch = pa.record_batch({"value": [b"x"] * 3, "__partition": pa.array([None, 1, wrong], pa.int32())})
    with pytest.raises(InvalidArgumentError, match=rf"asks for {wrong}, .*'raw-2'.* 0 to 1"):
        writer.write(batch)
    assert writer.finish().entries == ()


def test_batch_that_does_not_fit_is_refused(log: Log) -> None:
    """Leave out a column, and give a null where there may be none."""
    writer = writer_of(log, "typed-1")
    with pytest.raises(SchemaMismatchError, match="no column 'name'"):
        writer.write(pa.record_batch({"id": [1]}))
    with pytest.raises(SchemaMismatchError, match="'id' doesn't fit: expected no nulls, came 1"):
        writer.write(pa.record_batch({"id": pa.array([1, None], pa.int64()), "name": ["a", "b"]}))
    assert writer.finish().entries == ()


def test_discarded_files_are_removed(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Discard a writer with open and closed files, and one that has finished; then one without any."""
    monkeypatch.setattr(bulk_writer, "_MAX_OPEN_SEGMENTS", 2)
    monkeypatch.setattr(bulk_writer, "ENTRY_MAX_ROWS", 1)
    before = files(log)
    for finished in (False, True):
        writer = writer_of(log, "raw-7")
        for _ in range(12):
            writer.write(pa.record_batch({"value": [b"x"]}))
        if finished:
            writer.finish()
        assert files(log) > before
        writer.discard()
        assert files(log) == before
    writer_of(log, "raw-7").discard()


def test_disk_that_is_full_is_told_and_leaves_nothing_open(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sync at the end fail: the error says so, and discarding removes the files."""
    before = files(log)
    writer = writer_of(log, "raw-7")
    writer.write(pa.record_batch({"value": [b"x"] * 7, "__partition": pa.array(range(7), pa.int32())}))

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", fail)
        with pytest.raises(StorageWriteError, match="disk is full"):
            writer.finish()
    writer.discard()
    assert files(log) == before


def test_all_that_is_returned_was_synced(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Note the size of each file at its last sync, with few files open at once: no entry ends behind it."""
    for module in (batch_buffer, bulk_writer):
        monkeypatch.setattr(module, "ENTRY_MAX_ROWS", 1)
    monkeypatch.setattr(bulk_writer, "_MAX_OPEN_SEGMENTS", 2)
    synced: dict[str, int] = {}
    sync = os.fdatasync

    def note(fd: int) -> None:
        sync(fd)
        synced[os.readlink(f"/proc/self/fd/{fd}")] = os.fstat(fd).st_size

    monkeypatch.setattr("os.fdatasync", note)
    writer = writer_of(log, "raw-7")
    for _ in range(20):
        writer.write(pa.record_batch({"value": [b"x"]}))
    entries = writer.finish().entries
    assert len(entries) == 20
    assert all(entry.offset + entry.length <= synced[str(log.root / entry.segment)] for entry in entries)


def test_what_tasks_wrote_is_joined_by_topic(log: Log) -> None:
    """Join the batches of three tasks over two topics, one of them named in two ways."""
    batches = []
    for topic in ("typed-1", "raw-1", "persistent://public/default/raw-1"):
        writer = writer_of(log, topic)
        batch = {"id": [1], "name": ["a"]} if topic == "typed-1" else {"value": [topic.encode()]}
        writer.write(pa.record_batch(batch))
        batches.append(writer.finish())
    joined = join_batches(batches)
    assert [(batch.topic.short, len(batch.entries)) for batch in joined] == [("raw-1", 2), ("typed-1", 1)]
    assert [column(stored(log, batch)[0], name) for batch, name in zip(joined, ("value", "id"), strict=True)] == [
        [b"raw-1", b"persistent://public/default/raw-1"],
        [1],
    ]
    assert join_batches([]) == []
