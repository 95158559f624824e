"""Which columns a frame may have when it is written, and that every type keeps its values on the way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import txn_source
from tests.selection import for_each
from tests.spark.plain import logs_closed, schema_of, source_of
from tests.spark.test_types import COLUMNS
from txn_source.spark.sink_columns import SinkColumns

TYPED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("Name", pa.string())])
OCCURRED = datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)


@pytest.fixture
def topics(log: txn_source.Log) -> Iterator[txn_source.Log]:
    """A log with a raw topic ``raw`` and a typed one ``typed``."""
    log.create_topic("raw", partitions=2)
    log.create_topic("typed", partitions=2, schema=TYPED)
    with logs_closed():
        yield log


def refuse(root: Path, schema: str | StructType, **options: str) -> str:
    """Plan a write as Spark has it done, in this process, and return why it is refused."""
    frame, source = schema_of(schema), source_of({"path": str(root), **options})
    with pytest.raises(txn_source.TxnLogError) as caught:
        source.writer(frame, overwrite=False)
    with pytest.raises(type(caught.value)):
        source.streamWriter(frame, overwrite=False)
    return str(caught.value)


def test_every_type_keeps_its_values_from_spark(log, spark_read, spark_write) -> None:
    """Copy a topic with a column of each type to another one through Spark: the same rows, to the last bit."""
    columns = {name: pa.array([*values, None], arrow) for name, (arrow, _, values) in COLUMNS.items()}
    table = pa.table({"row": pa.array([0, 1, 2], pa.int8()), **columns})
    for topic in ("source", "copy"):
        log.create_topic(topic, schema=table.schema)
    with log.producer("source") as producer:
        producer.send_batch(table)
    frame = spark_read(topic="source", metadataColumns="none")
    assert dict(frame.dtypes[1:]) == {name: spark for name, (_, spark, _) in COLUMNS.items()}
    spark_write(frame, topic="copy")
    copied = log.scan("copy", columns=table.schema.names).read_all()
    assert copied.schema.equals(table.schema)
    assert copied.sort_by("row").equals(table.combine_chunks())


def test_time_that_the_topic_can_not_hold_is_refused(log, write, refusal) -> None:
    """Write microseconds to a topic of seconds, and a year that nanoseconds don't reach: none is bent silently."""
    log.create_topic("coarse", schema=pa.schema([("t", pa.timestamp("s", "UTC"))]))
    log.create_topic("fine", schema=pa.schema([("t", pa.timestamp("ns"))]))
    one = pa.table({"t": pa.array([1], pa.timestamp("us", "UTC"))})
    told = refusal("SCHEMA_MISMATCH", lambda: write(one, topic="coarse"))
    assert [text for text in ("'t'", "'coarse'", "timestamp[s", "Round it") if text not in told] == [], told
    far = pa.table({"t": pa.array([datetime.fromisoformat("9999-01-01")], pa.timestamp("us"))})
    told = refusal("SCHEMA_MISMATCH", lambda: write(far, topic="fine"))
    assert "'fine'" in told
    assert [log.stats(topic).messages for topic in ("coarse", "fine")] == [0, 0]


def test_columns_are_matched_by_name_in_any_case_and_order(topics, write) -> None:
    """Write upper-case, swapped columns, with special ones in odd cases."""
    columns = {"NAME": ["a"], "ID": [1], "__PARTITION": pa.array([1], pa.int32()), "__Key": [b"k"]}
    write(pa.table(columns), topic="typed")
    found = topics.scan("typed", columns=["id", "Name", "__partition"]).read_all().to_pylist()
    assert found == [{"id": 1, "Name": "a", "__partition": 1}]


def test_times_and_properties_are_kept(topics, write) -> None:
    """Write event times and properties beside a raw and a typed payload, with nulls among them."""
    time = pa.array([OCCURRED, None], pa.timestamp("us", "UTC"))
    properties = pa.array([[("a", "1"), ("b", "")], None], pa.map_(pa.string(), pa.string()))
    write(pa.table({"__properties": properties, "value": ["0", "1"], "__event_time": time}), topic="raw")
    write(pa.table({"id": [0, 1], "Name": ["x", "x"], "__properties": properties}), topic="typed")
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


def test_raw_topic_takes_text_bytes_and_nulls(topics, write) -> None:
    """Write keys and values as text and as bytes, without keys, and nulls: a null value is one, as Kafka has it."""
    nothing = [pa.nulls(1, kind) for kind in (pa.null(), pa.string(), pa.binary())]
    write(pa.table({"key": ["k"], "value": ["ü"]}), topic="raw")
    write(pa.table({"value": [b"v"]}), topic="raw")
    write(pa.table({"key": nothing[0], "value": nothing[0]}), topic="raw")
    write(pa.table({"key": nothing[1], "value": nothing[2]}), topic="raw")
    found = topics.scan("raw", columns=["key", "value"]).read_all().to_pylist()
    pairs = sorted(repr((row["key"], row["value"])) for row in found)
    assert pairs == sorted(map(repr, [(b"k", "ü".encode()), (None, b"v"), (None, None), (None, None)]))


def test_untyped_nulls_fit_every_column_that_may_have_them(log, write) -> None:
    """Write a literal NULL, which is of Spark's type void, to a column of each type and to the special ones."""
    schema = pa.schema([(name, arrow) for name, (arrow, _, _) in COLUMNS.items()])
    log.create_topic("nulls", schema=schema)
    special = ("__event_time", "__properties", "__partition", "__key")
    write(pa.table({name: pa.nulls(1) for name in (*schema.names, *special)}), topic="nulls")
    [row] = log.scan("nulls", columns=[*schema.names, "__event_time", "__properties"]).read_all().to_pylist()
    assert set(row.values()) == {None}


def test_nullability_inside_of_columns_is_not_compared(log, write) -> None:
    """Write structs, lists and maps whose parts say that they have nulls, or none, to a topic that says the opposite:
    values that fit are taken."""
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.int32())])
    strict = pa.list_(pa.field("item", pa.int32(), nullable=False))
    log.create_topic("nested", schema=pa.schema([("s", inner), ("l", strict)]))
    loose = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.int32(), nullable=False)])
    for kind, struct, numbers in ((loose, {"a": 1, "b": 2}, [3, 4]), (inner, {"a": 1, "b": None}, [3])):
        write(pa.table({"s": pa.array([struct], kind), "l": pa.array([numbers], pa.list_(pa.int32()))}), topic="nested")
    found = log.scan("nested", columns=["s", "l"]).read_all().to_pylist()
    assert found == [{"s": {"a": 1, "b": 2}, "l": [3, 4]}, {"s": {"a": 1, "b": None}, "l": [3]}]


def test_null_inside_of_a_column_that_has_none_is_refused(log, write, refusal) -> None:
    """Write a null field where the topic's struct has none."""
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    log.create_topic("nested", schema=pa.schema([("s", inner)]))
    frame = pa.table({"s": pa.array([{"a": None}], pa.struct([("a", pa.int32())]))})
    told = refusal("SCHEMA_MISMATCH", lambda: write(frame, topic="nested"))
    assert "'s'" in told
    assert log.stats("nested").messages == 0


def test_null_in_a_column_that_has_none_is_refused(topics, write, refusal) -> None:
    """Write one null id among many rows: the job writes nothing."""
    frame = pa.table({"id": [None if number == 77 else number for number in range(100)], "Name": ["x"] * 100})
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


@for_each("case", REFUSED)
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


def test_column_given_twice_is_refused(topics, root: Path) -> None:
    """Write two columns whose names differ in case only."""
    told = refuse(root, "id bigint, Name string, NAME string", topic="typed")
    assert [text for text in ("'Name'", "'NAME'", "one name") if text not in told] == [], told


@pytest.mark.parametrize("schema", ["id bigint not null, Name string not null", "id bigint, Name string"])
def test_nullability_of_columns_is_not_compared(schema) -> None:
    """Check frames that say the opposite of the topic: Spark says the one of literals, the other of files."""
    SinkColumns(schema_of(schema)).check(TYPED, "typed")
