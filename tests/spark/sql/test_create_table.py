"""CREATE TABLE: a topic with columns, comments, partitions and policies."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.spark.sql.conftest import Statements, in_long_runs

TYPES = {
    "a": "boolean", "b": "tinyint", "c": "smallint", "d": "int", "e": "bigint", "f": "float", "g": "double",
    "h": "decimal(10,2)", "i": "string", "j": "binary", "k": "date", "l": "timestamp", "m": "timestamp_ntz",
    "n": "interval day to second", "o": "array<int>", "p": "struct<x:int,y:array<string>>", "q": "map<string,bigint>",
}  # fmt: skip
WRITTEN = (
    "true, 1Y, 2S, 3, 4L, 5F, 6D, 7.5, 'i', X'01', DATE'2020-01-01', TIMESTAMP'2020-01-01 00:00:00',"
    " TIMESTAMP_NTZ'2020-01-01 00:00:00', INTERVAL '1 02:03:04' DAY TO SECOND, array(1, null),"
    " struct(1, array('y')), map('k', 1L)"
)


def test_columns_have_their_types(bank: Statements) -> None:
    bank.sql(f"CREATE TABLE {{ns}}.t ({', '.join(f'{name} {kind}' for name, kind in TYPES.items())})")
    assert {row[0]: row[1] for row in bank.sql("DESCRIBE {ns}.t").collect()} == TYPES
    bank.sql(f"INSERT INTO {{ns}}.t VALUES ({WRITTEN})")
    assert bank.rows("SELECT * FROM {ns}.t") == bank.rows(f"SELECT {WRITTEN}")


def test_key_and_value_make_a_raw_topic(bank: Statements) -> None:
    bank.sql("CREATE TABLE {ns}.raw (key BINARY, value BINARY)")
    with bank.log.producer(bank.topic("raw")) as producer:
        producer.send("v", key="k")
    assert bank.rows("SELECT string(key), string(value) FROM {ns}.raw") == [("k", "v")]
    assert {row[0] for row in bank.sql("DESCRIBE {ns}.raw").collect()} == {"key", "value"}


def test_properties_are_partitions_and_policies(bank: Statements) -> None:
    bank.sql(
        "CREATE TABLE {ns}.t (a INT) USING txnlog TBLPROPERTIES ('partitions' = '3', 'retention_age' = '7d',"
        " 'offload_after_bytes' = '1g', 'ledger_max_entries' = '1000', 'ledger_max_age' = '1h')"
    )
    stats = bank.log.stats(bank.topic("t"))
    assert len(stats.partitions) == 3
    assert (stats.policies["retention_age"].value, stats.policies["offload_after_bytes"].value) == (604800, 1 << 30)
    shown = bank.properties("t")
    assert (shown["ledger_max_entries"], shown["ledger_max_age"]) == ("1000", "3600000ms")


def test_comments_are_kept(bank: Statements) -> None:
    bank.sql("CREATE TABLE {ns}.t (a INT COMMENT 'Größe', b STRUCT<c: INT COMMENT 'inner'>) COMMENT 'what it is'")
    assert [row[2] for row in bank.sql("DESCRIBE {ns}.t").collect()] == ["Größe", None]
    assert ("Comment", "what it is", "") in bank.rows("DESCRIBE EXTENDED {ns}.t")
    assert bank.log.schema(bank.topic("t")).metadata == {b"comment": b"what it is"}
    bank.sql("INSERT INTO {ns}.t VALUES (1, struct(2))")
    assert bank.rows("SELECT a, b.c FROM {ns}.t") == [(1, 2)]
    bank.sql("CREATE TABLE {ns}.raw (key BINARY, value BINARY COMMENT 'text') COMMENT 'not raw'")
    assert ("Comment", "not raw", "") in bank.rows("DESCRIBE EXTENDED {ns}.raw")


def test_statement_that_is_shown_makes_the_same_table(bank: Statements) -> None:
    bank.sql(
        "CREATE TABLE {ns}.t (a INT NOT NULL COMMENT 'it''s', b ARRAY<STRING>) COMMENT 'c' TBLPROPERTIES ("
        "'partitions' = '2', 'data_read_priority' = 'bookkeeper-first', 'offload_deletion_lag' = '90s',"
        " 'ledger_max_bytes' = '64m')"
    )
    [(text,)] = bank.sql("SHOW CREATE TABLE {ns}.t").collect()
    shown = bank.properties("t")
    assert shown["inherited.offload_compression_level"] == "1 (default)"
    assert (shown["data_read_priority"], shown["offload_deletion_lag"]) == ("bookkeeper-first", "90s")
    bank.sql(text.replace(f"{bank.ns}.t", f"{bank.ns}.again"))
    assert bank.properties("again") == shown
    assert bank.spark.table(f"{bank.ns}.again").schema == bank.spark.table(f"{bank.ns}.t").schema
    assert bank.spark.table(f"{bank.ns}.t").schema["a"].nullable is False


def test_table_that_is_there_is_left_alone(orders: Statements) -> None:
    assert orders.refused("CREATE TABLE {ns}.orders (x INT)").startswith("[TABLE_OR_VIEW_ALREADY_EXISTS]")
    orders.sql("CREATE TABLE IF NOT EXISTS {ns}.orders (x INT)")
    assert orders.spark.table(f"{orders.ns}.orders").columns == ["id", "amount", "who"]


def test_table_is_made_in_a_new_namespace(bank: Statements) -> None:
    bank.sql("CREATE TABLE {ns}.deep.t (a INT)")
    assert bank.rows("SHOW NAMESPACES IN {ns}") == [(f"{bank.tenant}.deep",)]


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ("", "The table has no columns. Name one at least; key BINARY, value BINARY make a raw topic."),
        ("(__partition INT)", "Column '__partition' has a reserved name."),
        ("(a VARCHAR(5))", "Column 'a' is varchar(5)"),
        ("AS SELECT 1 AS a, NULL AS b", "Column 'b' is VOID: it is NULL in each row, which says no type. Give it one"),
        ("(a INT) USING orc", "The table is to be made USING orc, and the catalog makes topics."),
        ("(a INT) USING txnlog OPTIONS (topic 'x')", "A topic has no OPTIONS (topic)."),
        ("(a INT) PARTITIONED BY (a)", "A topic isn't partitioned by columns. Leave out PARTITIONED BY"),
        ("(a INT) TBLPROPERTIES ('partitions' = '0')", "'0' is not a number of partitions."),
        ("(a INT) TBLPROPERTIES ('nope' = '1')", "'nope' is not a policy"),
        *in_long_runs(
            ("(a ARRAY<VARIANT>)", "Column 'a' is array<variant>"),
            ("(a INTERVAL YEAR TO MONTH)", "Column 'a' is interval year to month"),
            ("(a STRING COLLATE UNICODE)", "Column 'a' is string collate UNICODE"),
            ("(a INT) LOCATION '/x'", "A topic takes no LOCATION"),
            ("(a INT) DEFAULT COLLATION UNICODE", "A topic takes no DEFAULT COLLATION"),
            (f"(a INT) COMMENT '{'x' * 5000}'", "The schema has a comment of 5000 bytes."),
        ),
    ],
)
def test_what_no_topic_can_be_is_refused(bank: Statements, definition: str, why: str) -> None:
    assert why in bank.refused(f"CREATE TABLE {{ns}}.t {definition}")
    assert bank.tables() == []


def test_table_like_another_is_refused(orders: Statements) -> None:
    assert "CREATE TABLE LIKE" in orders.refused("CREATE TABLE {ns}.other LIKE {ns}.orders")


def test_nulls_are_kept_out_of_columns_without(bank: Statements) -> None:
    bank.sql("CREATE TABLE {ns}.t (a INT NOT NULL, b INT)")
    assert bank.log.schema(bank.topic("t")).field("a") == pa.field("a", pa.int32(), nullable=False)
    assert "NULL value appeared in non-nullable field" in bank.refused("INSERT INTO {ns}.t VALUES (NULL, 1)")
    bank.sql("INSERT INTO {ns}.t VALUES (1, NULL)")
    assert bank.rows("SELECT * FROM {ns}.t WHERE a IS NOT NULL") == [(1, None)]
