"""The client's rim of one consumer's conversation with the service: model values in and out."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol import convert_subscriptions as sub_wire
from txn_source.metadata.protocol.convert import error_from_wire
from txn_source.metadata.protocol.enums import ISOLATION_LEVEL, SUBSCRIPTION_TYPE
from txn_source.metadata.stub.metadata_stub import EntryPage, MetadataStub
from txn_source.metadata.stub.subscriptions import SeekAnswer, seek_request, sought_from_wire
from txn_source.metadata.stub.tiers import CopiesOfRange, copies_of_range
from txn_source.metadata.stub.transport import Transport
from txn_source.model.acknowledgement import Acknowledged, Acknowledgement
from txn_source.model.errors import InternalError, TxnLogError, UnauthenticatedError, UnavailableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import MessageRange
from txn_source.model.position import MessageId, Position, PositionRange
from txn_source.model.subscription import Place, SubscriptionType
from txn_source.model.topic import TopicView

_JOIN_S = 10.0


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """What a consumer asks for.

    ``isolation_level`` None is the subscription's, which must be there then. ``place`` is where a new
    subscription begins. ``counts``: the consumer counts what comes again before it hands it out (``count``).
    ``received`` are the ranges that the caller received over the connection before, in ``epoch``; None: no report.
    """

    topic: str
    name: str
    type: SubscriptionType
    isolation_level: IsolationLevel | None
    durable: bool
    place: Place
    consumer_name: str
    token: str
    counts: bool = False
    received: Sequence[Acknowledged] | None = None
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The service's answer: who the consumer is, and the subscription's next message of each partition, by its id."""

    subscription_id: int
    consumer_id: int
    epoch: int
    active: bool
    isolation_level: IsolationLevel
    topic: TopicView
    messages: Mapping[int, MessageId]
    created: bool


@dataclass(frozen=True, slots=True)
class Answers:
    """What the reader of a delivery would ask the service first: copies, entries, aborted transactions."""

    copies: CopiesOfRange
    page: EntryPage
    aborted: pa.Table


@dataclass(frozen=True, slots=True)
class Delivery:
    """Entries of one partition in a range, of which the consumer gets the messages in ``wanted``.

    ``messages`` is how many permits it took. ``epoch`` is the one in force when the service read it.
    ``redeliveries`` is how often it was delivered before; ``unsure``: perhaps it wasn't.
    """

    epoch: int
    partition_id: int
    range: PositionRange
    wanted: tuple[MessageRange, ...]
    messages: int
    decisions: int
    redeliveries: int
    unsure: bool
    answers: Answers | None


@dataclass(frozen=True, slots=True)
class AddedPartitions:
    """Partitions that were added to the topic: their indexes, and the subscription's next message of each, by id."""

    indexes: Mapping[int, int]
    messages: Mapping[int, MessageId]


@dataclass(frozen=True, slots=True)
class EpochChange:
    """A new epoch has begun, or the consumer has become active: permits begin anew."""

    epoch: int
    active: bool


Event = Delivery | EpochChange | AddedPartitions


class AnsweredStub(MetadataStub):
    """The service, with its first answers for the reader of a delivery at hand; each is given once."""

    def __init__(self, stub: MetadataStub, delivery: Delivery) -> None:
        super().__init__(stub._transport)
        self._known = stub._known
        self._of = (delivery.partition_id, delivery.range)
        answers = delivery.answers
        self._answers = {} if answers is None else {"copies": answers.copies, "page": answers.page}
        self._aborted = None if answers is None else answers.aborted

    def list_copies(self, partition_id: int, of: PositionRange) -> CopiesOfRange:
        known = self._answers.pop("copies", None) if (partition_id, of) == self._of else None
        return known if isinstance(known, CopiesOfRange) else super().list_copies(partition_id, of)

    def list_entries(self, partition_id: int, of: PositionRange) -> Iterator[EntryPage]:
        known = self._answers.pop("page", None) if (partition_id, of) == self._of else None
        return iter([known]) if isinstance(known, EntryPage) else super().list_entries(partition_id, of)

    def list_decisions(self, partition_id: int, of: PositionRange, *, aborted_only: bool, decisions: int) -> pa.Table:
        if self._aborted is not None and aborted_only and (partition_id, of) == self._of:
            return self._aborted
        return super().list_decisions(partition_id, of, aborted_only=aborted_only, decisions=decisions)


class Conversation:
    """One conversation of a consumer with the service. It isn't opened again: a reconnect opens another one."""

    def __init__(self, transport: Transport, heard: Heard) -> None:
        """Take the way to the service, and what is told of all that the service says.

        ``heard`` is called in the conversation's thread, in the order in which it came: first with ``Subscribed``,
        last with the error that ended the conversation, unless ``close`` did. What it raises ends the conversation.
        """
        self._transport = transport
        self._heard = heard
        self._timeout_s = transport.timeout_s
        self._requests: queue.SimpleQueue[pb.ConsumeRequest | None] = queue.SimpleQueue()
        self._sequences = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[Any]] = {}
        self._opened: queue.SimpleQueue[TxnLogError | None] = queue.SimpleQueue()
        self._is_open = self._closing = False
        self._error: TxnLogError | None = None
        self._thread = threading.Thread(target=self._listen, name="txnlog-consumer", daemon=True)

    def open(self, request: SubscribeRequest) -> None:
        """Subscribe; when it returns ``heard`` has taken the answer."""
        message = pb.ConsumeRequest.Subscribe(
            topic=request.topic,
            name=request.name,
            type=SUBSCRIPTION_TYPE.to_wire(request.type),
            isolation_level=ISOLATION_LEVEL.to_wire(request.isolation_level),
            durable=request.durable,
            place=sub_wire.place_to_wire(request.place),
            consumer_name=request.consumer_name,
            token=request.token,
            counts=request.counts,
            received=None if request.received is None else _redeliver(request.epoch, request.received),
        )
        self._requests.put(pb.ConsumeRequest(subscribe=message))
        self._thread.start()
        try:
            error = self._opened.get(timeout=self._timeout_s)
        except queue.Empty:
            error = _silent(self._timeout_s)
        if error is not None:
            raise error

    def flow(self, epoch: int, messages: int) -> None:
        """Permit so many messages more, in an epoch."""
        self._requests.put(pb.ConsumeRequest(flow=pb.ConsumeRequest.Flow(epoch=epoch, messages=messages)))

    def acknowledge(self, ack: Acknowledgement) -> None:
        """Acknowledge, and wait until it is stored."""
        self._ask(pb.ConsumeRequest(acknowledge=sub_wire.acknowledgement_to_wire(ack)))

    def redeliver(self, epoch: int, parts: Sequence[Acknowledged] = ()) -> int:
        """Have what is not acknowledged delivered again, and return the epoch.

        These ranges; of an ordered subscription all of it, in a new epoch, and the ranges are the received ones.
        """
        return self._ask(pb.ConsumeRequest(redeliver=_redeliver(epoch, parts))).sought.epoch or epoch

    def leave(self, epoch: int, received: Sequence[Acknowledged]) -> None:
        """Disconnect, and report the received ranges of an epoch: only these count."""
        self._ask(pb.ConsumeRequest(leave=_redeliver(epoch, received)))

    def count(self, epoch: int, parts: Sequence[Acknowledged]) -> None:
        """Count ranges that the caller is about to get once more; when it returns that is stored."""
        self._ask(pb.ConsumeRequest(count=_redeliver(epoch, parts)))

    def seek(self, topic: str, name: str, place: Place, epoch: int) -> SeekAnswer:
        """Move the subscription; the epoch must be larger than its current one."""
        request = seek_request(topic, name, place, epoch)
        return sought_from_wire(self._ask(pb.ConsumeRequest(seek=request)).sought)

    def close(self) -> None:
        """End the conversation; the service disconnects the consumer."""
        self._closing = True
        self._requests.put(None)
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    def _ask(self, request: pb.ConsumeRequest) -> pb.ConsumeResponse.Receipt:
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._lock:
            if self._error is not None:
                raise self._error
            request.sequence = next(self._sequences)
            self._waiting[request.sequence] = answer
        self._requests.put(request)
        try:
            receipt = answer.get(timeout=self._timeout_s)
        except queue.Empty:
            raise _silent(self._timeout_s) from None
        finally:
            self._waiting.pop(request.sequence, None)
        if isinstance(receipt, TxnLogError):
            raise receipt
        if receipt.HasField("error"):
            raise error_from_wire(receipt.error)
        return receipt  # type: ignore[no-any-return]

    def _listen(self) -> None:
        error: TxnLogError = UnavailableError("The service ended the conversation.", "Try again.")
        try:
            for response in self._transport.converse("Consume", iter(self._requests.get, None)):
                self._take(response)
        except TxnLogError as raised:
            error = raised
        except BaseException as raised:  # in the embedded service, too, a conversation ends in an answer
            what = f"The conversation failed with {type(raised).__name__}: {raised}."
            error = InternalError(what, "Please report it.")
        if self._is_open and isinstance(error, UnauthenticatedError):  # its token has expired
            error = UnavailableError(error.fact, "The consumer connects again, with the token that is there then.")
        with self._lock:
            self._error = error
            waiting = list(self._waiting.values())
        self._opened.put(error)
        for answer in waiting:
            answer.put(error)
        self._requests.put(None)  # the thread that sends requests ends, too
        if self._is_open and not self._closing:
            self._heard(self, error)

    def _take(self, response: pb.ConsumeResponse) -> None:
        match response.WhichOneof("what"):
            case "delivery":
                self._heard(self, _delivery(response.delivery))
            case "receipt":
                answer = self._waiting.get(response.receipt.sequence)
                if answer is not None:
                    answer.put(response.receipt)
            case "epoch_change":
                self._heard(self, EpochChange(response.epoch_change.epoch, response.epoch_change.active))
            case "partitions_added":
                self._heard(self, _added(response.partitions_added))
            case "subscribed":
                self._heard(self, _subscribed(response.subscribed))
                self._is_open = True
                self._opened.put(None)


Heard = Callable[[Conversation, Subscribed | Event | TxnLogError], None]


def _redeliver(epoch: int, parts: Sequence[Acknowledged]) -> pb.ConsumeRequest.Redeliver:
    ranges = [sub_wire.acknowledged_to_wire(part) for part in parts]
    return pb.ConsumeRequest.Redeliver(epoch=epoch, ranges=ranges)


def _subscribed(message: pb.ConsumeResponse.Subscribed) -> Subscribed:
    return Subscribed(
        message.subscription_id,
        message.consumer_id,
        message.epoch,
        message.active,
        ISOLATION_LEVEL.given(message.isolation_level),
        TopicView(
            convert.topic_from_wire(message.topic.topic),
            tuple(convert.partition_from_wire(p) for p in message.topic.partitions),
        ),
        sub_wire.messages_from_wire(message.points),
        message.created,
    )


def _added(message: pb.ConsumeResponse.PartitionsAdded) -> AddedPartitions:
    indexes = {partition.partition_id: partition.index for partition in message.partitions}
    return AddedPartitions(indexes, sub_wire.messages_from_wire(message.points))


def _delivery(message: pb.ConsumeResponse.Delivery) -> Delivery:
    of = PositionRange(Position.from_key(message.start), Position.from_key(message.end))
    answers = None
    if message.HasField("entries"):
        entries = message.entries
        page = EntryPage(
            convert.table_from_wire(entries.entries),
            dict(entries.segments),
            dict(entries.producers),
            dict(entries.segment_roots),
            of.end,
        )
        answers = Answers(copies_of_range(message.copies), page, convert.table_from_wire(message.aborted.transactions))
    return Delivery(
        message.epoch,
        message.partition_id,
        of,
        sub_wire.ranges_from_wire(message.wanted),
        message.messages,
        message.decisions,
        message.redeliveries,
        message.unsure,
        answers,
    )


def _silent(timeout_s: float) -> UnavailableError:
    return UnavailableError(f"The metadata service didn't answer within {timeout_s:g} s.", "Try again.")
