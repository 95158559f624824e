"""DROP TABLE deletes a topic with all its messages, where the catalog's option says that this is meant."""

from __future__ import annotations

from pathlib import Path

from tests.spark.sql.conftest import Statements, add_catalog


def test_table_is_dropped_where_that_is_allowed(orders: Statements) -> None:
    orders.sql("DROP TABLE {ns}.orders")
    assert orders.tables() == []
    assert orders.refused("DROP TABLE {ns}.orders").startswith("[TABLE_OR_VIEW_NOT_FOUND]")
    orders.sql("DROP TABLE IF EXISTS {ns}.orders")
    orders.sql("CREATE TABLE {ns}.orders (other STRING)")
    assert orders.rows("SELECT other FROM {ns}.orders") == []


def test_table_is_kept_otherwise(orders: Statements, root: Path) -> None:
    careful = add_catalog(orders.spark, "careful", path=str(root))
    told = orders.refused(f"DROP TABLE {careful}.{orders.tenant}.orders")
    assert f"DROP TABLE would delete topic {orders.tenant}.orders with all its messages." in told
    assert told.endswith("Set spark.sql.catalog.careful.allowDrop to true if it is meant.")
    assert "would delete" in orders.refused(f"DROP TABLE IF EXISTS {careful}.{orders.tenant}.orders")
    orders.sql(f"DROP TABLE IF EXISTS {careful}.{orders.tenant}.nothing")
    assert "Purge" in orders.refused(f"DROP TABLE {careful}.{orders.tenant}.orders PURGE")
    assert orders.tables() == ["orders"]
