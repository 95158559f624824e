"""Random writers, losses of roots, returns, repairs and changes of policies, against a log as plain lists."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, values
from tests.log.roots import Roots, spoil
from txn_source import Log, Transaction, connect
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import UnavailableError
from txn_source.model.position import PositionRange
from txn_source.model.topic_name import TopicName
from txn_source.storage import root_health

NAMES = ("main", "b", "c")
T = TopicName.parse("t")


@dataclass
class Entry:
    """An entry, or a marker, which has no value. ``writer`` waits for its copies if it is short."""

    value: bytes | None
    txn: int | None = None
    writer: int | None = None


class CopiesMachine(RuleBasedStateMachine):
    """One topic with one partition; at most one root is not as it should be at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.rest, root_health.REST_S = root_health.REST_S, 0.0
        self.roots = Roots(folder)
        self.log: Log = self.stack.enter_context(connect(self.roots.main))
        for name in ("b", "c"):
            self.log.add_root(name, self.roots[name])
        self.log.create_topic("t", hot_copies="main,b,c", ledger_max_entries=7)
        self.producers = [self.log.producer("t", batching=BY_HAND) for _ in range(2)]
        self.waiting: dict[int, int] = {}
        """The number of each producer's registered messages that lacked copies at its last flush."""
        self.seen: set[int] = set()
        """Producers whose waiting messages were acknowledged since, under a policy of fewer copies."""
        self.entries: list[Entry] = []
        self.txns: list[Transaction] = []
        self.states: list[str] = []
        self.away: str | None = None
        self.damaged: set[str] = set()
        self.acknowledge = 3
        self.sent = 0
        self.highest = 0

    def teardown(self) -> None:
        for producer in self.producers:
            producer._closed = True
            producer._linger.stop()
        root_health.REST_S = self.rest
        self.stack.close()

    # What writers do

    @rule(writer=st.integers(0, 1), number=st.none() | st.integers(0, 9))
    def append(self, writer: int, number: int | None) -> None:
        opened = [n for n, state in enumerate(self.states) if state == "open"]
        txn = opened[number % len(opened)] if opened and number is not None else None
        if writer in self.waiting:
            self.flush(writer)
            if writer in self.waiting:
                return  # it takes nothing before what waits is acknowledged
        value = b"%d" % self.sent
        self.sent += 1
        self.producers[writer].send(value, txn=None if txn is None else self.txns[txn])
        short = self.acknowledge == 3 and self.away is not None
        if short:
            with pytest.raises(UnavailableError, match="too few copies"):
                self.producers[writer].flush()
            self.waiting[writer] = 1
        else:
            assert len(self.producers[writer].flush()) == 1
        self.entries.append(Entry(value, txn, writer if short else None))

    @precondition(lambda self: bool(self.waiting))
    @rule(writer=st.integers(0, 1))
    def flush(self, writer: int) -> None:
        if writer not in self.waiting:
            return
        if self.away is not None and self.acknowledge == 3 and writer not in self.seen:
            with pytest.raises(UnavailableError):
                self.producers[writer].flush()
            return
        assert len(self.producers[writer].flush()) == 1
        del self.waiting[writer]
        self.seen.discard(writer)
        self._has_copies(writer)

    @rule()
    def begin(self) -> None:
        self.txns.append(self.log.begin_transaction())
        assert self.txns[-1].id
        self.states.append("open")

    @precondition(lambda self: "open" in self.states)
    @rule(number=st.integers(0, 9), commit=st.booleans())
    def end(self, number: int, commit: bool) -> None:
        """As an operator does it, whatever lacks copies."""
        opened = [n for n, state in enumerate(self.states) if state == "open"]
        txn = opened[number % len(opened)]
        self.log.metadata.end_transaction(self.txns[txn].id, commit=commit)
        self.states[txn] = "committed" if commit else "aborted"
        if any(entry.txn == txn for entry in self.entries):
            self.entries.append(Entry(None, txn))

    # What happens to roots

    @precondition(lambda self: self.away is None and not self.damaged)
    @rule(name=st.sampled_from(NAMES))
    def lose(self, name: str) -> None:
        if (self.roots[name] / "segments").exists():
            self.roots.lose(name)
            self.away = name

    @precondition(lambda self: self.away is not None)
    @rule()
    def bring_back(self) -> None:
        assert self.away is not None
        self.roots.bring_back(self.away)
        self.damaged.add(self.away)  # it lacks what was written meanwhile
        self.away = None

    @precondition(lambda self: self.away is None and not self.damaged and not self.waiting)
    @rule(name=st.sampled_from(NAMES), how=st.sampled_from(["gone", "short", "flipped"]), number=st.integers(0, 99))
    def damage(self, name: str, how: str, number: int) -> None:
        if files := self.roots.segments(name):
            spoil(files[number % len(files)], how)
            self.damaged.add(name)

    @precondition(lambda self: self.away is None and not self.damaged and not self.waiting)
    @rule(name=st.sampled_from(NAMES))
    def wipe(self, name: str) -> None:
        shutil.rmtree(self.roots[name] / "segments", ignore_errors=True)
        self.damaged.add(name)

    @rule(verify=st.booleans())
    def repair(self, verify: bool) -> None:
        report = self.log.maintain(verify=verify)
        assert report.copies.lost == 0
        if self.away is not None:
            return
        self.seen |= self.waiting.keys()
        for writer in self.waiting:
            self._has_copies(writer)
        if verify:
            assert report.failures == ()
            self.damaged = set()
            files = [{path.name: path.read_bytes() for path in self.roots.segments(name)} for name in NAMES]
            registered = {segment.path.rpartition("/")[2] for segment in self.log.metadata.list_hot_segments(T)}
            assert [{n: data for n, data in each.items() if n in registered} for each in files[1:]] == [files[0]] * 2

    @rule(acknowledge=st.integers(2, 3))
    def change_policy(self, acknowledge: int) -> None:
        self.log.set_policies("t", acknowledge_copies=acknowledge)
        for producer in self.producers:
            producer._pipeline._copies._looked = -1e9  # a minute has passed
        self.acknowledge = acknowledge
        if acknowledge == 2:
            self.seen |= self.waiting.keys()
            for writer in self.waiting:
                self._has_copies(writer)

    def _has_copies(self, writer: int) -> None:
        for entry in self.entries:
            if entry.writer == writer:
                entry.writer = None

    # What is seen

    @invariant()
    def each_isolation_sees_what_it_should(self) -> None:
        high = next((at for at, entry in enumerate(self.entries) if entry.writer is not None), len(self.entries))
        assert high >= self.highest
        self.highest = high
        unstable = []
        for txn, state in enumerate(self.states):
            mine = [at for at, entry in enumerate(self.entries) if entry.txn == txn]
            if mine and (state == "open" or mine[-1] >= high):
                unstable.append(mine[0])
        stable = min([*unstable, high])
        seen = [e.value for e in self.entries[:high] if e.value is not None]
        assert values(self.log, "t", UNCOMMITTED) == seen
        committed = [
            e.value
            for e in self.entries[:stable]
            if e.value is not None and (e.txn is None or self.states[e.txn] == "committed")
        ]
        assert values(self.log, "t", COMMITTED) == committed
        stub: MetadataStub = self.log.metadata
        [partition] = stub.get_view([T]).topics[0].partitions
        whole = PositionRange(partition.bounds.log_start, partition.bounds.log_end)
        registered = sum(page.entries.num_rows for page in stub.list_entries(partition.partition_id, whole))
        assert registered == len([e for e in self.entries if e.value is not None])
        assert (partition.bounds.high_watermark == partition.bounds.log_end) is (high == len(self.entries))
        listed = {t.id for t in self.log.stats("t").ongoing_transactions}
        assert listed == {self.txns[self.entries[at].txn or 0].id for at in unstable}


QUICK = {"max_examples": 2, "stateful_step_count": 20}
LONG = {"max_examples": 400, "stateful_step_count": 60}


def run(**how: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        CopiesMachine,
        settings=settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), **how),  # type: ignore[arg-type]
    )


def test_random_courses() -> None:
    """A few."""
    run(**QUICK)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_many_random_courses() -> None:
    """Many, long ones."""
    run(**LONG)
