"""Races of producers and transactions, on PostgreSQL, through two services: see ``races.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metadata.races import MINUTE_MS, ORDERS, Outcome, Rule, Services, services
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.store import log
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import (
    InvalidArgumentError,
    ProducerFencedError,
    TopicExistsError,
    TransactionEndedError,
)
from txn_source.model.kinds import ABORTED, COMMITTED, OPEN
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.policies import Scope
from txn_source.model.spark_commit import AppVersion, Sink, TopicBatch
from txn_source.model.topic_name import TopicName

ALL = pytest.mark.parametrize("rule", list(Rule))
TWO = pytest.mark.parametrize("rule", [Rule.LOCKED, Rule.UNLOCKED])
"""Of races that end in a wrong outcome without the lock: no conflict shows them."""


@pytest.fixture
def race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Rule) -> Iterator[Services]:
    """A log with two services."""
    with services(tmp_path / "log", monkeypatch, rule) as found:
        yield found


def states(race: Services) -> list[tuple[int, int]]:
    """Return transaction and partition states that differ."""
    return race.rows(
        "SELECT t.state, p.state FROM transactions t JOIN transaction_partitions p ON p.txn = t.txn"
        " WHERE t.state != p.state"
    )


@ALL
def test_appends_to_one_partition_follow_each_other(race: Services, rule: Rule) -> None:
    """Hold an append that has read the tail; append through the other service."""
    (one, _), (two, _) = race.producer(), race.producer()
    first, second = race.entry(one), race.entry(two)
    outcome = race.race(
        lambda: race.a.append(one, None, [first]),
        "FROM partitions JOIN ledgers",
        lambda: race.b.append(two, None, [second]),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert outcome.waited is (rule is Rule.LOCKED)
    assert len({*outcome.first.positions, *outcome.second.positions}) == 2
    assert race.rows("SELECT entries FROM ledgers ORDER BY 1 DESC LIMIT 1") == [2]


@ALL
def test_append_follows_a_ledger_that_was_closed(race: Services, rule: Rule) -> None:
    """Hold an append that has read the tail; close its ledger through the other service."""
    one, _ = race.producer()
    race.write(one)
    entry = race.entry(one)
    outcome = race.race(
        lambda: race.a.append(one, None, [entry]),
        "FROM partitions JOIN ledgers",
        lambda: race.b.roll_ledger(ORDERS, 0),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    [position] = outcome.first.positions
    [closed] = outcome.second
    assert (position.ledger_id == closed) is (rule is Rule.LOCKED)
    assert race.rows(f"SELECT entries FROM ledgers WHERE ledger_id = {closed}") == [1 + (rule is Rule.LOCKED)]


@TWO
def test_fenced_producer_appends_nothing_after_the_takeover(race: Services, rule: Rule) -> None:
    """Hold an append that has looked at its producer's epoch; open the next producer of its transactional id."""
    old, _ = race.producer("teller")
    entry = race.entry(old)
    outcome = race.race(
        lambda: race.a.append(old, None, [entry]),
        "FROM producers",
        lambda: race.b.open_producer(ORDERS, "teller", None),
    )
    outcome.check_both()
    assert outcome.waited is not outcome.overtook
    assert outcome.overtook is (rule is Rule.UNLOCKED)  # the zombie's append came behind the takeover


@TWO
def test_append_that_waits_for_a_takeover_is_fenced(race: Services, rule: Rule) -> None:
    """Hold a takeover that has looked for the newest producer; append as the one that it fences."""
    old, _ = race.producer("teller")
    entry = race.entry(old)
    outcome = race.race(
        lambda: race.a.open_producer(ORDERS, "teller", None),
        "FROM producers.*ORDER BY",
        lambda: race.b.append(old, None, [entry]),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.overtook
    else:
        assert isinstance(outcome.second, ProducerFencedError)


@ALL
def test_takeovers_get_different_epochs(race: Services, rule: Rule) -> None:
    """Hold a takeover that has looked for the newest producer; take over through the other service."""
    race.producer("teller")
    outcome = race.race(
        lambda: race.a.open_producer(ORDERS, "teller", None),
        "FROM producers.*ORDER BY",
        lambda: race.b.open_producer(ORDERS, "teller", None),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert sorted((outcome.first[0].epoch, outcome.second[0].epoch)) == [1, 2]


@TWO
def test_takeover_aborts_what_an_append_has_just_joined(race: Services, rule: Rule) -> None:
    """Hold an append that has checked its transaction; take over its producer's transactional id."""
    old, _ = race.producer("teller")
    txn = race.a.begin_transaction(MINUTE_MS)
    entry = race.entry(old)
    race.race(
        lambda: race.a.append(old, txn, [entry]),
        "SELECT transactions.txn, transactions.state",
        lambda: race.b.open_producer(ORDERS, "teller", None),
    )
    state = race.rows(f"SELECT state FROM transactions WHERE txn = {txn.least_sig_bits}")
    assert state == [OPEN if rule is Rule.UNLOCKED else ABORTED]


@TWO
def test_entry_joins_no_transaction_that_has_ended(race: Services, rule: Rule) -> None:
    """Hold an append that has seen its transaction open; commit it through the other service."""
    one, _ = race.producer()
    txn = race.a.begin_transaction(MINUTE_MS)
    race.write(one, 1, txn)
    entry = race.entry(one, 0)
    race.race(
        lambda: race.a.append(one, txn, [entry]),
        "SELECT transactions.txn, transactions.state",
        lambda: race.b.end_transaction(txn, commit=True),
    )
    stuck = states(race)
    assert stuck == ([(COMMITTED, OPEN)] if rule is Rule.UNLOCKED else [])


@ALL
def test_transaction_ends_once(race: Services, rule: Rule) -> None:
    """Hold a commit that has seen its transaction open, and has its number; abort through the other service."""
    one, _ = race.producer()
    txn = race.a.begin_transaction(MINUTE_MS)
    race.write(one, 0, txn)
    outcome = race.race(
        lambda: race.a.end_transaction(txn, commit=True),
        "UPDATE log_info SET decisions",
        lambda: race.b.end_transaction(txn, commit=False, forced=True),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    assert isinstance(outcome.second, TransactionEndedError)
    assert race.rows("SELECT count(*) FROM entries WHERE kind != 0") == [1]
    assert states(race) == []


@ALL
def test_commit_that_is_repeated_elsewhere_is_answered(race: Services, rule: Rule) -> None:
    """Hold a commit that has seen its transaction open, and has its number; send it again through the other service."""
    one, _ = race.producer()
    txn = race.a.begin_transaction(MINUTE_MS)
    race.write(one, 0, txn)
    outcome = race.race(
        lambda: race.a.end_transaction(txn, commit=True),
        "UPDATE log_info SET decisions",
        lambda: race.b.end_transaction(txn, commit=True),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert race.rows("SELECT count(*) FROM entries WHERE kind != 0") == [1]


@ALL
def test_locks_are_taken_in_one_order(race: Services, rule: Rule) -> None:
    """Hold a commit that has taken its decision's number, and has its partitions before it; append and commit at once
    there, which goes the other way round."""
    one, _ = race.producer()
    two, _ = race.producer()
    txn = race.a.begin_transaction(MINUTE_MS)
    race.write(one, 0, txn)
    entry = race.entry(two)
    outcome = race.race(
        lambda: race.a.end_transaction(txn, commit=True),
        "UPDATE log_info SET decisions",
        lambda: race.b.write_transaction(MINUTE_MS, [(two, [entry])]),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert sorted(race.rows("SELECT decision FROM transactions WHERE state = 1")) == [1, 2]


@ALL
def test_log_is_made_once(race: Services, rule: Rule) -> None:
    """Hold the creation of a log that has seen none; make one through the other service."""
    race.on(0, lambda c: c.exec_driver_sql("DELETE FROM log_info"))()
    first, second = race.databases
    outcome = race.race(lambda: log.create_log(first), "SELECT log_info.log_id", lambda: log.create_log(second))
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert race.rows("SELECT count(*) FROM log_info") == [1]


# Look first, insert then: whoever comes second is told what it is, not that something failed


def _sequel(outcome: Outcome, rule: Rule) -> object:
    """Return what the one that came second was told; the other one has succeeded."""
    winner, loser = ("first", "second") if rule is Rule.LOCKED else ("second", "first")
    won = getattr(outcome, winner)
    assert not isinstance(won, Exception), won
    return getattr(outcome, loser)


@ALL
def test_topic_is_made_once(race: Services, rule: Rule) -> None:
    """Make a topic of one name through both."""
    name = TopicName.parse("bills")
    outcome = race.race(
        lambda: race.a.create_topic(name, 1, None, LedgerLimits(), {}),
        "FROM topics WHERE topics.name =",
        lambda: race.b.create_topic(name, 1, None, LedgerLimits(), {}),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    assert isinstance(_sequel(outcome, rule), TopicExistsError)


@ALL
def test_call_is_carried_out_once(race: Services, rule: Rule) -> None:
    """Send one call, with one request id, through both: both get the same answer."""
    request = pb.BeginTransactionRequest(request_id="once", timeout_ms=MINUTE_MS)
    outcome = race.race(
        lambda: race.services[0].call("BeginTransaction", request),
        "FROM requests",
        lambda: race.services[1].call("BeginTransaction", request),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert outcome.first == outcome.second
    assert race.rows("SELECT count(*) FROM requests WHERE request_id = 'once'") == [1]


@ALL
def test_append_is_stored_once(race: Services, rule: Rule) -> None:
    """Send one append through both, as a client does that has got no answer: both get the same positions."""
    one, _ = race.producer()
    entries = [race.entry(one), race.entry(one, 1)]
    outcome = race.race(
        lambda: race.a.append(one, None, entries), "FROM segments", lambda: race.b.append(one, None, entries)
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert outcome.first == outcome.second
    assert race.rows("SELECT count(*) FROM entries") == [2]


@ALL
def test_segment_is_registered_once(race: Services, rule: Rule) -> None:
    """Append two entries of one new segment through both: it has both."""
    one, _ = race.producer()
    first, second = race.entry(one), race.entry(one)
    outcome = race.race(
        lambda: race.a.append(one, None, [first]), "FROM segments", lambda: race.b.append(one, None, [second])
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert race.rows("SELECT count(*) FROM segments") == [1]


@ALL
def test_producer_joins_a_transaction_once(race: Services, rule: Rule) -> None:
    """Append to two partitions under one transaction through both."""
    one, _ = race.producer()
    race.write(one, 0)
    race.write(one, 1)
    txn = race.a.begin_transaction(MINUTE_MS)
    first, second = race.entry(one, 0), race.entry(one, 1)
    outcome = race.race(
        lambda: race.a.append(one, txn, [first]),
        "FROM transaction_producers",
        lambda: race.b.append(one, txn, [second]),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert race.rows("SELECT count(*) FROM transaction_producers") == [1]
    assert race.rows("SELECT count(*) FROM transaction_partitions") == [2]


@ALL
def test_batch_of_a_query_is_committed_once(race: Services, rule: Rule) -> None:
    """Commit the first batch of a query through both, as two runs of it would."""
    batches = [TopicBatch(ORDERS, race.topic.topic_id, ())]

    def commit(stub: MetadataStub, run: str) -> object:
        return stub.commit_batch(Sink("query", 0, "spark", None, run), batches, f"key-{run}")

    outcome = race.race(lambda: commit(race.a, "one"), "FROM sinks", lambda: commit(race.b, "two"))
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert sorted((outcome.first[1], outcome.second[1])) == [False, True]


@ALL
def test_version_of_an_application_is_taken_once(race: Services, rule: Rule) -> None:
    """Commit one version of an application through both, as a job does that is started twice."""
    batches = [TopicBatch(ORDERS, race.topic.topic_id, ())]

    def commit(stub: MetadataStub, run: str) -> object:
        sink = Sink(None, 0, "spark", None, run, AppVersion("nightly", 1))
        return stub.commit_batch(sink, batches, f"key-{run}")

    outcome = race.race(lambda: commit(race.a, "one"), "FROM app_versions", lambda: commit(race.b, "two"))
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert sorted((outcome.first[1], outcome.second[1])) == [False, True]


@ALL
def test_policy_is_set_once(race: Services, rule: Rule) -> None:
    """Set a policy through both: the later one stays."""
    scope = Scope(ORDERS)
    outcome = race.race(
        lambda: race.a.change_policies(scope, {"retention_bytes": "1000"}),
        "DELETE FROM policies",
        lambda: race.b.change_policies(scope, {"retention_bytes": "2000"}),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert race.rows("SELECT value FROM policies") == ["2000" if rule is Rule.LOCKED else "1000"]


@TWO
def test_ids_show_in_the_order_in_which_they_are_given(race: Services, rule: Rule) -> None:
    """Hold an append that has registered a segment; register the next one, and list segments from there on: who goes
    through them by id misses none."""
    (one, _), (two, _) = race.producer(), race.producer()
    first, second = race.entry(one, 0), race.entry(two, 1)
    seen: list[str] = []

    def append_and_list() -> None:
        race.b.append(two, None, [second])
        seen.extend(race.rows("SELECT path FROM segments ORDER BY segment_id"))

    race.race(lambda: race.a.append(one, None, [first]), "INSERT INTO segments", append_and_list)
    assert seen == ([second.segment] if rule is Rule.UNLOCKED else [first.segment, second.segment])
    assert race.rows("SELECT path FROM segments ORDER BY segment_id") == [first.segment, second.segment]


def test_unknown_database_is_refused() -> None:
    """Open what is neither SQLite nor PostgreSQL."""
    with pytest.raises(InvalidArgumentError, match="mysql"):
        open_database("mysql://db/log")
