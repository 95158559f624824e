"""The service's calls about transactions."""

from __future__ import annotations

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.consumer_hub import ConsumerHub
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol.convert_subscriptions import acknowledgement_from_wire
from txn_source.metadata.protocol.enums import END_REASON, TRANSACTION_STATE
from txn_source.metadata.service.callers import caller
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import owners, subscriptions, topics, transaction_listing, transactions
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.transaction_listing import ListedTransaction, Listing
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import EndReason, id_of

_MAX_LISTED = 10_000


class TransactionCalls:
    """Calls that begin, end and list transactions; ``hub`` has the consumers that a commit acknowledges for."""

    def __init__(self, work: UnitOfWork, hub: ConsumerHub) -> None:
        self._work = work
        self._hub = hub

    def BeginTransaction(self, request: pb.BeginTransactionRequest) -> pb.BeginTransactionResponse:
        of = caller()

        def begin(connection: Connection) -> pb.BeginTransactionResponse:
            owners.check_open_transactions(connection, of)
            txn = transactions.begin(connection, request.timeout_ms, self._work.now_ms() - request.age_ms)
            owners.note(connection, owners.TRANSACTION, txn, of)
            return pb.BeginTransactionResponse(id=convert.txn_to_wire(id_of(txn)))

        return self._work.once(request, pb.BeginTransactionResponse, begin)

    def EndTransaction(self, request: pb.EndTransactionRequest) -> pb.EndTransactionResponse:
        if request.commit and request.forced:
            raise InvalidArgumentError("A commit can't be forced.", "Force an abort, or let the owner commit.")
        txn = transactions.number_of(convert.txn_from_wire(request.id))
        reason = EndReason.FORCED if request.forced else EndReason.CLIENT
        if request.acknowledgements and not request.commit:
            raise InvalidArgumentError("An abort acknowledges nothing.", "Leave the acknowledgements out.")
        consumed = [acknowledgement_from_wire(message) for message in request.acknowledgements]

        def end(connection: Connection) -> None:
            if transactions.is_open(connection, txn):
                for ack in consumed:
                    subscriptions.acknowledge(connection, ack, strict=True)
            transactions.end(connection, txn, commit=request.commit, reason=reason, now_us=self._work.now_us())

        self._work.write(end)
        if consumed:
            self._hub.acknowledged(consumed)
        return pb.EndTransactionResponse()

    def GetTransaction(self, request: pb.GetTransactionRequest) -> pb.GetTransactionResponse:
        txn = transactions.number_of(convert.txn_from_wire(request.id))
        with self._work.read() as connection:
            found = transaction_listing.get(connection, txn)
        return pb.GetTransactionResponse(transaction=_to_wire(found, self._work.now_ms()))

    def ListTransactions(self, request: pb.ListTransactionsRequest) -> pb.ListTransactionsResponse:
        state = TRANSACTION_STATE.from_wire(request.state)
        limit = min(request.limit or _MAX_LISTED, _MAX_LISTED)
        after = transactions.number_of(convert.txn_from_wire(request.after)) if request.HasField("after") else None
        with self._work.read() as connection:
            topic_id = None
            if request.HasField("topic"):
                topic_id = topics.find(connection, TopicName.parse(request.topic)).topic_id
            wanted = Listing(state, topic_id, oldest_first=request.oldest_first, after=after, unreplicated=True)
            found, more = transaction_listing.listing(connection, wanted, limit)
        now_ms = self._work.now_ms()
        return pb.ListTransactionsResponse(transactions=[_to_wire(txn, now_ms) for txn in found], more=more)


def _to_wire(listed: ListedTransaction, now_ms: int) -> pb.Transaction:
    message = pb.Transaction(
        id=convert.txn_to_wire(id_of(listed.txn)),
        state=TRANSACTION_STATE.to_wire(listed.state),
        created_at_ms=listed.created_at_ms,
        timeout_ms=listed.timeout_ms,
        ended_at_ms=listed.ended_at_ms,
        end_reason=END_REASON.to_wire(listed.end_reason),
        producers=listed.producers,
        now_ms=now_ms,
    )
    for trace in listed.partitions:
        message.partitions.add(
            topic=trace.topic,
            partition=trace.partition,
            first_position=trace.first_position,
            marker_position=trace.marker_position,
            messages=trace.messages,
            bytes=trace.bytes,
            held_back_messages=trace.held_back_messages,
            held_back_bytes=trace.held_back_bytes,
        )
    return message
