"""Anything that can happen to a log, in any order, against a model of plain lists; and it never contradicts itself."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.log.naive_log import NaiveLog, NaiveTransaction
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED
from tests.log.sites import EVERYWHERE, ManualClock, Site
from txn_source import (
    IsolationLevel,
    Position,
    Producer,
    ProducerFencedError,
    TopicNotFoundError,
    Transaction,
    TransactionEndedError,
    TransactionTimedOutError,
    TxnId,
    TxnLogError,
)
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.client.topic_stats import PartitionStats
from txn_source.metadata.store import pages, sealing, views
from txn_source.reading.plan import ReadPlan, plan
from txn_source.reading.request import ReadRequest, Selection

PARTITIONS, MOST_PARTITIONS, LEDGER_MAX_ENTRIES = 2, 5, 5
_RAW = pa.schema([("value", pa.binary())])
_WHY = {
    "client": TransactionEndedError,
    "timeout": TransactionTimedOutError,
    "fenced": ProducerFencedError,
}
"""What a call under an ended transaction raises, by how it ended."""

index = st.integers(0, 7)
partition = st.integers(0, MOST_PARTITIONS - 1)
"""Where there are fewer, they are counted around."""


class LogMachine(RuleBasedStateMachine):
    """Two producers, of which "teller" has a transactional id; each step is done to the log and to the model."""

    kind: ClassVar[str] = "embedded"

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        root = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.clock = ManualClock()
        self.site = self.stack.enter_context(Site(self.kind, root / "log", self.clock))
        self.model = NaiveLog(PARTITIONS, LEDGER_MAX_ENTRIES)
        self.handles: dict[TxnId, Transaction] = {}
        self.plans: list[tuple[ReadPlan, list[Any]]] = []
        self.seen: list[PartitionStats] = []
        self.sent = 0
        self.dropped: list[Producer] = []
        self._open_log()
        self._create(PARTITIONS)
        self._open_producers()

    def teardown(self) -> None:
        for producer in self.dropped:  # as a crash leaves them: what they hold is never said to be lost
            producer._closed = True
            producer._linger.stop()
        self.stack.close()

    @property
    def partitions(self) -> int:
        return len(self.model.entries)

    def _open_log(self) -> None:
        self.log = self.site.open()
        self.stack.callback(self.log._stub.close)  # not the log: its producers are dropped as they are

    def _create(self, partitions: int) -> None:
        self.log.create_topic("t", partitions, ledger_max_entries=LEDGER_MAX_ENTRIES, ledger_max_age=1e12)

    def _open_producers(self) -> None:
        self.producers: dict[str, Producer] = {
            "teller": self.log.producer("t", transactional_id="teller", batching=BY_HAND),
            "plain": self.log.producer("t", batching=BY_HAND),
        }
        self.dropped += self.producers.values()

    def _values(self, count: int) -> list[bytes]:
        self.sent += count
        return [b"%d" % i for i in range(self.sent - count, self.sent)]

    def _pick(self, number: int, *, ended: bool = False) -> TxnId:
        known = [t for t, known in self.model.transactions.items() if (known.state != "open") is ended]
        return known[number % len(known)]

    def _any_open(self) -> bool:
        return bool(self.model.open())

    # Steps

    @rule(who=st.sampled_from(["teller", "plain"]), partition=partition, count=st.integers(1, 3))
    def append_plain(self, who: str, partition: int, count: int) -> None:
        self._append(who, partition, count, None)

    @precondition(_any_open)
    @rule(who=st.sampled_from(["teller", "plain"]), partition=partition, count=st.integers(1, 3), number=index)
    def append_in_transaction(self, who: str, partition: int, count: int, number: int) -> None:
        self._append(who, partition, count, self._pick(number))

    def _append(self, who: str, partition: int, count: int, txn: TxnId | None) -> None:
        values, partition = self._values(count), partition % self.partitions
        for value in values:
            self.producers[who].send(value, partition=partition, txn=txn)
        assert len(self.producers[who].flush()) == count
        self.model.append(partition, values, who, txn)

    @precondition(lambda self: len(self.model.open()) < 4)
    @rule(timeout=st.sampled_from([5, 50]), partition=st.none() | partition)
    def begin(self, timeout: int, partition: int | None) -> None:
        transaction = self.log.begin_transaction(timeout)
        self.handles[transaction.id] = transaction
        self.model.transactions[transaction.id] = NaiveTransaction(self.clock.now_us + timeout * 1_000_000)
        if partition is not None:
            self._append("plain", partition, 1, transaction.id)

    @precondition(_any_open)
    @rule(number=index, commit=st.booleans(), again=st.booleans(), planned=st.booleans())
    def end(self, number: int, commit: bool, again: bool, planned: bool) -> None:
        txn = self._pick(number)
        if planned:
            self._plan(UNCOMMITTED, 1)
        for _ in range(1 + again):
            if txn not in self.handles:  # it was begun before a crash
                self.log.metadata.end_transaction(txn, commit=commit)
            elif commit:
                self.handles[txn].commit()
            else:
                self.handles[txn].abort()
        self.model.end(txn, "committed" if commit else "aborted")

    @precondition(lambda self: len(self.model.transactions) > len(self.model.open()))
    @rule(number=index, who=st.sampled_from(["teller", "plain"]))
    def use_an_ended_transaction(self, number: int, who: str) -> None:
        txn = self._pick(number, ended=True)
        known = self.model.transactions[txn]
        self.producers[who].send(b"late", txn=txn)
        with pytest.raises(_WHY[known.why]) as refused:
            self.producers[who].flush()
        assert type(refused.value) is _WHY[known.why]
        with pytest.raises(_WHY[known.why]):
            self.log.metadata.end_transaction(txn, commit=known.state == "aborted")
        self.log.metadata.end_transaction(txn, commit=known.state == "committed")

    @rule(seconds=st.sampled_from([5, 45]))
    def let_time_pass(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.model.expire(self.clock.now_us)

    @rule(partition=st.none() | partition)
    def roll(self, partition: int | None) -> None:
        if partition is not None:
            partition %= self.partitions
        self.log.roll_ledger("t", partition)
        for each in range(self.partitions) if partition is None else [partition]:
            self.model.roll(each)

    @precondition(lambda self: self.partitions < MOST_PARTITIONS)
    @rule(more=st.integers(1, 2))
    def add_partitions(self, more: int) -> None:
        more = min(more, MOST_PARTITIONS - self.partitions)
        assert self.log.update_topic("t", self.partitions + more) == more
        self.model.add_partitions(more)

    @precondition(lambda self: any(self.model.entries))
    @rule(partitions=st.integers(1, 3))
    def delete_and_create_anew(self, partitions: int) -> None:
        """What belongs to the topic that is gone is refused, whatever has its name now; its transactions go on."""
        self.log.delete_topic("t")
        self._create(partitions)
        for older in self.producers.values():
            older.send(b"late", partition=0)
            with pytest.raises(TopicNotFoundError):
                older.flush()
        for pinned, expected in self.plans:
            if expected:
                with pytest.raises(TxnLogError):
                    self._read(pinned)
        self.plans, self.seen = [], []
        self.model.begin_anew(partitions)
        self._open_producers()

    @rule()
    def take_over(self) -> None:
        older = self.producers["teller"]
        self.producers["teller"] = self.log.producer("t", transactional_id="teller", batching=BY_HAND)
        self.dropped.append(self.producers["teller"])
        self.model.fence("teller")
        older.send(b"late")
        with pytest.raises(ProducerFencedError):
            older.flush()

    @rule(holding=st.booleans())
    def crash_and_reopen(self, holding: bool) -> None:
        if holding:
            self.producers["plain"].send(b"never written")
        if self.site.kind == "remote":
            self.site.stop_server()
            self.site.start_server()
        self.handles.clear()
        self._open_log()
        self._open_producers()
        self.model.fence("teller")

    @rule(level=st.sampled_from([COMMITTED, UNCOMMITTED]), tasks=st.sampled_from([1, 4]))
    def plan_a_read(self, level: str, tasks: int) -> None:
        self._plan(level, tasks)

    def _plan(self, level: str, tasks: int) -> None:
        request = ReadRequest(IsolationLevel.parse(level), consistent_cut=False, min_partitions=tasks)
        pinned = plan(OwnLog(self.log.access), resolve(self.log.metadata, Selection.of("t")), request)
        expected: list[Any] = []
        for each in range(self.partitions):
            rows = self.model.uncommitted(each)
            if level == COMMITTED:
                visible = set(self.model.committed(each))
                rows = [row for row in rows if row[0] in visible]
            expected += rows
        self.plans = [*self.plans[-2:], (pinned, expected)]  # the last three

    # What always holds

    @invariant()
    def rows_are_those_of_the_model(self) -> None:
        committed = self._scan(COMMITTED, ["value"])
        uncommitted = self._scan(UNCOMMITTED, ["value", "__txn_status"])
        for each in range(self.partitions):
            assert committed[each] == [(value,) for value in self.model.committed(each)]
            assert uncommitted[each] == self.model.uncommitted(each)

    def _scan(self, level: str, columns: list[str]) -> list[list[tuple[Any, ...]]]:
        found: list[list[tuple[Any, ...]]] = [[] for _ in range(self.partitions)]
        for row in self.log.scan("t", level, ["__partition", *columns], consistent_cut=False).read_all().to_pylist():
            found[row.pop("__partition")].append(tuple(row.values()))
        return found

    @invariant()
    def bounds_ledgers_and_open_transactions_are_those_of_the_model(self) -> None:
        partitions = self.log.stats("t").partitions
        for each, stats in enumerate(partitions):
            assert [ledger.entries for ledger in stats.ledgers] == self.model.ledgers[each]
            assert stats.log_start <= stats.last_stable <= stats.high_watermark <= stats.log_end
            assert stats.high_watermark == stats.log_end
            assert entries_below(stats, stats.last_stable) == self.model.last_stable(each)
            assert entries_below(stats, stats.log_end) == len(self.model.entries[each])
            assert {t.id: t.messages_held_back for t in stats.ongoing_transactions} == self.model.held_back(each)
        assert {t.id for t in self.log.transactions()} == set(self.model.open())
        for before, after in zip(self.seen, partitions, strict=False):
            assert before.last_stable <= after.last_stable
            assert before.high_watermark <= after.high_watermark
            assert before.max_read_position <= after.max_read_position
        self.seen = list(partitions)

    @invariant()
    def plans_read_what_they_read_when_they_were_made(self) -> None:
        for pinned, expected in self.plans:
            assert self._read(pinned) == expected

    def _read(self, pinned: ReadPlan) -> list[Any]:
        schema = select_columns(_RAW, ["value", "__txn_status"])
        reader = pinned.reader(OwnLog(self.log.access), schema)
        batches = reader.read(piece for task in pinned.tasks for piece in task)
        table = pa.Table.from_batches(batches, schema)
        return [tuple(row.values()) for row in table.to_pylist()]


def entries_below(stats: PartitionStats, bound: Position) -> int:
    """Count the entries of a partition below an exclusive bound."""
    return sum(ledger.entries for ledger in stats.ledgers if ledger.ledger_id < bound.ledger_id) + bound.entry_id


def run(kind: str, examples: int, steps: int, of: type[RuleBasedStateMachine] = LogMachine) -> None:
    machine = type(of.__name__, (of,), {"kind": kind})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks
        ),
    )


def test_embedded_log_behaves_as_the_model() -> None:
    """Run the machine over the embedded log."""
    run("embedded", 3, 25)


@pytest.mark.long
def test_log_with_tiny_sealed_pages_behaves_as_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run it with every closed ledger sealed, in pages of two rows."""
    monkeypatch.setattr(sealing, "_SEAL_FROM_ROWS", 1)
    for module in (pages, views):
        monkeypatch.setattr(module, "PAGE_ROWS", 2)
    run("embedded", 5, 25)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", EVERYWHERE)
def test_log_behaves_as_the_model_for_long(kind: str) -> None:
    """Run longer and more often."""
    run(kind, 300, 60)
