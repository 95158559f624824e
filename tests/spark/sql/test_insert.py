"""INSERT INTO and df.writeTo: messages of one transaction, by position, by column list and by name."""

from __future__ import annotations

import pytest

from tests.spark.sql.conftest import Statements, add_catalog, in_long_runs

NEW = "WHERE id > 3 OR id IS NULL"


def test_rows_go_to_columns_by_position_by_list_and_by_name(orders: Statements) -> None:
    orders.sql("INSERT INTO {ns}.orders VALUES (4, 4.5, 'd')")
    orders.sql("INSERT INTO {ns}.orders (who, id, amount) VALUES ('e', 5, 5.5)")
    orders.sql("INSERT INTO {ns}.orders (id) VALUES (6)")
    orders.sql("INSERT INTO {ns}.orders BY NAME SELECT 'g' AS who, 7L AS ID")
    assert orders.rows(f"SELECT * FROM {{ns}}.orders {NEW}") == [
        (4, 4.5, "d"), (5, 5.5, "e"), (6, None, None), (7, None, "g")
    ]  # fmt: skip


@pytest.mark.long
def test_rows_of_a_frame_are_appended(orders: Statements) -> None:
    frame = orders.spark.sql("SELECT 4L AS id, 'd' AS who, 4.5D AS amount")
    frame.writeTo(f"{orders.ns}.orders").append()
    frame.select("id", "amount", "who").write.insertInto(f"{orders.ns}.orders")
    frame.write.mode("append").saveAsTable(f"{orders.ns}.orders")
    assert orders.rows(f"SELECT * FROM {{ns}}.orders {NEW}") == [(4, 4.5, "d")] * 3


def test_rows_are_one_transaction(orders: Statements) -> None:
    orders.sql("INSERT INTO {ns}.orders SELECT id, 0, 'x' FROM range(10, 14, 1, 2)")
    told = orders.refused(
        "INSERT INTO {ns}.orders SELECT id, IF(id = 23, double(raise_error('stop')), 0D), 'x' FROM range(20, 24, 1, 2)"
    )
    assert "stop" in told
    written = orders.rows(
        "SELECT id, __txn_status, count(*) OVER (PARTITION BY __txn_id) FROM {ns}.orders WHERE id > 9"
    )
    assert written == [(id, "committed", 4) for id in range(10, 14)]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("INSERT INTO {ns}.orders VALUES (1, 2)", "[INSERT_COLUMN_ARITY_MISMATCH.NOT_ENOUGH_DATA_COLUMNS]"),
        ("INSERT OVERWRITE {ns}.orders VALUES (1, 2, 'x')", "does not support truncate in batch mode"),
        (
            "INSERT INTO {ns}.orders WITH (path = '/x') VALUES (1, 2, 'x')",
            "The option 'path' is given, and the catalog",
        ),
        ("INSERT INTO {ns}.orders WITH (transactionalld = 'a') VALUES (1, 2, 'x')", "Did you mean 'transactionalId'?"),
        *in_long_runs(
            ("INSERT INTO {ns}.orders (id, __partition) VALUES (1, 2)", "Cannot write extra columns `__partition`"),
            ("INSERT INTO {ns}.orders REPLACE WHERE id = 1 VALUES (1, 2, 'x')", "does not support overwrite by filter"),
        ),
    ],
)
def test_what_does_not_fit_is_refused(orders: Statements, statement: str, why: str) -> None:
    assert why in orders.refused(statement)
    assert len(orders.rows("SELECT id FROM {ns}.orders")) == 3


@pytest.mark.long
def test_options_of_a_write_count(orders: Statements) -> None:
    frame = orders.spark.sql("SELECT 4L AS id, 'd' AS who, 4.5D AS amount")
    for version in ("1", "1"):
        frame.writeTo(f"{orders.ns}.orders").option("txnAppId", "app").option("txnVersion", version).append()
    orders.sql("INSERT INTO {ns}.orders WITH (transactionalId = 'job') VALUES (5, 5, 'e')")
    assert orders.rows(f"SELECT id FROM {{ns}}.orders {NEW}") == [(4,), (5,)]


@pytest.mark.long
def test_writes_refresh_what_is_cached(orders: Statements) -> None:
    """Cache a query over a table, and append to the table."""
    orders.sql("CACHE TABLE cached AS SELECT id FROM {ns}.orders")
    try:
        assert orders.rows("SELECT * FROM cached") == [(1,), (2,), (3,)]
        orders.sql("INSERT INTO {ns}.orders (id) VALUES (4)")
        assert orders.rows("SELECT * FROM cached") == [(1,), (2,), (3,), (4,)]
    finally:
        orders.sql("UNCACHE TABLE IF EXISTS cached")


@pytest.mark.long
def test_defaults_of_the_catalog_count_where_they_mean_something(orders: Statements) -> None:
    """Give a catalog options for reads, streams and writes: each query takes its own, and leaves out the others."""
    name = add_catalog(
        orders.spark, "eager", path=str(orders.log.root), isolationLevel="read_uncommitted", maxMessagesPerTrigger="1",
        transactionalId="job", metadataColumns="none", failOnDataLoss="false", startingOffsets="earliest",
    )  # fmt: skip
    table = f"{name}.{orders.tenant}.orders"
    transaction = orders.log.begin_transaction()
    with orders.log.producer(orders.topic("orders")) as producer:
        producer.send_batch(orders.spark.sql("SELECT 4L id, 0D amount, 'open' who").toArrow(), txn=transaction)
    orders.sql(f"INSERT INTO {table} VALUES (5, 5, 'e')")
    assert orders.rows(f"SELECT id FROM {table} WHERE id > 3") == [(4,), (5,)]
    assert orders.rows(f"SELECT id FROM {table} WITH (isolationLevel = 'read_committed') WHERE id > 3") == []
    transaction.commit()
    assert orders.rows(f"SELECT __producer_name LIKE 'job%' FROM {table} WHERE id = 5") == [(True,)]
