"""What a shared subscription has handed out is cut where parts of it are to be handed out again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import Connection

from tests.log.sites import Site
from tests.selection import mostly_long
from txn_source.metadata.store import deliveries, subscriptions
from txn_source.metadata.store.database import Database
from txn_source.metadata.store.opening import open_database
from txn_source.model.message_ranges import MessageRange, message_key
from txn_source.model.position import Position
from txn_source.storage.root import LogRoot

ENTRIES, MESSAGES, CONSUMER = 4, 10, 7


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A log with a topic of one partition, and a shared subscription that has handed out entries of ten messages."""
    with Site("embedded", tmp_path / "log") as site:
        log = site.connect()
        log.create_topic("t")
        log.create_subscription("t", "s", "shared")
        with closing(open_database(LogRoot.at(site.root).database_url)) as database:
            for entry in range(ENTRIES):
                whole = part(entry, 0, MESSAGES)
                database.write(lambda c, item=whole: deliveries.hand_out(c, 1, 1, item, CONSUMER))
            yield database


def part(entry: int, first: int, end: int) -> MessageRange:
    """Return the range of some messages of an entry."""
    return MessageRange(
        message_key(Position(1, entry), first),
        message_key(Position(1, entry), end) if end < MESSAGES else message_key(Position(1, entry + 1)),
        end - first,
    )


def held(connection: Connection) -> dict[bool, list[MessageRange]]:
    """Return what is to be handed out again (True), and what the consumer has (False)."""
    found: dict[bool, list[MessageRange]] = {True: [], False: []}
    for row in deliveries._delivered(connection, 1, 1):
        found[row.consumer_id is None].append(deliveries._range(row))
        assert row.redeliveries == (row.consumer_id is None)
    return found


@pytest.mark.parametrize("seed", mostly_long(range(20), 0, 1, 2, 3, 4))
@pytest.mark.parametrize("at_once", [True, False])
def test_asked_for_parts_are_cut_out(database: Database, seed: int, at_once: bool) -> None:
    """Ask for some messages again, each as a part of its own, as consumers send them: each is in one row then."""
    random = Random(seed)
    asked = [(e, m) for e in range(ENTRIES) for m in range(MESSAGES) if random.random() < 0.3]
    random.shuffle(asked)
    ranges = [part(e, m, m + 1) for e, m in asked]
    parts = [(1, ranges)] if at_once else [(1, [one]) for one in ranges]

    def redeliver(connection: Connection) -> None:
        subscription = subscriptions.by_id(connection, 1)
        assert subscription is not None
        deliveries.redeliver(connection, subscription, CONSUMER, iter(parts), counts=False)

    database.write(redeliver)
    with database.read() as connection:
        found = held(connection)
    assert sorted((r.start, r.end) for r in found[True]) == sorted((r.start, r.end) for r in ranges)
    everything = sorted(found[True] + found[False])
    assert all(a.end == b.start for a, b in pairwise(everything))
    assert (everything[0].start, everything[-1].end) == (part(0, 0, 1).start, part(ENTRIES - 1, 9, 10).end)
    assert sum(r.messages for r in found[True]) == len(ranges)
    assert sum(r.messages for r in everything) <= ENTRIES * MESSAGES
