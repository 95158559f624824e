"""The source in SQL: temporary views, with every option, and joins of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import txn_source


@pytest.mark.long
def test_views_over_topics_can_be_joined(log: txn_source.Log, root: Path, spark: SparkSession) -> None:
    """Make temporary views with OPTIONS, two of them over one topic at different levels, and join them."""
    log.create_topic("accounts", schema=pa.schema([("id", pa.int32()), ("owner", pa.string())]))
    log.create_topic("transfers", schema=pa.schema([("account", pa.int32()), ("amount", pa.decimal128(9, 2))]))
    with log.producer("accounts") as accounts:
        accounts.send_batch(pa.table({"id": pa.array([1, 2], pa.int32()), "owner": ["Ann", "Bob"]}))
    transfers = log.producer("transfers")

    def transfer(account: int, amount: str, txn: txn_source.Transaction) -> None:
        amounts = pa.array([amount]).cast(pa.decimal128(9, 2))
        transfers.send_batch(pa.table({"account": pa.array([account], pa.int32()), "amount": amounts}), txn=txn)

    with log.begin_transaction() as committed:
        transfer(1, "10.50", committed)
        transfer(2, "-10.50", committed)
    hanging = log.begin_transaction()
    transfer(1, "99.00", hanging)
    transfers.flush()

    spark.sql(f"CREATE TEMPORARY VIEW accounts USING txnlog OPTIONS (path '{root}', topic 'accounts')")
    spark.sql(f"CREATE TEMPORARY VIEW booked USING txnlog OPTIONS (path '{root}', topic 'transfers')")
    more = "isolationLevel 'read-uncommitted', metadataColumns '__txn_status'"
    spark.sql(f"CREATE TEMPORARY VIEW seen USING txnlog OPTIONS (path '{root}', topic 'transfers', {more})")
    query = """
        SELECT owner, string(sum(amount)) AS amount FROM {view} JOIN accounts ON account = id
        GROUP BY owner ORDER BY owner
    """
    try:
        assert [tuple(row) for row in spark.sql(query.format(view="booked")).collect()] == [
            ("Ann", "10.50"),
            ("Bob", "-10.50"),
        ]
        assert [tuple(row) for row in spark.sql(query.format(view="seen")).collect()] == [
            ("Ann", "109.50"),
            ("Bob", "-10.50"),
        ]
        open_ones = "SELECT account FROM seen WHERE __txn_status = 'open'"
        assert [row.account for row in spark.sql(open_ones).collect()] == [1]
    finally:
        hanging.abort()
        transfers.close()
        for view in ("accounts", "booked", "seen"):
            spark.catalog.dropTempView(view)
