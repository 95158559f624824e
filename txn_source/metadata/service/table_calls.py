"""The service's call of those who query what the log is: tables about it."""

from __future__ import annotations

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import log_tables
from txn_source.storage.log_tables import check_table, table_of


class TableCalls:
    """The call."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def ReadTable(self, request: pb.ReadTableRequest) -> pb.ReadTableResponse:
        name = check_table(request.table)
        topic = request.topic if request.HasField("topic") else None
        with self._work.read() as connection:
            now_ms = self._work.now_ms()
            found = log_tables.read(connection, name, topic, now_ms, request.next, request.decisions)
        return pb.ReadTableResponse(
            rows=convert.table_to_wire(table_of(name, found.rows)),
            has_more=found.next is not None,
            next=found.next or 0,
            decisions=found.decisions,
        )
