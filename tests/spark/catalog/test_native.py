"""A read that ends before the log does, and lies in tiered objects as a whole, is left to Spark's Parquet reader."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

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
    """A topic with committed, aborted and plain messages in tiered ledgers, and the end of those."""
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
    query = f"SELECT to_json(struct(*)), {METADATA} FROM {{{topic}}} VERSION AS OF '{end}' WITH (nativeTieredReads = "
    native, python = bank.sql(f"{query}true)"), bank.sql(f"{query}false)")
    assert "; native: 6 objects; columns: id, text, " in scan_text(native)
    assert "; by Python: nativeTieredReads is false; columns: id, text, " in scan_text(python)
    rows = sorted(map(tuple, native.collect()))
    assert len(rows) > 20
    assert rows == sorted(map(tuple, python.collect()))


@pytest.mark.long
def test_a_time_before_the_open_ledger_is_read_natively(bank: Bank, numbers: str, scan_text: ScanText) -> None:
    bank.log.roll_ledger(numbers)
    bank.log.offload(numbers)
    when = bank.spark.sql("SELECT string(current_timestamp())").collect()[0][0]
    bank.send(numbers, pa.table({"id": [100], "name": ["x"]}))
    past = bank.sql(f"SELECT sum(id) s FROM {{{numbers}}} TIMESTAMP AS OF '{when}'")
    assert "; native: 2 objects;" in scan_text(past)
    assert past.collect()[0].s == 4950


def test_a_plan_says_why_the_python_source_reads(bank: Bank, history: tuple[str, str], scan_text: ScanText) -> None:
    topic, end = history

    def why(columns: str, options: str = "", version: str | None = end) -> str:
        at = "" if version is None else f"VERSION AS OF '{version}'"
        text = scan_text(bank.sql(f"SELECT {columns} FROM {{{topic}}} {at} {options}"))
        return text.split("; by Python: ")[1].split("; columns")[0]

    assert why("id", version=None) == "its end is the log's when it runs"
    assert why("id, __batch_index") == "objects have no column __batch_index"
    assert why("id", "WITH (dataReadPriority = 'bookkeeper-first')") == "6 ledgers: their hot copies are read first"
    assert why("id", "WITH (isolationLevel = 'read_uncommitted')").endswith("aborted messages lie in second files")
    inside = json.dumps(
        {topic: {"0": f"{bank.log.stats(topic).partitions[0].ledgers[1].ledger_id}:1", "1": "earliest"}}
    )
    assert why("id", version=inside) == "1 ledger only in part inside the read"
    assert (
        why("id", "WITH (endingTimestamp = '2100-01-01T00:00:00Z')", version=None)
        == "its end is the log's when it runs"
    )
    assert why("id", version=json.dumps({topic: {"0": "earliest"}})) == "its end is the log's when it runs"
    assert why("id", version=json.dumps({topic: {"0": "earliest", "1": "earliest"}})) == "there are no messages"


def test_columns_that_parquet_readers_take_otherwise_are_left_to_the_python_source(
    bank: Bank, scan_text: ScanText
) -> None:
    topic = bank.topic(pa.schema([("id", pa.int64()), ("fine", pa.timestamp("ns"))]))
    bank.send(topic, pa.table({"id": [1], "fine": [datetime(2026, 1, 1)]}))  # noqa: DTZ001
    bank.log.roll_ledger(topic)
    bank.log.offload(topic)
    end = bank.log.cut(topic).json()
    assert "; native: 1 objects" in scan_text(bank.sql(f"SELECT id FROM {{{topic}}} VERSION AS OF '{end}'"))
    fine = bank.sql(f"SELECT fine FROM {{{topic}}} VERSION AS OF '{end}'")
    assert "by Python: Spark's Parquet reader doesn't take timestamp[ns]" in scan_text(fine)
    assert len(fine.collect()) == 1


def test_an_object_that_is_damaged_is_told_with_the_way_around_it(
    bank: Bank, numbers: str, scan_text: ScanText
) -> None:
    bank.log.roll_ledger(numbers)
    bank.log.offload(numbers)
    query = f"SELECT sum(id) s FROM {{{numbers}}} VERSION AS OF '{bank.log.cut(numbers).json()}'"
    planned = bank.sql(query)
    assert "; native: 2 objects" in scan_text(planned)
    objects = sorted(Path(bank.root, "tiered").rglob(f"{numbers}/**/*.parquet"))
    content = objects[0].read_bytes()
    objects[0].write_bytes(content[:4] + bytes(byte ^ 0xFF for byte in content[4:400]) + content[400:])
    bank.spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        with pytest.raises(PySparkException, match=r"\[TXNLOG_SEGMENT_UNREADABLE\].* nativeTieredReads=false"):
            planned.collect()
    finally:
        bank.spark.conf.unset("spark.sql.files.ignoreCorruptFiles")
    assert bank.rows(f"{query} WITH (nativeTieredReads = false)") == [(4950,)]
    objects[0].unlink()
    again = bank.sql(query)
    assert "by Python: 1 ledger: Object " in scan_text(again)
    assert again.collect()[0].s == 4950
