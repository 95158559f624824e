"""Writes that are registered together are what they would have been one after the other, whatever they are."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, select

from tests.selection import examples
from txn_source.metadata.store import appends, producers, topic_changes, transactions
from txn_source.metadata.store.appends import Append, Write, Written, write_all
from txn_source.metadata.store.group_commit import Joined
from txn_source.metadata.store.log import create_log
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.tables import entries as entries_table
from txn_source.metadata.store.tables import ledgers, metadata, partitions
from txn_source.model.entry import NewEntry, OpenedProducer
from txn_source.model.errors import TxnLogError
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.topic_name import TopicName

NOW_US = 1_700_000_000_000_000
PARTITIONS = 3


class World:
    """A log with two topics, five producers, one of which is fenced, and three transactions, one of which is open."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = open_database(f"sqlite:///{path}")
        create_log(self.database)
        self.producers: list[OpenedProducer] = []
        self.topic_of: list[int] = []
        self.partition_ids: list[int] = []
        self.txns: list[int] = []
        self.database.write(self._make)
        self.database.close()

    def _make(self, connection: Connection) -> None:
        limits = LedgerLimits(max_entries=4, max_bytes=10_000, max_age_ms=10**9)
        for name in ("debits", "credits"):
            row = topic_changes.create(connection, TopicName.parse(name), PARTITIONS, None, limits, NOW_US // 1000)
            for transactional_id in ("a", None, "a") if name == "debits" else (None, None):
                opened = producers.open_producer(connection, row.topic_id, transactional_id, None, NOW_US)
                self.producers.append(opened)
                self.topic_of.append(row.topic_id)
        self.partition_ids = list(connection.execute(select(partitions.c.partition_id)).scalars())
        self.txns = [transactions.begin(connection, 60_000, NOW_US // 1000) for _ in range(2)]
        transactions.end(connection, self.txns[1], commit=True, reason=transactions.EndReason.CLIENT, now_us=NOW_US)
        self.txns.append(99)  # never begun


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("world") / "metadata.db")


entries = st.tuples(
    st.sampled_from([0, 0, 0, 0, 1, 5]),  # partition: the last one is another topic's
    st.sampled_from([None, None, None, 0, 2, 5]),  # sequence; None: the next one
    st.integers(1, 3),  # messages
    st.sampled_from([0, 0, 1]),  # file
    st.sampled_from([None, None, 0, 3]),  # place in the file; None: the next one
)


drawn_appends = st.tuples(st.sampled_from([1, 1, 1, 1, 1, 2, 2, 4, 0]), st.lists(entries, min_size=1, max_size=2))
kinds = st.sampled_from(["plain", "plain", "whole", "whole", 0, 0, 1, 2])
repetitions = st.integers(1, 2)  # of the write so many before
writes = st.one_of(st.tuples(st.lists(drawn_appends, min_size=1, max_size=2), kinds), repetitions)


def made(world: World, drawn: Any, next_of: Counter[Any]) -> Write:
    """Turn what was drawn into a write. The next sequences and places are those after what was drawn before."""
    of_producers, kind = drawn
    made = []
    for index, of_entries in of_producers:
        producer, topic_id = world.producers[index], world.topic_of[index]
        new = []
        for partition, sequence, messages, file, place in of_entries:
            partition_id = world.partition_ids[partition]
            sequence = next_of[index] if sequence is None else sequence
            place = next_of[index, partition, file] if place is None else place
            next_of[index] = max(next_of[index], sequence + messages)
            next_of[index, partition, file] = max(next_of[index, partition, file], place + 1)
            path = f"segments/{topic_id}/{partition % PARTITIONS}/{1}-{producer.producer_id}-{file:012x}.arrow"
            new.append(NewEntry(partition_id, sequence, messages, path, 8 + place * 50, 50, 7))
        made.append(Append(producer.producer_id, producer.epoch, new))
    if kind == "plain":
        return Write(made)
    return Write(made, timeout_ms=1000) if kind == "whole" else Write(made, world.txns[kind])


def outcome(world: World, path: Path, drawn: list[Any], *, together: bool) -> tuple[list[str], dict[str, Any]]:
    """Carry writes out on a copy of the world; return what came of them, and all tables."""
    shutil.copy(world.path, path)
    database = open_database(f"sqlite:///{path}")
    next_of: Counter[Any] = Counter()
    todo: list[Write] = []
    for each in drawn:
        if isinstance(each, int):
            todo += todo[-each:][:1]
        else:
            todo.append(made(world, each, next_of))
    done: list[Written | TxnLogError] = []
    if together:
        done += database.write(lambda connection: write_all(connection, todo, NOW_US, {}))
    else:
        for each in todo:
            done += database.write(lambda connection, each=each: write_all(connection, [each], NOW_US, {}))
    with database.read() as connection:
        tables = {
            table.name: sorted(map(repr, connection.execute(select(table)).all())) for table in metadata.sorted_tables
        }
    database.close()
    return [repr(each) for each in done], tables


@settings(max_examples=examples(30), deadline=None)
@example(drawn=[([(1, [(0, None, 1, 0, None)])], "plain"), ([(1, [(0, None, 1, 0, 0)])], "plain")])  # the same bytes
@example(drawn=[([(1, [(0, None, 2, 0, None)])], "whole"), 1])  # a repetition beside its first try
@given(drawn=st.lists(writes, min_size=1, max_size=8))
def test_writes_together_are_what_they_are_one_by_one(world: World, drawn: list[Any]) -> None:
    """Register random writes in one step, and one by one elsewhere; compare answers, errors and all tables."""
    alone = outcome(world, world.path.with_name("alone.db"), drawn, together=False)
    for stored_at_once in (appends.STORED_AT_ONCE, 1):
        with patch.object(appends, "STORED_AT_ONCE", stored_at_once):
            assert outcome(world, world.path.with_name("together.db"), drawn, together=True) == alone


def written_together(database: Any, together: Callable[..., Any], writes: Sequence[Write]) -> dict[int, Any]:
    """Let writes wait while another one is carried out, so that they are one step; return what came of each."""
    held, entered = threading.Event(), threading.Event()
    answers: dict[int, Any] = {}

    def hold(connection: Connection) -> None:
        entered.set()
        assert held.wait(60)

    def run(index: int) -> None:
        try:
            answers[index] = database.write(Joined(together, writes[index]))
        except Exception as error:
            answers[index] = error

    leader = threading.Thread(target=lambda: database.write(hold))
    leader.start()
    assert entered.wait(60)
    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(writes))]
    for thread in threads:
        thread.start()
    queue = database._here()[1]._queue
    while len(queue) < len(threads):
        entered.wait(0.01)
    held.set()
    for thread in [leader, *threads]:
        thread.join()
    return answers


def test_waiting_writes_join(world: World, tmp_path: Path) -> None:
    """Let thirty threads write whole transactions while a leader is held: one step, and each gets its own answer.

    A repetition that waits beside its first try gets the same answer; one without a producer is refused alone.
    """
    shutil.copy(world.path, tmp_path / "metadata.db")
    database = open_database(f"sqlite:///{tmp_path / 'metadata.db'}")
    steps: list[int] = []

    def together(connection: Connection, writes: Any) -> Any:
        steps.append(len(writes))
        return write_all(connection, writes, NOW_US, {})

    whole = [made(world, ([(1, [(n % 3, 2 * n, 2, n % 3, n)])], "whole"), Counter()) for n in range(28)]
    whole = [*whole, whole[5], Write([replace(whole[0].appends[0], producer_id=77)], timeout_ms=1)]
    answers = written_together(database, together, whole)
    assert steps == [30]
    assert answers[29].code == "TOPIC_NOT_FOUND"
    assert sorted([answers[5].repeated, answers[28].repeated]) == [False, True]
    assert (answers[5].txn, answers[5].appended) == (answers[28].txn, answers[28].appended)
    positions = [position for index in range(28) for each in answers[index].appended for position in each.positions]
    assert len(set(positions)) == 28
    assert len({answers[index].txn for index in range(28)}) == 28
    database.close()


def test_write_that_breaks_the_step_takes_no_other_with_it(world: World, tmp_path: Path) -> None:
    """Let one of ten writes that wait together fail in a way that nobody foresaw: it alone is refused."""
    shutil.copy(world.path, tmp_path / "metadata.db")
    database = open_database(f"sqlite:///{tmp_path / 'metadata.db'}")

    def together(connection: Connection, writes: Any) -> Any:
        done = write_all(connection, writes, NOW_US, {})
        if any(each.timeout_ms == 13 for each in writes):
            raise ZeroDivisionError("unforeseen")
        return done

    whole = [made(world, ([(1, [(n % 3, 2 * n, 2, n % 3, n)])], "whole"), Counter()) for n in range(10)]
    whole[4] = replace(whole[4], timeout_ms=13)
    answers = written_together(database, together, whole)
    assert isinstance(answers.pop(4), ZeroDivisionError)
    assert len({answers[index].txn for index in answers}) == 9
    with database.read() as connection:
        stored = connection.execute(select(entries_table.c.base_sequence).where(entries_table.c.txn.is_not(None)))
        assert sorted(n for n in stored.scalars() if n is not None) == [2 * n for n in range(10) if n != 4]
    database.close()


def test_old_ledgers_that_a_refused_write_has_rolled_stay_whole(world: World, tmp_path: Path) -> None:
    """Let a ledger grow too old, and write in one step something that is refused there, and something elsewhere."""
    shutil.copy(world.path, tmp_path / "metadata.db")
    database = open_database(f"sqlite:///{tmp_path / 'metadata.db'}")
    first = made(world, ([(1, [(0, 0, 1, 0, 0), (1, 1, 1, 0, 0)])], "plain"), Counter())
    database.write(lambda connection: write_all(connection, [first], NOW_US, {}))
    bad, good = (made(world, ([(1, [(partition, 9, 1, 1, 0)])], "plain"), Counter()) for partition in (0, 1))
    bad = replace(bad, appends=[replace(bad.appends[0], epoch=5)])
    later_us = NOW_US + 10**9 * 1000 + 1
    done = database.write(lambda connection: write_all(connection, [bad, good], later_us, {}))
    assert [isinstance(each, TxnLogError) for each in done] == [True, False]
    with database.read() as connection:
        query = select(partitions.c.open_ledger_id, ledgers.c.closed_at_ms).join(
            ledgers, ledgers.c.ledger_id == partitions.c.open_ledger_id
        )
        rows = connection.execute(query).all()
    database.close()
    assert len(rows) == 2 * PARTITIONS
    assert [row.closed_at_ms for row in rows if row.closed_at_ms is not None] == []
