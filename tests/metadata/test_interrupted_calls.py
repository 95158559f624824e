"""An interrupt at any moment of an embedded call leaves nothing locked or half done, and it can be repeated."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from tests.interrupts.injection import Injection, Interrupt, at_driver_call, at_signal_point
from tests.log.sites import ManualClock, Site
from txn_source import Log
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.service import service
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store import group_commit, sqlite_database, sqlite_file, timekeeping, write_turn
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.tables import metadata
from txn_source.storage.root import LogRoot

# A connection that was dropped is closed by the garbage collector, where Python only mentions an interrupt.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
MODULES = (group_commit, service, sqlite_database, sqlite_file, timekeeping, write_turn)
Inject = Callable[[int], AbstractContextManager[Injection]]
INJECTIONS: dict[str, Inject] = {
    "driver": partial(at_driver_call, kind=Interrupt),
    "points": partial(at_signal_point, where=MODULES, kind=Interrupt),
}
_POLICIES = pb.TopicPolicies(ledger_max_entries=100_000, ledger_max_bytes=1 << 30, ledger_max_age_ms=1 << 40)


@dataclass
class World:
    """A log whose service is called by hand, and another connection to its database."""

    service: MetadataService
    other: sqlite3.Connection
    producer: pb.OpenProducerResponse
    numbers: Iterator[int]

    def __post_init__(self) -> None:
        self.partition_id = self.producer.partitions[0].partition_id

    def append(self, number: int, txn: pb.TxnId | None = None) -> pb.AppendRequest:
        folder = f"segments/{self.producer.topic.topic_id}/0"
        path = f"{folder}/{self.producer.partitions[0].log_end >> 32}-{self.producer.producer_id}-{number:012x}.arrow"
        entry = pb.NewEntry(
            partition_id=self.partition_id,
            base_sequence=number,
            messages=1,
            segment=path,
            offset=8,
            length=64,
            crc32c=1,
        )
        return pb.AppendRequest(
            producer_id=self.producer.producer_id, epoch=self.producer.epoch, entries=[entry], txn=txn
        )

    def begin(self, number: int) -> pb.TxnId:
        request = pb.BeginTransactionRequest(request_id=f"for {number}", timeout_ms=600_000)
        return self.service.call("BeginTransaction", request).id

    def rows(self) -> list[int]:
        """Return how many rows each table has, and how far the counters are."""
        counts = [self.other.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in metadata.tables]
        return [
            *counts,
            *self.other.execute("SELECT decisions, transactions FROM log_info").fetchone(),
            *self.other.execute(
                "SELECT total(entries), total(messages), total(closed_at_ms > 0) FROM ledgers"
            ).fetchone(),
        ]


def _end(world: World, number: int) -> tuple[str, Message]:
    txn = world.begin(number)
    world.service.call("Append", world.append(number, txn))
    return "EndTransaction", pb.EndTransactionRequest(id=txn, commit=True)


def _roll(world: World, number: int) -> tuple[str, Message]:
    world.service.call("Append", world.append(number))
    return "RollLedger", pb.RollLedgerRequest(request_id=f"roll {number}", name="orders")


def _trim(world: World, number: int) -> tuple[str, Message]:
    _, request = _roll(world, number)
    world.service.call("RollLedger", request)
    view = world.service.call("GetView", pb.GetViewRequest(topics=["orders"])).topics[0].partitions[0]
    return "TrimTopic", pb.TrimTopicRequest(request_id=f"trim {number}", topic="orders", before={0: view.log_end})


def _expired(world: World, number: int) -> tuple[str, Message]:
    """A read that finds a transaction past its deadline, and aborts it."""
    request = pb.BeginTransactionRequest(request_id=f"late {number}", timeout_ms=1)
    world.service.call("Append", world.append(number, world.service.call("BeginTransaction", request).id))
    world.service._work._clock.advance(0.002)  # type: ignore[attr-defined]
    return "GetView", pb.GetViewRequest(topics=["orders"])


CALLS: dict[str, Callable[[World, int], tuple[str, Message]]] = {
    "append": lambda world, n: ("Append", world.append(n)),
    "append in a transaction": lambda world, n: ("Append", world.append(n, world.begin(n))),
    "begin": lambda _, n: ("BeginTransaction", pb.BeginTransactionRequest(request_id=f"begin {n}", timeout_ms=600_000)),
    "end": _end,
    "create a topic": lambda _, n: (
        "CreateTopic",
        pb.CreateTopicRequest(request_id=f"create {n}", name=f"topic{n}", partitions=2, policies=_POLICIES),
    ),
    "open a producer": lambda _, n: (
        "OpenProducer",
        pb.OpenProducerRequest(request_id=f"open {n}", topic="orders", transactional_id="teller"),
    ),
    "roll": _roll,
    "trim": _trim,
    "subscribe": lambda _, n: (
        "CreateSubscription",
        pb.CreateSubscriptionRequest(
            request_id=f"subscribe {n}",
            topic="orders",
            name=f"s{n}",
            type=pb.SUBSCRIPTION_TYPE_EXCLUSIVE,
            isolation_level=pb.ISOLATION_LEVEL_READ_COMMITTED,
            place=pb.SubscriptionPlace(where=pb.TOPIC_END_EARLIEST),
        ),
    ),
    "look": lambda *_: ("GetView", pb.GetViewRequest(topics=["orders"])),
    "look past a deadline": _expired,
}


@pytest.fixture
def world(tmp_path: Path, clock: ManualClock) -> Iterator[World]:
    with Site("embedded", tmp_path / "log", clock) as site:
        log: Log = site.connect()
        log.create_topic("orders")
        url = LogRoot.at(site.root).database_url
        service = MetadataService(open_database(url), str(site.root), clock)
        opened = service.call("OpenProducer", pb.OpenProducerRequest(request_id="first", topic="orders"))
        other = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0, isolation_level=None)
        yield World(service, other, opened, itertools.count(1))
        other.close()
        service.close()


def _interrupt_everywhere(world: World, inject: Inject, prepare: Any, step: int) -> int:
    """Interrupt a call at one place after the other until none is left; return how many there were."""
    kept: list[BaseException] = []  # with their tracebacks, and what those refer to, as an interactive session does

    def change_of(call: Callable[[str, Message], None]) -> list[int]:
        method, request = prepare(world, next(world.numbers))
        before = world.rows()
        call(method, request)
        return [after - b for after, b in zip(world.rows(), before, strict=True)]

    def undisturbed(method: str, request: Message) -> None:
        world.service.call(method, request)

    change_of(undisturbed)
    expected = change_of(undisturbed)
    for at in itertools.count(0, step):
        ended = False

        def interrupted(method: str, request: Message, at: int = at) -> None:
            nonlocal ended
            try:
                with inject(at) as injection:
                    world.service.call(method, request)
            except Interrupt as interrupt:
                kept.append(interrupt)
            ended = injection.place is None
            world.other.execute("BEGIN IMMEDIATE")  # at once, with no time to wait
            world.other.execute("ROLLBACK")
            first, again = (world.service.call(method, request) for _ in range(2))
            assert first == again

        assert change_of(interrupted) == expected, f"place {at}"
        if ended:
            return at
    raise AssertionError


@pytest.mark.parametrize("inject", INJECTIONS)
@pytest.mark.parametrize("kind", CALLS)
def test_interrupted_call_leaves_nothing_locked_or_half_done(world: World, inject: str, kind: str) -> None:
    """Interrupt each kind of call at every seventh place, keep the traceback, write from outside, and repeat it."""
    assert _interrupt_everywhere(world, INJECTIONS[inject], CALLS[kind], step=7) > 3


@pytest.mark.long
@pytest.mark.parametrize("inject", INJECTIONS)
@pytest.mark.parametrize("kind", CALLS)
def test_call_interrupted_at_every_place(world: World, inject: str, kind: str) -> None:
    """The same at each place."""
    places = _interrupt_everywhere(world, INJECTIONS[inject], CALLS[kind], step=1)
    print(f"{kind}, {inject}: {places} interrupts")


def test_connection_that_was_never_opened_goes_silently() -> None:
    """Drop a connection whose opening was interrupted at its very beginning: nothing is raised in its destructor."""
    sqlite_file._Raw.__del__(sqlite_file._Raw.__new__(sqlite_file._Raw))
