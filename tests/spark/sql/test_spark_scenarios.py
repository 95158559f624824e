"""Scenarios of Spark's own DataSourceV2SQLSuite, over a log.

Taken, here or in the modules of the statements: CreateTable (use v2 plan, fail if it exists, if not exists, without
USING, duplicate column names, invalid interval types); Describe column (also qualified, and below a temporary view);
CreateTableAsSelect (use v2 plan, don't execute twice, fail if it exists, if not exists, nullable schema); generated and
identity columns where the catalog has none; AppendData and a stream's write refresh the cache; Relation (basic,
SparkSession.table, CTE, view text, join of two catalogs); qualified column names; InsertInto (append, across catalogs,
by position, by name, missing, extra and unsafe columns); ShowCurrentNamespace, Use; ShowTables and ShowNamespaces with
patterns; SHOW CREATE TABLE; time travel by version and time, of two versions in one query, and its wrong expressions;
UPDATE, MERGE, DELETE, ANALYZE, MSCK, LOAD DATA, partitions, views and functions, as refusals.

Left out: ReplaceTable and Overwrite in all their forms, DELETE and UPDATE that work, ALTER of columns and renaming,
PARTITIONED BY and CLUSTERED BY, LOCATION, OPTIONS, defaults, constraints and collations, since a log's messages and
columns stay as they are and it refuses these; namespaces that are made, dropped and commented, since they come and go
with their topics; the session catalog's own tables, global temporary views and Hive, since no log is involved; columns
statistics, since a log has none.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tests.spark.sql.conftest import Statements, add_catalog

DEADLINE_S = 240
SOURCE = "VALUES (1L, 'a'), (2L, 'b'), (3L, 'c') AS source(id, data)"


def filled(bank: Statements, name: str) -> None:
    bank.sql(f"CREATE TABLE {{ns}}.{name} AS SELECT * FROM {SOURCE}")


def test_relations(bank: Statements) -> None:
    """Relation: basic, SparkSession.table, CTE, view text, join of tables in two catalogs."""
    filled(bank, "tbl")
    expected = [(1, "a"), (2, "b"), (3, "c")]
    assert bank.rows("TABLE {ns}.tbl") == expected
    assert sorted(tuple(row) for row in bank.spark.table(f"{bank.ns}.tbl").collect()) == expected
    assert bank.rows("WITH cte AS (SELECT * FROM {ns}.tbl) SELECT * FROM cte WHERE id < 3") == expected[:2]
    bank.sql("CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT * FROM {ns}.tbl")
    assert bank.rows("SELECT id FROM seen WHERE data = 'b'") == [(2,)]
    bank.spark.catalog.dropTempView("seen")
    other = add_catalog(bank.spark, "second", path=str(bank.log.root))
    joined = f"SELECT t1.id, t2.data FROM {{ns}}.tbl t1, {other}.{bank.tenant}.tbl t2 WHERE t1.id + 1 = t2.id"
    assert bank.rows(joined) == [(1, "b"), (2, "c")]


def test_qualified_column_names(bank: Statements) -> None:
    bank.sql("CREATE TABLE {ns}.ns2.tbl (id BIGINT, point STRUCT<x: BIGINT, y: BIGINT>)")
    bank.sql("INSERT INTO {ns}.ns2.tbl VALUES (1, struct(10, 20))")
    for prefix in (f"{bank.ns}.ns2.tbl", f"{bank.tenant}.ns2.tbl", "ns2.tbl", "tbl"):
        assert bank.rows(f"SELECT {prefix}.id, {prefix}.point.x FROM {{ns}}.ns2.tbl") == [(1, 10)]
    assert "UNRESOLVED_COLUMN" in bank.refused("SELECT ns1.ns2.ns3.tbl.id FROM {ns}.ns2.tbl")
    for column in (f"{bank.ns}.ns2.tbl.id", "ns2.tbl.id", "tbl.id", "id"):
        assert ("data_type", "bigint") in bank.rows(f"DESCRIBE {{ns}}.ns2.tbl {column}")
    assert "point.x" in bank.refused("DESCRIBE {ns}.ns2.tbl point.x")


def test_insert_across_catalogs(bank: Statements) -> None:
    filled(bank, "tbl")
    other = add_catalog(bank.spark, "second", path=str(bank.log.root))
    bank.sql("CREATE TABLE {ns}.copy (id BIGINT, data STRING)")
    bank.sql(f"INSERT INTO {other}.{bank.tenant}.copy SELECT * FROM {{ns}}.tbl WHERE id > 1")
    assert bank.rows("SELECT * FROM {ns}.copy") == [(2, "b"), (3, "c")]


def test_table_of_a_query_may_have_nulls(bank: Statements) -> None:
    """CreateTableAsSelect: nullable schema."""
    bank.sql("CREATE TABLE {ns}.tbl AS SELECT 1 i")
    bank.sql("INSERT INTO {ns}.tbl SELECT CAST(null AS INT)")
    assert bank.rows("SELECT * FROM {ns}.tbl") == [(1,), (None,)]


def test_writes_refresh_what_is_cached(bank: Statements, tmp_path: Path) -> None:
    """AppendData refreshes a cached view of the table, and a stream's batch the cached table."""
    filled(bank, "tbl")
    bank.sql("CACHE TABLE cached AS SELECT id FROM {ns}.tbl")
    bank.sql("CACHE TABLE {ns}.tbl")
    try:
        assert bank.rows("SELECT * FROM cached") == [(1,), (2,), (3,)]
        bank.sql("INSERT INTO {ns}.tbl VALUES (4, 'd')")
        assert bank.rows("SELECT * FROM cached") == [(1,), (2,), (3,), (4,)]
        bank.log.create_topic(bank.topic("new"), schema=pa.schema([("id", pa.int64()), ("data", pa.string())]))
        with bank.log.producer(bank.topic("new")) as producer:
            producer.send_batch(pa.table({"id": [5], "data": ["e"]}))
        source = bank.spark.readStream.option("startingOffsets", "earliest").table(f"{bank.ns}.new")
        writer = source.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).toTable(f"{bank.ns}.tbl")
        assert query.awaitTermination(DEADLINE_S)
        assert bank.rows("SELECT * FROM {ns}.tbl") == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    finally:
        bank.sql("UNCACHE TABLE IF EXISTS cached")
        bank.sql("UNCACHE TABLE IF EXISTS {ns}.tbl")


def test_temporary_views_come_first(bank: Statements) -> None:
    """Describe column resolves to a temporary view first."""
    bank.sql("CREATE TABLE {ns}.first_come (id BIGINT)")
    bank.sql("CREATE OR REPLACE TEMPORARY VIEW first_come AS SELECT 2 AS i")
    try:
        bank.sql("USE {ns}")
        assert ("data_type", "int") in bank.rows("DESCRIBE first_come i")
    finally:
        bank.sql("USE spark_catalog.default")
        bank.spark.catalog.dropTempView("first_come")
