"""Offload, deletion, trimming and maintenance that are interrupted at any point or call, as by Ctrl-C.

After it every row is readable and none doubled, the call can be repeated and completes, and no object stays for ever
that the log doesn't know.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest

from tests.interrupts.injection import at_signal_point
from tests.log.reading import UNCOMMITTED, eventually
from tests.log.sites import ClockedTarget, ManualClock, service_over
from tests.log.tiers import objects, write_ledgers
from txn_source import Log, TopicNotFoundError, connect
from txn_source.cli.background import BackgroundMaintenance
from txn_source.client.tiering import copy_deletion, maintenance, offload
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.storage import object_store, tiered

LEASE_S = 3600
MODULES = (offload, copy_deletion, maintenance, object_store, tiered)
KINDS = (KeyboardInterrupt, MemoryError, SystemExit)
LEVEL = UNCOMMITTED


@dataclass(frozen=True)
class Operation:
    """What is interrupted, and what it finds: which ledgers were offloaded before, and the policies."""

    run: Callable[[Log], object]
    offloaded: bool = False
    policies: dict[str, Any] = field(default_factory=dict)
    goes: str = "nothing"
    """What it deletes for good: nothing, the closed ledgers, or the topic."""


OPERATIONS = {
    "offload": Operation(lambda log: log.offload("orders")),
    "delete_hot": Operation(lambda log: log.delete_hot("orders"), offloaded=True),
    "delete_offloaded": Operation(lambda log: log.delete_offloaded("orders"), offloaded=True),
    "trim": Operation(lambda log: log.trim("orders", keep_bytes=0), offloaded=True, goes="ledgers"),
    "delete_topic": Operation(lambda log: log.delete_topic("orders"), offloaded=True, goes="topic"),
    "maintain": Operation(lambda log: log.maintain(), policies={"offload_after_age": 0, "offload_deletion_lag": 0}),
    "maintain after the lag": Operation(
        lambda log: log.maintain(), offloaded=True, policies={"offload_after_age": 0, "offload_deletion_lag": 0}
    ),
}


@dataclass
class Place:
    """A log that is there before each interruption anew, and the rows in it."""

    folder: Path
    operation: Operation
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self._prepared = self.folder / "prepared"
        connect(self._prepared).close()
        with Log(ClockedTarget(self._prepared, self.clock)) as log:  # type: ignore[arg-type]
            log.create_topic("orders", **self.operation.policies)
            write_ledgers(log, ledgers=2)
            if self.operation.offloaded:
                log.offload("orders")
            self.rows = rows(log)
            self.closed = [ledger.ledger_id for ledger in log.stats("orders").ledgers if ledger.closed]
        with closing(sqlite3.connect(self._prepared / "metadata.db")) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.clock.advance(60)
        self.root = self.folder / "log"

    @property
    def kept(self) -> pa.Table:
        """The rows that no operation may delete."""
        ids = pa.array(self.closed, pa.int64())
        gone = pa.compute.is_in(self.rows["__ledger_id"], ids)
        return self.rows.filter(pa.compute.invert(gone))

    @contextmanager
    def opened(self, at_call: int = -1, *, after: bool = False, kind: type[BaseException] = KeyboardInterrupt) -> Any:
        """Open the log as it was prepared; the call of the service with that number raises."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self._prepared, self.root)
        way = Way(InProcessTransport(service_over(self.root, self.clock)), at_call, after, kind)
        with Log(way) as log:  # type: ignore[arg-type]
            yield log, way

    def check(self, log: Log) -> None:
        """Look at the log after an interruption, repeat what was interrupted, and look again."""
        self._check_rows(log, done=False)
        try:
            self.operation.run(log)
        except TopicNotFoundError:
            assert self.operation.goes == "topic"
        self._check_rows(log, done=True)
        self.clock.advance(LEASE_S + 1)
        log.maintain()
        self.clock.advance(LEASE_S + 1)
        log.maintain()
        self._check_rows(log, done=True)
        with closing(sqlite3.connect(self.root / "metadata.db")) as database:
            copies = database.execute("SELECT uri, complete FROM copies").fetchall()
            assert all(complete for _, complete in copies)
            assert {path.relative_to(self.root).as_posix() for path in objects(self.root)} == {uri for uri, _ in copies}
            assert database.execute("SELECT * FROM doomed_files").fetchall() == []
        log.collect_garbage(0)
        assert self.operation.goes != "topic" or not list(self.root.rglob("*.arrow"))

    def _check_rows(self, log: Log, *, done: bool) -> None:
        if self.operation.goes == "topic":
            assert not (done and log.topics())
            if not log.topics():
                return
        found = rows(log)
        if self.operation.goes == "ledgers":
            assert found.equals(self.kept) or (not done and found.equals(self.rows))
        else:
            assert found.equals(self.rows)


@dataclass
class Way:
    """A way to the service on which one call raises, before it is sent or after it was answered; also its target."""

    inner: InProcessTransport
    at: int
    after: bool
    kind: type[BaseException]
    calls: int = 0
    counting: bool = False

    @property
    def timeout_s(self) -> float:
        return self.inner.timeout_s

    def open(self) -> tuple[MetadataStub, str]:
        stub = MetadataStub(self)
        return stub, stub.get_log().storage_uri

    def call(self, method: str, request: Any) -> Any:
        mine = self.counting and self.calls == self.at
        self.calls += self.counting
        if mine and not self.after:
            raise self.kind
        answer = self.inner.call(method, request)
        if mine:
            raise self.kind
        return answer

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        return self.inner.converse(method, requests)

    def close(self) -> None:
        self.inner.close()


def rows(log: Log) -> pa.Table:
    """Return all rows of the topic with their places; no copy of them may be unreadable."""
    reader = log.scan("orders", LEVEL, ["__ledger_id", "__entry_id", "__batch_index", "value"])
    found = reader.read_all()
    assert not log.copies_read(reader).failures
    return found.combine_chunks()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if the machine has one: hundreds of logs are copied into it."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def interrupt_calls(place: Place, step: int) -> int:
    """Interrupt at every so manieth call of the service, before and after it; return how often."""
    with place.opened() as (log, way):
        way.counting = True
        place.operation.run(log)
        calls = way.calls
    done = 0
    for number in range(0, 2 * calls, step):
        kind = KINDS[done % len(KINDS)]
        with place.opened(number // 2, after=bool(number % 2), kind=kind) as (log, way):
            way.counting = True
            with suppress(kind):  # maintenance takes an error that nobody foresaw for that of a topic
                place.operation.run(log)
            way.counting = False
            assert way.calls >= number // 2
            place.check(log)
            done += 1
    return done


def interrupt_points(place: Place, times: int | None) -> int:
    """Interrupt at every signal point, or at so many of them, evenly; return how often."""
    with place.opened() as (log, _), at_signal_point(sys.maxsize, MODULES) as all_points:
        place.operation.run(log)
    step = 1 if times is None else max(1, all_points.seen // times)
    done = 0
    for number in range(step // 2, all_points.seen, step):
        kind = KINDS[done % len(KINDS)]
        with place.opened() as (log, _):
            with suppress(kind), at_signal_point(number, MODULES, kind):
                place.operation.run(log)
            place.check(log)
            done += 1
    return done


@pytest.mark.parametrize("name", OPERATIONS)
def test_interrupted_call_loses_and_doubles_nothing(folder: Path, name: str) -> None:
    """Interrupt at some calls of the service and at some points."""
    place = Place(folder, OPERATIONS[name])
    assert interrupt_calls(place, 3) > 0
    assert interrupt_points(place, 6) > 0


class Counted:
    """A service that tells before which of its calls something is to happen."""

    def __init__(self, inner: MetadataService, at: int, then: Callable[[], object]) -> None:
        self._inner = inner
        self._at = at
        self._then = then
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def call(self, name: str, request: Any) -> Any:
        if self.calls == self._at:
            self._then()
        self.calls += 1
        return self._inner.call(name, request)


def test_background_maintenance_that_is_stopped_leaves_nothing(folder: Path) -> None:
    """Stop the thread of ``txnlog serve`` at some of its calls: it ends at the next one, and nothing is lost."""
    place = Place(folder, OPERATIONS["maintain"])
    for number in range(0, 40, 5):
        with place.opened() as (log, _):
            service = service_over(place.root, place.clock)
            stopping: list[Callable[[], object]] = []
            counted = Counted(service, number, lambda stop=stopping: stop[0]())
            background = BackgroundMaintenance(counted, place.root, 3600)  # type: ignore[arg-type]
            stopping.append(background._stopping.set)
            background._once()
            service.close()
            place.check(log)
            if counted.calls <= number:
                break
    assert number > 20


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("odd"), MemoryError()], ids=repr)
def test_topic_that_fails_with_any_error_keeps_no_other_from_its_turn(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the offload of one of two topics fail in a way that isn't ours: that is told, and the other has its turn."""
    offload_one = offload.Offloader.offload_one

    def failing(self: Any, ledger: Any) -> Any:
        if self._topic.name.short == "a":
            raise error
        return offload_one(self, ledger)

    monkeypatch.setattr(offload.Offloader, "offload_one", failing)
    with connect(tmp_path / "log") as log:
        for topic in ("a", "b"):
            log.create_topic(topic, offload_after_age=0)
            with log.producer(topic) as producer:
                producer.send(b"x")
            log.roll_ledger(topic)
        eventually(lambda: bool(log.maintain().offloaded.ledger_ids))
        [(topic, why)] = log.maintain().failures
        assert (topic, why) == ("a", f"{type(error).__name__}: {error}")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a Parquet writer that never began
@pytest.mark.parametrize("name", OPERATIONS)
def test_call_that_is_interrupted_anywhere_loses_and_doubles_nothing(folder: Path, name: str) -> None:
    """Interrupt at every call, before and after it, and at every point; prints how often."""
    place = Place(folder, OPERATIONS[name])
    print(f"{name}: {interrupt_calls(place, 1)} calls, {interrupt_points(place, None)} points")
