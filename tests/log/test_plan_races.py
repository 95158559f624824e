"""Whatever happens between two calls of a read, it gives what its plan promised, or says that this is lost.

A log is made once and copied for each try. Before the k-th call of a read another connection trims, deletes the topic,
makes it anew, or moves its ledgers to tiered copies; k goes through all calls. What the read gives is compared with
what the log had before and after. Each try is one injection.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.log.meddling import Meddling
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, send_each, trim_closed
from tests.log.sites import service_over
from tests.log.streaming import COLUMNS, Follower, reread, rows_between, stream_of
from txn_source import DataLossError, IsolationLevel, Log, OutOfRangeError, TopicNotFoundError, connect
from txn_source.client.places import parse_side
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.store import views
from txn_source.model.position import EARLIEST, LATEST
from txn_source.reading.limits import StreamLimits
from txn_source.reading.plan import plan
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream_offset import StreamOffset

Place = tuple[int, int, int]
"""Partition, ledger and entry."""
Rows = dict[Place, bytes]
READS = ("scan", "scan by position", "scan by time", "scan as of", "stream", "limited stream", "replay")


@dataclass
class Acting(Meddling):
    """Does something before the k-th call, counted from ``arm`` on."""

    act: Callable[[], object] = lambda: None
    at: int = -1
    calls: list[str] = field(default_factory=list)

    def call(self, method: str, request: Any) -> Any:
        if len(self.calls) == self.at:
            self.act()
        self.calls.append(method)
        return super().call(method, request)


def make(root: Path, *, held: bool) -> None:
    """Write transfers over two partitions in ledgers of two entries, some aborted, and leave one transaction open.

    ``held``: it is open from the start of partition 0 on, so that a committed read has nothing of that; else it lies
    behind most of the transfers.
    """
    log = connect(root)
    log.create_topic("t", partitions=2, ledger_max_entries=3)
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, ["plain", "plain"], partition=1)
    hanging = log.begin_transaction(600)
    for number in range(6):
        if number == (0 if held else 4):
            send_each(producer, ["open"], partition=0, txn=hanging)
        transaction = log.begin_transaction()
        for partition in ((0, 1), (1, 0))[number % 2]:
            send_each(producer, [f"{'aborted' if number == 2 else 'transfer'} {number}"], partition=partition,
                      txn=transaction)  # fmt: skip
        transaction.abort() if number == 2 else transaction.commit()
        if number % 2:
            send_each(producer, [f"plain {number}"], partition=1)
    log.close()


def end_open(log: Log) -> None:
    for transaction in log.transactions():
        log.abort_transaction(transaction.id)


def trim_all(log: Log) -> None:
    end_open(log)
    log.roll_ledger("t")
    trim_closed(log, "t")


def trim_first(log: Log) -> None:
    found = {n: p.ledgers for n, p in enumerate(log.stats("t").partitions) if len(p.ledgers) > 1}
    log.trim("t", before={"t": {n: f"{ledgers[1].ledger_id}:0" for n, ledgers in found.items()}})


def make_anew(log: Log) -> None:
    log.delete_topic("t")
    log.create_topic("t", partitions=2)
    with log.producer("t") as producer:
        for partition in range(2):
            producer.send("anew", partition=partition)


def to_tiered(log: Log) -> None:
    log.roll_ledger("t")
    log.offload("t")
    log.delete_hot("t")


def to_tiered_and_trim(log: Log) -> None:
    to_tiered(log)
    trim_first(log)


def append_and_trim(log: Log) -> None:
    with log.begin_transaction() as transaction, log.producer("t") as producer:
        for partition in range(2):
            producer.send("transfer late", partition=partition, txn=transaction)
    trim_first(log)


ACTS: dict[str, Callable[[Log], object]] = {
    "trim all": trim_all,
    "trim the first ledgers": trim_first,
    "delete": lambda log: log.delete_topic("t"),
    "delete and make anew": make_anew,
    "move to tiered copies": to_tiered,
    "move to tiered copies and trim": to_tiered_and_trim,
    "append and trim": append_and_trim,
}


def by_place(rows: list[dict[str, Any]]) -> Rows:
    found = {(r["__partition"], r["__ledger_id"], r["__entry_id"]): r["value"] for r in rows}
    assert len(found) == len(rows), "a row came twice"
    return found


def scanned(log: Log, level: str, **options: Any) -> Rows:
    """Read as ``scan`` and Spark's batch reader do, with the options that ``scan`` doesn't have."""
    start, end, lossy = options.pop("start", None), options.pop("end", None), options.pop("lossy", False)
    source = resolve(log.metadata, Selection.of("t"))
    request = ReadRequest(
        IsolationLevel.parse(level), parse_side(start, EARLIEST), parse_side(end, LATEST),
        fail_on_data_loss=not lossy, **options,
    )  # fmt: skip
    planned = plan(OwnLog(log.access), source, request)
    reader = planned.reader(OwnLog(log.access), select_columns(source.payload, COLUMNS))
    return by_place([r for task in planned.tasks for batch in reader.read(task) for r in batch.to_pylist()])


@dataclass
class Case:
    """A log, what it holds, and a way to read it."""

    root: Path
    tmp: Path
    level: str
    kind: str
    lossy: bool
    copies: int = 0

    def __post_init__(self) -> None:
        log = connect(self.root, create=False)
        self.everything = scanned(log, UNCOMMITTED)
        query = Follower(log, stream_of(log, level=self.level))
        assert query.next()
        self.batch = query.batches[0][:2]
        self.promise: Rows = {}
        log.close()

    def read(self, log: Log) -> Rows:
        first = {"t": {p: f"{min(x for q, x, _ in self.everything if q == p)}:1" for p in range(2)}}
        noon, soon = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
        match self.kind:
            case "scan":
                return scanned(log, self.level, lossy=self.lossy)
            case "scan by position":
                return scanned(log, self.level, start=first, lossy=self.lossy)
            case "scan by time":
                return scanned(log, self.level, start=noon, end=soon, lossy=self.lossy)
            case "scan as of":
                return scanned(log, COMMITTED, as_of_us=int(soon.timestamp()) * 1_000_000, lossy=self.lossy)
            case "replay":
                stream = stream_of(log, level=self.level, fail_on_data_loss=not self.lossy)
                self.between = self.batch
                return by_place(rows_between(log, stream, *self.batch))
        limits = StreamLimits(max_messages=3) if self.kind == "limited stream" else StreamLimits()
        stream = stream_of(log, level=self.level, limits=limits, fail_on_data_loss=not self.lossy)
        start = reread(stream.initial())
        end = stream.latest(start)
        self.between = start, end
        return {} if end is start else by_place(rows_between(log, stream, start, end))

    def undisturbed(self, act: Callable[[Log], object] | None) -> Rows | None:
        """Return what a read gives that begins after everything has happened; None: it is refused."""
        log, _ = self.copy()
        if act is not None:
            act(log)
        try:
            return self.read(log)
        except (DataLossError, TopicNotFoundError, OutOfRangeError):
            return None
        finally:
            log.close()

    def copy(self) -> tuple[Log, Path]:
        self.copies += 1
        root = self.tmp / f"{self.copies}"
        shutil.copytree(self.root, root)
        return connect(root, create=False), root

    def try_at(self, k: int, act: Callable[[Log], object]) -> tuple[str, int]:
        """Read, with something done before the k-th call; return what came of it, and how many calls there were."""
        other, root = self.copy()
        way = Acting(InProcessTransport(service_over(root)))
        log = Log(way)  # type: ignore[arg-type]
        way.calls.clear()
        way.at, way.act = k, lambda: act(other)
        try:
            rows = self.read(log)
        except (DataLossError, TopicNotFoundError) as error:
            return error.code, len(way.calls)
        except OutOfRangeError as error:
            assert self.kind == "scan by position", "only who names a position is told that it isn't there"
            return error.code, len(way.calls)
        else:
            self.check(rows, other)
            return "rows", len(way.calls)
        finally:
            other.close()
            log.close()
            shutil.rmtree(root)

    def check(self, rows: Rows, other: Log) -> None:
        """A read that has come to its end gives all that was promised before, or all that is there after."""
        if rows == self.promise or rows == self.after:
            return
        if self.kind == "scan by time" and self.after is not None and not self.lossy:
            # The plan finds the start after the end: it reads the messages that existed then and still exist.
            assert rows == {place: value for place, value in self.after.items() if place in self.everything}
            return
        if self.kind in ("stream", "limited stream") and not self.lossy:
            start, end = self.between
            assert rows == self.expected(start, end, other)
            legs = Counter(value for value in rows.values() if value.startswith(b"transfer"))
            assert self.level == UNCOMMITTED or set(legs.values()) <= {2}, legs
            return
        assert self.lossy, "neither what was promised nor what is there now"
        try:
            there = scanned(other, UNCOMMITTED)
        except TopicNotFoundError:
            there = {}
        assert rows.items() <= (self.promise | (self.after or {})).items() | there.items()
        assert not {place for place in self.promise if place in there} - rows.keys(), "left out what is there"

    def expected(self, start: StreamOffset, end: StreamOffset, other: Log) -> Rows:
        """Return what lies between two offsets, by all that was ever there."""
        known = {**self.everything, **scanned(other, UNCOMMITTED)}
        starts, ends = ({p[1]: (at.ledger_id, at.entry_id) for p, at in o.positions.items()} for o in (start, end))
        hidden = (b"aborted", b"open") if self.level == COMMITTED else ()
        return {
            place: value for place, value in known.items()
            if starts.get(place[0], (0, 0)) <= place[1:] < ends[place[0]] and not value.startswith(hidden)
        }  # fmt: skip


def attack(case: Case, acts: list[str]) -> Counter[str]:
    """Try each act before each call that the read makes when nothing happens; return how often what came of it."""
    found: Counter[str] = Counter()
    case.promise = case.undisturbed(None) or {}
    case.after = case.promise
    _, calls = case.try_at(-1, ACTS["delete"])
    for name in acts:
        case.after = case.undisturbed(ACTS[name])
        for k in range(calls):
            found[case.try_at(k, ACTS[name])[0]] += 1
    return found


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """List one ledger a page, so that a list of ledgers takes several calls."""
    monkeypatch.setattr(views, "PAGE_ROWS", 1)


def test_read_gives_what_it_promised_or_says_that_it_is_lost(tmp_path: Path, small_pages: None) -> None:
    """Do what takes messages away before each call of a read_committed read that is replayed."""
    make(tmp_path / "log", held=False)
    found = attack(Case(tmp_path / "log", tmp_path, COMMITTED, "replay", lossy=False), ["trim the first ledgers"])
    assert found.total() > found["rows"]


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("lossy", [False, True], ids=["", "lossy"])
@pytest.mark.parametrize("held", [False, True], ids=["", "held"])
@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("kind", READS)
def test_reads_of_all_kinds_through_everything(
    tmp_path: Path, small_pages: None, kind: str, level: str, held: bool, lossy: bool
) -> None:
    """Do everything before each call, at both levels; those that leave out what is gone leave out nothing else."""
    make(tmp_path / "log", held=held)
    found = attack(Case(tmp_path / "log", tmp_path, level, kind, lossy), list(ACTS))
    print(f"{kind}, {level}, held={held}, lossy={lossy}: {dict(found)}")
    assert found["rows"]
