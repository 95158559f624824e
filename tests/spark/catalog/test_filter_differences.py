"""A filter gives the same rows, whichever reader takes an object and whatever its statistics say.

Each ledger has two or three rows, so that statistics exclude nearly all ledgers: also those whose NaN, -0.0, or times
between two milliseconds only Spark itself judges as Spark does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import txn_source
from tests.log.tiers import objects
from txn_source.storage import tiered_columns

Bank = Any
AT = datetime(2026, 1, 1, 23, 59, 59, tzinfo=UTC)
OLD = datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("ms", pa.timestamp("ms", tz="UTC")),
        ("s", pa.timestamp("s", tz="UTC")),
        ("us", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("ms")),
        ("part", pa.struct([("d", pa.float64()), ("ms", pa.timestamp("ms", tz="UTC")), ("text", pa.string())])),
    ]
)
NAN, INF = float("nan"), float("inf")
LEDGERS = [
    [(1.0, AT), (NAN, AT)],
    [(-0.0, OLD), (None, OLD + timedelta(milliseconds=999))],
    [(0.0, AT + timedelta(milliseconds=999)), (0.0, None)],
    [(INF, OLD - timedelta(seconds=1)), (-2.5, AT + timedelta(days=1))],
    [(NAN, None), (NAN, None)],
    [(None, AT + timedelta(milliseconds=1)), (7.25, AT - timedelta(milliseconds=1)), (-INF, AT)],
]


LONG = ("objects of now", "half hot")
MOST = 40
"""Hot entries of so many times their rows are read by Java."""


@pytest.fixture(
    scope="module", params=["hot", *(pytest.param(p, marks=pytest.mark.long) for p in ("objects of before", *LONG))]
)
def topic(bank: Bank, request: pytest.FixtureRequest) -> str:
    """A topic that lies in objects, whose statistics are those of older releases or of this one, in segments, or in
    both; and views of its rows."""
    topic = str(bank.topic(SCHEMA))
    for number, rows in enumerate(LEDGERS):
        made = [
            {"n": number, "d": d, "f": d, "ms": at, "s": at, "us": at, "part": {"d": d, "ms": at, "text": "x"}}
            | {"local": None if at is None else at.replace(tzinfo=None)}
            for d, at in rows
        ]
        for row in made:
            row["s"] = None if row["s"] is None else row["s"].replace(microsecond=0)
        times = MOST if request.param in ("hot", "half hot") else 1
        bank.send(topic, pa.Table.from_pylist(made * times, SCHEMA))
        bank.log.roll_ledger(topic)
        if request.param == "half hot" and number == len(LEDGERS) // 2:
            bank.log.offload(topic)
            bank.log.delete_hot(topic)
    if request.param.startswith("objects"):
        with pytest.MonkeyPatch.context() as patch:
            if request.param == "objects of before":
                patch.setattr(tiered_columns, "with_statistics", lambda schema: True)
            bank.log.offload(topic)
        bank.log.delete_hot(topic)
    rows = bank.table(topic)
    bank.spark.createDataFrame(rows.collect(), rows.schema).createOrReplaceTempView(f"rows_of_{topic}")
    txn_source.spark.read(bank.spark, topic, path=bank.root).createOrReplaceTempView(f"format_{topic}")
    return topic


PREDICATES = [
    "d > 10",
    "NOT (part.d < 10)",
    "f IN (float('NaN'), 3)",
    "d = 0.0D AND us IS NOT NULL",
    "ms < TIMESTAMP '2026-01-01 23:59:59.999999Z'",
    "NOT (part.ms >= TIMESTAMP '1969-12-31 23:59:59.0005Z')",
    "s <> TIMESTAMP '2026-01-01 23:59:59.000001Z'",
    "local <= TIMESTAMP_NTZ '1969-12-31 23:59:59.0005' OR us = TIMESTAMP '2026-01-02 23:59:59Z'",
]
NUMBERS = ["double('NaN')", "0.0D", "-0.0D", "7.25D", "10D", "double('Infinity')", "-double('Infinity')", "NULL"]
TIMES = [f"{day} 23:59:59{part}" for day in ("2026-01-01", "1969-12-31") for part in ("", ".0005", ".999", ".999999")]
LITERALS = {
    **dict.fromkeys(("d", "f", "part.d"), NUMBERS),
    **{column: [f"TIMESTAMP '{time}Z'" for time in TIMES] for column in ("ms", "s", "us", "part.ms")},
    "local": [f"TIMESTAMP_NTZ '{time}'" for time in TIMES],
    "n": ["-1", "0", "3", "3.5D", "6", "CAST(NULL AS BIGINT)"],
    "part.text": ["'x'", "''", "'y'"],
}


def random_predicate(dice: random.Random, depth: int = 2) -> str:
    """Return a comparison, or some joined by AND, OR and NOT."""
    if depth and dice.random() < 0.4:
        joined = dice.choice([" AND ", " OR "]).join(random_predicate(dice, depth - 1) for _ in range(2))
        return dice.choice(["({})", "NOT ({})"]).format(joined)
    column = dice.choice([*LITERALS])
    literals = dice.sample(LITERALS[column], 2)
    operator = dice.choice(["<", "<=", "=", "<>", ">", ">=", "<=>", "IN", "NOT IN", "IS NULL", "IS NOT NULL"])
    if operator.startswith("IS"):
        return f"{column} {operator}"
    return f"{column} {operator} ({', '.join(literals)})" if "IN" in operator else f"{column} {operator} {literals[0]}"


def check(bank: Bank, topic: str, predicates: Sequence[str] = PREDICATES) -> None:
    """Compare the rows that each reader finds with those that Spark finds in rows of its own."""
    end = bank.log.cut(topic).json()
    ways = {"rows": f"rows_of_{topic}", "format": f"format_{topic}", "catalog": f"{{{topic}}}"}
    ways |= {"python": f"{{{topic}}} WITH (lane = 'python')", "version": f"{{{topic}}} VERSION AS OF '{end}'"}
    found = {
        way: bank.rows(
            " UNION ALL ".join(f"SELECT {k} k, n, string(d), us FROM {t} WHERE {p}" for k, p in enumerate(predicates))
        )
        for way, t in ways.items()
    }
    for number, each in enumerate(predicates):
        wanted = [row for row in found["rows"] if row[0] == number]
        for way, rows in found.items():
            assert [row for row in rows if row[0] == number] == wanted, (way, each)


@pytest.mark.long
def test_filters_give_the_same_rows_in_each_way(bank: Bank, topic: str) -> None:
    """Compare numbers with NaN and zeros, and times with those between two units, of whole columns and of parts."""
    check(bank, topic)


@pytest.mark.long
def test_random_filters_give_the_same_rows_in_each_way(bank: Bank, topic: str, pytestconfig: pytest.Config) -> None:
    """Compare filters that nobody has thought of."""
    for seed in range(30 if pytestconfig.getoption("--all") else 1):
        dice = random.Random(seed)
        check(bank, topic, [random_predicate(dice) for _ in range(8)])


@pytest.mark.long
def test_other_settings_give_the_same_rows(bank: Bank, topic: str) -> None:
    """Have Spark filter row by row in its Parquet reader, without vectors: that tells -0.0 from 0.0."""
    settings = {"enableVectorizedReader": "false", "recordLevelFilter.enabled": "true"}
    try:
        for name, value in settings.items():
            bank.spark.conf.set(f"spark.sql.parquet.{name}", value)
        check(bank, topic)
    finally:
        for name in settings:
            bank.spark.conf.unset(f"spark.sql.parquet.{name}")


def test_objects_are_right_for_others(bank: Bank) -> None:
    """Ask DuckDB, for which NaN is the largest number, for an object's rows: statistics don't hide them."""
    topic = bank.topic(pa.schema([("d", pa.float64()), ("l", pa.list_(pa.float32())), ("n", pa.int64())]))
    bank.send(topic, pa.table({"d": [1.0, NAN], "l": [[NAN], None], "n": [1, 2]}))
    bank.log.roll_ledger(topic)
    bank.log.offload(topic)
    [path] = [path for path in objects(bank.root) if topic in path.parts]
    assert duckdb.sql(f"SELECT n FROM '{path}' WHERE d > 10").fetchall() == [(2,)]
    group = pq.read_metadata(path).row_group(0)
    known = {group.column(i).path_in_schema: group.column(i).statistics is not None for i in range(3)}
    assert known == {"d": False, "l.list.element": False, "n": True}
