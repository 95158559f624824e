"""ALTER TABLE: policies and partitions; columns and names stay."""

from __future__ import annotations

import pytest

from tests.spark.sql.conftest import Statements, in_long_runs


def test_policies_are_set_and_unset(orders: Statements) -> None:
    orders.sql("ALTER TABLE {ns}.orders SET TBLPROPERTIES ('retention_age' = '12h', 'retention_bytes' = '1g')")
    policies = orders.log.policies(orders.topic("orders"))
    assert (policies["retention_age"].value, policies["retention_bytes"].value) == (12 * 3600, 1 << 30)
    assert orders.properties("orders")["retention_age"] == "43200s"
    orders.sql("ALTER TABLE {ns}.orders UNSET TBLPROPERTIES ('retention_age')")
    assert "retention_age" not in orders.properties("orders")
    assert orders.properties("orders")["retention_bytes"] == str(1 << 30)


def test_partitions_are_added(orders: Statements) -> None:
    orders.sql("ALTER TABLE {ns}.orders SET TBLPROPERTIES ('partitions' = '3')")
    assert orders.properties("orders")["partitions"] == "3"
    orders.sql("ALTER TABLE {ns}.orders SET TBLPROPERTIES ('partitions' = '3')")
    assert len(orders.log.stats(orders.topic("orders")).partitions) == 3
    assert "3 partitions, which is more than 2" in orders.refused(
        "ALTER TABLE {ns}.orders SET TBLPROPERTIES ('partitions' = '2', 'retention_age' = '1h')"
    )
    assert "'x' is not a time" in orders.refused(
        "ALTER TABLE {ns}.orders SET TBLPROPERTIES ('partitions' = '4', 'retention_age' = 'x')"
    )
    shown = orders.properties("orders")
    assert (shown["partitions"], "retention_age" in shown) == ("3", False)  # what is refused changes nothing


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("ADD COLUMN x INT", "A topic's columns can't be changed"),
        ("RENAME TO other", "A topic can't be renamed"),
        ("SET TBLPROPERTIES ('nope' = '1')", "'nope' is not a policy."),
        ("UNSET TBLPROPERTIES ('partitions')", "A topic always has partitions."),
        *in_long_runs(
            ("SET LOCATION '/x'", "A topic takes no LOCATION"),
            ("SET TBLPROPERTIES ('comment' = 'x')", "A topic's comment stays as it was made."),
            ("SET TBLPROPERTIES ('inherited.retention_age' = '1h')", "show what others say"),
        ),
    ],
)
def test_other_changes_are_refused(orders: Statements, change: str, why: str) -> None:
    before = orders.properties("orders")
    assert why in orders.refused(f"ALTER TABLE {{ns}}.orders {change}")
    assert orders.properties("orders") == before
    assert orders.spark.table(f"{orders.ns}.orders").columns == ["id", "amount", "who"]


def test_comment_stays(orders: Statements) -> None:
    assert "A topic's comment stays as it was made" in orders.refused("COMMENT ON TABLE {ns}.orders IS 'x'")


def test_missing_table_is_told(orders: Statements) -> None:
    told = orders.refused("ALTER TABLE {ns}.order SET TBLPROPERTIES ('retention_age' = '1h')")
    assert told.endswith(f"Did you mean {orders.tenant}.orders?")
