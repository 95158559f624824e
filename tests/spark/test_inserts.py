"""INSERT into SQL tables: rows go to the table that the statement names, or nowhere. Never to another one.

What Spark 4.3 hands to a writer are the query's columns, with metadata of the table that they were selected from or of
the one that is written to. Each case here gives the writer some other mixture of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import txn_source
from txn_source.model.errors import InvalidArgumentError
from txn_source.spark.sink_columns import SinkColumns
from txn_source.spark.table_options import MARKED, keep_options, kept_options, target_of_insert

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
LOGS = "__partition, __ledger_id, __entry_id, __batch_index, __publish_time, __event_time"
NULLS = "int(NULL) AS __partition, bigint(NULL) AS __ledger_id, bigint(NULL) AS __entry_id, int(NULL) AS __batch_index"
TIMES = "timestamp(NULL) AS __publish_time, timestamp(NULL) AS __event_time"
ROWS = {"a": [1, 2], "b": []}


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], dict[str, list[int]]]]:
    """Two topics of one schema, ids 1 and 2 in *a*, and the tables ``a`` and ``b`` (insertable), ``plain_a`` and
    ``plain_b`` (not), ``bare_b`` (without metadata columns) and ``copy_a`` (Parquet, copied from ``a``); views and
    other rows to select from. The function returns the ids in each topic, and puts it back as it was."""
    root = tmp_path_factory.mktemp("inserts") / "log"
    spark.sql("CREATE DATABASE txn_inserts")
    spark.sql("USE txn_inserts")
    with txn_source.connect(root) as log:

        def fill(topic: str) -> None:
            log.create_topic(topic, schema=SCHEMA)
            with log.producer(topic) as producer:
                for number in ROWS[topic]:
                    producer.send({"id": number, "name": f"{number}"})

        for topic in "ab":
            fill(topic)
            options = f"path '{root}', topic '{topic}'"
            spark.sql(f"CREATE TABLE {topic} USING txnlog OPTIONS ({options}, insertable 'true')")
            spark.sql(f"CREATE TABLE plain_{topic} USING txnlog OPTIONS ({options})")
        spark.sql(f"CREATE TABLE bare_b USING txnlog OPTIONS (path '{root}', topic 'b', metadataColumns 'none')")
        spark.sql("CREATE TABLE copy_a USING parquet AS SELECT * FROM a")
        spark.sql("INSERT INTO copy_a (id, name) VALUES (8, 'eight')")
        spark.sql("CREATE TEMPORARY VIEW v AS SELECT bigint(5) AS id, 'five' AS name")
        spark.sql("CREATE TEMPORARY VIEW view_a AS SELECT * FROM a")
        spark.sql("CREATE TEMPORARY VIEW view_plain_a AS SELECT * FROM plain_a")

        def ids() -> dict[str, list[int]]:
            found = {}
            for topic in "ab":
                found[topic] = sorted(log.scan(topic, "read_uncommitted", columns=["id"]).read_all()["id"].to_pylist())
                if found[topic] != ROWS[topic]:
                    log.delete_topic(topic)
                    fill(topic)
            return found

        yield ids
    for view in ("v", "view_a", "view_plain_a"):
        spark.catalog.dropTempView(view)
    spark.sql("USE default")
    spark.sql("DROP DATABASE txn_inserts CASCADE")


OUTER = "v LEFT JOIN {} AS s ON v.id = s.id"
LANDS: dict[str, list[int]] = {
    "INSERT INTO b (id, name) VALUES (7, 'seven')": [7],
    "INSERT INTO b (id, name) SELECT id, name FROM a": [1, 2],
    "INSERT INTO b BY NAME SELECT name, id FROM a": [1, 2],
    "INSERT INTO b (id, name) SELECT id, name FROM view_a": [1, 2],
    "INSERT INTO b (id, name) SELECT id, name FROM copy_a": [1, 2, 8],
    "INSERT INTO b (id, name) SELECT id, name FROM a UNION ALL SELECT id, name FROM v": [1, 2, 5],
    f"INSERT INTO b (id, name) SELECT v.id, s.name FROM {OUTER.format('a')}": [5],
    "INSERT INTO b (id, name, __event_time) SELECT id, name, __event_time FROM a": [1, 2],
    "INSERT INTO b (id, name, __ledger_id) VALUES (7, 'seven', DEFAULT)": [7],
    "INSERT INTO b (id, name) SELECT id + 2, name FROM b UNION ALL SELECT id, name FROM v": [5],
    "INSERT INTO plain_b {with} (id, name) SELECT id, name FROM a": [1, 2],
    "INSERT INTO b {with} (id, name) SELECT id, name FROM a": [1, 2],
    "INSERT INTO bare_b {with} SELECT id, name FROM a": [1, 2],
    f"INSERT INTO plain_b {{with}} SELECT v.id, v.name, {LOGS} FROM {OUTER.format('a')}": [5],
}
"""What is inserted into *b*, by statement; ``{with}`` names log and topic."""

REFUSED = [
    f"INSERT INTO b SELECT v.id, v.name, {LOGS} FROM {OUTER.format('a')}",
    *(f"INSERT INTO {b} SELECT * FROM {a}" for b in ("b", "plain_b") for a in ("a", "plain_a", "view_a", "copy_a")),
    "INSERT INTO b BY NAME SELECT * FROM a",
    *(f"INSERT INTO b SELECT v.id, v.name, {LOGS} FROM {OUTER.format(a)}" for a in ("view_plain_a", "copy_a")),
    f"INSERT INTO plain_b SELECT v.id, v.name, {LOGS} FROM {OUTER.format('a')}",
    f"INSERT INTO b SELECT s.* FROM {OUTER.format('a')}",
    f"INSERT INTO b SELECT id, name, {LOGS} FROM a WHERE __ledger_id IS NOT NULL AND __entry_id IS NOT NULL",
    f"INSERT INTO b SELECT id, name, {LOGS} FROM a WHERE false UNION ALL SELECT id, name, {NULLS}, {TIMES} FROM v",
    f"INSERT INTO b SELECT id, name, {NULLS}, {TIMES} FROM v",
    "INSERT INTO b SELECT id, name, NULL, NULL, NULL, NULL, NULL, NULL FROM a",
    "INSERT INTO b (id, name, __ledger_id) SELECT id, name, __ledger_id FROM a",
    "INSERT INTO b (id, name, __ledger_id) VALUES (7, 'seven', NULL)",
    "INSERT INTO b (id, name, __entry_id) SELECT id, name, __entry_id FROM a",
    "INSERT INTO b {with} SELECT * FROM a",
    "INSERT INTO plain_b (id, name) SELECT id, name FROM a",
    "INSERT INTO bare_b SELECT id, name FROM a",
    "INSERT INTO b WITH (topic = 'b') (id, name) SELECT id, name FROM a",
    "INSERT OVERWRITE b (id, name) SELECT id, name FROM a",
]
"""Statements of which Spark doesn't tell the table, or that are wrong in another way."""


@pytest.fixture
def to_b(tables: Any, spark: SparkSession) -> Callable[[str], str]:
    """A function that completes a statement."""
    path = kept_options(spark.table("plain_b").schema)["path"]
    return lambda statement: statement.replace("{with}", f"WITH (path = '{path}', topic = 'b')")


def some(statements: Iterable[str], each: int = 9) -> list[Any]:
    """Return all statements, of which most are for long runs: each costs Spark about a second."""
    return [s if number % each == 0 else pytest.param(s, marks=pytest.mark.long) for number, s in enumerate(statements)]


@pytest.mark.parametrize("statement", some(LANDS, each=len(LANDS)))
def test_rows_land_in_the_table_that_is_named(spark, tables, to_b, statement) -> None:
    """Insert from all kinds of queries."""
    spark.sql(to_b(statement))
    assert tables() == {"a": [1, 2], "b": LANDS[statement]}


@pytest.mark.parametrize("statement", some(REFUSED))
def test_insert_is_refused_rather_than_guessed(spark, tables, to_b, statement) -> None:
    """Insert what could be meant for another table: refused by us, and neither topic changes."""
    with pytest.raises(PySparkException, match=r"\[TXNLOG_(INVALID_ARGUMENT|SCHEMA_MISMATCH)\]"):
        spark.sql(to_b(statement))
    assert tables() == ROWS


WRITERS: dict[str, tuple[Callable[[Any], None], list[int] | None]] = {
    "insertInto, payload": (lambda frame: frame.write.insertInto("b"), None),
    "insertInto, all columns": (lambda frame: frame.sparkSession.table("a").write.insertInto("b"), None),
    "insertInto, no metadata columns": (lambda frame: frame.write.insertInto("bare_b"), None),
    "writeTo.append": (lambda frame: frame.writeTo("b").append(), [1, 2]),
    "writeTo.append, not insertable": (lambda frame: frame.writeTo("plain_b").append(), None),
    "writeTo.append, all columns": (lambda frame: frame.sparkSession.table("a").writeTo("b").append(), None),
    "saveAsTable": (lambda frame: frame.write.format("txnlog").mode("append").saveAsTable("b"), [1, 2]),
    "saveAsTable, not insertable": (
        lambda frame: frame.write.format("txnlog").mode("append").saveAsTable("plain_b"),
        None,
    ),
}
"""Ways of the DataFrame API to write the payload of *a* to a table, and what is then in *b*; None: refused."""


@pytest.mark.parametrize("way", some(WRITERS, 3))
def test_frames_are_appended_to_the_table_that_is_named(spark, tables, way) -> None:
    """Write a frame that was read from *a* to a table of *b*; Spark itself refuses some."""
    write, expected = WRITERS[way]
    frame = spark.table("a").select("id", "name")
    if expected is None:
        with pytest.raises(PySparkException, match=r"\[TXNLOG_|NOT_ENOUGH_DATA_COLUMNS"):
            write(frame)
    else:
        write(frame)
    assert tables() == {"a": [1, 2], "b": expected or []}


def test_refusal_says_the_ways_out(spark, tables, refusal) -> None:
    """Insert into a table that isn't insertable, and without column names into one that is."""
    for statement in ("INSERT INTO plain_b (id) SELECT id FROM a", "INSERT INTO b SELECT * FROM a"):
        told = refusal("INVALID_ARGUMENT", partial(spark.sql, statement))
        assert [text for text in ("insertable 'true'", "(id, ...)", "WITH (path", "df.write") if text not in told] == []
    assert tables() == ROWS


def test_insert_that_is_refused_fences_nobody(spark, tables, tmp_path: Path) -> None:
    """Make tables with a transactional id, hold it with a producer, and insert what could be meant for that table."""
    with txn_source.connect(tmp_path / "log") as log:
        for topic in ("fenced_a", "fenced_b"):
            log.create_topic(topic, schema=SCHEMA)
            options = f"path '{log.root}', topic '{topic}', transactionalId '{topic}', insertable 'true'"
            spark.sql(f"CREATE TABLE {topic} USING txnlog OPTIONS ({options})")
        with log.producer("fenced_a", transactional_id="fenced_a") as producer:
            producer.send({"id": 1, "name": "one"})
            producer.flush()
            with pytest.raises(PySparkException, match="TXNLOG_INVALID_ARGUMENT"):
                spark.sql("INSERT INTO fenced_b SELECT * FROM fenced_a WHERE __ledger_id > 0")
            producer.send({"id": 2, "name": "two"})
        spark.sql("INSERT INTO fenced_b (id, name) SELECT id, name FROM fenced_a")
        assert sorted(log.scan("fenced_b", columns=["id"]).read_all()["id"].to_pylist()) == [1, 2]


# Without Spark


def test_marks_of_tables_differ_and_are_no_ledgers() -> None:
    """Make the schemas of many tables: marks are below zero, and no two are the same."""
    schema = StructType([StructField("id", LongType()), StructField(MARKED, LongType())])
    marks = set()
    for number in range(100):
        kept = keep_options(schema, {"path": "/log", "topic": f"t{number}"}, insertable=True)
        found = target_of_insert(StructType([StructField(f.name, f.dataType, False, f.metadata) for f in kept]))
        assert found is not None
        assert found.options == {"path": "/log", "topic": f"t{number}"}
        assert -(1 << 62) <= found.mark < 0
        marks.add(found.mark)
        assert target_of_insert(kept) is None, "a column that may have nulls was not filled in"
    assert len(marks) == 100


def test_table_without_the_marked_column_is_not_insertable() -> None:
    """Ask for it."""
    with pytest.raises(InvalidArgumentError, match=r"needs the column __ledger_id.*metadataColumns"):
        keep_options(StructType([StructField("id", LongType())]), {"topic": "a"}, insertable=True)


@pytest.mark.parametrize("ledgers", [[None], [1], [-1], ["mark", None], ["mark", 1]])
def test_each_row_of_an_insert_is_looked_at(ledgers: list[Any]) -> None:
    """Hand rows to a task that haven't the mark, though the schema promises it: no row of the batch is written."""
    schema = StructType([StructField("id", LongType()), StructField(MARKED, LongType())])
    kept = keep_options(schema, {"path": "/log", "topic": "a"}, insertable=True)
    handed = StructType([StructField(f.name, f.dataType, False, f.metadata) for f in kept])
    target = target_of_insert(handed)
    assert target is not None
    columns = SinkColumns(handed, of_table=True, mark=target.mark)
    payload = pa.schema([("id", pa.int64())])

    def fit(values: list[Any]) -> pa.RecordBatch:
        marked = pa.array([target.mark if value == "mark" else value for value in values], pa.int64())
        return columns.fit(pa.record_batch({"id": pa.array(range(len(values))), MARKED: marked}), payload, "a")

    assert fit(["mark", "mark"]).to_pydict() == {"id": [0, 1]}
    assert fit([]).num_rows == 0
    with pytest.raises(InvalidArgumentError, match="doesn't tell which table"):
        fit(ledgers)
