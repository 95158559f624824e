"""The columns of a read: the source's own schema, and the one that a user asks for."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructField, StructType

import txn_source
from tests.selection import for_each
from tests.spark.plain import schema_of

DEFAULT = [
    ("__partition", "int"),
    ("__ledger_id", "bigint"),
    ("__entry_id", "bigint"),
    ("__batch_index", "int"),
    ("__publish_time", "timestamp"),
    ("__event_time", "timestamp"),
]
MORE = [
    ("__topic", "string"),
    ("__producer_name", "string"),
    ("__sequence_id", "bigint"),
    ("__txn_id", "string"),
    ("__txn_status", "string"),
    ("__properties", "map<string,string>"),
    ("__key", "binary"),
]
RAW = [("key", "binary"), ("value", "binary")]
TYPED = [("id", "bigint"), ("name", "string")]
OCCURRED = datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)


@pytest.fixture
def topics(log: txn_source.Log) -> txn_source.Log:
    """A log with a raw topic ``raw``, and typed ones: ``typed`` and ``same`` have one schema, two others differ."""
    ours = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    log.create_topic("raw", partitions=2)
    log.create_topic("typed", schema=ours)
    log.create_topic("same", schema=ours)
    log.create_topic("wider", schema=pa.schema([pa.field("size", pa.int32()), *reversed(ours)]))
    log.create_topic("other", schema=pa.schema([("id", pa.int32()), ("name", pa.string())]))
    with log.producer("raw", name="writer") as producer:
        producer.send("first", key="k", properties={"a": "1"}, event_time=OCCURRED, partition=0)
        with log.begin_transaction() as transaction:
            producer.send("second", txn=transaction, partition=1)
            producer.send("third", txn=transaction, partition=1)
    for number, topic in enumerate(("typed", "same", "wider", "other")):
        with log.producer(topic) as producer:
            producer.send({"id": number, "name": topic})
    return log


@for_each(
    ("options", "columns"),
    [
        ({"topic": "raw"}, RAW + DEFAULT),
        ({"topic": "typed"}, TYPED + DEFAULT),
        ({"topic": "typed", "metadataColumns": "default"}, TYPED + DEFAULT),
        ({"topic": "typed", "metadataColumns": "none"}, TYPED),
        ({"topic": "typed", "metadataColumns": "All"}, TYPED + DEFAULT + MORE),
        ({"topics": "typed, same"}, [*TYPED, *DEFAULT, MORE[0]]),
        ({"topics": "typed, same", "metadataColumns": "none"}, TYPED),
        ({"topics": "typed, same", "metadataColumns": "all"}, TYPED + DEFAULT + MORE),
        ({"topicsPattern": "typed|same"}, [*TYPED, *DEFAULT, MORE[0]]),
        ({"topic": "typed", "metadataColumns": "__txn_id, __partition"}, [*TYPED, MORE[3], DEFAULT[0]]),
    ],
)
def test_columns_are_payload_then_metadata(topics, read, options, columns) -> None:
    """Compare names, types and order with the contract's list, for each choice of metadata columns."""
    assert read(**options).dtypes == columns


def test_payload_that_has_no_nulls_says_so(topics, read) -> None:
    """Look at nullability: that of a typed topic's columns is its schema's."""
    schema = read(topic="typed", metadataColumns="none").schema
    assert [field.nullable for field in schema.fields] == [False, True]


def test_metadata_columns_tell_where_a_message_came_from(topics, read, ordered) -> None:
    """Read every column of a plain message with all that one can have, and of a committed transaction's."""
    first, second, third = ordered(read(topic="raw", metadataColumns="all"))
    [transaction] = topics.transactions(state=None)
    ids = [(row["__ledger_id"], row["__entry_id"], row["__batch_index"]) for row in (first, second, third)]
    assert ids[0][0] != ids[1][0], "each partition has ledgers of its own"
    assert [entry_and_index for _, *entry_and_index in ids] == [[0, 0], [0, 0], [0, 1]]
    assert [row["__publish_time"].tzinfo is not None for row in (first, second, third)] == [True] * 3
    everywhere = {"__topic": "raw", "__producer_name": "writer"}
    assert first | everywhere == first
    assert second | everywhere == second
    assert (first["key"], first["value"], first["__partition"]) == (b"k", b"first", 0)
    assert first["__event_time"] == OCCURRED
    assert dict(first["__properties"]) == {"a": "1"}
    assert (first["__txn_id"], first["__txn_status"]) == (None, None)
    assert (third["key"], third["value"], third["__partition"]) == (None, b"third", 1)
    assert (third["__event_time"], third["__properties"]) == (None, None)
    assert (third["__txn_id"], third["__txn_status"]) == (str(transaction.id), "committed")
    assert third["__sequence_id"] == second["__sequence_id"] + 1


def test_rows_of_several_topics_say_which_is_theirs(topics, read) -> None:
    """Read two topics of one schema with the default columns."""
    rows = read(topics="typed,same").collect()
    assert sorted((row.id, row["__topic"]) for row in rows) == [(0, "typed"), (1, "same")]


@pytest.mark.parametrize("named", [{"topicsPattern": "typ.*"}, {"topics": "typed"}], ids=["pattern", "list"])
def test_columns_do_not_depend_on_how_many_topics_there_are(topics, read, named) -> None:
    """Let a pattern, and a list, mean one topic: the rows say which, as they do when there are more."""
    assert read(**named).columns == read(topics="typed,same").columns
    assert {row["__topic"] for row in read(**named).collect()} == {"typed"}
    assert "__topic" not in read(topic="typed").columns


@for_each(
    "columns",
    [
        ["value"],
        ["__partition"],
        ["__batch_index", "value", "__topic"],
        ["__properties", "__event_time", "key", "__txn_status", "value", "__ledger_id"],
        [name for name, _ in reversed(RAW + DEFAULT + MORE[:-1])],
    ],
)
def test_any_columns_in_any_order_can_be_asked_for(topics, read, columns) -> None:
    """Ask for some columns with ``.schema``; they must be those of a read of all columns, row by row."""
    types = dict(RAW + DEFAULT + MORE[:-1])
    frame = read(schema=", ".join(f"{name} {types[name]}" for name in columns), topic="raw")
    assert frame.columns == columns
    expected = topics.scan("raw", columns=[name for name, _ in RAW + DEFAULT + MORE[:-1]]).read_all().select(columns)
    assert sorted(map(repr, frame.toArrow().to_pylist())) == sorted(map(repr, expected.to_pylist()))


def test_column_names_are_taken_in_any_case(topics, read) -> None:
    """Ask for columns in odd cases: as everywhere in Spark they are the same, and keep the name asked for."""
    frame = read(schema="NAME string, Id bigint, __PARTITION int", topic="typed")
    assert frame.columns == ["NAME", "Id", "__PARTITION"]
    assert [tuple(row) for row in frame.collect()] == [("typed", 0, 0)]


def test_columns_without_nulls_may_be_asked_for_with_them(topics, read) -> None:
    """Ask for a column that has no nulls as one that may have some, and for positions as what they are."""
    schema = StructType([StructField("id", LongType(), nullable=True), StructField("__entry_id", LongType(), False)])
    assert [tuple(row) for row in read(schema=schema, topic="typed").collect()] == [(0, 0)]


def test_nulls_are_found_beside_a_schema(topics, spark_read, refusal) -> None:
    """Ask for a column with a null as one without: whatever Spark reads for is refused, where it would find no null.

    ``name IS NULL`` alone Spark answers without asking the source anything, so nobody can refuse it.
    """
    with topics.producer("typed") as producer:
        producer.send({"id": 7, "name": None})
    assert spark_read(schema="name string", topic="typed").filter("name is null").count() == 1
    strict = spark_read(schema="name string not null", topic="typed")
    told = refusal("SCHEMA_MISMATCH", strict.selectExpr("count(*)", "count_if(name is null)").collect)
    assert [text for text in ("'name'", "not null", "wrong rows") if text not in told] == [], told


@for_each(
    ("schema", "refused"),
    [
        ("id bigint not null, name string", None),
        ("id bigint, name string not null", "name"),
        ("id bigint, __event_time timestamp not null", "__event_time"),
        ("__txn_id string not null", "__txn_id"),
        ("__properties map<string,string> not null", "__properties"),
        ("__partition int not null, __ledger_id bigint not null, __publish_time timestamp not null", None),
        ("__batch_index int not null, __topic string not null", None),
    ],
)
def test_only_columns_that_never_have_nulls_can_be_asked_for_without(topics, plan, schema, refused) -> None:
    """Plan payload and metadata columns as columns without nulls."""
    wanted = schema_of(schema)
    if refused is None:
        plan(schema=wanted, topic="typed")
    else:
        with pytest.raises(txn_source.SchemaMismatchError, match=f"'{refused}' without nulls"):
            plan(schema=wanted, topic="typed")


def test_nulls_inside_of_columns_are_compared(log, plan) -> None:
    """Ask for structs, lists and maps whose parts have no nulls, where the topic's may."""
    inner = pa.struct([pa.field("a", pa.int32())])
    lists, maps = pa.list_(pa.field("element", inner)), pa.map_(pa.string(), pa.int32())
    log.create_topic("nested", schema=pa.schema([("s", inner), ("l", lists), ("m", maps)]))
    struct = StructType([StructField("a", IntegerType(), False)])
    for name, kind in (
        ("s", struct),
        ("l", ArrayType(struct)),
        ("l", ArrayType(StructType([StructField("a", IntegerType())]), False)),
        ("m", MapType(StringType(), IntegerType(), False)),
    ):
        with pytest.raises(txn_source.SchemaMismatchError, match=f"'{name}' without nulls"):
            plan(schema=StructType([StructField(name, kind)]), topic="nested")
    plan(schema=StructType([StructField("m", MapType(StringType(), IntegerType()))]), topic="nested")


@for_each(
    ("schema", "said"),
    [
        ("id bigint, nam string", ("'nam'", "id, name", "__txn_status")),
        ("id int", ("'id'", "asks for int", "has bigint", "cast")),
        ("id bigint, __entry_id int", ("'__entry_id'", "asks for int", "has bigint")),
        ("id bigint, name string, ID bigint", ("'ID'", "twice")),
        (StructType([]), ("No column",)),
    ],
)
def test_schema_that_does_not_fit_is_refused(topics, read, refusal, schema, said) -> None:
    """Ask for a column that isn't there, of another type, twice, and for none at all."""
    told = refusal("SCHEMA_MISMATCH", lambda: read(schema=schema, topic="typed").count())
    assert [text for text in said if text not in told] == [], told


def test_metadata_columns_are_checked_beside_a_schema_too(topics, read, refusal) -> None:
    """Give ``.schema`` and a wrong metadataColumns: the first decides, but a wrong option is never passed over."""
    told = refusal(
        "INVALID_ARGUMENT", lambda: read(schema="id bigint", topic="typed", metadataColumns="__offset").count()
    )
    assert "'__offset'" in told


def test_topics_of_different_schemas_are_refused(topics, read, refusal) -> None:
    """Load topics whose columns differ in type, and in number; the error names topics, column and types."""
    told = refusal("SCHEMA_MISMATCH", lambda: read(topics="typed,other"))
    assert [text for text in ("'typed'", "'other'", "'id'", "int64", "int32") if text not in told] == [], told
    told = refusal("SCHEMA_MISMATCH", lambda: read(topicsPattern="typed|wider"))
    assert [text for text in ("'typed'", "'wider'", "'size'", "absent", "int32") if text not in told] == [], told


def test_shared_columns_of_different_topics_can_be_read(topics, read) -> None:
    """Ask topics that differ for what they share, in another order and case than theirs."""
    frame = read(schema="NAME string, __topic string", topics="typed,other,wider")
    assert sorted(tuple(row) for row in frame.collect()) == [("other", "other"), ("typed", "typed"), ("wider", "wider")]
    frame = read(schema="id bigint, name string", topics="wider,typed")
    assert sorted(tuple(row) for row in frame.collect()) == [(0, "typed"), (2, "wider")]


@for_each(
    ("column", "topics_read"),
    [
        (StructField("id", LongType()), "typed,other"),
        (StructField("ID", IntegerType()), "other,typed"),
        (StructField("SIZE", IntegerType()), "wider,typed"),
        (StructField("size", IntegerType()), "typed,wider"),
    ],
)
def test_column_that_topics_do_not_share_is_refused(topics, plan, column, topics_read) -> None:
    """Ask topics that differ for a column that one of them lacks or has with another type, in any case of its name."""
    with pytest.raises(txn_source.SchemaMismatchError, match=f"differ in column '{column.name.lower()}'"):
        plan(schema=StructType([column]), topics=topics_read)
