"""Races on PostgreSQL, through two services (see ``races.py``).

Each changing call waits for the writer that has the log's lock, so what two calls do is what they do one after the
other. With ``--all`` a few races without the lock show that the second defence is enough: what met a conflict is
carried out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.metadata.races import MINUTE_MS, ORDERS, Services, services
from tests.selection import mostly_long
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.store import log
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.copies import Tier
from txn_source.model.errors import TransactionEndedError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.policies import Scope
from txn_source.model.position import EARLIEST, Position
from txn_source.model.spark_commit import AppVersion, Sink, TopicBatch
from txn_source.model.subscription import Place, SubscriptionType
from txn_source.model.topic_name import TopicName
from txn_source.model.verdict import Doom
from txn_source.storage.object_names import new_object_uri

LEVEL = IsolationLevel.READ_COMMITTED
EXCLUSIVE = SubscriptionType.EXCLUSIVE


@pytest.fixture
def race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locked: bool) -> Iterator[Services]:
    """A log with two services."""
    with services(tmp_path / "log", monkeypatch, locked=locked) as found:
        yield found


AUDIT = "audit"
CHANGES: dict[str, Callable[[MetadataStub, Any], object]] = {
    "create a topic": lambda b, _: b.create_topic(TopicName.parse("bills"), 1, None, LedgerLimits(), {}),
    "add partitions": lambda b, _: b.update_topic(ORDERS, 3),
    "delete a topic": lambda b, _: b.delete_topic(ORDERS),
    "roll a ledger": lambda b, _: b.roll_ledger(ORDERS, 0),
    "change a policy": lambda b, _: b.change_policies(Scope(ORDERS), {"retention_bytes": "1000"}),
    "open a producer": lambda b, _: b.open_producer(ORDERS, "teller", None),
    "append": lambda b, made: b.append(made.producer, made.txn, [made.entry]),
    "begin a transaction": lambda b, _: b.begin_transaction(MINUTE_MS),
    "end a transaction": lambda b, made: b.end_transaction(made.txn, commit=True),
    "write a transaction": lambda b, made: b.write_transaction(MINUTE_MS, [(made.producer, [made.entry])]),
    "commit a batch": lambda b, made: b.commit_batch(Sink("q", 0, "spark", None, "run"), made.batches, "key"),
    "create a subscription": lambda b, _: b.create_subscription(ORDERS, "other", EXCLUSIVE, LEVEL, Place(EARLIEST)),
    "seek": lambda b, _: b.seek_subscription(ORDERS, AUDIT, Place(EARLIEST)),
    "change a level": lambda b, _: b.set_subscription_isolation_level(ORDERS, AUDIT, IsolationLevel.READ_UNCOMMITTED),
    "delete a subscription": lambda b, _: b.delete_subscription(ORDERS, AUDIT),
    "begin an offload": lambda b, made: b.begin_offload(*made.ledger, made.uri),
    "delete copies": lambda b, made: b.delete_copies(ORDERS, Tier.TIERED, [made.ledger[1]]),
    "trim": lambda b, made: b.trim_topic(ORDERS, {0: Position(made.ledger[1] + 1, 0)}, None, None),
    "doom leftovers": lambda b, made: b.judge_files([made.entry.segment], Doom.LEFTOVER),
}
EACH_TIME = ("create a topic", "append", "write a transaction", "commit a batch", "seek", "begin an offload", "trim")
"""One of each module that writes."""


@pytest.mark.parametrize("locked", [True])
@pytest.mark.parametrize("change", mostly_long(CHANGES, *EACH_TIME))
def test_change_waits_for_the_writer_that_has_the_lock(race: Services, locked: bool, change: str) -> None:
    """Hold a transaction's beginning in the middle of its write; make each kind of change through the other service."""
    producer, view = race.producer()
    race.a.create_subscription(ORDERS, AUDIT, EXCLUSIVE, LEVEL, Place(EARLIEST))
    [ledger_id] = race.fill_ledgers(1, producer)
    made = SimpleNamespace(
        producer=producer,
        txn=race.a.begin_transaction(MINUTE_MS),
        entry=race.entry(producer),
        batches=[TopicBatch(ORDERS, race.topic.topic_id, ())],
        ledger=(view.partitions[0].partition_id, ledger_id),
        uri=new_object_uri(None, ORDERS, 0, ledger_id),
    )
    outcome = race.race(
        lambda: race.a.begin_transaction(MINUTE_MS), "INSERT INTO transactions", lambda: CHANGES[change](race.b, made)
    )
    outcome.check_both()
    assert outcome.waited


def states(race: Services) -> list[tuple[int, int]]:
    """Return transaction and partition states that differ."""
    return race.rows(
        "SELECT t.state, p.state FROM transactions t JOIN transaction_partitions p ON p.txn = t.txn"
        " WHERE t.state != p.state"
    )


@pytest.mark.parametrize("locked", mostly_long([True, False], True))
def test_appends_to_one_partition_follow_each_other(race: Services, locked: bool) -> None:
    """Hold an append that has read the tail; append through the other service."""
    (one, _), (two, _) = race.producer(), race.producer()
    first, second = race.entry(one), race.entry(two)
    outcome = race.race(
        lambda: race.a.append(one, None, [first]),
        "FROM partitions JOIN ledgers",
        lambda: race.b.append(two, None, [second]),
    )
    outcome.check_both()
    assert outcome.waited is locked
    assert len({*outcome.first.positions, *outcome.second.positions}) == 2
    assert race.rows("SELECT entries FROM ledgers ORDER BY 1 DESC LIMIT 1") == [2]


@pytest.mark.long
@pytest.mark.parametrize("locked", [False])
def test_takeovers_get_different_epochs(race: Services, locked: bool) -> None:
    """Hold a takeover that has looked for the newest producer; take over through the other service."""
    race.producer("teller")
    outcome = race.race(
        lambda: race.a.open_producer(ORDERS, "teller", None),
        "FROM producers.*ORDER BY",
        lambda: race.b.open_producer(ORDERS, "teller", None),
    )
    outcome.check_both()
    assert sorted((outcome.first[0].epoch, outcome.second[0].epoch)) == [1, 2]


@pytest.mark.long
@pytest.mark.parametrize("locked", [False])
def test_transaction_ends_once(race: Services, locked: bool) -> None:
    """Hold a commit that has seen its transaction open, and has its number; abort through the other service."""
    one, _ = race.producer()
    txn = race.a.begin_transaction(MINUTE_MS)
    race.write(one, 0, txn)
    outcome = race.race(
        lambda: race.a.end_transaction(txn, commit=True),
        "UPDATE log_info SET decisions",
        lambda: race.b.end_transaction(txn, commit=False, forced=True),
    )
    assert isinstance(outcome.second, TransactionEndedError)
    assert race.rows("SELECT count(*) FROM entries WHERE kind != 0") == [1]
    assert states(race) == []


@pytest.mark.long
@pytest.mark.parametrize("locked", [False])
def test_log_is_made_once(race: Services, locked: bool) -> None:
    """Hold the creation of a log that has seen none; make one through the other service."""
    race.on(0, lambda c: c.exec_driver_sql("DELETE FROM log_info"))()
    first, second = race.databases
    outcome = race.race(lambda: log.create_log(first), "SELECT log_id", lambda: log.create_log(second))
    outcome.check_both()
    assert race.rows("SELECT count(*) FROM log_info") == [1]


@pytest.mark.long
@pytest.mark.parametrize("locked", [False])
def test_call_is_carried_out_once(race: Services, locked: bool) -> None:
    """Send one call, with one request id, through both: both get the same answer."""
    request = pb.BeginTransactionRequest(request_id="once", timeout_ms=MINUTE_MS)
    outcome = race.race(
        lambda: race.services[0].call("BeginTransaction", request),
        "FROM requests",
        lambda: race.services[1].call("BeginTransaction", request),
    )
    outcome.check_both()
    assert outcome.first == outcome.second
    assert race.rows("SELECT count(*) FROM requests WHERE request_id = 'once'") == [1]


@pytest.mark.long
@pytest.mark.parametrize("locked", [False])
def test_batch_of_a_query_is_committed_once(race: Services, locked: bool) -> None:
    """Commit the first batch of a query through both, as two runs of it would."""
    batches = [TopicBatch(ORDERS, race.topic.topic_id, ())]

    def commit(stub: MetadataStub, run: str) -> object:
        return stub.commit_batch(Sink("query", 0, "spark", None, run), batches, f"key-{run}")

    outcome = race.race(lambda: commit(race.a, "one"), "FROM sinks", lambda: commit(race.b, "two"))
    outcome.check_both()
    assert sorted((outcome.first[1], outcome.second[1])) == [False, True]


@pytest.mark.long
@pytest.mark.parametrize("locked", [False])
def test_version_of_an_application_is_taken_once(race: Services, locked: bool) -> None:
    """Commit one version of an application through both, as a job does that is started twice."""
    batches = [TopicBatch(ORDERS, race.topic.topic_id, ())]

    def commit(stub: MetadataStub, run: str) -> object:
        sink = Sink(None, 0, "spark", None, run, AppVersion("nightly", 1))
        return stub.commit_batch(sink, batches, f"key-{run}")

    outcome = race.race(lambda: commit(race.a, "one"), "FROM app_versions", lambda: commit(race.b, "two"))
    outcome.check_both()
    assert sorted((outcome.first[1], outcome.second[1])) == [False, True]
