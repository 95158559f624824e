"""What somebody sees of lists that are about the whole log: its topics, and transactions that touch them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.service.requirements import ANY
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.transactions import number_of
from txn_source.metadata.store.whereabouts import Whereabouts
from txn_source.model.roles import Role, Roles
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId
from txn_source.storage.arrays import array_of


class Sight:
    """The lists of a service, cut to the roles of a visitor.

    ``is_own`` tells whether the visitor began a transaction; ``written`` returns the topics of transactions.
    """

    def __init__(
        self,
        service: MetadataService,
        roles: Roles,
        is_own: Callable[[int], bool],
        written: Callable[[Iterable[int]], Mapping[int, Whereabouts]],
    ) -> None:
        self._service = service
        self._roles = roles
        self._is_own = is_own
        self._written = written
        self._all = roles.allow_everything(ANY)

    def topics(self, request: Message) -> Message:
        """Return the names of the topics that it has a role for."""
        answer: Any = self._service.call("ListTopics", request)
        return answer if self._all else pb.ListTopicsResponse(names=[n for n in answer.names if self._sees(n)])

    def keep_visible(self, transaction: pb.Transaction) -> bool:
        """Remove topics that the visitor has no role for from a transaction, and then its producers, too. Return False
        if the visitor may not see the transaction."""
        if self._all:
            return True
        seen = [part for part in transaction.partitions if self._sees(part.topic)]
        number = number_of(convert.txn_from_wire(transaction.id))
        visible = bool(seen) or self._is_own(number)
        if visible and number in self._partly_hidden([number]):
            del transaction.producers[:]
        del transaction.partitions[:]
        transaction.partitions.extend(seen)
        return visible

    def transactions(self, request: pb.ListTransactionsRequest) -> Message:
        """Return a page of the transactions that it sees. ``more`` counts the others behind it, too."""
        answer: Any = self._service.call("ListTransactions", request)
        if self._all:
            return answer  # type: ignore[no-any-return]
        page, shown = pb.ListTransactionsRequest(), pb.ListTransactionsResponse()
        page.CopyFrom(request)
        while True:
            shown.transactions.extend(txn for txn in answer.transactions if self.keep_visible(txn))
            shown.more = answer.more
            missing = request.limit - len(shown.transactions) if request.limit else 0
            if not answer.more or (request.limit and missing <= 0) or (not request.limit and shown.transactions):
                return shown
            page.after.CopyFrom(answer.transactions[-1].id)
            page.limit = missing
            answer = self._service.call("ListTransactions", page)

    def table(self, request: pb.ReadTableRequest, roles: tuple[Role, ...]) -> Message:
        """Return a page of a table about the log, with rows of topics for which the visitor has one of the roles."""
        answer: Any = self._service.call("ReadTable", request)
        if not self._roles.allow_everything(roles):
            rows = convert.table_from_wire(answer.rows)
            names = rows.column("topic").to_pylist()
            seen = [at for at, name in enumerate(names) if name is not None and self._sees(name, roles)]
            rows = rows.take(array_of(np.array(seen, np.int64)))
            if request.table == "transactions":
                rows = self._without_hidden_producers(rows)
            answer.rows = convert.table_to_wire(rows)
        return answer  # type: ignore[no-any-return]

    def _without_hidden_producers(self, rows: pa.Table) -> pa.Table:
        numbers = [number_of(TxnId.parse(txn)) for txn in rows.column("txn_id").to_pylist()]
        hidden = self._partly_hidden(set(numbers))
        at, told = rows.schema.get_field_index("producers"), rows.column("producers").to_pylist()
        kept = [[] if number in hidden else names for number, names in zip(numbers, told, strict=True)]
        return rows.set_column(at, rows.schema.field(at), pa.array(kept, rows.schema.field(at).type))

    def _partly_hidden(self, txns: Iterable[int]) -> set[int]:
        """Return the transactions that wrote to a topic for which the visitor has no role; their producers may belong
        to that topic."""
        found = self._written(txns).items()
        return {txn for txn, where in found if not all(self._roles.allow(ANY, topic) for topic in where.topics)}

    def _sees(self, topic: str, roles: tuple[Role, ...] = ANY) -> bool:
        return self._roles.allow(roles, TopicName.parse(topic))
