"""DESCRIBE, SHOW COLUMNS and SHOW TBLPROPERTIES: what a topic is, and whose policies it has."""

from __future__ import annotations

import pytest

from tests.spark.sql.conftest import Statements


def test_columns_are_described(orders: Statements) -> None:
    described = [tuple(row) for row in orders.sql("DESCRIBE {ns}.orders").collect()]
    assert described == [("id", "bigint", None), ("amount", "double", None), ("who", "string", None)]
    assert [row[0] for row in orders.sql("SHOW COLUMNS IN {ns}.orders").collect()] == ["id", "amount", "who"]
    assert orders.rows("DESCRIBE {ns}.orders id")[1:] == [("comment", "NULL"), ("data_type", "bigint")]
    assert "[UNRESOLVED_COLUMN.WITH_SUGGESTION]" in orders.refused("DESCRIBE {ns}.orders nope")


@pytest.mark.long
def test_more_is_described_if_asked_for(orders: Statements) -> None:
    described = {row[0]: row[1] for row in orders.sql("DESCRIBE EXTENDED {ns}.orders").collect()}
    assert (described["__partition"], described["__publish_time"]) == ("int", "timestamp")
    assert (described["Catalog"], described["Table"]) == ("bank", "orders")
    assert described["Statistics"].endswith("3 rows")
    assert "partitions=1" in described["Table Properties"]


def test_properties_say_where_they_come_from(orders: Statements) -> None:
    topic = orders.topic("orders")
    assert orders.properties("orders") == {
        "partitions": "1",
        "inherited.data_read_priority": "tiered-first (default)",
        "inherited.offload_compression_level": "1 (default)",
        "inherited.hot_copies": "main (default)",
    }
    orders.log.set_policies(namespace=f"{orders.tenant}/default", retention_age="7d", data_read_priority="tiered-first")
    orders.log.set_policies(topic, data_read_priority="bookkeeper-first")
    assert orders.properties("orders") == {
        "partitions": "1",
        "data_read_priority": "bookkeeper-first",
        "inherited.retention_age": "604800s (namespace)",
        "inherited.offload_compression_level": "1 (default)",
        "inherited.hot_copies": "main (default)",
    }
    assert orders.rows("SHOW TBLPROPERTIES {ns}.orders ('partitions')") == [("partitions", "1")]
