"""Filters are handed over for skipping: whatever they are, the rows are those that Spark finds without them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

Bank = Any
T0 = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("flag", pa.bool_()),
        ("real", pa.float64()),
        ("single", pa.float32()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("s", pa.struct([("x", pa.int32()), ("a.b", pa.string())])),
    ]
)


def _row(i: int) -> dict[str, Any]:
    reals = [None, float("nan"), float("inf"), -0.0, 0.0, 1.5, -2.25]
    row = {
        "small": i % 5 - 2,
        "flag": i % 3 == 0,
        "real": reals[i % 7],
        "single": reals[i % 5],
        "text": ["", "a", "ab", "b\u00e4r", "\U0001f600", "zz"][i % 6],
        "raw": [b"", b"\x00", b"\xff\xfe"][i % 3],
        "price": Decimal(i % 9 - 4) / 4,
        "day": date(2026, 1, 1) + timedelta(days=i % 6),
        "at": T0 + timedelta(hours=i % 8),
        "local": datetime(2026, 1, 1) + timedelta(hours=i % 8),  # noqa: DTZ001
        "s": {"x": i % 4, "a.b": "q" * (i % 3)} if i % 7 else None,
    }
    return {"id": i, **{name: None if i % 11 == k else value for k, (name, value) in enumerate(row.items())}}


LITERALS = {
    "id": ["0", "17", "40", "9223372036854775807", "-5"],
    "small": ["-2", "0", "2", "300"],
    "real": ["0.0D", "-0.0D", "double('NaN')", "1.5", "double('Infinity')", "1"],
    "single": ["float('NaN')", "1.5F", "0"],
    "text": ["''", "'ab'", "'b\u00e4r'", "'\U0001f600'", "'zzz'"],
    "raw": ["X''", "X'00'", "X'FFFE'"],
    "price": ["0.25", "-1.00", "1", "0.333"],
    "day": ["DATE '2026-01-03'", "'2026-01-04'"],
    "at": ["TIMESTAMP '2026-01-01 03:00:00Z'", "DATE '2026-01-01'"],
    "local": ["TIMESTAMP_NTZ '2026-01-01 03:00:00'"],
    "s.x": ["1", "2", "9"],
    "s.`a.b`": ["'q'", "''"],
    "__partition": ["0", "1", "7"],
    "__entry_id": ["0", "1", "2"],
    "__txn_status": ["'committed'"],
    "__publish_time": ["TIMESTAMP '2020-01-01 00:00:00Z'", "current_timestamp()"],
}

OTHERS = ["text LIKE 'a%' OR startswith(text, 'b\u00e4')", "text COLLATE UNICODE_CI = 'AB'", "text NOT IN ('ab', NULL)"]
OTHERS += ["NOT (flag AND real IN (0.0D, double('NaN')) AND id % 3 = 1)"]


@pytest.fixture(scope="module")
def history(bank: Bank) -> str:
    """A topic with all kinds of columns, two partitions, hot and tiered ledgers; and a view of what it has."""
    topic = bank.topic(SCHEMA, 2)
    with bank.log.begin_transaction() as txn:
        for number in range(8):
            rows = pa.Table.from_pylist([_row(i) for i in range(number * 6, number * 6 + 6)], SCHEMA)
            bank.send(topic, rows, partition=number % 2, txn=txn if number in (2, 3) else None)
            if number in (3, 5):
                bank.log.roll_ledger(topic)
    lost = bank.log.begin_transaction()
    bank.send(topic, pa.Table.from_pylist([_row(99)], SCHEMA), txn=lost)
    lost.abort()
    bank.log.offload(topic)
    bank.log.delete_hot(topic)
    path = str(bank.root)
    whole = bank.spark.read.format("txnlog").options(topic=topic, metadataColumns="all").load(path).cache()
    assert whole.count() == 48
    whole.createOrReplaceTempView("whole_history")
    return str(topic)


def _check(bank: Bank, topic: str, predicates: list[str]) -> None:
    through, without = (
        bank.rows(" UNION ALL ".join(f"SELECT {k} k, id FROM {table} WHERE {p}" for k, p in enumerate(predicates)))
        for table in (f"{{{topic}}}", "whole_history")
    )
    for number, predicate in enumerate(predicates):
        mine, spark = ([row for row in rows if row[0] == number] for rows in (through, without))
        assert mine == spark, predicate


@pytest.mark.long
def test_what_the_filters_exclude_is_not_read(bank: Bank, numbers: str) -> None:
    for path in bank.segments(numbers):
        if path.parent.name == "0":
            path.unlink()
    assert bank.rows(f"SELECT count(id) FROM {{{numbers}}} WHERE __partition = 1") == [(50,)]
    assert bank.rows(f"SELECT count(id) FROM {{{numbers}}} WHERE __partition IN (1, 2) AND id > 60") == [(39,)]
    assert bank.rows(f"SELECT count(id) FROM {{{numbers}}} WHERE NOT (1 > __partition OR id = 3)") == [(50,)]
    many = " OR ".join(f"(__partition = 1 AND id = {number})" for number in range(300))
    assert bank.rows(f"SELECT count(id) FROM {{{numbers}}} WHERE {many}") == [(50,)]
    with pytest.raises(PySparkException, match="SEGMENT_UNREADABLE"):
        bank.rows(f"SELECT count(id) FROM {{{numbers}}} WHERE __partition < 2")


def test_each_kind_of_predicate_gives_the_rows_that_it_should(bank: Bank, history: str) -> None:
    columns = list(LITERALS)
    pairs = zip(columns[::2], columns[1::2], strict=True)
    compared = [f"({a} < {LITERALS[a][0]} OR {b} <=> {LITERALS[b][0]})" for a, b in pairs]
    _check(bank, history, [*compared, *OTHERS])
