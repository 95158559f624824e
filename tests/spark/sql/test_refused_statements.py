"""What a log can't do is refused in one sentence, ours or Spark's own, and changes nothing."""

from __future__ import annotations

import pytest

from tests.spark.sql.conftest import Statements, in_long_runs

MERGE = "MERGE INTO {ns}.orders t USING {ns}.orders s ON t.id = s.id WHEN MATCHED THEN"


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE {ns}.orders SET id = 1", "does not support UPDATE TABLE"),
        ("DELETE FROM {ns}.orders WHERE id = 1", "Table does not support deletes"),
        ("TRUNCATE TABLE {ns}.orders", "Table does not support truncates"),
        ("CREATE VIEW {ns}.v AS SELECT 1", "does not support views"),
        ("CREATE NAMESPACE bank.fresh", "A namespace is there as soon as it has a topic."),
        ("DROP NAMESPACE {ns}", "A namespace goes with its last topic."),
        ("SHOW PARTITIONS {ns}.orders", "does not support partition management"),
        ("SELECT * FROM {ns}.orders WITH (isolationLevl = 'x')", "Did you mean 'isolationLevel'?"),
        ("SELECT * FROM {ns}.orders WITH (maxMessagesPerTrigger = '1')", "is for streaming queries only"),
        ("ALTER TABLE {ns}.orders.ledgers SET TBLPROPERTIES ('retention_age' = '1d')", "and can't be changed."),
        ("SELECT * FROM {ns}.orders WITH (path = '/x')", "The option 'path' is given, and the catalog's table"),
        *in_long_runs(
            (f"{MERGE} UPDATE SET id = 1", "does not support MERGE INTO TABLE"),
            ("ALTER NAMESPACE {ns} SET PROPERTIES ('a' = 'b')", "`txnlog namespaces set-policies`"),
            ("COMMENT ON NAMESPACE {ns} IS 'x'", "Namespaces have no properties here."),
            ("DROP TABLE {ns}.orders.transactions", "orders.transactions shows what the log knows of a topic"),
            ("SELECT * FROM {ns}.orders WITH (metadataTable = 'ledgers')", "The option 'metadatatable' is given, and"),
        ),
    ],
)
def test_statement_is_refused(orders: Statements, statement: str, why: str) -> None:
    assert why in orders.refused(statement)
    assert orders.tables() == ["orders"]
    assert orders.log.stats(orders.topic("orders")).partitions[0].messages == 3


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE NAMESPACE IF NOT EXISTS bank.public",
        "REFRESH TABLE {ns}.orders",
        *in_long_runs(("DROP NAMESPACE IF EXISTS bank.nowhere",)),
    ],
)
def test_statement_with_nothing_to_do_passes(orders: Statements, statement: str) -> None:
    orders.sql(statement)
    assert orders.rows("SELECT id FROM {ns}.orders WHERE id = 1") == [(1,)]
