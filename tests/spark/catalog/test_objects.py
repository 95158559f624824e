"""Row groups of tiered objects are left to Spark's Parquet reader, whatever else a query reads."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from txn_source.storage import tiered

Bank = Any
ScanText = Callable[[Any], str]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        pa.field("s", pa.struct([("x", pa.int32()), ("l", pa.list_(pa.string()))])),
        ("m", pa.map_(pa.string(), pa.float64())),
    ]
)
METADATA = (
    "__partition, __ledger_id, __entry_id, __publish_time, __producer_name, __sequence_id, __txn_id, __txn_status"
)


def _rows(choose: random.Random, count: int) -> pa.Table:
    when = datetime(2026, 3, 1) + timedelta(seconds=choose.randint(0, 10**6))  # noqa: DTZ001
    rows = [
        {
            "id": choose.randint(0, 99),
            "text": choose.choice([None, "", "a", "\u00e4"]),
            "price": choose.choice([None, 1, -2]),
            "at": choose.choice([None, when]),
            "local": choose.choice([None, when]),
            "s": choose.choice([None, {"x": 1, "l": None}, {"x": None, "l": ["p", None]}]),
            "m": choose.choice([None, [], [("k", 1.5), ("n", None)]]),
        }
        for _ in range(count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.fixture(scope="module")
def history(bank: Bank) -> tuple[str, str]:
    """A topic with committed, aborted and plain messages in tiered ledgers, the end of those, and a hot one."""
    choose, topic = random.Random(11), bank.topic(SCHEMA, 2)
    for number in range(14):
        txn = bank.log.begin_transaction() if number % 3 else None
        for partition in range(2):
            bank.send(topic, _rows(choose, choose.randint(1, 5)), partition=partition, txn=txn)
        if txn is not None:
            (txn.abort if number % 4 == 0 else txn.commit)()
        if number % 5 == 4:
            bank.log.roll_ledger(topic)
    bank.log.roll_ledger(topic)
    bank.log.offload(topic)
    end = bank.log.cut(topic).json()
    bank.send(topic, _rows(choose, 3))
    return topic, end


def test_spark_s_reader_gives_the_rows_that_the_python_source_gives(
    bank: Bank, history: tuple[str, str], scan_text: ScanText
) -> None:
    topic, end = history
    for version in (f"VERSION AS OF '{end}'", ""):
        query = f"SELECT to_json(struct(*)), {METADATA} FROM {{{topic}}} {version} WITH (lane = 'auto', %s)"
        parquet, python = (bank.sql(query % f"nativeTieredReads = {which}") for which in ("true", "false"))
        rows = sorted(map(tuple, parquet.collect()))
        assert len(rows) > 20
        assert rows == sorted(map(tuple, python.collect()))
        assert rows == sorted(map(tuple, bank.sql((query % "x").replace("auto', x", "python'")).collect()))
        assert "; read from files: 0 entries, 6 runs of row groups; " in scan_text(parquet)
        assert "6 with nativeTieredReads=false" in scan_text(python)


def test_a_plan_says_why_python_reads(bank: Bank, history: tuple[str, str], scan_text: ScanText) -> None:
    topic, end = history

    def why(columns: str, options: str = "", version: str = end) -> str:
        frame = bank.sql(f"SELECT {columns} FROM {{{topic}}} VERSION AS OF '{version}' {options}")
        frame.collect()
        return scan_text(frame).split("read by Python: ")[1].split("; columns")[0]

    assert why("id", "WITH (dataReadPriority = 'bookkeeper-first')") == "2 with entries of less than 50 messages"
    uncommitted = "WITH (isolationLevel = 'read_uncommitted')"
    assert "with aborted messages in second files" in why("id", uncommitted)
    inside = json.dumps(
        {topic: {"0": f"{bank.log.stats(topic).partitions[0].ledgers[1].ledger_id}:1", "1": "earliest"}}
    )
    assert why("id", version=inside) == "1 with parts of row groups"
    assert why("id", "LIMIT 1") == "1 with a limit"


def test_columns_that_parquet_readers_take_otherwise_are_left_to_python(bank: Bank, scan_text: ScanText) -> None:
    topic = bank.topic(pa.schema([("id", pa.timestamp("ms")), ("fine", pa.timestamp("ns"))]))
    when = [datetime(2026, 1, 1)]  # noqa: DTZ001
    bank.send(topic, pa.table({"id": when, "fine": when}))
    bank.log.roll_ledger(topic)
    bank.log.offload(topic)
    for column, text in (
        ("id", "1 runs of row groups"),
        ("fine", "timestamp[ns], which the Parquet reader takes otherwise"),
    ):
        frame = bank.sql(f"SELECT {column} FROM {{{topic}}}")
        assert len(frame.collect()) == 1
        assert text in scan_text(frame)


def test_session_that_reads_parquet_in_rows_is_obeyed(bank: Bank, numbers: str, scan_text: ScanText) -> None:
    bank.log.roll_ledger(numbers)
    bank.log.offload(numbers)
    bank.spark.conf.set("spark.sql.parquet.enableVectorizedReader", "false")
    try:
        frame = bank.sql(f"SELECT id FROM {{{numbers}}}")
        assert len(frame.collect()) == 100
        assert "2 with Parquet in rows, as the session wants" in scan_text(frame)
    finally:
        bank.spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def test_filters_choose_row_groups(bank: Bank, scan_text: ScanText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 50)
    topic = bank.topic(pa.schema([("id", pa.int64())]))
    for start in range(0, 500, 25):
        bank.send(topic, pa.table({"id": list(range(start, start + 25))}))
    bank.log.roll_ledger(topic)
    bank.log.offload(topic)
    some = bank.sql(f"SELECT id, __topic FROM {{{topic}}} WHERE id IN (60, 70, 260, 499)")
    assert sorted(map(tuple, some.collect())) == [(i, topic) for i in (60, 70, 260, 499)]
    assert "0 entries, 3 runs of row groups" in scan_text(some)
    small = bank.sql(f"SELECT id, __batch_index FROM {{{topic}}} WITH (minPartitions = 4)")
    assert sorted(map(tuple, small.collect())) == [(i, i % 25) for i in range(500)]
    assert "parts of row groups" not in scan_text(small)


@pytest.mark.parametrize("hot", [True, False])
def test_damaged_object_gives_all_rows_from_the_other_copy_or_an_error(
    bank: Bank, scan_text: ScanText, hot: bool, places: int
) -> None:
    """Flip bits of an object anywhere, in page headers, too, cut it, or remove it."""
    topic = bank.topic(pa.schema([("id", pa.int64()), ("text", pa.string())]))
    for start in range(0, 400, 100):
        ids = list(range(start, start + 100))
        bank.send(topic, pa.table({"id": ids, "text": [None if i % 3 else f"text {i}" for i in ids]}))
    bank.log.roll_ledger(topic)
    bank.log.offload(topic)
    if not hot:
        bank.log.delete_hot(topic)
    query = f"SELECT *, {METADATA}, __batch_index FROM {{{topic}}}"
    expected = bank.rows(query)
    assert len(expected) == 400
    [path] = Path(bank.root, "tiered").rglob(f"{topic}/**/*.parquet")
    whole, chance = path.read_bytes(), random.Random(topic)
    bank.spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        for place in range(places):
            path.write_bytes(whole)
            frame = bank.sql(query)
            if place % 2:
                frame.collect()  # so its tasks are planned before the damage
            at = chance.randrange(len(whole))
            damaged = bytearray(whole)
            damaged[at] ^= 1 << chance.randrange(8)
            path.unlink()
            if place % 4:
                path.write_bytes(chance.choice((whole[:at], damaged, damaged)))
            found = rows_or_error(frame)
            assert found == expected or (not hot and "[TXNLOG_SEGMENT_UNREADABLE]" in str(found))
    finally:
        bank.spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
        path.write_bytes(whole)


def test_byte_that_parquet_readers_ignore_is_checked(bank: Bank) -> None:
    """Damage the statistics in a page header, which Spark's reader and Parquet's checksums leave out."""
    topic = bank.topic(pa.schema([("id", pa.int64())]))
    bank.send(topic, pa.table({"id": list(range(100))}))
    bank.log.roll_ledger(topic)
    bank.log.offload(topic)
    bank.log.delete_hot(topic)
    [path] = Path(bank.root, "tiered").rglob(f"{topic}/**/*.parquet")
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    damaged = bytearray(path.read_bytes())
    damaged[(chunk.dictionary_page_offset or chunk.data_page_offset) + 30] ^= 1
    path.write_bytes(damaged)
    assert bank.spark.read.parquet(str(path)).count() == 100
    with pytest.raises(PySparkException, match=r"\[TXNLOG_SEGMENT_UNREADABLE\]"):
        bank.rows(f"SELECT id FROM {{{topic}}}")


def rows_or_error(frame: Any) -> list[tuple[Any, ...]] | str:
    """Return a frame's rows, sorted, or the text of its error."""
    try:
        return sorted(map(tuple, frame.collect()), key=repr)
    except PySparkException as error:
        return str(error)
