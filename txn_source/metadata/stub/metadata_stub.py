"""The client's rim of the service: model values in and out, whichever transport carries the call."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol.convert_imports import import_to_wire
from txn_source.metadata.protocol.convert_subscriptions import acknowledgement_to_wire
from txn_source.metadata.protocol.enums import END_REASON, TRANSACTION_STATE
from txn_source.metadata.stub.ranges import RangeStub, incomplete
from txn_source.metadata.stub.request_ids import request_id
from txn_source.metadata.stub.roots import KnownLog, RootStub
from txn_source.metadata.stub.subscriptions import SubscriptionStub
from txn_source.metadata.stub.tiers import TierStub
from txn_source.metadata.stub.transport import Transport, went_back
from txn_source.model.acknowledgement import Acknowledgement
from txn_source.model.entry import Appended, NewEntry, OpenedProducer
from txn_source.model.errors import LogVersionError
from txn_source.model.imported import ImportedBatch
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.position import Position, PositionRange
from txn_source.model.spark_commit import Sink, TopicBatch
from txn_source.model.topic import Topic, TopicView, View
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TransactionState, TxnId
from txn_source.model.units import format_count
from txn_source.observing.read_counts import OF_PROCESS, ReadCounts
from txn_source.storage.root import FORMAT_VERSION

_log = logging.getLogger(__name__)

_TRANSACTIONS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class LogInfo:
    """What the service says of its log."""

    log_id: str
    storage_uri: str


@dataclass(frozen=True, slots=True)
class TransactionPartition:
    """What a transaction wrote to one partition, and what it holds back there while it is open.

    Held back are the messages (and their stored bytes) at or above ``first_position`` and below the high watermark.
    """

    topic: str
    partition: int
    first_position: Position
    marker_position: Position | None
    messages: int
    bytes: int
    held_back_messages: int
    held_back_bytes: int


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transaction as an operator sees it; ``age`` is in seconds since it began, by the service's clock."""

    id: TxnId
    state: TransactionState
    age: float
    timeout: float
    end_reason: str
    producers: tuple[str, ...]
    partitions: tuple[TransactionPartition, ...]

    def __repr__(self) -> str:
        holds = f", holds back {format_count(held, 'message')}" if (held := self.held_back_messages) else ""
        return f"<TransactionInfo {self.id}: {self.state}, began {self.age:.1f} s ago{holds}>"

    @property
    def held_back_messages(self) -> int:
        """Messages held back on all its partitions."""
        return sum(p.held_back_messages for p in self.partitions)

    @property
    def held_back_bytes(self) -> int:
        """Stored bytes held back on all its partitions."""
        return sum(p.held_back_bytes for p in self.partitions)


@dataclass(frozen=True, slots=True)
class EntryPage:
    """Data entries of a range, ascending, with what the ids in it stand for.

    Columns, all int64: position (``Position.key``), messages, txn (number, -1 for none), producer_id, base_sequence,
    publish_time_us, segment_id, offset, length, crc32c.
    """

    entries: pa.Table
    segments: dict[int, str]
    producers: dict[int, str]
    roots: dict[int, int]
    """Of segments that aren't in the log's own root alone: the sets of the roots that have them."""
    end: Position
    """What lies below it, from the start of the range or the end of the last page on, is in this page; exclusive."""


@dataclass(frozen=True, slots=True)
class FoundPosition:
    """The first message published at or after a time; if ``ledger_only``, just the start of the ledger that has it."""

    position: Position
    ledger_only: bool


class MetadataStub(RangeStub, TierStub, RootStub, SubscriptionStub):
    """The service's calls. All raise ``TxnLogError``; all may be repeated."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known = KnownLog()
        self._decisions = 0

    @property
    def transport(self) -> Transport:
        """What carries the calls."""
        return self._transport

    @property
    def service(self) -> Any:
        """The service, if it is in this process, and open to all that is done with it; else None."""
        return getattr(self._transport, "service", None)

    @property
    def reads(self) -> tuple[ReadCounts, ...]:
        """Where to count what is read: for this process, and for the service, if there is one to tell."""
        untold: ReadCounts | None = getattr(self._transport, "reads", None)
        return (OF_PROCESS,) if untold is None else (OF_PROCESS, untold)

    def close(self) -> None:
        """Close this process's connection."""
        self._transport.close()

    def get_log(self) -> LogInfo:
        """Ask what log this is; raise LOG_VERSION if its format is newer than this release's."""
        answer = self._transport.call("GetLog", pb.GetLogRequest())
        if answer.format_version > FORMAT_VERSION:  # its segments are read and written here
            raise LogVersionError(
                f"The log has format version {answer.format_version}; this release reads up to {FORMAT_VERSION}.",
                "Upgrade txn-source.",
            )
        self._known.log_id = answer.log_id
        self._known.roots = tuple(convert.root_from_wire(root) for root in answer.roots)
        return LogInfo(answer.log_id, answer.storage_uri)

    @property
    def log_id(self) -> str:
        """Which log it is, as ``get_log`` has found out."""
        if self._known.log_id is None:
            self.get_log()
        return self._known.log_id or ""

    def is_same_log(self, other: MetadataStub) -> bool:
        """Return False if both were asked what log they are of, by ``get_log``, and it isn't the same one."""
        mine, its = self._known.log_id, other._known.log_id
        return self is other or None in (mine, its) or mine == its

    # Topics

    def create_topic(
        self,
        name: TopicName,
        partitions: int,
        schema: bytes | None,
        limits: LedgerLimits,
        policies: Mapping[str, str],
    ) -> Topic:
        """Create a topic, or raise TOPIC_EXISTS; ``policies`` are those that a namespace and the broker have too."""
        request = pb.CreateTopicRequest(
            request_id=request_id(),
            name=str(name),
            partitions=partitions,
            schema=schema,
            policies=convert.limits_to_wire(limits),
            layered_policies=policies,
        )
        return convert.topic_from_wire(self._transport.call("CreateTopic", request).topic)

    def update_topic(self, name: TopicName, partitions: int) -> int:
        """Add partitions to a topic until it has so many; return how many were added."""
        request = pb.UpdateTopicRequest(request_id=request_id(), name=str(name), partitions=partitions)
        return int(self._transport.call("UpdateTopic", request).added)

    def list_topics(self, namespace: str | None = None) -> list[TopicName]:
        """Return the topics' names, sorted."""
        answer = self._transport.call("ListTopics", pb.ListTopicsRequest(namespace=namespace))
        return [TopicName.parse(name) for name in answer.names]

    def delete_topic(self, name: TopicName) -> int:
        """Delete a topic and return its id."""
        request = pb.DeleteTopicRequest(request_id=request_id(), name=str(name))
        return int(self._transport.call("DeleteTopic", request).topic_id)

    def roll_ledger(self, name: TopicName, partition: int | None) -> list[int]:
        """Close the open ledgers that aren't empty and return their ids."""
        request = pb.RollLedgerRequest(request_id=request_id(), name=str(name), partition=partition)
        return list(self._transport.call("RollLedger", request).closed_ledger_ids)

    # Producers and transactions

    def open_producer(
        self, topic: TopicName, transactional_id: str | None, name: str | None
    ) -> tuple[OpenedProducer, TopicView]:
        """Register a producer, fencing an older one of the same transactional id."""
        request = pb.OpenProducerRequest(
            request_id=request_id(), topic=str(topic), transactional_id=transactional_id, producer_name=name
        )
        answer = self._transport.call("OpenProducer", request)
        opened = OpenedProducer(answer.producer_id, answer.epoch, answer.producer_name)
        return opened, _topic_view(answer)

    def append(self, producer: OpenedProducer, txn: TxnId | None, entries: Sequence[NewEntry]) -> Appended:
        """Register entries whose bytes are safe, all of them or none."""
        request = pb.AppendRequest(
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            txn=None if txn is None else convert.txn_to_wire(txn),
            entries=[convert.entry_to_wire(entry) for entry in entries],
        )
        answer = self._transport.call("Append", request)
        if len(answer.positions) != len(entries):
            raise incomplete(f"{len(answer.positions)} positions for {len(entries)} entries")
        return _appended(answer)

    def commit_batch(self, sink: Sink, batches: Sequence[TopicBatch], key: str) -> tuple[TxnId | None, bool]:
        """Register all that a job wrote and commit it; return the transaction, and if the batch is an old one.

        What the service noticed, such as other rows in a repeated batch, is logged.

        Args:
            sink, batches: who writes, and what was written to each topic; the bytes are safe.
            key: names the job's commit, so that repeating it is harmless.

        Raises:
            BatchRepeatedError: the batch was committed before, and can't come again, or has another number of rows.
        """
        request = pb.CommitBatchRequest(
            request_id=key,
            query_id=sink.query_id,
            batch_id=sink.batch_id,
            producer_name=sink.producer_name,
            transactional_id=sink.transactional_id,
            topics=[convert.topic_batch_to_wire(batch) for batch in batches],
            run_id=sink.run_id,
            app_id=None if sink.app is None else sink.app.app_id,
            version=0 if sink.app is None else sink.app.version,
        )
        answer = self._transport.call("CommitBatch", request)
        for warning in answer.warnings:
            _log.warning("%s", warning)
        return convert.txn_from_wire(answer.txn) if answer.HasField("txn") else None, answer.repeated_batch

    def import_batch(self, batch: ImportedBatch) -> dict[int, int]:
        """Register a part of another log's history; return the ledger that each partition with entries has come to.

        Raises:
            ProducerFencedError: another import of a topic has gone on meanwhile.
            TransactionEndedError: a transaction of the import was aborted by somebody else.
            TopicNotFoundError: a topic was deleted.
        """
        answer = self._transport.call("ImportBatch", import_to_wire(batch, request_id()))
        return {tail.partition_id: tail.ledger_id for tail in answer.tails}

    def get_import(self, topic: TopicName) -> str:
        """Return how far the import of a topic has come, as its last batch noted it; empty: none has begun."""
        return str(self._transport.call("GetImport", pb.GetImportRequest(topic=str(topic))).progress)

    def begin_transaction(self, timeout_ms: int, age_ms: int = 0) -> TxnId:
        """Open a transaction, whose time-out counts from so long ago."""
        request = pb.BeginTransactionRequest(request_id=request_id(), timeout_ms=timeout_ms, age_ms=age_ms)
        return convert.txn_from_wire(self._transport.call("BeginTransaction", request).id)

    def write_transaction(
        self,
        timeout_ms: int,
        appends: Sequence[tuple[OpenedProducer, Sequence[NewEntry]]],
        acknowledgements: Sequence[Acknowledgement] = (),
    ) -> tuple[TxnId, list[Appended]]:
        """Begin a transaction, register entries of producers under it and commit it, all of that or nothing.

        Returns its id, and what came of each producer's entries. The same call again is harmless.
        """
        request = pb.WriteTransactionRequest(
            timeout_ms=timeout_ms,
            appends=[
                pb.WriteTransactionRequest.Append(
                    producer_id=producer.producer_id,
                    epoch=producer.epoch,
                    entries=[convert.entry_to_wire(entry) for entry in entries],
                )
                for producer, entries in appends
            ],
            acknowledgements=[acknowledgement_to_wire(ack) for ack in acknowledgements],
        )
        answer = self._transport.call("WriteTransaction", request)
        came, sent = [len(each.positions) for each in answer.appended], [len(entries) for _, entries in appends]
        if came != sent:
            raise incomplete(f"{came} positions for {sent} entries")
        return convert.txn_from_wire(answer.id), [_appended(each) for each in answer.appended]

    def end_transaction(
        self,
        txn: TxnId,
        *,
        commit: bool,
        forced: bool = False,
        acknowledgements: Sequence[Acknowledgement] = (),
    ) -> None:
        """Commit or abort; the same end again is harmless, the opposite one an error.

        Acknowledgements take effect with the commit; one that can't be refuses it, and the transaction stays open.
        """
        request = pb.EndTransactionRequest(
            id=convert.txn_to_wire(txn),
            commit=commit,
            forced=forced,
            acknowledgements=[acknowledgement_to_wire(ack) for ack in acknowledgements],
        )
        self._transport.call("EndTransaction", request)

    def get_transaction(self, txn: TxnId) -> TransactionInfo:
        """Describe one transaction."""
        request = pb.GetTransactionRequest(id=convert.txn_to_wire(txn))
        return _transaction_info(self._transport.call("GetTransaction", request).transaction)

    def list_transactions(
        self, state: TransactionState | None, topic: TopicName | None = None
    ) -> list[TransactionInfo]:
        """Describe all transactions of a state (None: any), newest first."""
        return self.first_transactions(state, topic)[0]

    def first_transactions(
        self,
        state: TransactionState | None,
        topic: TopicName | None = None,
        limit: int = 0,
        *,
        oldest_first: bool = False,
    ) -> tuple[list[TransactionInfo], int]:
        """Describe transactions of a state (None: any), and count how many more there are.

        Args:
            state: which.
            topic: only those that wrote to it; None: to any.
            limit: describe so many at most; 0: all.
            oldest_first: in the order in which they began; else the newest ones first.
        """
        request = pb.ListTransactionsRequest(
            state=TRANSACTION_STATE.to_wire(state),
            topic=None if topic is None else str(topic),
            oldest_first=oldest_first,
        )
        found: list[TransactionInfo] = []
        more = 1
        while more and (not limit or len(found) < limit):
            request.limit = min(limit - len(found), _TRANSACTIONS_AT_ONCE) if limit else _TRANSACTIONS_AT_ONCE
            answer = self._transport.call("ListTransactions", request)
            found += map(_transaction_info, answer.transactions)
            more = answer.more if answer.transactions else 0
            if more:
                request.after.CopyFrom(answer.transactions[-1].id)
        return found, more

    # Reading

    def get_view(self, topics: Sequence[TopicName]) -> View:
        """Read the bounds of all partitions of the topics in one moment.

        Raises:
            UnavailableError: the log has gone back to a moment before what this client has seen.
        """
        seen = self._decisions
        answer = self._transport.call("GetView", pb.GetViewRequest(topics=[str(t) for t in topics]))
        if len(answer.topics) != len(topics):
            raise incomplete(f"{len(answer.topics)} topics where {len(topics)} were asked for")
        if answer.decisions < seen:
            raise went_back(answer.decisions, seen)
        self._decisions = answer.decisions
        return View(tuple(_topic_view(t) for t in answer.topics), answer.decisions, answer.now_ms)

    def find_cut(
        self,
        bounds: Mapping[int, Position],
        starts: Mapping[int, Position] | None = None,
        *,
        upward: bool = False,
    ) -> dict[int, Position]:
        """Return the consistent cut next to exclusive bounds of all partitions of a read, by their ids.

        Bounds must lie at or below the partitions' last stable positions at one moment; the call itself may come later.

        Args:
            bounds: of each partition.
            starts: a cut at or below the bounds, where the read begins; with it the cost depends on what lies between.
            upward: the smallest cut at or above the bounds, instead of the largest one at or below them.
        """
        request = pb.FindCutRequest(
            bounds={partition_id: bound.key for partition_id, bound in bounds.items()},
            starts={partition_id: start.key for partition_id, start in (starts or {}).items()},
            upward=upward,
        )
        answer = self._transport.call("FindCut", request)
        return {partition_id: Position.from_key(key) for partition_id, key in answer.bounds.items()}

    def find_positions(self, partition_ids: Sequence[int], publish_time_us: int) -> dict[int, FoundPosition | None]:
        """Return, by partition id, the first message published at or after a time; None if there is none."""
        request = pb.FindPositionRequest(partition_ids=partition_ids, publish_time_us=publish_time_us)
        answer = self._transport.call("FindPosition", request)
        return {
            f.partition_id: FoundPosition(Position.from_key(f.position), f.ledger_only)
            if f.HasField("position")
            else None
            for f in answer.found
        }

    def decisions_at(self, time_us: int) -> int:
        """Return how many transactions had ended at a time (microseconds, UTC)."""
        return int(self._transport.call("FindPosition", pb.FindPositionRequest(publish_time_us=time_us)).decisions)

    def list_entries(self, partition_id: int, of: PositionRange) -> Iterator[EntryPage]:
        """Return the data entries of a range, a page at a time, as far as their ledgers have a hot copy.

        The last page's ``end`` is the range's, unless there is a ledger in the range without a hot copy: then it is
        that ledger's start.
        """
        for answer in self.pages("ListEntries", pb.ListEntriesRequest, partition_id, of):
            if answer.entries:
                end = Position.from_key(answer.next_start)
                entries = convert.table_from_wire(answer.entries)
                yield EntryPage(entries, dict(answer.segments), dict(answer.producers), dict(answer.segment_roots), end)

    def list_decisions(self, partition_id: int, of: PositionRange, *, aborted_only: bool, decisions: int) -> pa.Table:
        """Return the transactions that a read of a range needs: ``marker >= start and first < end``.

        Columns, all int64: txn, first_position, marker_position, state (1 committed, 2 aborted). Those decided after
        the log's first ``decisions`` decisions are left out, so that a retry gets what the first try got.
        """
        answers = self.pages(
            "ListDecisions", pb.ListDecisionsRequest, partition_id, of, aborted_only=aborted_only, decisions=decisions
        )
        return pa.concat_tables([convert.table_from_wire(answer.transactions) for answer in answers])

    def close_producer(self, producer: OpenedProducer) -> None:
        """Say that a producer registers nothing more; saying it again is harmless."""
        request = pb.CloseProducerRequest(producer_id=producer.producer_id, epoch=producer.epoch)
        self._transport.call("CloseProducer", request)


def _appended(message: Any) -> Appended:
    positions = [Position.from_key(key) for key in message.positions]
    return Appended(positions, message.partitions, message.needs_copies)


def _topic_view(message: pb.TopicView | pb.OpenProducerResponse) -> TopicView:
    return TopicView(
        convert.topic_from_wire(message.topic), tuple(convert.partition_from_wire(p) for p in message.partitions)
    )


def _transaction_info(message: pb.Transaction) -> TransactionInfo:
    state = TRANSACTION_STATE.from_wire(message.state)
    if state is None:
        raise incomplete("a transaction without a state")
    reason = END_REASON.from_wire(message.end_reason)
    return TransactionInfo(
        id=convert.txn_from_wire(message.id),
        state=state,
        age=(message.now_ms - message.created_at_ms) / 1000,
        timeout=message.timeout_ms / 1000,
        end_reason="" if reason is None else reason.value,
        producers=tuple(sorted(message.producers)),
        partitions=tuple(
            TransactionPartition(
                TopicName.parse(p.topic).short,
                p.partition,
                Position.from_key(p.first_position),
                Position.from_key(p.marker_position) if p.HasField("marker_position") else None,
                p.messages,
                p.bytes,
                p.held_back_messages,
                p.held_back_bytes,
            )
            for p in message.partitions
        ),
    )
