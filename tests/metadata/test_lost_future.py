"""A log that is put back gives nothing out again that it may have given out before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, select, text

import txn_source
from tests.log.sites import log_on_postgres, service_over
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.store.lost_future import GAP, gap_after, pass_over
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.tables import log_info
from txn_source.metadata.store.transactions import number_of
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import LimitExceededError, OutOfRangeError, TransactionEndedError
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId
from txn_source.storage.root import LogRoot

NOW_US = 1_769_860_800_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The place of a log."""
    return tmp_path / "log"


def put_back(root: Path) -> None:
    """Let the log of a root go on as one that was put back."""
    written(root, lambda connection: pass_over(connection, NOW_US))


def written(root: Path, action: Callable[[Connection], object]) -> object:
    """Carry out an action in a write transaction on a root's database."""
    database = open_database(LogRoot.at(root).database_url)
    try:
        return database.write(action)
    finally:
        database.close()


def test_rows_stay_and_positions_of_the_lost_future_are_none(root: Path) -> None:
    """Put a log back: what it has is read as before, what may have come behind it is out of range on each partition,
    and what is written from now on lies behind a gap."""
    with txn_source.connect(root) as log:
        log.create_topic("orders", partitions=2)
        with log.producer("orders") as producer:
            producer.send(b"before", partition=0)
        ends = log.cut("orders").positions.values()
    put_back(root)
    with txn_source.connect(root) as log:
        assert [str(end) for end in ends] == ["1:1", "2:0"]
        at_the_end = {"orders": {0: "1:1", 1: "2:0"}}
        assert log.scan("orders", "read_committed").read_all()["value"].to_pylist() == [b"before"]
        for lost in ("1:2", "3:0"):
            with pytest.raises(OutOfRangeError):
                log.scan("orders", "read_committed", start={"orders": {0: lost}})
        with pytest.raises(OutOfRangeError):
            log.scan("orders", "read_committed", start={"orders": {1: "2:1"}})
        with log.producer("orders") as producer:
            for partition in range(2):
                producer.send(b"after", partition=partition)
        found = log.scan("orders", "read_committed", ["value", "__ledger_id"], start=at_the_end).read_all()
        assert found["value"].to_pylist() == [b"after"] * 2
        assert min(found["__ledger_id"].to_pylist()) > GAP


def test_open_transactions_are_aborted(root: Path) -> None:
    """What an open transaction wrote behind the backup is lost, so nobody may commit the rest."""
    with txn_source.connect(root) as log:
        log.create_topic("orders")
        transaction = log.begin_transaction(timeout=900)
        producer = log.producer("orders")
        producer.send(b"part", txn=transaction)
        producer.flush()
        put_back(root)
        with pytest.raises(TransactionEndedError):
            transaction.commit()
        assert log.count("orders", "read_committed") == 0
        assert log.count("orders", "read_uncommitted") == 1
        assert log.transaction(transaction.id).state.name.lower() == "aborted"


def test_ids_and_counts_go_on_behind_a_gap(root: Path) -> None:
    """Also those of kinds of which there is none yet: the lost future may have made the first one."""
    with txn_source.connect(root) as log:
        log.create_topic("orders")
    put_back(root)
    with txn_source.connect(root) as log:
        log.create_topic("later")
        log.create_subscription("later", "first")
        producer = log.producer("later")
        transaction = log.begin_transaction()
        producer.send(b"x", txn=transaction)
        producer.flush()
        assert number_of(TxnId.parse(transaction.id)) >= GAP
    tables = ("topics", "partitions", "ledgers", "producers", "subscriptions", "segments")
    for table in tables:
        query = text(f"SELECT MAX({table.removesuffix('s')}_id) FROM {table}")
        highest = written(root, lambda c, query=query: c.execute(query).scalar())  # type: ignore[misc]
        assert highest > GAP, table
    assert written(root, lambda c: c.execute(select(log_info.c.decisions)).scalar()) == GAP << 12


def test_subscription_is_in_another_epoch(root: Path) -> None:
    """What comes from an epoch of the lost future means nothing; the subscription stands where it stood."""
    with txn_source.connect(root) as log:
        log.create_topic("orders")
        with log.producer("orders") as producer:
            for value in (b"a", b"b"):
                producer.send(value)
        log.create_subscription("orders", "billing", initial_position="earliest")
        with log.subscribe("orders", "billing") as consumer:
            message = consumer.receive(timeout=30)
            assert message is not None
            consumer.acknowledge(message)
    put_back(root)
    with txn_source.connect(root) as log:
        [found] = log.subscriptions("orders")
        assert found.epoch == GAP
        with log.subscribe("orders", "billing") as consumer:
            message = consumer.receive(timeout=30)
            assert message is not None
            assert message.value == b"b"


def test_gap_grows_with_what_is_lost() -> None:
    """Put one backup back twice: what the first log gave out in a day lies before what the second one does."""
    day_us = 86_400 * 1_000_000
    assert gap_after(0) == gap_after(-1) == GAP
    assert gap_after(2 * day_us) - gap_after(day_us) > 1_000_000


def test_ids_that_run_out_are_told(root: Path) -> None:
    """Pass over most ledgers there can be: it is refused, and nothing changes."""
    with txn_source.connect(root) as log:
        log.create_topic("orders")
        with pytest.raises(LimitExceededError, match="too few are left"):
            written(root, lambda connection: pass_over(connection, NOW_US, (1 << 31) - (1 << 24)))
        assert log.cut("orders").positions[TopicName.parse("orders"), 0].ledger_id == 1


def test_on_postgres_ids_go_on_behind_a_gap(tmp_path: Path) -> None:
    """The counters of PostgreSQL's columns are raised, once for each time."""
    with log_on_postgres(tmp_path / "log") as url:
        database = open_database(url)
        try:
            for _ in range(2):
                database.write(lambda connection: pass_over(connection, NOW_US))
        finally:
            database.close()
        stub = MetadataStub(InProcessTransport(service_over(tmp_path / "log", url=url)))
        stub.create_topic(TopicName.parse("orders"), 1, None, LedgerLimits(), {})
        [view] = stub.get_view([TopicName.parse("orders")]).topics
        assert view.topic.topic_id == 2 * GAP + 1
        assert view.partitions[0].bounds.log_start.ledger_id == 2 * GAP + 1
        stub.close()
