"""A bank over two topics: whatever happens to the log and to the query, every batch holds whole transfers.

A state machine writes transfers (commit, abort, time out, hang), moves ledgers through their life, trims what was read,
and follows the log with a query that is restarted with other limits, and for a while at read_uncommitted. After every
batch the balances add up to nothing; in the end all batches together are what a read_committed scan gives.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.log.reading import BY_HAND, send_each
from tests.log.reading import rows as scan_rows
from tests.log.sites import EVERYWHERE, ManualClock, Site
from tests.log.streaming import Follower, Row, reread, rows_between, stream_of
from tests.log.test_state_machine import run
from txn_source import InvalidArgumentError, IsolationLevel, Log, Producer, Transaction
from txn_source.model.topic_name import TopicName
from txn_source.reading.limits import StreamLimits

TOPICS = ("debits", "credits")
TIMEOUT_S, MOST_PLACES = 60, 10
limits = st.builds(
    StreamLimits,
    max_messages=st.none() | st.integers(1, 12),
    max_bytes=st.none() | st.sampled_from([1, 400, 1500]),
)


def entry(transfer: int, amount: int) -> str:
    return json.dumps({"transfer": transfer, "amount": amount})


class Bank:
    """What a query adds up: the balance of each account (a partition), and the transfers of each batch."""

    def __init__(self) -> None:
        self.balances: dict[tuple[str, int], int] = defaultdict(int)
        self.batch_of: dict[int, int] = {}
        self.legs: dict[int, int] = defaultdict(int)
        self.seen: dict[tuple[str, int], list[Any]] = defaultdict(list)
        self.batches = 0

    def take(self, rows: list[Row]) -> None:
        """Add a batch; a transfer that was in an earlier one, or a position at or below an earlier one, is an error."""
        self.batches += 1
        for row in rows:
            account = row["__topic"], row["__partition"]
            position = row["__ledger_id"], row["__entry_id"], row["__batch_index"]
            assert not self.seen[account] or self.seen[account][-1][0] < position
            self.seen[account].append((position, row["value"]))
            told = json.loads(row["value"])
            self.balances[account] += told["amount"]
            self.legs[told["transfer"]] += 1
            assert self.batch_of.setdefault(told["transfer"], self.batches) == self.batches, "in two batches"

    @property
    def total(self) -> int:
        return sum(self.balances.values())


class StreamMachine(RuleBasedStateMachine):
    """Transfers over some partitions, and a query that follows them."""

    kind = "embedded"

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="txnlog-stream-"))
        self.clock = ManualClock()
        self.site = Site(self.kind, self.root / "log", self.clock)
        self.log: Log = self.site.connect()
        self.hanging: list[Transaction] = []
        self.legs: dict[int, int] = {}
        self.bank = Bank()

    def teardown(self) -> None:
        try:
            if hasattr(self, "query"):
                self._finish()
        finally:
            self.site.__exit__()
            shutil.rmtree(self.root)

    @initialize(sizes=st.tuples(st.integers(1, 4), st.integers(2, 4)), of=limits)
    def create(self, sizes: tuple[int, int], of: StreamLimits) -> None:
        self.places = [(t, p) for t, size in zip(TOPICS, sizes, strict=True) for p in range(size)]
        self.producers: dict[str, Producer] = {}
        for topic, size in zip(TOPICS, sizes, strict=True):
            self.log.create_topic(topic, partitions=size, ledger_max_entries=4)
            self.producers[topic] = self.log.producer(topic, batching=BY_HAND)
        self.query = Follower(self.log, stream_of(self.log, TOPICS, limits=of))

    # What producers do

    @rule(
        where=st.lists(st.integers(0, 7), min_size=1, max_size=4),
        end=st.sampled_from(["commit", "commit", "commit", "abort", "hang"]),
        sizes=st.integers(1, 3),
    )
    def transfer(self, where: list[int], end: str, sizes: int) -> None:
        """Write legs that add up to nothing, some with several messages, in an order of their own."""
        number = len(self.legs)
        transaction = self.log.begin_transaction(TIMEOUT_S)
        amounts = [1 + index for index in range(len(where) * sizes)]
        amounts.append(-sum(amounts))
        self.legs[number] = len(amounts)
        for index, amount in enumerate(amounts):
            topic, partition = self.places[where[index % len(where)] % len(self.places)]
            self.producers[topic].send(entry(number, amount), partition=partition, txn=transaction)
            if index % 2:
                self.producers[topic].flush()
        for producer in self.producers.values():
            producer.flush()
        if end == "hang":
            self.hanging.append(transaction)
        elif end == "commit":
            transaction.commit()
        else:
            transaction.abort()

    @rule(where=st.integers(0, 7))
    def send_plain(self, where: int) -> None:
        topic, partition = self.places[where % len(self.places)]
        self.legs[len(self.legs)] = 1
        send_each(self.producers[topic], [entry(len(self.legs) - 1, 0)], partition=partition)

    @precondition(lambda self: self.hanging)
    @rule(index=st.integers(0, 7), commit=st.booleans())
    def end_a_hanging_one(self, index: int, commit: bool) -> None:
        transaction = self.hanging.pop(index % len(self.hanging))
        if commit:
            transaction.commit()
        else:
            transaction.abort()

    @rule(seconds=st.sampled_from([5, 61]))
    def let_time_pass(self, seconds: int) -> None:
        self.clock.advance(seconds)
        still_open = {info.id for info in self.log.transactions()}
        self.hanging = [transaction for transaction in self.hanging if transaction.id in still_open]

    # What the log goes through

    @rule(topic=st.sampled_from(TOPICS), what=st.sampled_from(["roll", "offload", "offload and delete"]))
    def tidy(self, topic: str, what: str) -> None:
        if what == "roll":
            self.log.roll_ledger(topic)
            return
        self.log.offload(topic)
        if what != "offload":
            self.log.delete_hot(topic)

    @precondition(lambda self: len(self.places) < MOST_PLACES)
    @rule(topic=st.sampled_from(TOPICS))
    def add_a_partition(self, topic: str) -> None:
        number = sum(of == topic for of, _ in self.places)
        self.log.update_topic(topic, number + 1)
        self.places.append((topic, number))

    @precondition(lambda self: self.query.at.level is not IsolationLevel.READ_UNCOMMITTED)  # or no way back is left
    @rule(where=st.integers(0, 7))
    def trim_what_was_read(self, where: int) -> None:
        """Trim the ledgers of a partition that the query has behind it."""
        topic, partition = self.places[where % len(self.places)]
        at = self.query.at.positions.get((TopicName.parse(topic), partition))
        if at is None:  # it was added since
            return
        self.log.trim(topic, before={topic: {partition: f"{at.ledger_id}:0"}})
        self.query.batches.clear()

    # What the query does

    @rule()
    def read_a_batch(self) -> None:
        rows = self.query.next()
        if rows is not None:
            self.bank.take(rows)

    @rule(of=limits, available_now=st.booleans())
    def restart_the_query(self, of: StreamLimits, available_now: bool) -> None:
        """Go on from the last offset with other limits; available-now comes to an end, however it is limited."""
        self.query.stream = stream_of(self.log, TOPICS, limits=of)
        if available_now:
            self.query.stream.freeze()
            for rows in self.query.drain(most=10 + 10 * len(self.legs)):
                self.bank.take(rows)
            self.query.stream = stream_of(self.log, TOPICS, limits=of)

    @precondition(lambda self: self.query.batches)
    @rule(level=st.sampled_from(["read_committed", "read_uncommitted"]))
    def read_the_last_batch_again(self, level: str) -> None:
        """Whatever level the options say now."""
        self.query.batches = self.query.batches[-3:]
        self.query.replay(stream_of(self.log, TOPICS, level=level))

    @rule(of=limits, batches=st.integers(1, 3))
    def read_uncommitted_for_a_while(self, of: StreamLimits, batches: int) -> None:
        """Go on at read_uncommitted, and back: if that is taken, what was passed by holds whole transfers, and none
        that is open. Else the query goes on from where it was."""
        start = at = reread(self.query.at)
        dirty = stream_of(self.log, TOPICS, level="read_uncommitted", limits=of)
        for _ in range(batches):
            at = reread(dirty.latest(at))
        try:
            stream_of(self.log, TOPICS).latest(at)
        except InvalidArgumentError:
            return
        if at == start:  # there was no batch
            return
        passed = rows_between(
            self.log, self.query.stream, start,
            replace(at, level=IsolationLevel.READ_COMMITTED, decisions=dirty.newest().decisions),
        )  # fmt: skip
        if passed:
            self.bank.take(passed)
        self.query.at = at

    # What always holds

    @invariant()
    def balances_add_up(self) -> None:
        assert self.bank.total == 0
        for transfer, legs in self.bank.legs.items():
            assert legs == self.legs[transfer]

    def _finish(self) -> None:
        """End what is open, read the rest, and compare it all with a scan."""
        for transaction in self.hanging:
            transaction.abort()
        for rows in self.query.drain():
            self.bank.take(rows)
        self.balances_add_up()
        expected = defaultdict(list)
        for row in scan_rows(self.log, TOPICS, columns=["__topic", "__partition", "value"]):
            expected[row["__topic"], row["__partition"]].append(row["value"])
        starts = {
            (topic, number): (p.log_start.ledger_id, p.log_start.entry_id, 0)
            for topic in TOPICS
            for number, p in enumerate(self.log.stats(topic).partitions)
        }
        left = {a: [value for at, value in rows if at >= starts[a]] for a, rows in self.bank.seen.items()}
        assert {a: values for a, values in left.items() if values} == expected


def test_every_batch_holds_whole_transfers() -> None:
    """Run the machine over the embedded log."""
    run("embedded", 4, 30, StreamMachine)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", EVERYWHERE)
def test_every_batch_holds_whole_transfers_for_long(kind: str) -> None:
    """Run it longer and more often, over each kind of log."""
    run(kind, 300, 60, StreamMachine)
