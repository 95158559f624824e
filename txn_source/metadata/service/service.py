"""The service: one method for each call of ``txnlog.v1.MetadataService``, each of them one database transaction.

Every method takes and returns protobuf messages and raises ``TxnLogError``. The embedded log calls it directly, the
server puts gRPC before it. The service keeps no state but its database.
"""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from google.protobuf.message import Message
from sqlalchemy import Connection, Row, bindparam, insert, select

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.wakeups import Changes
from txn_source.metadata.protocol import checks, convert
from txn_source.metadata.protocol.convert import txn_from_wire
from txn_source.metadata.service.subscription_calls import SubscriptionCalls
from txn_source.metadata.service.tier_calls import TierCalls
from txn_source.metadata.store import (
    copies,
    cuts,
    log,
    pages,
    policies,
    producers,
    segments,
    spark_commits,
    topics,
    transactions,
    views,
)
from txn_source.metadata.store.appends import Append, Write, write
from txn_source.metadata.store.database import Database, note_change
from txn_source.metadata.store.tables import requests
from txn_source.metadata.store.timekeeping import Timekeeping
from txn_source.model.errors import InvalidArgumentError, shown
from txn_source.model.kinds import OPEN, STATES
from txn_source.model.position import Position, PositionRange
from txn_source.model.spark_commit import AppVersion, Sink
from txn_source.model.topic_name import TopicName, parse_namespace
from txn_source.model.transaction import EndReason, id_of
from txn_source.storage.schema import checked_schema

Clock = Callable[[], int]
"""Returns the time in microseconds since the epoch (UTC)."""

_KNOWN_ANSWER = select(requests.c.answer, requests.c.fingerprint).where(
    requests.c.request_id == bindparam("request_id")
)
_MAX_LISTED = 10_000
R = TypeVar("R", bound=Message)
T = TypeVar("T")
S = TypeVar("S")


def system_clock() -> int:
    """Return the machine's time."""
    return time.time_ns() // 1000


def _checking_requests(service: type[S]) -> type[S]:
    """Let no call of a service begin before its request has been checked; a conversation checks each of its own."""

    def checking(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        @functools.wraps(call)
        def checked(self: Any, request: Message) -> Any:
            checks.check(request)
            return call(self, request)

        return checked

    for method in pb.DESCRIPTOR.services_by_name["MetadataService"].methods:
        if not method.client_streaming:
            setattr(service, method.name, checking(getattr(service, method.name)))
    return service


@_checking_requests
class MetadataService(TierCalls, SubscriptionCalls):
    """All calls of the metadata service over one database.

    ``configuration`` are the broker's policies (``model/policies.py``); what is set for the broker in the database is
    stronger.
    """

    def __init__(
        self,
        database: Database,
        storage_uri: str,
        clock: Clock = system_clock,
        configuration: Mapping[str, Any] | None = None,
    ) -> None:
        self._database = database
        self._storage_uri = storage_uri
        self._clock = clock
        self._configuration = dict(configuration or {})
        self._timekeeping = Timekeeping()
        database.before_write = self._do_what_is_due
        database.is_due = lambda connection: bool(transactions.due(connection, self._now_ms()))
        self.changes = Changes(database, self._now_ms)

    def close(self) -> None:
        """End the conversations with consumers, and close the database's connections."""
        self.changes.close()
        self._database.close()

    def close_database(self) -> None:
        """Close the database's connections that nobody uses; the next call opens what it needs."""
        self._database.close()

    @property
    def storage_uri(self) -> str:
        """The root of the log."""
        return self._storage_uri

    def maintain(self) -> None:
        """Do now what would otherwise be done when somebody looks: abort transactions past their deadline."""
        with self._read():
            pass

    # Log and topics

    def GetLog(self, request: pb.GetLogRequest) -> pb.GetLogResponse:
        with self._database.read() as connection:
            info = log.read_info(connection)
        return pb.GetLogResponse(log_id=info.log_id, format_version=info.format_version, storage_uri=self._storage_uri)

    def CreateTopic(self, request: pb.CreateTopicRequest) -> pb.CreateTopicResponse:
        name = TopicName.parse(request.name)
        limits = convert.limits_from_wire(request.policies)
        schema = checked_schema(request.schema) if request.HasField("schema") else None

        def create(connection: Connection) -> pb.CreateTopicResponse:
            row = topics.create(connection, name, request.partitions, schema, limits, self._now_ms())
            policies.set_for_new_topic(connection, row.topic_id, dict(request.layered_policies))
            return pb.CreateTopicResponse(topic=convert.topic_to_wire(topics.topic_of(row)))

        return self._once(request, pb.CreateTopicResponse, create)

    def ListTopics(self, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
        namespace = parse_namespace(request.namespace) if request.HasField("namespace") else None
        with self._database.read() as connection:
            return pb.ListTopicsResponse(names=topics.names(connection, namespace))

    def DeleteTopic(self, request: pb.DeleteTopicRequest) -> pb.DeleteTopicResponse:
        name = TopicName.parse(request.name)

        def delete_topic(connection: Connection) -> pb.DeleteTopicResponse:
            topic_id = topics.find(connection, name).topic_id
            copies.doom_tiered_of_topic(connection, topic_id, self._now_ms())
            policies.remove_topic(connection, topic_id)
            topics.remove(connection, topic_id)
            note_change(connection, topic_id)
            return pb.DeleteTopicResponse(topic_id=topic_id)

        return self._once(request, pb.DeleteTopicResponse, delete_topic)

    def RollLedger(self, request: pb.RollLedgerRequest) -> pb.RollLedgerResponse:
        name = TopicName.parse(request.name)
        index = request.partition if request.HasField("partition") else None
        return self._once(
            request,
            pb.RollLedgerResponse,
            lambda connection: pb.RollLedgerResponse(
                closed_ledger_ids=topics.roll(connection, name, index, self._clock())
            ),
        )

    # Producers

    def OpenProducer(self, request: pb.OpenProducerRequest) -> pb.OpenProducerResponse:
        name = TopicName.parse(request.topic)

        def open_producer(connection: Connection) -> pb.OpenProducerResponse:
            topic = topics.topic_of(topics.find(connection, name))
            opened = producers.open_producer(
                connection,
                topic.topic_id,
                request.transactional_id if request.HasField("transactional_id") else None,
                request.producer_name if request.HasField("producer_name") else None,
                self._clock(),
            )
            return pb.OpenProducerResponse(
                producer_id=opened.producer_id,
                epoch=opened.epoch,
                producer_name=opened.name,
                topic=convert.topic_to_wire(topic),
                partitions=[
                    convert.partition_to_wire(p)
                    for p in views.partition_views(connection, [topic.topic_id])[topic.topic_id]
                ],
            )

        return self._once(request, pb.OpenProducerResponse, open_producer)

    def Append(self, request: pb.AppendRequest) -> pb.AppendResponse:
        entries = [convert.entry_from_wire(entry) for entry in request.entries]
        txn = transactions.number_of(txn_from_wire(request.txn)) if request.HasField("txn") else None
        appended = Write([Append(request.producer_id, request.epoch, entries)], txn)
        written = self._write(lambda connection: write(connection, appended, self._clock()))
        return pb.AppendResponse(positions=[position.key for position in written.positions[0]])

    def CommitBatch(self, request: pb.CommitBatchRequest) -> pb.CommitBatchResponse:
        sink = Sink(
            request.query_id if request.HasField("query_id") else None,
            request.batch_id,
            request.producer_name,
            request.transactional_id if request.HasField("transactional_id") else None,
            request.run_id if request.HasField("run_id") else None,
            AppVersion(request.app_id, request.version) if request.HasField("app_id") else None,
        )
        batches = [convert.topic_batch_from_wire(topic, request.producer_name) for topic in request.topics]

        def commit(connection: Connection) -> pb.CommitBatchResponse:
            done = spark_commits.commit_batch(connection, sink, batches, self._clock())
            answer = pb.CommitBatchResponse(repeated_batch=done.repeated, warnings=done.warnings)
            if done.txn is not None:
                answer.txn.CopyFrom(convert.txn_to_wire(id_of(done.txn)))
            return answer

        return self._once(request, pb.CommitBatchResponse, commit)

    # Transactions

    def BeginTransaction(self, request: pb.BeginTransactionRequest) -> pb.BeginTransactionResponse:
        def begin(connection: Connection) -> pb.BeginTransactionResponse:
            txn = transactions.begin(connection, request.timeout_ms, self._clock() // 1000)
            return pb.BeginTransactionResponse(id=convert.txn_to_wire(id_of(txn)))

        return self._once(request, pb.BeginTransactionResponse, begin)

    def EndTransaction(self, request: pb.EndTransactionRequest) -> pb.EndTransactionResponse:
        if request.commit and request.forced:
            raise InvalidArgumentError("A commit can't be forced.", "Force an abort, or let the owner commit.")
        txn = transactions.number_of(txn_from_wire(request.id))
        reason = EndReason.FORCED if request.forced else EndReason.CLIENT
        if request.acknowledgements and not request.commit:
            raise InvalidArgumentError("An abort acknowledges nothing.", "Leave the acknowledgements out.")

        def end(connection: Connection) -> None:
            if transactions.find(connection, txn).state == OPEN:
                self._acknowledge_consumed(connection, request.acknowledgements)
            transactions.end(connection, txn, commit=request.commit, reason=reason, now_us=self._clock())

        self._write(end)
        self._tell_consumed(request.acknowledgements)
        return pb.EndTransactionResponse()

    def GetTransaction(self, request: pb.GetTransactionRequest) -> pb.GetTransactionResponse:
        txn = transactions.number_of(txn_from_wire(request.id))
        with self._read() as connection:
            [described] = self._describe(connection, [transactions.find(connection, txn)])
        return pb.GetTransactionResponse(transaction=described)

    def ListTransactions(self, request: pb.ListTransactionsRequest) -> pb.ListTransactionsResponse:
        state = convert.state_from_wire(request.state)
        limit = min(request.limit or _MAX_LISTED, _MAX_LISTED)
        after = transactions.number_of(txn_from_wire(request.after)) if request.HasField("after") else None
        with self._read() as connection:
            topic_id = None
            if request.HasField("topic"):
                topic_id = topics.find(connection, TopicName.parse(request.topic)).topic_id
            wanted = transactions.Listing(
                None if state is None else STATES.index(state),
                topic_id,
                oldest_first=request.oldest_first,
                after=after,
            )
            rows, more = transactions.listing(connection, wanted, limit)
            return pb.ListTransactionsResponse(transactions=self._describe(connection, rows), more=more)

    # Reading

    def GetView(self, request: pb.GetViewRequest) -> pb.GetViewResponse:
        with self._read() as connection:
            names = [TopicName.parse(name) for name in request.topics]
            found = [topics.topic_of(row) for row in topics.find_all(connection, names)]
            by_topic = views.partition_views(connection, [topic.topic_id for topic in found])
            return pb.GetViewResponse(
                topics=[
                    pb.TopicView(
                        topic=convert.topic_to_wire(topic),
                        partitions=[convert.partition_to_wire(p) for p in by_topic[topic.topic_id]],
                    )
                    for topic in found
                ],
                decisions=views.decisions(connection),
                now_ms=self._now_ms(),
            )

    def FindCut(self, request: pb.FindCutRequest) -> pb.FindCutResponse:
        bounds, starts = dict(request.bounds), dict(request.starts)
        if starts and starts.keys() != bounds.keys():
            raise InvalidArgumentError("Starts and bounds are not of the same partitions.", "Give both for each.")
        with self._database.read() as connection:
            if request.upward:
                found = cuts.raise_to_cut(connection, starts, bounds)
            else:
                found = cuts.lower_to_cut(connection, bounds, starts or None)
        return pb.FindCutResponse(bounds=found)

    def FindPosition(self, request: pb.FindPositionRequest) -> pb.FindPositionResponse:
        response = pb.FindPositionResponse()
        with self._read() as connection:
            response.decisions = views.decisions_at(connection, request.publish_time_us // 1000)
            for partition_id in request.partition_ids:
                found = views.find_position(connection, partition_id, request.publish_time_us)
                position, ledger_only = (None, False) if found is None else (found[0].key, found[1])
                response.found.add(partition_id=partition_id, position=position, ledger_only=ledger_only)
        return response

    def ListLedgers(self, request: pb.ListLedgersRequest) -> pb.ListLedgersResponse:
        with self._database.read() as connection:
            page = views.ledger_page(connection, request.partition_id, _range(request))
        return pb.ListLedgersResponse(
            ledgers=convert.table_to_wire(page.table),
            has_more=page.next_start is not None,
            next_start=page.next_start or 0,
        )

    def SplitRange(self, request: pb.SplitRangeRequest) -> pb.SplitRangeResponse:
        with self._database.read() as connection:
            cuts, sizes = views.split(connection, request.partition_id, _range(request), max(1, request.target_bytes))
        return pb.SplitRangeResponse(cuts=cuts, piece_bytes=sizes)

    def ListEntries(self, request: pb.ListEntriesRequest) -> pb.ListEntriesResponse:
        of = _range(request)
        with self._database.read() as connection:
            hot_until = copies.hot_until(connection, request.partition_id, of)
            if hot_until is None:
                return pb.ListEntriesResponse(next_start=request.start, not_hot=True)
            page = pages.entry_page(connection, request.partition_id, PositionRange(of.start, hot_until))
            segments, names = pages.names_in(connection, page)
        not_hot = page.next_start is None and hot_until < of.end
        return pb.ListEntriesResponse(
            entries=convert.table_to_wire(page.table),
            has_more=page.next_start is not None,
            next_start=page.next_start or hot_until.key,
            segments=segments,
            producers=names,
            not_hot=not_hot,
        )

    def ListDecisions(self, request: pb.ListDecisionsRequest) -> pb.ListDecisionsResponse:
        with self._database.read() as connection:
            page = pages.decision_page(
                connection,
                request.partition_id,
                _range(request),
                aborted_only=request.aborted_only,
                up_to=request.decisions,
            )
        return pb.ListDecisionsResponse(
            transactions=convert.table_to_wire(page.table),
            has_more=page.next_start is not None,
            next_start=page.next_start or 0,
        )

    def ListSegments(self, request: pb.ListSegmentsRequest) -> pb.ListSegmentsResponse:
        with self._database.read() as connection:
            rows = views.segment_page(connection, request.after_segment_id)
        page = rows[: pages.PAGE_ROWS]
        return pb.ListSegmentsResponse(
            paths=[row.path for row in page],
            last_segment_id=page[-1].segment_id if page else request.after_segment_id,
            has_more=len(rows) > len(page),
        )

    def CondemnSegments(self, request: pb.CondemnSegmentsRequest) -> pb.CondemnSegmentsResponse:
        condemned = self._write(lambda connection: segments.condemn(connection, request.paths))
        return pb.CondemnSegmentsResponse(paths=condemned)

    # Transactions of the database

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        """A read that never sees an open transaction past its deadline: the first to look aborts it."""
        with self._database.read() as connection:
            if self._database.read_only or not self._timekeeping.is_due(connection, self._now_ms()):
                yield connection
                return
        self._write(lambda _: None)
        with self._database.read() as connection:
            yield connection

    def _write(self, action: Callable[[Connection], T]) -> T:
        """Change something, see ``Database.write``. Transactions past their deadline are aborted first, and stay so
        even if the change is refused."""
        return self._database.write(action)

    def _do_what_is_due(self, connection: Connection) -> bool:
        """Do what time asks for, before anything else is written; return True if that changed anything."""
        now_us = self._clock()
        looked = self._timekeeping.look(connection, now_us // 1000)
        overdue = transactions.due(connection, now_us // 1000)
        for txn in overdue:
            transactions.end(connection, txn, commit=False, reason=EndReason.TIMEOUT, now_us=now_us)
        return looked or bool(overdue)

    def _once(self, request: Any, response: type[R], action: Callable[[Connection], R]) -> R:
        """Carry out a change once for each request id, and answer a repetition as the first time.

        An id that came with anything else is refused: the answer to that is none to this.
        """
        request_id = request.request_id
        if not request_id:
            raise InvalidArgumentError("The call has no request id.", "Send a fresh unique one with each change.")
        fingerprint = _fingerprint(request)

        def once(connection: Connection) -> R:
            known = connection.execute(_KNOWN_ANSWER, {"request_id": request_id}).first()
            if known is not None:
                if known.fingerprint != fingerprint:
                    raise InvalidArgumentError(
                        f"The request id {shown(request_id)} was used for another call, or with other content.",
                        "Send a fresh unique one with each change; only a repetition has the same.",
                    )
                return response.FromString(known.answer)
            answer = action(connection)
            row = {"request_id": request_id, "answer": answer.SerializeToString(), "fingerprint": fingerprint}
            connection.execute(insert(requests), row | {"stored_at_ms": self._timekeeping.measured_ms})
            return answer

        return self._write(once)

    def _now_ms(self) -> int:
        return self._clock() // 1000

    def _describe(self, connection: Connection, rows: list[Row[Any]]) -> list[pb.Transaction]:
        now_ms = self._now_ms()
        described = {}
        for row in rows:
            described[row.txn] = pb.Transaction(
                id=convert.txn_to_wire(id_of(row.txn)),
                state=convert.state_to_wire(STATES[row.state]),
                created_at_ms=row.created_at_ms,
                timeout_ms=row.timeout_ms,
                ended_at_ms=row.ended_at_ms,
                end_reason=row.end_reason or "",
                now_ms=now_ms,
            )
        for name in transactions.producer_names(connection, described):
            described[name.txn].producers.append(name.name)
        for trace in transactions.traces(connection, described):
            ongoing = trace.state == OPEN
            described[trace.txn].partitions.add(
                topic=trace.topic,
                partition=trace.partition_index,
                first_position=trace.first_position,
                marker_position=trace.marker_position,
                messages=trace.messages,
                bytes=trace.bytes,
                held_back_messages=trace.held_back_messages if ongoing else 0,
                held_back_bytes=trace.held_back_bytes if ongoing else 0,
            )
        return list(described.values())


def _fingerprint(request: Message) -> bytes:
    """Tell requests apart by their kind and all that is in them."""
    kind = request.DESCRIPTOR.name.encode()
    return hashlib.sha256(kind + b"\0" + request.SerializeToString(deterministic=True)).digest()


def _range(request: Any) -> PositionRange:
    return PositionRange(Position.from_key(request.start), Position.from_key(request.end))
