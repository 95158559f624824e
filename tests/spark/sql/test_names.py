"""SHOW NAMESPACES, SHOW TABLES, USE, and what a name means."""

from __future__ import annotations

import pytest

from tests.spark.sql.conftest import Statements, in_long_runs


@pytest.fixture
def sales(bank: Statements) -> Statements:
    """Topics in two namespaces of one tenant."""
    for name in (f"{bank.tenant}/default/orders", f"{bank.tenant}/default/bills", f"{bank.tenant}/eu/orders"):
        bank.log.create_topic(name)
    return bank


def test_namespaces_are_tenants_and_their_namespaces(sales: Statements) -> None:
    assert (sales.tenant,) in sales.rows("SHOW NAMESPACES IN bank")
    assert ("public",) in sales.rows("SHOW NAMESPACES IN bank")
    assert sales.rows(f"SHOW NAMESPACES IN bank LIKE '{sales.tenant}'") == [(sales.tenant,)]
    assert sales.rows("SHOW NAMESPACES IN {ns}") == [(f"{sales.tenant}.default",), (f"{sales.tenant}.eu",)]
    assert sales.rows("SHOW NAMESPACES IN {ns}.eu") == []
    assert sales.rows("DESCRIBE NAMESPACE {ns}.eu")[0] == ("Catalog Name", "bank")


def test_tables_are_the_topics_of_a_namespace(sales: Statements) -> None:
    shown = [row[:2] for row in sales.rows("SHOW TABLES IN {ns}")]
    assert shown == [(sales.tenant, "bills"), (sales.tenant, "orders")]
    assert [row[1] for row in sales.rows("SHOW TABLES IN {ns}.default LIKE 'b*'")] == ["bills"]
    assert [row[1] for row in sales.rows("SHOW TABLES IN {ns}.eu")] == ["orders"]
    extended = sales.rows("SHOW TABLE EXTENDED IN {ns}.eu LIKE '*'")  # Spark adds the session's temporary views
    assert [row[1] for row in extended if row[0]] == ["orders"]
    assert [table.name for table in sales.spark.catalog.listTables(f"{sales.ns}.eu")] == ["orders"]


@pytest.mark.parametrize("statement", ["SHOW NAMESPACES IN", "SHOW TABLES IN", "USE", "DESCRIBE NAMESPACE"])
@pytest.mark.parametrize("namespace", ["bank.public.nowhere", *in_long_runs(("bank.nowhere",), ("bank.a.b.c",))])
def test_missing_namespace_is_told(bank: Statements, statement: str, namespace: str) -> None:
    assert bank.refused(f"{statement} {namespace}").startswith("[SCHEMA_NOT_FOUND]")


def test_short_names_are_looked_for_in_the_current_namespace(orders: Statements) -> None:
    try:
        orders.sql("USE {ns}")
        assert orders.rows("SHOW CURRENT NAMESPACE") == [("bank", orders.tenant)]
        assert orders.rows("SELECT id FROM orders WHERE who = 'a'") == [(1,)]
        assert [row[1] for row in orders.rows("SHOW TABLES")] == ["orders"]
        orders.sql("USE spark_catalog")
        orders.sql("USE bank")
        assert orders.rows("SHOW CURRENT NAMESPACE") == [("bank", "public")]
    finally:
        orders.sql("USE spark_catalog.default")


def test_topics_are_told_apart_by_case_and_columns_are_not(orders: Statements) -> None:
    assert orders.rows("SELECT ID, Who FROM {ns}.orders WHERE iD = 1") == [(1, "a")]
    orders.sql("CREATE TABLE {ns}.Orders (x INT)")
    assert orders.rows("SELECT * FROM {ns}.Orders") == []
    assert orders.tables() == ["Orders", "orders"]


def test_names_with_dots_and_dashes_take_backticks(bank: Statements) -> None:
    bank.sql("CREATE TABLE {ns}.`a.b-c` (`ä b` INT, `c.d` STRING)")
    bank.sql("INSERT INTO {ns}.`a.b-c` (`c.d`, `ä b`) VALUES ('x', 1)")
    assert bank.rows("SELECT `ä b`, `c.d` FROM {ns}.`a.b-c` WHERE `ä b` = 1") == [(1, "x")]
    assert [row[1] for row in bank.rows("SHOW TABLES IN {ns}")] == ["a.b-c"]


def test_name_that_no_topic_can_have_is_told(bank: Statements) -> None:
    for statement in ("SELECT * FROM {ns}.`a b`", "CREATE TABLE {ns}.`a b` (a INT)"):
        assert "is not a topic name" in bank.refused(statement)


def test_name_with_too_many_parts_is_told(bank: Statements) -> None:
    assert "a.b.c.d is not a topic. Write <tenant>.<namespace>.<topic>" in bank.refused("SELECT * FROM bank.a.b.c.d")


def test_missing_table_is_told_with_names_that_are_near(sales: Statements) -> None:
    told = sales.refused("SELECT * FROM {ns}.order")
    assert told.startswith(f"[TXNLOG_TOPIC_NOT_FOUND] There is no topic 'persistent://{sales.tenant}/default/order'")
    assert told.endswith(f"Did you mean {sales.tenant}.orders?")
    assert f"Did you mean {sales.tenant}.bills?" in sales.refused("DESCRIBE {ns}.Bill")
    assert f"Did you mean {sales.tenant}.eu.orders?" in sales.refused("SELECT * FROM {ns}.eu.Orders")
    assert f"Did you mean {sales.tenant}.bills" in sales.refused("SELECT * FROM {ns}.eu.bills")
    for far in ("{ns}.x", "bank.nowhere.y"):
        assert sales.refused(f"SELECT * FROM {far}").startswith("[TABLE_OR_VIEW_NOT_FOUND]")


def test_looking_for_a_table_is_no_error(sales: Statements) -> None:
    assert sales.spark.catalog.tableExists(f"{sales.ns}.orders")
    assert not sales.spark.catalog.tableExists(f"{sales.ns}.order")
    assert not sales.spark.catalog.tableExists(f"{sales.ns}.far_away")
    for name in ("`a b`", "`größe`", "a.b.c"):
        assert not sales.spark.catalog.tableExists(f"{sales.ns}.{name}")
