"""Races of offloads, deletions and trims, on PostgreSQL, through two services: see ``races.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metadata.races import ORDERS, Rule, Services, services
from txn_source.model.copies import Tier, TieredCopy
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, Position
from txn_source.model.subscription import Place, SubscriptionType
from txn_source.storage.object_names import new_object_uri

ALL = pytest.mark.parametrize("rule", list(Rule))
TWO = pytest.mark.parametrize("rule", [Rule.LOCKED, Rule.UNLOCKED])
"""Of races that end in a wrong outcome without the lock: no conflict shows them."""


@pytest.fixture
def race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Rule) -> Iterator[Services]:
    """A log with two services."""
    with services(tmp_path / "log", monkeypatch, rule) as found:
        yield found


def begin(race: Services, ledger_id: int) -> tuple[int, TieredCopy]:
    """Begin an offload; return its id and its object."""
    [partition_id] = race.rows(f"SELECT partition_id FROM ledgers WHERE ledger_id = {ledger_id}")
    uri = new_object_uri(None, ORDERS, 0, ledger_id)
    copy_id = race.a.begin_offload(partition_id, ledger_id, uri)
    assert copy_id is not None
    return copy_id, TieredCopy(uri, 1000, 100, 7)


def offload(race: Services, ledger_id: int) -> None:
    assert race.a.complete_offload(*begin(race, ledger_id))


def copies_of(race: Services, ledger_id: int) -> tuple[bool, bool]:
    """Return whether a ledger has a hot and a tiered copy."""
    [(hot, tiered)] = race.rows(
        f"SELECT hot_deleted_at_ms IS NULL, offloaded_at_ms IS NOT NULL FROM ledgers WHERE ledger_id = {ledger_id}"
    )
    return hot, tiered


@ALL
def test_ledger_keeps_one_copy(race: Services, rule: Rule) -> None:
    """Hold a deletion of the hot copy that has seen both; delete the tiered one through the other service."""
    one, _ = race.producer()
    [ledger] = race.fill_ledgers(1, one)
    offload(race, ledger)
    outcome = race.race(
        lambda: race.a.delete_copies(ORDERS, Tier.BOOKKEEPER, [ledger]),
        "FROM ledgers WHERE .*ledgers.ledger_id IN",
        lambda: race.b.delete_copies(ORDERS, Tier.TIERED, [ledger]),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert sorted((outcome.first, outcome.second)) == [0, 1]
    assert copies_of(race, ledger) == ((False, True) if rule is Rule.LOCKED else (True, False))


@ALL
def test_offload_is_completed_once(race: Services, rule: Rule) -> None:
    """Hold the completion of an offload that has seen none complete; complete another one of the same ledger."""
    one, _ = race.producer()
    [ledger] = race.fill_ledgers(1, one)
    first, second = begin(race, ledger), begin(race, ledger)
    outcome = race.race(
        lambda: race.a.complete_offload(*first), "FROM copies JOIN ledgers", lambda: race.b.complete_offload(*second)
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert sorted((outcome.first, outcome.second)) == [False, True]
    accepted = first if outcome.first else second
    assert race.rows("SELECT uri FROM copies") == [accepted[1].uri]
    doomed = second if outcome.first else first
    assert race.rows("SELECT uri FROM doomed_files") == [doomed[1].uri]


@TWO
def test_entry_lies_in_no_file_that_is_deleted(race: Services, rule: Rule) -> None:
    """Hold an append that has seen its segment in use; delete the hot copies of all that the segment has so far."""
    one, _ = race.producer()
    [ledger] = race.fill_ledgers(1, one)
    offload(race, ledger)
    entry = race.entry(one)
    outcome = race.race(
        lambda: race.a.append(one, None, [entry]),
        "FROM segments",
        lambda: race.b.delete_copies(ORDERS, Tier.BOOKKEEPER, [ledger]),
    )
    outcome.check_both()
    lost = race.rows("SELECT count(*) FROM entries JOIN segments USING (segment_id) JOIN ledgers"
                     " ON position >> 32 = ledger_id WHERE deleted != 0 AND hot_deleted_at_ms IS NULL")  # fmt: skip
    assert lost == [1 if rule is Rule.UNLOCKED else 0]


@TWO
@pytest.mark.parametrize("how", ["trimmed", "deleted"])
def test_object_of_a_ledger_that_goes_is_not_forgotten(race: Services, rule: Rule, how: str) -> None:
    """Hold an offload that has just been noted; trim its ledger, or delete its topic: the object is to be deleted when
    it is written."""
    one, view = race.producer()
    [ledger] = race.fill_ledgers(1, one)
    partition_id = view.partitions[0].partition_id
    uri = new_object_uri(None, ORDERS, 0, ledger)
    end = Position(ledger + 100, 0)

    def let_go() -> None:
        if how == "trimmed":
            race.b.trim_topic(ORDERS, {0: end}, None, None)
        else:
            race.b.delete_topic(ORDERS)

    outcome = race.race(lambda: race.a.begin_offload(partition_id, ledger, uri), "INSERT INTO copies", let_go)
    outcome.check_both()
    assert race.rows(f"SELECT count(*) FROM ledgers WHERE ledger_id = {ledger}") == [0]
    assert race.rows("SELECT uri FROM doomed_files WHERE uri LIKE 'tiered%'") == (
        [] if rule is Rule.UNLOCKED else [uri]
    )


@ALL
def test_offload_of_a_trimmed_ledger_does_not_begin(race: Services, rule: Rule) -> None:
    """Hold an offload that has seen its ledger; trim that through the other service."""
    one, view = race.producer()
    [ledger] = race.fill_ledgers(1, one)
    uri = new_object_uri(None, ORDERS, 0, ledger)
    outcome = race.race(
        lambda: race.a.begin_offload(view.partitions[0].partition_id, ledger, uri),
        "FROM ledgers WHERE ledgers.ledger_id =",
        lambda: race.b.trim_topic(ORDERS, {0: Position(ledger + 100, 0)}, None, None),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
    elif rule is Rule.REPEATED:
        assert isinstance(outcome.first, InvalidArgumentError)
    else:
        outcome.check_both()
        assert race.rows("SELECT uri FROM doomed_files WHERE uri LIKE 'tiered%'") == [uri]


@ALL
def test_trims_count_what_goes_once(race: Services, rule: Rule) -> None:
    """Hold a trim of two ledgers that has seen them; trim three through the other service."""
    one, view = race.producer()
    ledgers = race.fill_ledgers(3, one)
    outcome = race.race(
        lambda: race.a.trim_topic(ORDERS, {0: Position(ledgers[2], 0)}, None, None),
        "FROM ledgers WHERE .*closed_at_ms IS NOT NULL",
        lambda: race.b.trim_topic(ORDERS, {0: Position(ledgers[2] + 100, 0)}, None, None),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert outcome.first[0].messages + outcome.second[0].messages == 3
    of_partition = f"WHERE partition_id = {view.partitions[0].partition_id}"
    assert race.rows(f"SELECT messages_trimmed, log_start >> 32 > {ledgers[2]} FROM partitions {of_partition}") == [
        (3, True)
    ]


@TWO
@pytest.mark.parametrize("how", ["made", "sought"])
def test_trim_keeps_what_a_subscription_has_just_asked_for(race: Services, rule: Rule, how: str) -> None:
    """Hold a trim that has found no subscription in its way; put one at the beginning through the other service."""
    one, _ = race.producer()
    [ledger] = race.fill_ledgers(1, one)
    make = (ORDERS, "audit", SubscriptionType.EXCLUSIVE, IsolationLevel.READ_COMMITTED)
    if how == "sought":
        race.a.create_subscription(*make, Place("latest"))

    def put() -> None:
        if how == "made":
            race.b.create_subscription(*make, Place(EARLIEST))
        else:
            race.b.seek_subscription(ORDERS, "audit", Place(EARLIEST))

    outcome = race.race(
        lambda: race.a.trim_topic(ORDERS, {0: Position(ledger + 100, 0)}, None, None),
        "FROM subscriptions JOIN cursors",
        put,
    )
    outcome.check_both()
    lost = race.rows(
        "SELECT count(*) FROM cursors JOIN partitions USING (partition_id) WHERE mark_position < log_start"
    )
    assert lost == [1 if rule is Rule.UNLOCKED else 0]
