"""Races of consumers, acknowledgements and seeks, on PostgreSQL, in two services: see ``races.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from tests.metadata.races import MINUTE_MS, ORDERS, Rule, Services, services
from txn_source.metadata.store import consumers, deliveries, subscriptions
from txn_source.model.acknowledgement import Acknowledged, Acknowledgement
from txn_source.model.errors import (
    StaleEpochError,
    SubscriptionBusyError,
    SubscriptionExistsError,
    UnavailableError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import MessageRange, message_key
from txn_source.model.position import EARLIEST, MessageId, Position
from txn_source.model.subscription import Place, SubscriptionType

ALL = pytest.mark.parametrize("rule", list(Rule))
TWO = pytest.mark.parametrize("rule", [Rule.LOCKED, Rule.UNLOCKED])
"""Of races that end in a wrong outcome without the lock: no conflict shows them."""
NAME = "audit"


class Audit:
    """A subscription with a consumer, and ten messages before it on partition 0."""

    def __init__(self, race: Services, kind: SubscriptionType) -> None:
        one, view = race.producer()
        self.race = race
        self.partition_id = view.partitions[0].partition_id
        race.a.create_subscription(ORDERS, NAME, kind, IsolationLevel.READ_COMMITTED, Place(EARLIEST))
        self.positions = [race.a.append(one, None, [race.entry(one)]).positions[0] for _ in range(10)]
        [self.id] = race.rows("SELECT subscription_id FROM subscriptions")

    def register(self, number: int, token: str) -> Any:
        """Return a call that connects a consumer through a service."""

        def action(connection: Connection) -> int:
            row = subscriptions.by_id(connection, self.id)
            assert row is not None
            now_ms = self.race.databases[number].clock() // 1000
            return consumers.register(connection, row, token, token, now_ms)[0]

        return self.race.on(number, action)

    def range(self, first: int, end: int) -> MessageRange:
        """Return the range of some of the messages, by their numbers."""
        after = self.positions[end] if end < len(self.positions) else self.positions[-1].plus(1)
        return MessageRange(message_key(self.positions[first]), message_key(after), end - first)

    def acknowledge(self, number: int, consumer_id: int, *ranges: MessageRange, epoch: int = 0) -> Any:
        """Return a call that acknowledges through a service."""
        ack = Acknowledgement(self.id, consumer_id, epoch, (Acknowledged(self.partition_id, ranges),))
        return self.race.on(number, lambda connection: subscriptions.acknowledge(connection, ack))

    def seek(self, number: int, to: Position) -> Any:
        """Return a call that seeks through a service."""
        stub = (self.race.a, self.race.b)[number]
        return lambda: stub.seek_subscription(
            ORDERS, NAME, Place("", {self.partition_id: MessageId(to.ledger_id, to.entry_id)})
        )

    @property
    def mark(self) -> Position:
        """Below it all is acknowledged."""
        [key] = self.race.rows(f"SELECT mark_position FROM cursors WHERE partition_id = {self.partition_id}")
        return Position.from_key(key)


@pytest.fixture
def race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Rule) -> Iterator[Services]:
    """A log with two services."""
    with services(tmp_path / "log", monkeypatch, rule) as found:
        yield found


@ALL
def test_both_acknowledgements_count(race: Services, rule: Rule) -> None:
    """Hold an acknowledgement that has read the cursor; acknowledge the rest through the other service."""
    audit = Audit(race, SubscriptionType.SHARED)
    one, two = audit.register(0, "one")(), audit.register(1, "two")()
    outcome = race.race(
        audit.acknowledge(0, one, audit.range(0, 5)), "FROM cursors", audit.acknowledge(1, two, audit.range(5, 10))
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert audit.mark == audit.positions[-1].plus(1)


@TWO
def test_acknowledgement_of_an_old_epoch_moves_nothing(race: Services, rule: Rule) -> None:
    """Hold an acknowledgement that has seen the epoch; seek through the other service."""
    audit = Audit(race, SubscriptionType.EXCLUSIVE)
    consumer = audit.register(0, "one")()
    outcome = race.race(
        audit.acknowledge(0, consumer, audit.range(0, 10)), "FROM subscriptions", audit.seek(1, audit.positions[2])
    )
    outcome.check_both()
    jumped = audit.mark != audit.positions[2]
    assert jumped is (rule is Rule.UNLOCKED)


@ALL
def test_seeks_get_different_epochs(race: Services, rule: Rule) -> None:
    """Hold a seek that has read the epoch; seek through the other service."""
    audit = Audit(race, SubscriptionType.EXCLUSIVE)
    outcome = race.race(audit.seek(0, audit.positions[2]), "FROM subscriptions", audit.seek(1, audit.positions[4]))
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert sorted((outcome.first.epoch, outcome.second.epoch)) == [1, 2]
    assert audit.mark == audit.positions[4 if rule is Rule.LOCKED else 2]


@ALL
def test_seek_to_an_epoch_is_refused_if_that_is_taken(race: Services, rule: Rule) -> None:
    """Seek with the same new epoch through both services."""
    Audit(race, SubscriptionType.EXCLUSIVE)
    outcome = race.race(
        lambda: race.a.seek_subscription(ORDERS, NAME, Place(EARLIEST), 1),
        "FROM subscriptions",
        lambda: race.b.seek_subscription(ORDERS, NAME, Place(EARLIEST), 1),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
    else:
        assert isinstance(outcome.second if rule is Rule.LOCKED else outcome.first, StaleEpochError)


@TWO
def test_exclusive_subscription_has_one_consumer(race: Services, rule: Rule) -> None:
    """Hold a consumer that has found nobody connected; connect another one through the other service."""
    audit = Audit(race, SubscriptionType.EXCLUSIVE)
    outcome = race.race(audit.register(0, "one"), "FROM consumers", audit.register(1, "two"))
    assert race.rows("SELECT count(*) FROM consumers") == [2 if rule is Rule.UNLOCKED else 1]
    assert isinstance(outcome.second, SubscriptionBusyError) is (rule is Rule.LOCKED)


@ALL
def test_subscription_is_made_once(race: Services, rule: Rule) -> None:
    """Make a subscription of one name through both, as two consumers do that start together."""
    race.producer()
    make = (ORDERS, NAME, SubscriptionType.SHARED, IsolationLevel.READ_COMMITTED, Place(EARLIEST))
    outcome = race.race(
        lambda: race.a.create_subscription(*make), "FROM subscriptions", lambda: race.b.create_subscription(*make)
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
    else:
        assert isinstance(outcome.second if rule is Rule.LOCKED else outcome.first, SubscriptionExistsError)


@ALL
def test_range_is_handed_out_again_to_one_consumer(race: Services, rule: Rule) -> None:
    """Hold a consumer's service that has found a range to hand out again; look for one through the other service."""
    audit = Audit(race, SubscriptionType.SHARED)
    one, two, gone = (audit.register(n, f"c{i}")() for i, n in enumerate((0, 1, 0)))
    item = audit.range(0, 10)
    race.on(0, lambda c: deliveries.hand_out(c, audit.id, audit.partition_id, item, gone))()
    race.on(0, lambda c: consumers.remove(c, gone))()
    outcome = race.race(
        race.on(0, lambda c: deliveries.take_back(c, audit.id, one, 100)),
        "FROM deliveries",
        race.on(1, lambda c: deliveries.take_back(c, audit.id, two, 100)),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert sorted(map(len, (outcome.first, outcome.second))) == [0, 1]


@ALL
def test_range_is_handed_out_first_to_one_consumer(race: Services, rule: Rule) -> None:
    """Hold a hand-out that has read how far it went; hand out more through the other service."""
    audit = Audit(race, SubscriptionType.SHARED)
    consumer = audit.register(0, "one")()
    far = audit.positions[5].key

    def hand_out(connection: Connection, count: int) -> int:
        at = subscriptions.read_positions(connection, audit.id)[audit.partition_id]
        if at >= far:
            return 0
        deliveries.advance(connection, audit.id, audit.partition_id, audit.positions[count].key)
        deliveries.hand_out(connection, audit.id, audit.partition_id, audit.range(0, count), consumer)
        return 1

    outcome = race.race(race.on(0, lambda c: hand_out(c, 5)), "FROM cursors", race.on(1, lambda c: hand_out(c, 6)))
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert race.rows("SELECT count(*) FROM deliveries") == [1]


@TWO
def test_nothing_is_handed_out_to_a_consumer_that_is_gone(race: Services, rule: Rule) -> None:
    """Hold a hand-out that has seen its consumer connected; disconnect that through the other service."""
    audit = Audit(race, SubscriptionType.SHARED)
    consumer = audit.register(0, "one")()
    audit.register(0, "two")()

    def hand_out(connection: Connection) -> None:
        present = [each.consumer_id for each in consumers.connected(connection, audit.id)]
        if consumer in present:
            deliveries.hand_out(connection, audit.id, audit.partition_id, audit.range(0, 5), consumer)

    outcome = race.race(race.on(0, hand_out), "FROM consumers", race.on(1, lambda c: consumers.remove(c, consumer)))
    outcome.check_both()
    stuck = race.rows(f"SELECT count(*) FROM deliveries WHERE consumer_id = {consumer}")
    assert stuck == [1 if rule is Rule.UNLOCKED else 0]


@ALL
def test_commit_with_acknowledgements_is_answered_elsewhere_too(race: Services, rule: Rule) -> None:
    """Hold a commit that acknowledges what it consumed; send it again through the other service: it isn't refused for
    what it did itself."""
    audit = Audit(race, SubscriptionType.SHARED)
    consumer = audit.register(0, "one")()
    txn = race.a.begin_transaction(MINUTE_MS)
    ack = Acknowledgement(audit.id, consumer, 0, (Acknowledged(audit.partition_id, (audit.range(0, 10),)),))
    outcome = race.race(
        lambda: race.a.end_transaction(txn, commit=True, acknowledgements=[ack]),
        "FROM cursors",
        lambda: race.b.end_transaction(txn, commit=True, acknowledgements=[ack]),
    )
    if rule is Rule.UNLOCKED:
        assert outcome.conflict
        return
    outcome.check_both()
    assert audit.mark == audit.positions[-1].plus(1)


@pytest.mark.parametrize("rule", [Rule.LOCKED])
def test_lapsed_consumer_is_told(race: Services, rule: Rule) -> None:
    """Acknowledge after the other service has found the consumer's lease over."""
    audit = Audit(race, SubscriptionType.SHARED)
    consumer = audit.register(0, "one")()
    race.on(1, lambda c: consumers.remove(c, consumer))()
    with pytest.raises(UnavailableError, match="lost its lease"):
        audit.acknowledge(0, consumer, audit.range(0, 1))()
