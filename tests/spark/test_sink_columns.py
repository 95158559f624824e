"""Which columns a frame may have when it is written, and that every type keeps its values on the way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

import txn_source
from tests.spark.test_types import COLUMNS
from txn_source.client.target import Target
from txn_source.spark.connection import open_log
from txn_source.spark.sink_columns import SinkColumns
from txn_source.spark.source import TxnLogDataSource

TYPED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("Name", pa.string())])
OCCURRED = datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
Write = Callable[..., None]


@pytest.fixture
def write(root: Path) -> Write:
    """A function that appends a frame to the test's log."""

    def write(frame: DataFrame, **options: str) -> None:
        frame.write.format("txnlog").options(**options).mode("append").save(str(root))

    return write


@pytest.fixture
def topics(spark: SparkSession, log: txn_source.Log, root: Path) -> Any:
    """A log with a raw topic ``raw`` and a typed one ``typed``; schemas in words need the session."""
    log.create_topic("raw", partitions=2)
    log.create_topic("typed", partitions=2, schema=TYPED)
    yield log
    open_log(Target.of(root, None)).close()


def refuse(root: Path, schema: str | StructType, **options: str) -> str:
    """Plan a write as Spark has it done, in this process, and return why it is refused."""
    frame = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    source = TxnLogDataSource(CaseInsensitiveDict({"path": str(root), **options}))
    with pytest.raises(txn_source.TxnLogError) as caught:
        source.writer(frame, overwrite=False)
    with pytest.raises(type(caught.value)):
        source.streamWriter(frame, overwrite=False)
    return str(caught.value)


def test_every_type_keeps_its_values_from_spark(log, read, write) -> None:
    """Copy a topic with a column of each type to another one through Spark: the same rows, to the last bit."""
    columns = {name: pa.array([*values, None], arrow) for name, (arrow, _, values) in COLUMNS.items()}
    table = pa.table({"row": pa.array([0, 1, 2], pa.int8()), **columns})
    for topic in ("source", "copy"):
        log.create_topic(topic, schema=table.schema)
    with log.producer("source") as producer:
        producer.send_batch(table)
    write(read(topic="source", metadataColumns="none"), topic="copy")
    copied = log.scan("copy", columns=table.schema.names).read_all()
    assert copied.schema.equals(table.schema)
    assert copied.sort_by("row").equals(table.combine_chunks())


def test_time_that_the_topic_can_not_hold_is_refused(spark, log, write, refusal) -> None:
    """Write microseconds to a topic of seconds, and a year that nanoseconds don't reach: none is bent silently."""
    log.create_topic("coarse", schema=pa.schema([("t", pa.timestamp("s", "UTC"))]))
    log.create_topic("fine", schema=pa.schema([("t", pa.timestamp("ns"))]))
    frame = spark.sql("SELECT timestamp '2026-01-01 00:00:00.000001' AS t")
    told = refusal("SCHEMA_MISMATCH", lambda: write(frame, topic="coarse"))
    assert [text for text in ("'t'", "'coarse'", "timestamp[s", "Round it") if text not in told] == [], told
    told = refusal("SCHEMA_MISMATCH", lambda: write(spark.sql("SELECT timestamp_ntz '9999-01-01' AS t"), topic="fine"))
    assert "'fine'" in told
    assert [log.stats(topic).messages for topic in ("coarse", "fine")] == [0, 0]


def test_columns_are_matched_by_name_in_any_case_and_order(spark, topics, write) -> None:
    """Write upper-case, swapped columns, with special ones in odd cases."""
    frame = spark.sql("SELECT 'a' AS NAME, 1L AS ID, 1 AS __PARTITION, binary('k') AS __Key")
    write(frame, topic="typed")
    found = topics.scan("typed", columns=["id", "Name", "__partition"]).read_all().to_pylist()
    assert found == [{"id": 1, "Name": "a", "__partition": 1}]


def test_times_and_properties_are_kept(spark, topics, write) -> None:
    """Write event times and properties beside a raw and a typed payload, with nulls among them."""
    time = f"CASE WHEN id = 0 THEN timestamp '{OCCURRED.isoformat()}' END AS __event_time"
    properties = "CASE WHEN id = 0 THEN map('a', '1', 'b', '') END AS __properties"
    numbers = spark.range(0, 2, numPartitions=1)
    write(numbers.selectExpr(properties, "string(id) AS value", time), topic="raw")
    write(numbers.selectExpr("id", "'x' AS Name", properties), topic="typed")
    columns = ["__event_time", "__properties"]
    raw = topics.scan("raw", columns=["value", *columns]).read_all().sort_by("value").to_pylist()
    typed = topics.scan("typed", columns=["id", *columns]).read_all().sort_by("id").to_pylist()
    both = [("a", "1"), ("b", "")]
    assert raw == [
        {"value": b"0", "__event_time": OCCURRED, "__properties": both},
        {"value": b"1", "__event_time": None, "__properties": None},
    ]
    assert typed == [
        {"id": 0, "__event_time": None, "__properties": both},
        {"id": 1, "__event_time": None, "__properties": None},
    ]


def test_raw_topic_takes_text_bytes_and_nulls(spark, topics, write) -> None:
    """Write keys and values as text and as bytes, without keys, and nulls: a null value is one, as Kafka has it."""
    write(spark.sql("SELECT 'k' AS key, 'ü' AS value"), topic="raw")
    write(spark.sql("SELECT binary('v') AS value"), topic="raw")
    write(spark.sql("SELECT NULL AS key, NULL AS value"), topic="raw")
    write(spark.sql("SELECT CAST(NULL AS string) AS key, CAST(NULL AS binary) AS value"), topic="raw")
    found = topics.scan("raw", columns=["key", "value"]).read_all().to_pylist()
    pairs = sorted(repr((row["key"], row["value"])) for row in found)
    assert pairs == sorted(map(repr, [(b"k", "ü".encode()), (None, b"v"), (None, None), (None, None)]))


def test_untyped_nulls_fit_every_column_that_may_have_them(spark, log, write) -> None:
    """Write a literal NULL, which is of Spark's type void, to a column of each type and to the special ones."""
    schema = pa.schema([(name, arrow) for name, (arrow, _, _) in COLUMNS.items()])
    log.create_topic("nulls", schema=schema)
    special = ("__event_time", "__properties", "__partition", "__key")
    write(spark.sql(f"SELECT {', '.join(f'NULL AS {name}' for name in (*schema.names, *special))}"), topic="nulls")
    [row] = log.scan("nulls", columns=[*schema.names, "__event_time", "__properties"]).read_all().to_pylist()
    assert set(row.values()) == {None}


def test_nullability_inside_of_columns_is_not_compared(spark, log, write) -> None:
    """Write structs, lists and maps whose parts say that they have nulls, or none, to a topic that says the opposite:
    values that fit are taken."""
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.int32())])
    strict = pa.list_(pa.field("item", pa.int32(), nullable=False))
    log.create_topic("nested", schema=pa.schema([("s", inner), ("l", strict)]))
    write(spark.sql("SELECT named_struct('a', int('1'), 'b', 2) AS s, array(int('3'), 4) AS l"), topic="nested")
    write(spark.sql("SELECT named_struct('a', 1, 'b', int(NULL)) AS s, array(3) AS l"), topic="nested")
    found = log.scan("nested", columns=["s", "l"]).read_all().to_pylist()
    assert found == [{"s": {"a": 1, "b": 2}, "l": [3, 4]}, {"s": {"a": 1, "b": None}, "l": [3]}]


def test_null_inside_of_a_column_that_has_none_is_refused(spark, log, write, refusal) -> None:
    """Write a null field where the topic's struct has none."""
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    log.create_topic("nested", schema=pa.schema([("s", inner)]))
    frame = spark.sql("SELECT named_struct('a', int(NULL)) AS s")
    told = refusal("SCHEMA_MISMATCH", lambda: write(frame, topic="nested"))
    assert "'s'" in told
    assert log.stats("nested").messages == 0


def test_null_in_a_column_that_has_none_is_refused(spark, topics, write, refusal) -> None:
    """Write one null id among many rows: the job writes nothing."""
    frame = spark.range(100).selectExpr("CASE WHEN id != 77 THEN id END AS id", "'x' AS Name")
    told = refusal("SCHEMA_MISMATCH", lambda: write(frame, topic="typed"))
    assert [text for text in ("'id'", "no nulls", "came 1") if text not in told] == [], told
    assert topics.stats("typed").messages == 0
    assert topics.transactions(state=None) == []


REFUSED = {
    "a missing column": ("id bigint", "typed", ("'Name'", "'typed'", "string", "Add it")),
    "an unknown column": ("id bigint, Name string, size int", "typed", ("'size'", "id bigint, Name string", "drop")),
    "a wrong name": ("id bigint, nam string", "typed", ("'nam'", "id bigint, Name string")),
    "a narrower type": ("id int, Name string", "typed", ("'id'", "expected bigint", "came int", "Cast")),
    "a wider type": ("id decimal(20,0), Name string", "typed", ("'id'", "expected bigint", "came decimal(20,0)")),
    "bytes for text": ("id bigint, Name binary", "typed", ("'Name'", "expected string", "came binary")),
    "no value": ("key string", "raw", ("'value'", "'raw'")),
    "a number as value": ("value int", "raw", ("'value'", "expected binary", "came int")),
    "a number as key": ("key bigint, value string", "raw", ("'key'", "expected binary", "came bigint")),
    "a routing key of a raw topic": ("__key string, value string", "raw", ("'__key'", "key binary, value binary")),
    "a routing key that is a number": ("id bigint, Name string, __key int", "typed", ("'__key'", "binary", "came int")),
    "a long partition": ("value string, __partition bigint", "raw", ("'__partition'", "expected int", "came bigint")),
    "an event time in text": ("value string, __event_time string", "raw", ("'__event_time'", "expected timestamp")),
    "an event time without zone": ("value string, __event_time timestamp_ntz", "raw", ("expected timestamp, came",)),
    "properties in text": ("value string, __properties string", "raw", ("'__properties'", "map<string,string>")),
    **{
        f"read-only {name}": (f"value string, {name} {kind}", "raw", (f"'{name}'", "metadataColumns", "none"))
        for name, kind in (
            ("__ledger_id", "bigint"),
            ("__entry_id", "bigint"),
            ("__batch_index", "int"),
            ("__publish_time", "timestamp"),
            ("__producer_name", "string"),
            ("__sequence_id", "bigint"),
            ("__txn_id", "string"),
            ("__TXN_STATUS", "string"),
        )
    },
}
"""By case: the frame's columns, the topic, and what the refusal must say."""


@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_do_not_fit_are_refused_before_any_task(topics, root: Path, case) -> None:
    """Plan a batch and a streaming write of wrong columns; the error names column, expectation and remedy."""
    schema, topic, said = REFUSED[case]
    told = refuse(root, schema, topic=topic)
    assert told.startswith("[TXNLOG_SCHEMA_MISMATCH] ")
    assert [text for text in said if text not in told] == [], told
    assert not list((root / "segments").rglob("*.arrow*"))


@pytest.mark.parametrize("schema", ["value string, __topic int", "value string, __topic binary"])
def test_topic_column_that_is_not_text_is_refused(topics, root: Path, schema) -> None:
    """Fan out by a column of another type."""
    told = refuse(root, schema)
    assert [text for text in ("'__topic'", "expected string", "Cast") if text not in told] == [], told


def test_what_is_read_can_not_be_written_with_its_positions(topics, read, write, refusal) -> None:
    """Write what was read with the default columns: Spark shows one line with the way out, which works."""
    with topics.producer("raw") as producer:
        producer.send("x")
    told = refusal("SCHEMA_MISMATCH", lambda: write(read(topic="raw"), topic="raw"))
    assert "'__ledger_id'" in told
    assert 'option("metadataColumns", "none")' in told
    write(read(topic="raw", metadataColumns="none"), topic="raw")
    assert topics.stats("raw").messages == 2


def test_column_given_twice_is_refused(topics, root: Path) -> None:
    """Write two columns whose names differ in case only."""
    told = refuse(root, "id bigint, Name string, NAME string", topic="typed")
    assert [text for text in ("'Name'", "'NAME'", "one name") if text not in told] == [], told


@pytest.mark.parametrize("schema", ["id bigint NOT NULL, Name string NOT NULL", "id bigint, Name string"])
def test_nullability_of_columns_is_not_compared(spark, schema) -> None:
    """Check frames that say the opposite of the topic: Spark says the one of literals, the other of files."""
    SinkColumns(StructType.fromDDL(schema)).check(TYPED, "typed")
