"""What one consumer of many asks for costs as much as if it were alone, and each gets what it would have got."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from tests.log.reading import BY_HAND, send_each
from tests.log.sites import Site
from txn_source.metadata.store import consumers, deliveries, subscriptions, tables
from txn_source.metadata.store.database import Database
from txn_source.metadata.store.opening import open_database
from txn_source.model.acknowledgement import Acknowledged, Acknowledgement
from txn_source.model.message_ranges import MessageRange, message_key
from txn_source.model.position import Position
from txn_source.storage.root import LogRoot

CONSUMERS, NOW_MS = 20, 1_000_000


class Shared:
    """A shared subscription with consumers; each of its entries has two messages, handed out to one of them."""

    def __init__(self, database: Database, first: Position) -> None:
        self.database = database
        self.first = first
        self.consumers = [self.connect(f"token {number}") for number in range(CONSUMERS)]
        for number, consumer_id in enumerate(self.consumers):
            item = self.messages(number)
            database.write(lambda c, item=item, to=consumer_id: deliveries.hand_out(c, 1, 1, item, to))
        database.write(lambda c: deliveries.advance(c, 1, 1, first.plus(CONSUMERS).key))

    def connect(self, token: str) -> int:
        def connect(connection: Connection) -> int:
            subscription = subscriptions.by_id(connection, 1)
            assert subscription is not None
            return consumers.register(connection, subscription, token, token, NOW_MS)[0]

        return self.database.write(connect)

    def messages(self, entry: int, first: int = 0, end: int = 2) -> MessageRange:
        """Return the range of some messages of an entry."""
        at = self.first.plus(entry)
        return MessageRange(message_key(at, first), message_key(at, end) if end < 2 else message_key(at.plus(1)), 1)

    def acknowledge(self, consumer: int, *ranges: MessageRange) -> int:
        ack = Acknowledgement(1, self.consumers[consumer], 0, (Acknowledged(1, ranges),))
        return self.database.write(lambda connection: subscriptions.acknowledge(connection, ack))

    def left(self) -> dict[int, int]:
        """Return how many messages of each entry are handed out and not acknowledged, by the entry's number."""
        d = tables.deliveries.c
        with self.database.read() as connection:
            rows = connection.execute(select(d.start_position, d.messages)).all()
        return {row.start_position - self.first.key: row.messages for row in rows}


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    with Site("embedded", tmp_path / "log") as site:
        log = site.connect()
        log.create_topic("t")
        sent = send_each(log.producer("t", batching=BY_HAND), [b"x"] * CONSUMERS)
        log.create_subscription("t", "s", "shared", initial_position="earliest")
        with closing(open_database(LogRoot.at(site.root).database_url)) as database:
            yield Shared(database, sent[0].position)


@pytest.mark.parametrize("again", [True, False])
def test_acknowledgement_of_what_others_have_counts(shared: Shared, again: bool) -> None:
    """Acknowledge a delivery of one's own together with two that others have by now: all three are gone."""
    assert shared.acknowledge(7, shared.messages(3), shared.messages(7), shared.messages(12)) == 3
    if again:
        assert shared.acknowledge(3, shared.messages(3)) == 0
    assert shared.left() == {n: 1 for n in range(CONSUMERS) if n not in (3, 7, 12)}
