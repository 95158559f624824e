"""Writes that wait at the same time share a call: each has its own answer or error, whatever becomes of the call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from google.protobuf.message import Message

from tests.log.reading import eventually, values
from tests.metadata.test_retried_append import Writer
from txn_source import Log
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.convert import entry_to_wire, error_to_wire
from txn_source.metadata.stub import shared_writes
from txn_source.metadata.stub.shared_writes import AT_ONCE, SharedWrites
from txn_source.model.entry import NewEntry, OpenedProducer
from txn_source.model.errors import (
    InvalidArgumentError,
    ProducerFencedError,
    TxnLogError,
    UnavailableError,
)
from txn_source.model.topic_name import TopicName

_WAIT_S = 30.0
FENCED = 7
"""A producer with this id is refused."""


class Service:
    """Answers each call when it is told to; the position of an append is its producer's id."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.under_way = 0
        self.error: Exception | None = None
        """What every shared call ends in."""
        self._lock = threading.Lock()
        self._ends = {producer: threading.Semaphore(0) for producer in range(200)}

    def end(self, *producers: int) -> None:
        """Let calls end, now or later: those whose first writes are of these producers."""
        for producer in producers:
            self._ends[producer].release()

    def call(self, method: str, request: Any) -> Message:
        producers = [_producer(write) for write in (request.writes if method == "WriteAll" else [request])]
        with self._lock:
            self.under_way += 1
            self.calls.append((method, producers))
        assert self._ends[producers[0]].acquire(timeout=_WAIT_S)
        with self._lock:
            self.under_way -= 1
        if method != "WriteAll":
            return _one(request)
        if self.error is not None:
            raise self.error
        answer = pb.WriteAllResponse()
        for write in request.writes:
            written = answer.writes.add()
            try:
                one = _one(write.append if write.HasField("append") else write.transaction)
            except TxnLogError as error:
                written.error.CopyFrom(error_to_wire(error))
            else:
                (written.append if write.HasField("append") else written.transaction).CopyFrom(one)
        return answer


def _producer(write: Any) -> int:
    if isinstance(write, pb.WriteAllRequest.Write):
        write = write.append if write.HasField("append") else write.transaction
    return int(write.producer_id if isinstance(write, pb.AppendRequest) else write.appends[0].producer_id)


def _one(request: Any) -> Any:
    producer = _producer(request)
    if producer == FENCED:
        raise ProducerFencedError(f"Producer {producer} is fenced.", "Close it.")
    if isinstance(request, pb.AppendRequest):
        return pb.AppendResponse(positions=[producer])
    return pb.WriteTransactionResponse(id=pb.TxnId(least_sig_bits=producer))


def append(producer: int) -> tuple[str, Message]:
    return "Append", pb.AppendRequest(producer_id=producer)


def transaction(producer: int) -> tuple[str, Message]:
    appends = [pb.WriteTransactionRequest.Append(producer_id=producer)]
    return "WriteTransaction", pb.WriteTransactionRequest(appends=appends)


class Writers:
    """Threads that write."""

    def __init__(self, service: Service, pool: ThreadPoolExecutor) -> None:
        self.service = service
        self.shared = SharedWrites(service.call)
        self._pool = pool

    def write(self, call: tuple[str, Message]) -> Future[Any]:
        return self._pool.submit(self.shared.write, *call)

    def standing(self) -> int:
        return len(self.shared._lines[os.getpid()]._waiting)

    def busy(self) -> list[Future[Any]]:
        """Have as many calls under way as there may be, of the producers from 100 on; return what comes of them."""
        first = []
        for number in range(AT_ONCE):
            first.append(self.write(append(100 + number)))
            eventually(lambda number=number: self.service.under_way == number + 1)  # type: ignore[misc]
        return first

    def in_line(self, *calls: tuple[str, Message]) -> list[Future[Any]]:
        """Have calls stand in line, in their order."""
        found, before = [], self.standing()
        for number, call in enumerate(calls):
            found.append(self.write(call))
            eventually(lambda number=number: self.standing() == before + number + 1)  # type: ignore[misc]
        return found


@pytest.fixture
def writers() -> Iterator[Writers]:
    service = Service()
    with ThreadPoolExecutor(32) as pool:
        yield Writers(service, pool)
        service.end(*range(200))


def positions(of: Future[Any]) -> list[int]:
    return list(of.result(_WAIT_S).positions)


def test_write_that_is_alone_is_the_call_that_it_is(writers: Writers) -> None:
    """Write one after the other: no call is another one's."""
    writers.service.end(1, 2)
    assert positions(writers.write(append(1))) == [1]
    assert writers.write(transaction(2)).result(_WAIT_S).id.least_sig_bits == 2
    assert writers.service.calls == [("Append", [1]), ("WriteTransaction", [2])]


def test_what_waits_shares_the_next_call(writers: Writers) -> None:
    """Let writes of both kinds wait, one of them to be refused: they make one call, and each has its own answer."""
    first = writers.busy()
    waiting = writers.in_line(append(1), transaction(2), append(FENCED), append(4))
    assert [method for method, _ in writers.service.calls] == ["Append"] * AT_ONCE
    writers.service.end(100, 101, 1)
    assert positions(waiting[0]) == [1]
    assert waiting[1].result(_WAIT_S).id.least_sig_bits == 2
    with pytest.raises(ProducerFencedError, match=f"Producer {FENCED} is fenced"):
        waiting[2].result(_WAIT_S)
    assert positions(waiting[3]) == [4]
    assert [positions(each) for each in first] == [[100], [101]]
    assert writers.service.calls[AT_ONCE:] == [("WriteAll", [1, 2, FENCED, 4])]


@pytest.mark.parametrize("bound", ["MAX_SHARED", "MAX_SHARED_BYTES"])
def test_shared_call_is_bounded(writers: Writers, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """Let more writes wait than a call takes: the rest makes the calls after it."""
    _, one = append(1)
    monkeypatch.setattr(shared_writes, bound, 2 if bound == "MAX_SHARED" else 2 * one.ByteSize())
    writers.busy()
    waiting = writers.in_line(append(1), append(2), append(3))
    writers.service.end(100, 1, 3, 101)
    assert [positions(each) for each in waiting] == [[1], [2], [3]]
    assert sorted(writers.service.calls[AT_ONCE:]) == [("Append", [3]), ("WriteAll", [1, 2])]


@pytest.mark.parametrize("error", [InvalidArgumentError("One of them is wrong.", "Mend it."), RuntimeError("a defect")])
def test_call_that_is_refused_whole_is_made_by_each(writers: Writers, error: Exception) -> None:
    """Refuse a shared call for what one of its writes has: each is made once more, and only that one fails."""
    writers.service.error = error
    writers.busy()
    waiting = writers.in_line(append(1), append(FENCED), append(3))
    writers.service.end(100, 101, 1, 1, FENCED, 3)
    assert positions(waiting[0]) == [1]
    with pytest.raises(ProducerFencedError):
        waiting[1].result(_WAIT_S)
    assert positions(waiting[2]) == [3]
    assert sorted(writers.service.calls[AT_ONCE:]) == [
        ("Append", [1]), ("Append", [3]), ("Append", [FENCED]), ("WriteAll", [1, FENCED, 3])
    ]  # fmt: skip
    writers.service.end(4)
    assert positions(writers.write(append(4))) == [4], "the line goes on"


def test_nobody_waits_behind_a_service_that_cannot_be_reached(writers: Writers) -> None:
    """Fail a shared call with UNAVAILABLE while another write stands in line: each is told by an error of its own."""
    writers.service.error = UnavailableError("Nobody is there.", "Try again.")
    writers.busy()
    shared = writers.in_line(append(1), append(2))
    writers.service.end(100)
    eventually(lambda: len(writers.service.calls) == AT_ONCE + 1)
    behind = writers.in_line(append(3))
    writers.service.end(1)
    told = [each.exception(_WAIT_S) for each in (*shared, *behind)]
    assert [type(error) for error in told] == [UnavailableError] * 3
    assert len({id(error) for error in told}) == 3
    writers.service.end(4)
    assert positions(writers.write(append(4))) == [4]


def test_service_carries_out_each_write_of_a_shared_call_by_itself(log: Log) -> None:
    """Share a call between two good writes and a fenced one, twice: what is there counts once, what isn't stays out."""
    log.create_topic("orders")
    good, other = Writer(log, "orders"), Writer(log, "orders")
    fenced, _ = log.metadata.open_producer(TopicName.parse("orders"), "deposits", None)
    log.metadata.open_producer(TopicName.parse("orders"), "deposits", None)
    request = pb.WriteAllRequest()
    request.writes.add().append.CopyFrom(_append_of(good.identity, good.write(0, b"plain")))
    request.writes.add().append.CopyFrom(_append_of(fenced, good.write(5, b"fenced")))
    whole = request.writes.add().transaction
    whole.timeout_ms = 60_000
    appended = whole.appends.add(producer_id=other.identity.producer_id, epoch=other.identity.epoch)
    appended.entries.append(entry_to_wire(other.write(0, b"committed")))
    first = log.metadata.transport.call("WriteAll", request)
    assert [written.WhichOneof("outcome") for written in first.writes] == ["append", "error", "transaction"]
    assert first.writes[1].error.code == "PRODUCER_FENCED"
    assert log.metadata.transport.call("WriteAll", request) == first
    assert values(log, "orders") == [b"plain", b"committed"]
    whole.acknowledgements.add(subscription_id=1, consumer_id=1)
    with pytest.raises(InvalidArgumentError, match="acknowledges what it consumed"):
        log.metadata.transport.call("WriteAll", request)


def _append_of(producer: OpenedProducer, entry: NewEntry) -> pb.AppendRequest:
    return pb.AppendRequest(producer_id=producer.producer_id, epoch=producer.epoch, entries=[entry_to_wire(entry)])


def test_transaction_that_acknowledges_stays_a_call_of_its_own() -> None:
    """Ask for each kind of call whether it can be shared."""
    _, whole = transaction(1)
    acknowledging = pb.WriteTransactionRequest()
    acknowledging.CopyFrom(whole)
    acknowledging.acknowledgements.add()
    takes: Callable[[str, Any], bool] = SharedWrites.takes
    assert takes(*append(1))
    assert takes("WriteTransaction", whole)
    assert not takes("WriteTransaction", acknowledging)
    assert not takes("EndTransaction", pb.EndTransactionRequest())
