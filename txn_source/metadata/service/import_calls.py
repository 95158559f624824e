"""The service's calls of imports."""

from __future__ import annotations

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.convert_imports import import_from_wire
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import imports, topics
from txn_source.metadata.store.connection import Connection
from txn_source.model.topic_name import TopicName


class ImportCalls:
    """Calls that bring another log's history in."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def ImportBatch(self, request: pb.ImportBatchRequest) -> pb.ImportBatchResponse:
        batch = import_from_wire(request)

        def register(connection: Connection) -> pb.ImportBatchResponse:
            tails = imports.import_batch(connection, batch, self._work.now_us(), self._work.configuration)
            of_each = [
                pb.ImportBatchResponse.Tail(partition_id=partition_id, ledger_id=ledger_id)
                for partition_id, ledger_id in sorted(tails.items())
            ]
            return pb.ImportBatchResponse(tails=of_each)

        return self._work.once(request, pb.ImportBatchResponse, register)

    def GetImport(self, request: pb.GetImportRequest) -> pb.GetImportResponse:
        name = TopicName.parse(request.topic)
        with self._work.read_history() as connection:
            topic_id = topics.find(connection, name).topic_id
            return pb.GetImportResponse(progress=imports.progress_of(connection, topic_id))
