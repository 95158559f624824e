"""Other engines take what ``scan`` returns as it is."""

from __future__ import annotations

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from txn_source import Log

_ACCOUNTS = pa.schema([("account", pa.string()), ("amount", pa.int64())])


@pytest.fixture
def transfers(log: Log) -> Log:
    """A typed topic with four visible rows and two aborted ones."""
    log.create_topic("transfers", partitions=2, schema=_ACCOUNTS)
    producer = log.producer("transfers")
    for amount, end in ((10, "commit"), (99, "abort"), (5, "commit")):
        transaction = log.begin_transaction()
        producer.send({"account": "a", "amount": -amount}, key="a", txn=transaction)
        producer.send({"account": "b", "amount": amount}, key="b", txn=transaction)
        producer.flush()
        getattr(transaction, end)()
    return log


def test_duckdb_queries_a_scan(transfers: Log) -> None:
    """Aggregate with SQL over the reader."""
    reader = transfers.scan("transfers")
    with duckdb.connect() as database:
        found = database.sql(
            "SELECT account, sum(amount)::BIGINT FROM reader GROUP BY account ORDER BY account"
        ).fetchall()
    assert found == [("a", -15), ("b", 15)]
    assert reader.schema.names[:2] == ["account", "amount"]


def test_polars_takes_a_scan(transfers: Log) -> None:
    """Make a data frame of the reader, with every metadata column."""
    columns = ["account", "amount", "__partition", "__publish_time", "__txn_id", "__txn_status", "__properties"]
    frame = pl.DataFrame(transfers.scan("transfers", "read_uncommitted", columns))
    assert frame.columns == columns
    assert frame.filter(pl.col("__txn_status") == "committed")["amount"].sum() == 0
    assert sorted(frame["amount"].to_list()) == [-99, -10, -5, 5, 10, 99]


def test_pandas_takes_a_scan(transfers: Log) -> None:
    """Read the reader into a pandas frame."""
    frame = transfers.scan("transfers", columns=["account", "amount"]).read_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame.groupby("account")["amount"].sum().to_dict() == {"a": -15, "b": 15}
