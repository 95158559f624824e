"""Reads of several statements while another service writes, on PostgreSQL: each sees one moment. See ``races.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metadata.races import MINUTE_MS, ORDERS, Services, services
from txn_source.metadata.store import sealing
from txn_source.model.position import Position, PositionRange
from txn_source.model.topic import PartitionView


@pytest.fixture
def race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """A log with two services."""
    with services(tmp_path / "log", monkeypatch) as found:
        yield found


def views(race: Services) -> list[PartitionView]:
    return race.a.open_producer(ORDERS, None, None)[1].partitions


def all_of(view: PartitionView) -> PositionRange:
    return PositionRange(view.bounds.log_start, view.bounds.log_end)


def trim_all(race: Services) -> None:
    """Close the first partition's ledger and trim it."""
    [ledger_id] = race.b.roll_ledger(ORDERS, 0)
    race.b.trim_topic(ORDERS, {0: Position(ledger_id + 1, 0)}, None, None)


def test_aborted_messages_stay_hidden_while_a_ledger_is_sealed(race: Services) -> None:
    """Hold a listing of aborted transactions that has found no sealed page; seal through the other service."""
    one, _ = race.producer()
    txn = race.a.begin_transaction(MINUTE_MS)
    race.write(one, 0, txn)
    race.a.end_transaction(txn, commit=False)
    view = views(race)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "_SEAL_FROM_ROWS", 1)
        outcome = race.race(
            lambda: race.a.list_decisions(view.partition_id, all_of(view), aborted_only=True, decisions=10),
            "FROM decision_pages",
            lambda: race.b.roll_ledger(ORDERS, 0),
        )
    outcome.check_both()
    assert outcome.overtook
    assert outcome.first.num_rows == 1


def test_entries_of_a_range_are_there_or_told_to_be_gone(race: Services) -> None:
    """Hold a listing of entries that has found hot copies of them; trim them through the other service."""
    one, _ = race.producer()
    race.write(one)
    view = views(race)[0]
    outcome = race.race(
        lambda: sum(page.entries.num_rows for page in race.a.list_entries(view.partition_id, all_of(view))),
        "FROM ledgers WHERE .*hot_deleted_at_ms IS NOT NULL",
        lambda: trim_all(race),
    )
    outcome.check_both()
    assert outcome.overtook
    assert outcome.first == 1


def test_bounds_of_a_view_are_of_one_moment(race: Services) -> None:
    """Hold a view that has read the ends, within a transaction; let that write more, and commit it."""
    one, _ = race.producer()
    txn = race.a.begin_transaction(MINUTE_MS)
    race.write(one, 0, txn)
    second = race.entry(one, 1)

    def go_on() -> None:
        race.b.append(one, txn, [second])
        race.b.end_transaction(txn, commit=True)

    outcome = race.race(lambda: race.a.get_view([ORDERS]), "FROM partitions JOIN ledgers", go_on)
    outcome.check_both()
    [of_topic] = outcome.first.topics
    seen = [view.bounds.last_stable != view.bounds.log_start for view in of_topic.partitions]
    assert seen == [False, False], "nothing, not half of it"


def test_message_of_a_time_is_found_or_never_was(race: Services) -> None:
    """Hold a search by time that has found the ledger; trim it through the other service."""
    one, _ = race.producer()
    race.write(one)
    view = views(race)[0]
    outcome = race.race(
        lambda: race.a.find_positions([view.partition_id], 0)[view.partition_id],
        "FROM ledgers WHERE .*last_publish_time_us >=",
        lambda: trim_all(race),
    )
    outcome.check_both()
    assert outcome.first is not None


def test_cut_knows_what_it_is_cut_from(race: Services) -> None:
    """Hold a cut that has looked at the logs' starts; trim one half of a transaction that the bounds cut in two."""
    one, _ = race.producer()
    txn = race.a.begin_transaction(MINUTE_MS)
    race.write(one, 0, txn)
    race.write(one, 1, txn)
    race.a.end_transaction(txn, commit=True)
    first, second = views(race)
    bounds = {first.partition_id: first.bounds.log_end, second.partition_id: second.bounds.log_start}
    outcome = race.race(lambda: race.a.find_cut(bounds), "FROM partitions AS p JOIN topics", lambda: trim_all(race))
    outcome.check_both()
    assert outcome.first[first.partition_id] == first.bounds.log_start
