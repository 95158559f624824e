"""What a visitor sees of lists that are about the whole log: their topics, and transactions that touch them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.access.door import Visitor
from txn_source.metadata.protocol import convert
from txn_source.metadata.service.requirements import ADMIN, ANY, CONSUME, Of
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store import whereabouts
from txn_source.metadata.store.transactions import number_of
from txn_source.model.errors import (
    SubscriptionNotFoundError,
    TopicNotFoundError,
    TransactionNotFoundError,
    TxnLogError,
)
from txn_source.model.roles import Role
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId, id_of
from txn_source.storage.arrays import array_of

_ABSENT: Mapping[Of, type[TxnLogError]] = {
    Of.PARTITION: TopicNotFoundError,
    Of.COPY: TopicNotFoundError,
    Of.SUBSCRIPTION: SubscriptionNotFoundError,
    Of.PRODUCER: TopicNotFoundError,
    Of.TRANSACTION: TransactionNotFoundError,
}
"""The errors of ids that name nothing."""


def absent(of: Of, key: int) -> TxnLogError:
    """Return the error of an id that names nothing that a visitor has a role for."""
    return _ABSENT[of](
        f"There is no {of.value} {id_of(key) if of is Of.TRANSACTION else key} that this token has a role for.",
        "Check the id; `txnlog tokens show` tells which roles a token has.",
    )


class Sight:
    """The answers of a service, cut to the roles of a visitor. Each cut call has a method of its name."""

    def __init__(self, service: MetadataService, visitor: Visitor) -> None:
        self._service = service
        self._name = visitor.name
        self._roles = visitor.roles
        self._all = visitor.roles.allow_everything(ANY)

    def answer(self, name: str, request: Any) -> Message:
        """Return the answer of a call that is cut."""
        return getattr(self, name)(request)  # type: ignore[no-any-return]

    def ListTopics(self, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
        answer: Any = self._service.call("ListTopics", request)
        return pb.ListTopicsResponse(names=[name for name in answer.names if self._all or self._sees(name)])

    def ListDoomedFiles(self, request: pb.ListDoomedFilesRequest) -> Message:
        """Only who may delete them sees any; the others leave that to the service's own maintenance."""
        may_delete = self._roles.allow_everything(ADMIN)
        return self._service.call("ListDoomedFiles", request) if may_delete else pb.ListDoomedFilesResponse()

    def GetTransaction(self, request: pb.GetTransactionRequest) -> Message:
        if self._all:
            return self._service.call("GetTransaction", request)
        try:
            answer: Any = self._service.call("GetTransaction", request)
        except TransactionNotFoundError:
            answer = None
        if answer is None or not self._cut([answer.transaction]):
            raise absent(Of.TRANSACTION, number_of(convert.txn_from_wire(request.id)))
        return answer  # type: ignore[no-any-return]

    def ListTransactions(self, request: pb.ListTransactionsRequest) -> pb.ListTransactionsResponse:
        """Return a page of the transactions that the visitor sees. ``more`` counts the others behind it, too."""
        answer: Any = self._service.call("ListTransactions", request)
        if self._all:
            return answer  # type: ignore[no-any-return]
        page, shown = pb.ListTransactionsRequest(), pb.ListTransactionsResponse()
        page.CopyFrom(request)
        while True:
            shown.transactions.extend(self._cut(answer.transactions))
            shown.more = answer.more
            missing = request.limit - len(shown.transactions) if request.limit else 0
            if not answer.more or (request.limit and missing <= 0) or (not request.limit and shown.transactions):
                return shown
            page.after.CopyFrom(answer.transactions[-1].id)
            page.limit = missing
            answer = self._service.call("ListTransactions", page)

    def ReadTable(self, request: pb.ReadTableRequest) -> Message:
        answer: Any = self._service.call("ReadTable", request)
        roles = CONSUME if request.table == "subscriptions" else ANY
        if not self._roles.allow_everything(roles):
            rows = convert.table_from_wire(answer.rows)
            names = rows.column("topic").to_pylist()
            seen = [at for at, name in enumerate(names) if name is not None and self._sees(name, roles)]
            rows = rows.take(array_of(np.array(seen, np.int64)))
            if request.table == "transactions":
                rows = self._without_hidden_producers(rows)
            answer.rows = convert.table_to_wire(rows)
        return answer  # type: ignore[no-any-return]

    def _cut(self, transactions: Iterable[pb.Transaction]) -> list[pb.Transaction]:
        """Return the transactions that the visitor began, or that wrote to a topic that it sees. Of each only the
        topics that it sees are kept, and the producers if it sees all of them."""
        found = list(transactions)
        if self._all:
            return found
        numbers = [number_of(convert.txn_from_wire(each.id)) for each in found]
        where = self._service.look(lambda connection: whereabouts.of_transactions(connection, numbers))
        visible = []
        for number, each in zip(numbers, found, strict=True):
            seen = [part for part in each.partitions if self._sees(part.topic)]
            if number not in where or not (seen or where[number].owner == self._name):
                continue
            if not self._sees_all_of(where[number]):
                del each.producers[:]
            del each.partitions[:]
            each.partitions.extend(seen)
            visible.append(each)
        return visible

    def _without_hidden_producers(self, rows: pa.Table) -> pa.Table:
        numbers = [number_of(TxnId.parse(txn)) for txn in rows.column("txn_id").to_pylist()]
        where = self._service.look(lambda connection: whereabouts.of_transactions(connection, set(numbers)))
        shown = {number for number, each in where.items() if self._sees_all_of(each)}
        at, told = rows.schema.get_field_index("producers"), rows.column("producers").to_pylist()
        kept = [names if number in shown else [] for number, names in zip(numbers, told, strict=True)]
        return rows.set_column(at, rows.schema.field(at), pa.array(kept, rows.schema.field(at).type))

    def _sees_all_of(self, where: whereabouts.Whereabouts) -> bool:
        return all(self._roles.allow(ANY, topic) for topic in where.topics)

    def _sees(self, topic: str, roles: tuple[Role, ...] = ANY) -> bool:
        return self._roles.allow(roles, TopicName.parse(topic))
