"""Tables about the log in Spark: by option, and below a topic's name in the catalog."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from tests.selection import for_each
from tests.spark.catalog.conftest import CATALOG, Bank
from tests.spark.plain import Frame, logs_closed, source_of
from txn_source import InvalidArgumentError
from txn_source.spark.schema import to_spark
from txn_source.storage.log_tables import LOG_TABLES

_KEY = pa.schema([("key", pa.int64())])


@pytest.fixture
def held(bank: Bank) -> Iterator[str]:
    """A topic whose only partition is held back by a transaction."""
    topic = bank.topic(_KEY)
    bank.send(topic, pa.table({"key": [1, 2]}))
    txn = bank.log.begin_transaction()
    bank.send(topic, pa.table({"key": [3]}), txn=txn)
    bank.send(topic, pa.table({"key": [4, 5]}))
    yield topic
    txn.abort()


def test_tables_are_found_below_a_topic(bank: Bank, held: str) -> None:
    """Read them with all columns, some, none, and with filters and limits, as the log itself shows it."""
    table = bank.spark.table(f"{CATALOG}.public.{held}.ledgers")
    assert table.schema == to_spark(LOG_TABLES["ledgers"])
    assert table.count() == bank.log.metadata_table("ledgers", held).num_rows == len(table.collect())
    assert bank.rows(
        f"SELECT txn_id, held_back_messages, held_back_bytes > 0 FROM {CATALOG}.public.default.{held}.TRANSACTIONS"
        " WHERE state = 'open' AND first_position.entry_id > 0 ORDER BY age_seconds DESC LIMIT 3"
    ) == [(str(bank.log.transactions("open", held)[0].id), 3, True)]
    stable = f"SELECT messages, held_back_messages FROM {CATALOG}.public.{held}.partitions"
    assert bank.rows(f"{stable} WHERE last_stable < log_end") == [(5, 3)]
    joined = f"{CATALOG}.public.{held}.ledgers l JOIN {CATALOG}.public.{held}.partitions p USING (topic, partition)"
    assert bank.rows(f"SELECT l.open, p.messages FROM {joined} WHERE l.hot") == [(True, 5)]


def test_a_topic_of_the_name_comes_first(bank: Bank, held: str) -> None:
    bank.log.create_topic(f"public/{held}/ledgers", schema=_KEY)
    assert bank.spark.table(f"{CATALOG}.public.{held}.ledgers").columns == ["key"]
    assert "ledger_id" in bank.spark.table(f"{CATALOG}.public.default.{held}.ledgers").columns


@for_each(
    ("statement", "told"),
    [
        ("SELECT * FROM {table}.snapshots", "TABLE_OR_VIEW_NOT_FOUND"),
        (f"SELECT * FROM {CATALOG}.a.b.c.d.ledgers", "is not a topic"),
        ("INSERT INTO {table}.ledgers SELECT * FROM {table}.ledgers", "does not support append"),
        ("SELECT * FROM {table}.ledgers WITH (isolationLevel = 'read_committed')", "is for reading messages only"),
    ],
)
def test_what_these_tables_can_not_do_is_refused(bank: Bank, held: str, statement: str, told: str) -> None:
    with pytest.raises(Exception, match=told):
        bank.spark.sql(statement.format(table=f"{CATALOG}.public.{held}")).collect()


def test_a_stream_of_one_is_refused(bank: Bank, held: str) -> None:
    with pytest.raises(Exception, match="does not support either micro-batch or continuous"):
        bank.spark.readStream.table(f"{CATALOG}.public.{held}.ledgers").writeStream.format("noop").start()


@pytest.mark.long
def test_defaults_of_a_catalog_for_messages_mean_nothing_here(bank: Bank, held: str) -> None:
    name = "defaults_of_messages"
    for option, value in (("", "io.txnlog.spark.TxnLogCatalog"), (".path", str(bank.root)), (".minPartitions", "3")):
        bank.spark.conf.set(f"spark.sql.catalog.{name}{option}", value)
    assert bank.spark.table(f"{name}.public.{held}.partitions").count() == 1


def test_the_option_reads_of_one_topic_or_of_all(bank: Bank, held: str) -> None:
    options = {"path": str(bank.root), "metadataTable": "partitions"}
    reader = bank.spark.read.format("txnlog").options(**options, topic=held).schema("messages BIGINT, Topic STRING")
    assert [tuple(row) for row in reader.load().collect()] == [(5, held)]
    with logs_closed():
        every = Frame(options)
        assert set(every.toArrow()["topic"].to_pylist()) == set(bank.log.topics())
        with pytest.raises(InvalidArgumentError, match="'snapshots' is no table about a log"):
            Frame(options | {"metadataTable": "snapshots"})
        with pytest.raises(InvalidArgumentError, match="'startingOffsets' is for reading messages only"):
            Frame(options | {"startingOffsets": "earliest"})
        with pytest.raises(InvalidArgumentError, match="'metadataTable' is for reading only"):
            source_of(options | {"topic": held}).writer(every.schema, False)
        with pytest.raises(InvalidArgumentError, match="'metadataTable' is for batch queries only"):
            source_of(options).streamReader(every.schema).initialOffset()
