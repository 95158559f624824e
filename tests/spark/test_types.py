"""Typed topics in Spark: every Arrow type that a topic can have, with nulls, and what doesn't fit Spark's types."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import txn_source

NAIVE = datetime.fromisoformat("2026-03-29T02:30:00")
"""A time that Europe's clocks skipped: as an instant of some zone it would be shifted."""
INSTANT = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
SPAN = timedelta(days=-3, seconds=7)
UNITS = ("s", "ms", "us", "ns")

COLUMNS: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "bool": (pa.bool_(), "boolean", [True, False]),
    "int8": (pa.int8(), "tinyint", [-(2**7), 2**7 - 1]),
    "int16": (pa.int16(), "smallint", [-(2**15), 2**15 - 1]),
    "int32": (pa.int32(), "int", [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), "bigint", [-(2**63), 2**63 - 1]),
    "float": (pa.float32(), "float", [1.5, float("-inf")]),
    "double": (pa.float64(), "double", [1e308, 5e-324]),
    "small_decimal": (pa.decimal128(5, 2), "decimal(5,2)", [Decimal("-999.99"), Decimal("0.01")]),
    "big_decimal": (pa.decimal128(38, 10), "decimal(38,10)", [Decimal("1" * 28 + ".0123456789"), Decimal("0E-10")]),
    "string": (pa.string(), "string", ["", "naïve 🙂"]),
    "large_string": (pa.large_string(), "string", ["", "naïve 🙂"]),
    "binary": (pa.binary(), "binary", [b"", b"\x00\xff"]),
    "large_binary": (pa.large_binary(), "binary", [b"", b"\x00\xff"]),
    "date": (pa.date32(), "date", [date(1, 1, 1), date(9999, 12, 31)]),
    **{f"naive_{unit}": (pa.timestamp(unit), "timestamp_ntz", [NAIVE, NAIVE - 20_000 * SPAN]) for unit in UNITS},
    **{f"utc_{unit}": (pa.timestamp(unit, "UTC"), "timestamp", [INSTANT, INSTANT - SPAN]) for unit in UNITS},
    "zoned": (pa.timestamp("ms", "America/New_York"), "timestamp", [INSTANT, INSTANT - SPAN]),
    **{f"duration_{unit}": (pa.duration(unit), "interval day to second", [SPAN, timedelta(0)]) for unit in UNITS},
    "list": (pa.list_(pa.int32()), "array<int>", [[], [1, None, 3]]),
    "large_list": (pa.large_list(pa.large_string()), "array<string>", [[], ["a", None]]),
    "struct": (
        pa.struct([("a", pa.int16()), ("b", pa.large_binary()), ("t", pa.timestamp("ms"))]),
        "struct<a:smallint,b:binary,t:timestamp_ntz>",
        [{"a": 1, "b": None, "t": NAIVE}, {"a": None, "b": b"x", "t": None}],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), "map<string,bigint>", [[], [("a", 1), ("b", None)]]),
    "map_cast": (
        pa.map_(pa.large_string(), pa.list_(pa.timestamp("s", "UTC"))),
        "map<string,array<timestamp>>",
        [[], [("a", [INSTANT, None])]],
    ),
    "nested": (
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.struct([("d", pa.duration("ms"))])))])),
        "array<struct<m:map<string,struct<d:interval day to second>>>>",
        [[None], [{"m": [("a", {"d": SPAN})]}, {"m": None}]],
    ),
}
"""By column: the type in Arrow and in Spark, and two values beside a null."""


@pytest.fixture
def typed(log: txn_source.Log) -> pa.Table:
    """A topic ``typed`` with a column of each type, a number for the order, and the rows sent to it."""
    columns = {name: pa.array([*values, None], arrow) for name, (arrow, _, values) in COLUMNS.items()}
    table = pa.table({"row": pa.array([0, 1, 2], pa.int8()), **columns})
    log.create_topic("typed", schema=table.schema)
    with log.producer("typed") as producer:
        producer.send_batch(table)
    return table


def test_values_mean_the_same_inside_spark(typed: pa.Table, spark_read) -> None:
    """Let Spark itself write values as text: naive times must not move with the session's zone, instants must."""
    [row] = (
        spark_read(topic="typed", metadataColumns="none")
        .where("row = 0")
        .selectExpr(
            "string(naive_ns) AS naive_ns",
            "string(naive_s) AS naive_s",
            "string(utc_us) AS utc_us",
            "string(zoned) AS zoned",
            "string(big_decimal) AS big_decimal",
            "string(extract(SECOND FROM duration_ms)) AS seconds",
            "int64 + 1 = -9223372036854775807 AS lowest",
            "string(date) AS date",
        )
        .collect()
    )
    assert row.asDict() == {
        "naive_ns": "2026-03-29 02:30:00",
        "naive_s": "2026-03-29 02:30:00",
        "utc_us": "2026-03-29 07:00:00",  # the session's zone is five and a half hours ahead
        "zoned": "2026-03-29 07:00:00",
        "big_decimal": "1" * 28 + ".0123456789",
        "seconds": "-53.000000",
        "lowest": True,
        "date": "0001-01-01",
    }


@pytest.mark.parametrize(
    ("arrow", "value"),
    [(pa.timestamp("ns"), 1_000_000_001), (pa.duration("ns"), 1)],
    ids=["a nanosecond", "a duration of one"],
)
def test_value_that_spark_has_no_room_for_is_refused(log, read, refusal, arrow, value) -> None:
    """Read times finer than microseconds: none is rounded silently, and the rest is readable."""
    log.create_topic("fine", schema=pa.schema([("id", pa.int32()), ("t", arrow)]))
    with log.producer("fine") as producer:
        producer.send_batch(pa.table({"id": pa.array([1], pa.int32()), "t": pa.array([value], arrow)}))
    told = refusal("SCHEMA_MISMATCH", lambda: read(topic="fine").collect())
    assert "'t'" in told
    assert str(arrow) in told
    assert [row.id for row in read(schema="id int", topic="fine").collect()] == [1]


def test_column_names_may_have_any_characters(log, read) -> None:
    """Read columns whose names SQL must quote."""
    names = ["a b", "a.b", "größe", "select", "`"]
    log.create_topic("odd", schema=pa.schema([(name, pa.int32()) for name in names]))
    with log.producer("odd") as producer:
        producer.send({name: number for number, name in enumerate(names)})
    [row] = read(topic="odd", metadataColumns="none").collect()
    assert row.asDict() == {name: number for number, name in enumerate(names)}
