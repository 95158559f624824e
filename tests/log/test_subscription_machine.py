"""Consumers that come, crash, seek and acknowledge at both levels, in any order, against a model of plain sets.

Nothing acknowledged comes again in the same epoch, nothing visible that is not acknowledged is lost, and nothing
aborted is ever shown to read_committed. Consumers that count show how often each message was received before.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.log.consuming import WAIT_S
from tests.log.holding import Talk, holding, settle
from tests.log.naive_log import NaiveLog, NaiveTransaction
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, eventually
from tests.log.sites import EVERYWHERE, Site
from tests.log.test_state_machine import run
from txn_source import Consumer, Message, MessageId, Transaction, TxnId, UnavailableError

PARTITIONS, MOST_PARTITIONS, LEDGER_MAX_ENTRIES = 2, 4, 5
index = st.integers(0, 7)
partition = st.integers(0, MOST_PARTITIONS - 1)
"""Where there are fewer, they are counted around."""


@dataclass
class Session:
    """A connected consumer, and what it has in hand: received in this epoch since it was connected last."""

    consumer: Consumer
    talk: Talk
    hand: dict[bytes, Message] = field(default_factory=dict)
    pending: set[bytes] = field(default_factory=set)
    """Acknowledged, and not sent yet."""


@dataclass
class Subscription:
    """What the model knows of one subscription. ``again`` may come once more: its acknowledgement was on the way."""

    name: str
    kind: str
    level: str
    limit: int | None = None
    epoch: int = 0
    acknowledged: set[bytes] = field(default_factory=set)
    sessions: list[Session] = field(default_factory=list)
    old: list[tuple[Session, Message]] = field(default_factory=list)
    again: set[bytes] = field(default_factory=set)
    received: dict[bytes, int] = field(default_factory=dict)
    """How often each message was received, if consumers count (``limit``)."""
    is_unsure: bool = False
    """A consumer ended without saying what it had received: what never was may show a 1."""

    def begin_epoch(self) -> None:
        """All that isn't acknowledged comes again."""
        self.epoch += 1
        self.again.clear()
        for session in self.sessions:
            self.old += [(session, message) for message in session.hand.values()]
            session.hand.clear()
            session.pending.clear()

    def in_hand(self) -> set[bytes]:
        return {value for session in self.sessions for value in session.hand}


class SubscriptionMachine(RuleBasedStateMachine):
    """Exclusive subscriptions at both levels, and a shared one that up to two consumers share."""

    kind: ClassVar[str] = "embedded"

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        root = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.site = self.stack.enter_context(Site(self.kind, root / "log"))
        self.log, self.way = holding(self.site)
        self.log.create_topic("t", PARTITIONS, ledger_max_entries=LEDGER_MAX_ENTRIES, ledger_max_age=1e12)
        self.producer = self.log.producer("t", batching=BY_HAND)
        self.model = NaiveLog(PARTITIONS, LEDGER_MAX_ENTRIES)
        self.handles: dict[TxnId, Transaction] = {}
        self.ids: dict[bytes, tuple[int, MessageId]] = {}
        self.subscriptions = [
            Subscription("committed", "exclusive", COMMITTED, limit=1000),
            Subscription("uncommitted", "failover", UNCOMMITTED),
            Subscription("shared", "shared", COMMITTED, limit=1000),
        ]
        for each in self.subscriptions:
            self.log.create_subscription("t", each.name, each.kind, each.level, "earliest")
            self._connect(each)
        for number in range(PARTITIONS):
            self.append(number, 3, 0, True)

    def teardown(self) -> None:
        try:
            for each in self.subscriptions:
                if not each.sessions:
                    self._connect(each)
                self._drain(each)
        finally:
            self.stack.close()

    # What the model says

    @property
    def partitions(self) -> int:
        return len(self.model.entries)

    def _visible(self, of: Subscription, partition: int) -> list[bytes]:
        if of.level == COMMITTED:
            return self.model.committed(partition)
        return [value for value, _ in self.model.uncommitted(partition)]

    def _wanted(self, of: Subscription) -> list[list[bytes]]:
        """What is to come, by partition, in order."""
        gone = of.acknowledged | of.in_hand()
        return [[v for v in self._visible(of, each) if v not in gone] for each in range(self.partitions)]

    def _pick(self, number: int) -> tuple[Subscription, Session]:
        found = [(of, session) for of in self.subscriptions for session in of.sessions]
        return found[number % len(found)]

    def _any_session(self) -> bool:
        return any(of.sessions for of in self.subscriptions)

    def _pick_in_hand(self, number: int, row: int) -> tuple[Subscription, Session, Message] | None:
        """Pick a session with something in hand; no precondition asks, for who gets what of a shared one may differ."""
        found = [(of, session) for of in self.subscriptions for session in of.sessions if session.hand]
        if not found:
            return None
        of, session = found[number % len(found)]
        return of, session, list(session.hand.values())[row % len(session.hand)]

    # Writing

    @rule(partition=partition, count=st.integers(1, 3), number=index, plain=st.booleans())
    def append(self, partition: int, count: int, number: int, plain: bool) -> None:
        undecided, partition = self.model.open(), partition % self.partitions
        txn = None if plain or not undecided else undecided[number % len(undecided)]
        values = [b"%d" % (len(self.ids) + each) for each in range(count)]
        for value in values:
            self.producer.send(value, partition=partition, txn=txn)
        for value, at in zip(values, self.producer.flush(), strict=True):
            self.ids[value] = (partition, at)
        self.model.append(partition, values, "producer", txn)

    @precondition(lambda self: len(self.model.open()) < 3)
    @rule(partition=partition)
    def begin(self, partition: int) -> None:
        transaction, partition = self.log.begin_transaction(800), partition % self.partitions
        self.handles[transaction.id] = transaction
        self.model.transactions[transaction.id] = NaiveTransaction(1 << 62)
        value = b"%d" % len(self.ids)
        self.producer.send(value, partition=partition, txn=transaction.id)
        self.ids[value] = (partition, self.producer.flush()[0])
        self.model.append(partition, [value], "producer", transaction.id)

    @precondition(lambda self: bool(self.model.open()))
    @rule(number=index, commit=st.booleans())
    def end(self, number: int, commit: bool) -> None:
        undecided = self.model.open()
        txn = undecided[number % len(undecided)]
        (self.handles[txn].commit if commit else self.handles[txn].abort)()
        self.model.end(txn, "committed" if commit else "aborted")

    @rule(partition=partition)
    def roll(self, partition: int) -> None:
        self.log.roll_ledger("t", partition % self.partitions)
        self.model.roll(partition % self.partitions)

    @precondition(lambda self: self.partitions < MOST_PARTITIONS)
    @rule()
    def add_a_partition(self) -> None:
        assert self.log.update_topic("t", self.partitions + 1) == 1
        self.model.add_partitions(1)

    # Coming and going

    @rule(number=st.integers(0, 2), queue_size=st.sampled_from([1, 3, 100]))
    def connect(self, number: int, queue_size: int) -> None:
        of = self.subscriptions[number]
        if len(of.sessions) < (2 if of.kind == "shared" else 1):
            self._connect(of, queue_size)

    def _connect(self, of: Subscription, queue_size: int = 100) -> None:
        options: dict[str, Any] = {"queue_size": queue_size, "max_redeliveries": of.limit}
        consumer = self.log.subscribe("t", of.name, of.kind, of.level, acknowledge_interval=1000.0, **options)
        assert consumer.epoch == of.epoch
        of.sessions.append(Session(consumer, self.way.talks[-1]))

    @precondition(_any_session)
    @rule(which=index)
    def close(self, which: int) -> None:
        of, session = self._pick(which)
        session.consumer.close()
        of.acknowledged |= session.pending
        self._forget(of, session)

    @precondition(_any_session)
    @rule(which=index)
    def crash(self, which: int) -> None:
        of, session = self._pick(which)
        consumer = session.consumer
        consumer._state.refused(UnavailableError("The process has ended.", ""))  # as if it had
        session.talk.cut()
        session.talk.end()
        gone = consumer._state.origin.consumer_id
        eventually(lambda: gone not in [c.consumer_id for c in self.log.subscription("t", of.name).consumers])
        of.is_unsure = True
        self._forget(of, session)

    def _forget(self, of: Subscription, session: Session) -> None:
        of.sessions.remove(session)
        of.old = [(each, message) for each, message in of.old if each is not session]

    @precondition(_any_session)
    @rule(which=index, seen=st.booleans())
    def lose_the_connection(self, which: int, seen: bool) -> None:
        of, session = self._pick(which)
        before = session.consumer._link.current
        session.talk.cut()
        if seen:
            session.talk.end()
            of.is_unsure = True
        eventually(lambda: session.consumer._link.current not in (None, before))
        session.talk = self.way.talks[-1]
        session.consumer.flush()
        of.acknowledged |= session.pending
        of.again |= session.pending
        session.pending.clear()
        session.hand.clear()

    # Consuming

    @precondition(_any_session)
    @rule(which=index, count=st.integers(1, 6))
    def receive(self, which: int, count: int) -> None:
        of, _ = self._pick(which)
        for _ in range(count):
            self._receive(of)

    @precondition(_any_session)
    @rule(which=index)
    def drain(self, which: int) -> None:
        self._drain(self._pick(which)[0])

    def _drain(self, of: Subscription) -> None:
        while any(self._wanted(of)):
            self._receive(of)
        for session in of.sessions:
            while (message := session.consumer.receive(0.0)) is not None:
                self._take(of, session, message)

    def _receive(self, of: Subscription) -> None:
        if not any(self._wanted(of)):
            return
        found: list[tuple[Session, Message]] = []

        def look() -> bool:
            for session in of.sessions:
                patience = 0.0 if len(of.sessions) > 1 else WAIT_S
                if (message := session.consumer.receive(patience)) is not None:
                    found.append((session, message))
                    return True
            return False

        eventually(look)
        self._take(of, *found[0])

    def _take(self, of: Subscription, session: Session, message: Message) -> None:
        value, wanted = message.value, self._wanted(of)[message.partition]
        if of.limit is not None:
            before, shown = of.received.get(value, 0), message.redelivery_count
            assert shown == before or (shown, before, of.is_unsure) == (1, 0, True)
            of.received[value] = shown + 1
        assert message.epoch == of.epoch == session.consumer.epoch
        assert (message.partition, message.message_id) == self.ids[value]
        if value in of.again:
            of.again.discard(value)
            return
        assert value in wanted
        if of.kind != "shared":
            assert value == wanted[0]
        session.hand[value] = message

    @rule(which=index, row=index, cumulative=st.booleans(), flush=st.booleans())
    def acknowledge(self, which: int, row: int, cumulative: bool, flush: bool) -> None:
        if (picked := self._pick_in_hand(which, row)) is None:
            return
        of, session, message = picked
        if cumulative and of.kind != "shared":
            session.consumer.acknowledge_cumulative(message)
            below = [v for v, (p, at) in self.ids.items() if p == message.partition and at <= message.message_id]
            session.pending |= set(below)
        else:
            session.consumer.acknowledge(message)
            session.pending.add(message.value)
        if flush:
            self._flush(of, session)

    def _flush(self, of: Subscription, session: Session) -> None:
        session.consumer.flush()
        of.acknowledged |= session.pending
        session.pending.clear()

    @rule(row=st.integers(0, 50))
    def acknowledge_what_is_old(self, row: int) -> None:
        found = [(of, session, message) for of in self.subscriptions for session, message in of.old]
        if not found:
            return
        of, session, message = found[row % len(found)]
        before = self.log.subscription("t", of.name).ignored_acknowledgements
        self._flush(of, session)
        session.consumer.acknowledge(message)
        session.consumer.flush()
        assert self.log.subscription("t", of.name).ignored_acknowledgements == before + 1

    @rule(which=index, rows=st.sets(index, min_size=1), commit=st.booleans())
    def acknowledge_in_a_transaction(self, which: int, rows: set[int], commit: bool) -> None:
        if (picked := self._pick_in_hand(which, 0)) is None:
            return
        of, session, _ = picked
        taken = [m for i, m in enumerate(session.hand.values()) if i in rows and m.value not in session.pending]
        taken = [message for message in taken if message.value not in of.acknowledged]
        if not taken:
            return
        transaction = self.log.begin_transaction()
        for message in taken:
            transaction.acknowledge(message)
        if commit:
            transaction.commit()
            of.acknowledged |= {message.value for message in taken}
            return
        transaction.abort()
        self._redelivered(of, session, taken)

    @rule(which=index, row=index)
    def refuse(self, which: int, row: int) -> None:
        if (picked := self._pick_in_hand(which, row)) is None:
            return
        of, session, message = picked
        if message.value not in session.pending | of.acknowledged:
            session.consumer._not_consumed({message._batch: [message._row]})  # as a refusal without a delay
            self._redelivered(of, session, [message])

    def _redelivered(self, of: Subscription, session: Session, messages: list[Message]) -> None:
        of.acknowledged |= session.pending  # they are sent first
        if of.kind == "shared":
            session.consumer.flush()
            session.pending.clear()
            for message in messages:
                del session.hand[message.value]
        else:
            of.begin_epoch()  # by the next call that receives
            message = session.consumer.receive(0.0)
            assert self.log.subscription("t", of.name).epoch == of.epoch
            if message is not None:
                self._take(of, session, message)
            settle(session.consumer)

    # Seeking

    @precondition(_any_session)
    @rule(which=index, row=st.integers(0, 50), to=st.sampled_from(["earliest", "latest", ""]))
    def seek(self, which: int, row: int, to: str) -> None:
        of, session = self._pick(which)
        of.acknowledged |= session.pending  # they are sent first
        value = list(self.ids)[row % len(self.ids)]
        session.consumer.seek(to or self.ids[value][1])
        assert session.consumer.epoch == of.epoch + 1
        self._sought(of, to, value)

    @rule(number=st.integers(0, 2), row=st.integers(0, 50), to=st.sampled_from(["earliest", "latest", ""]))
    def operator_seeks(self, number: int, row: int, to: str) -> None:
        of = self.subscriptions[number]
        value = list(self.ids)[row % len(self.ids)]
        assert self.log.seek("t", of.name, to or self.ids[value][1]).epoch == of.epoch + 1
        self._sought(of, to, value)

    def _sought(self, of: Subscription, to: str, value: bytes) -> None:
        of.begin_epoch()
        of.received.clear()
        of.is_unsure = False
        eventually(lambda: all(session.consumer.epoch == of.epoch for session in of.sessions))
        for session in of.sessions:
            session.consumer.flush()  # what was pending is ignored
        below = [self._below(of, each) for each in range(self.partitions)]
        if to:
            of.acknowledged = set().union(*below) if to == "latest" else set()
            return
        partition, at = self.ids[value]
        before = {v for v, (p, place) in self.ids.items() if p == partition and place < at and v in below[partition]}
        elsewhere = {v for v in of.acknowledged if self.ids[v][0] != partition}
        of.acknowledged = elsewhere | before

    def _below(self, of: Subscription, partition: int) -> set[bytes]:
        """All messages of a partition below the level's bound."""
        entries = self.model.entries[partition]
        bound = self.model.last_stable(partition) if of.level == COMMITTED else len(entries)
        return {value for entry in entries[:bound] for value in entry.values}

    # What always holds

    @invariant()
    def backlogs_are_those_of_the_model(self) -> None:
        for of in self.subscriptions:
            info = self.log.subscription("t", of.name)
            expected = [
                len([v for v in self._visible(of, p) if v not in of.acknowledged]) for p in range(self.partitions)
            ]
            assert [each.backlog for each in info.partitions] == expected
            assert info.epoch == of.epoch
            assert len(info.consumers) == len(of.sessions)


def test_embedded_subscriptions_behave_as_the_model() -> None:
    """Run the machine over the embedded log."""
    run("embedded", 3, 25, SubscriptionMachine)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", EVERYWHERE)
def test_subscriptions_behave_as_the_model_for_long(kind: str) -> None:
    """Run longer and more often."""
    run(kind, 150, 60, SubscriptionMachine)
