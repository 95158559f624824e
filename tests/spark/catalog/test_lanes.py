"""Whichever way Spark gets the rows, by ``lane``: the same rows, in batches and in streams."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from crc32c import crc32c
from pyspark.errors import PySparkException

from tests.log.reading import eventually
from tests.selection import mostly_long
from tests.spark.test_types import COLUMNS
from tests.upkeep.doctored import change
from txn_source.storage.schema import STORED_BESIDE

Bank = Any
SCHEMA = pa.schema([("id", pa.int64())])
ScanText = Callable[[Any], str]
CHANGED = {name for name in COLUMNS if name.endswith(("_s", "_ms", "_ns"))} | {
    "zoned", "large_list", "struct", "map_cast", "nested"
}  # fmt: skip
"""Columns whose values, or parts of them, aren't as files have them in Spark."""
METADATA = "__topic, __partition, __ledger_id, __entry_id, __batch_index, __publish_time, __sequence_id, __txn_id"


@pytest.mark.parametrize(
    ("way", "level"),
    mostly_long(
        product(("Java", "Python", "small entries"), ("read_committed", "read_uncommitted")),
        ("Java", "read_committed"),
        ("small entries", "read_uncommitted"),
    ),
)
def test_both_lanes_have_the_same_rows(bank: Bank, scan_text: ScanText, way: str, level: str) -> None:
    """Read every type by Java, except those whose values change on the way, which are read by Python."""
    times = 30 if way != "small entries" else 1
    columns = {
        name: pa.array([*values, None] * times, arrow)
        for name, (arrow, _, values) in COLUMNS.items()
        if (name in CHANGED) == (way == "Python")
    }
    table = pa.table({"number": pa.array(range(3 * times), pa.int32()), **columns})
    topic = bank.topic(table.schema, 2)
    bank.send(topic, table)
    with bank.log.begin_transaction() as txn:
        bank.send(topic, table, txn=txn)
        bank.send(topic, table, txn=txn, partition=1)
    aborted = bank.log.begin_transaction()
    bank.send(topic, table, txn=aborted, partition=1)
    aborted.abort()
    query = f"SELECT *, {METADATA}, __key, __txn_status FROM {{{topic}}} WITH (isolationLevel = '{level}', lane = '%s')"
    auto = bank.sql(query % "auto")
    found = sorted(map(tuple, auto.collect()), key=repr)
    assert len(found) == (9 if level == "read_committed" else 12) * times
    assert found == bank.rows(query % "python")
    entries = 3 if level == "read_committed" else 4
    assert f"; read from files: {entries if way == 'Java' else 0} entries" in scan_text(auto)


def test_columns_that_some_producers_give_are_null_elsewhere(bank: Bank) -> None:
    topic = bank.topic(SCHEMA)
    at = datetime(2026, 3, 1, tzinfo=UTC)
    given = {"__key": [b"k"] * 60, "__event_time": [at] * 60, "__properties": [[("a", "b")]] * 60}
    beside = pa.table(given, pa.schema([each for each in STORED_BESIDE if each.name in given]).remove_metadata())
    with bank.log.producer(topic) as producer:
        producer.send_batch(pa.table({"id": list(range(60))}))
        producer.flush()
        producer.send_batch(pa.table({"id": [60] * 60} | {name: beside[name] for name in given}))
    query = f"SELECT __key, unix_micros(__event_time), __properties['a'], count(*) FROM {{{topic}}} GROUP BY ALL"
    assert bank.rows(query) == [(None, None, None, 60), (b"k", int(at.timestamp()) * 1_000_000, "b", 60)]


@pytest.fixture
def memory_comes_back(bank: Bank) -> Iterator[None]:
    """Check that tasks hold no more of Arrow's memory after the test than before: Spark itself keeps what it had
    written of a Python function's input, if that input fails."""
    allocator = bank.spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()
    before = allocator.getAllocatedMemory()
    yield
    eventually(lambda: allocator.getAllocatedMemory() <= before)


@pytest.mark.usefixtures("memory_comes_back")
@pytest.mark.parametrize("offloaded", [True, False])
def test_damaged_file_gives_all_rows_from_the_other_copy_or_an_error(bank: Bank, offloaded: bool, places: int) -> None:
    """Flip bits of a segment, and cut it, anywhere: no row is lost, comes twice, or is another one."""
    topic = bank.topic(pa.schema([("id", pa.int64()), ("text", pa.string())]))
    for start in range(0, 1000, 100):
        ids = list(range(start, start + 100))
        bank.send(topic, pa.table({"id": ids, "text": [f"text {i}" for i in ids]}))
    if offloaded:
        bank.log.roll_ledger(topic)
        bank.log.offload(topic)
    query = f"SELECT id, text FROM {{{topic}}} WITH (dataReadPriority = 'bookkeeper-first')"
    expected = [(i, f"text {i}") for i in range(1000)]
    assert sorted(bank.rows(query)) == expected
    chance = random.Random(topic)
    for _ in range(places):
        path = chance.choice(bank.segments(topic))
        whole = path.read_bytes()
        at = chance.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(chance.choice((whole[:at], damaged)))
        try:
            if offloaded:
                assert sorted(bank.rows(query)) == expected
            else:
                with pytest.raises(PySparkException, match=r"\[TXNLOG_SEGMENT_UNREADABLE\]"):
                    bank.rows(query)
        finally:
            path.write_bytes(whole)


def write_soundly(bank: Bank, path: Path, whole: bytearray) -> None:
    """Write a segment of one entry, the newest one, with its right checksum."""
    path.write_bytes(whole)
    change(
        bank.root,
        "UPDATE entries SET crc32c = ? WHERE segment_id = (SELECT max(segment_id) FROM entries)",
        (crc32c(whole),),
    )


@pytest.mark.usefixtures("memory_comes_back")
def test_entry_that_cannot_be_decoded_is_left_to_python(bank: Bank) -> None:
    """Register a message whose buffers lie beyond its end, under its right checksum: the query fails in our words."""
    topic = bank.topic(SCHEMA)
    bank.send(topic, pa.table({"id": list(range(100))}))
    [path] = bank.segments(topic)
    whole = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(whole[4:8], "little")
    size = (800).to_bytes(8, "little")  # of the column's buffer
    at = whole.index(size, start)
    whole[at - 8 : at] = (1 << 40).to_bytes(8, "little")  # its offset
    write_soundly(bank, path, whole)
    with pytest.raises(PySparkException, match=r"\[TXNLOG_SEGMENT_UNREADABLE\]"):
        bank.rows(f"SELECT id FROM {{{topic}}}")


@pytest.mark.usefixtures("memory_comes_back")
@pytest.mark.parametrize("lane", mostly_long(["auto", "python"], "auto"))
def test_entry_that_points_beyond_its_data_shows_no_foreign_memory(bank: Bank, lane: str) -> None:
    """Write an offset far beyond the data, between others that aren't, under a right checksum."""
    topic = bank.topic(pa.schema([("id", pa.int64()), ("name", pa.string())]))
    bank.send(topic, pa.table({"id": list(range(100)), "name": [f"n{i:02}" for i in range(100)]}))
    [path] = bank.segments(topic)
    whole = bytearray(path.read_bytes())
    at = whole.index(struct.pack("<6i", 0, 3, 6, 9, 12, 15))
    struct.pack_into("<i", whole, at + 12, 1 << 30)
    write_soundly(bank, path, whole)
    with pytest.raises(PySparkException, match=r"\[TXNLOG_SEGMENT_UNREADABLE\].*written like that"):
        bank.rows(f"SELECT name FROM {{{topic}}} WITH (lane = '{lane}')")
    assert bank.rows(f"SELECT sum(id) FROM {{{topic}}} WITH (lane = '{lane}')") == [(4950,)]


@pytest.mark.usefixtures("memory_comes_back")
def test_memory_is_given_back_whatever_ends_a_query(bank: Bank) -> None:
    topic = bank.topic(SCHEMA)
    for _ in range(4):
        bank.send(topic, pa.table({"id": list(range(50_000))}))
    table = f"{{{topic}}}"
    assert bank.rows(f"SELECT count(id) FROM {table}") == [(200_000,)]
    assert len(bank.sql(f"SELECT id FROM {table}").take(3)) == 3
    assert len(bank.sql(f"SELECT id FROM {table} WHERE id > 10").take(3)) == 3
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        bank.rows(f"SELECT sum(1 / (id - 25000)) FROM {table}")


@pytest.mark.long
def test_columns_of_one_batch_are_whole_before_the_next(bank: Bank) -> None:
    """Read many batches with nested columns, whose memory is filled again by each, and keep some rows of all."""
    inner = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    topic = bank.topic(pa.schema([("id", pa.int64()), ("s", inner)]))
    count = 150_000
    ids = range(count)
    rows = [None if i % 7 == 0 else {"x": i, "y": [f"n{i}"] * (i % 3)} for i in ids]
    table = pa.table({"id": list(ids), "s": pa.array(rows, inner)})
    for start in range(0, count, 50_000):
        bank.send(topic, table.slice(start, 50_000))
    found = bank.rows(f"SELECT count(*), sum(s.x), sum(size(s.y)), count(DISTINCT get(s.y, 0)) FROM {{{topic}}}")
    kept = [row for row in rows if row is not None]
    sizes = sum(len(row["y"]) for row in kept)
    assert found == [(count, sum(row["x"] for row in kept), sizes, len([row for row in kept if row["y"]]))]
    some = bank.sql(f"SELECT id, s FROM {{{topic}}} WHERE id % 30000 = 1 ORDER BY id").collect()
    assert [(row.id, row.s and row.s.asDict()) for row in some] == [(i, rows[i]) for i in ids if i % 30_000 == 1]
    assert len(bank.rows(f"SELECT s FROM {{{topic}}} LIMIT 70000")) == 70_000


def test_rows_come_in_columns_unless_the_lane_says_otherwise(bank: Bank, numbers: str) -> None:
    def plan(query: str) -> str:
        return str(bank.sql(query)._jdf.queryExecution().executedPlan())

    assert "ColumnarToRow" in plan(f"SELECT * FROM {{{numbers}}}")
    assert "ColumnarToRow" not in plan(f"SELECT * FROM {{{numbers}}} WITH (lane = 'python')")
    for lane in ("fast", ""):
        with pytest.raises(PySparkException, match=r"\[TXNLOG_INVALID_ARGUMENT\] Option 'lane': .* Use auto or python"):
            bank.rows(f"SELECT * FROM {{{numbers}}} WITH (lane = '{lane}')")


def test_stream_goes_on_in_the_other_lane(bank: Bank, tmp_path: Path) -> None:
    topic = bank.topic(SCHEMA, 2)
    for number, lane in enumerate(("auto", "python", "auto")):
        for partition in range(2):
            bank.send(topic, pa.table({"id": [number] * 3}), partition=partition)
        options = {"startingOffsets": "earliest", "maxMessagesPerTrigger": "4", "lane": lane}
        frame = bank.spark.readStream.options(**options).table(f"reads.public.{topic}")
        writer = frame.select("id", "__partition").writeStream.trigger(availableNow=True).format("parquet")
        query = writer.option("checkpointLocation", str(tmp_path / "at")).start(str(tmp_path / "rows"))
        assert query.awaitTermination(240)
    rows = bank.spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(map(tuple, rows)) == sorted((n, p) for n in range(3) for p in range(2) for _ in range(3))
