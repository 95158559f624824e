"""The service's calls that register what producers wrote."""

from __future__ import annotations

from collections.abc import Sequence

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.consumer_hub import ConsumerHub
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol.convert_subscriptions import acknowledgement_from_wire
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import subscriptions, transactions
from txn_source.metadata.store.appends import Append, Write, Written, write
from txn_source.metadata.store.connection import Connection
from txn_source.model.acknowledgement import Acknowledgement
from txn_source.model.errors import InvalidArgumentError, TxnLogError
from txn_source.model.transaction import id_of


class WriteCalls:
    """Calls that register entries; ``hub`` has the consumers that a whole transaction acknowledges for."""

    def __init__(self, work: UnitOfWork, hub: ConsumerHub) -> None:
        self._work = work
        self._hub = hub

    def Append(self, request: pb.AppendRequest) -> pb.AppendResponse:
        return _appended(self._register(_append(request)))

    def WriteTransaction(self, request: pb.WriteTransactionRequest) -> pb.WriteTransactionResponse:
        whole = _whole(request)
        if not request.acknowledgements:
            return _committed(self._register(whole))
        consumed = [acknowledgement_from_wire(message) for message in request.acknowledgements]
        return _committed(self._write_and_acknowledge(whole, consumed))

    def WriteAll(self, request: pb.WriteAllRequest) -> pb.WriteAllResponse:
        writes = [_write(message) for message in request.writes]
        answer = pb.WriteAllResponse()
        for one, came in zip(writes, self._work.register(writes), strict=True):
            written = answer.writes.add()
            if isinstance(came, TxnLogError):
                written.error.CopyFrom(convert.error_to_wire(came))
            elif one.timeout_ms is None:
                written.append.CopyFrom(_appended(came))
            else:
                written.transaction.CopyFrom(_committed(came))
        return answer

    def _register(self, one: Write) -> Written:
        [came] = self._work.register([one])
        if isinstance(came, TxnLogError):
            raise came
        return came

    def _write_and_acknowledge(self, whole: Write, consumed: Sequence[Acknowledgement]) -> Written:
        def both(connection: Connection) -> Written:
            written = write(connection, whole, self._work.now_us(), self._work.configuration)
            if not written.repeated:
                for ack in consumed:
                    subscriptions.acknowledge(connection, ack, strict=True)
            return written

        written = self._work.write(both)
        if not written.repeated:
            self._hub.acknowledged(consumed)
        return written


def _write(message: pb.WriteAllRequest.Write) -> Write:
    if message.HasField("append"):
        return _append(message.append)
    if message.HasField("transaction") and not message.transaction.acknowledgements:
        return _whole(message.transaction)
    raise InvalidArgumentError(
        "One of the writes is empty, or acknowledges what it consumed.", "Make a call of its own for that."
    )


def _append(request: pb.AppendRequest) -> Write:
    entries = [convert.entry_from_wire(entry) for entry in request.entries]
    txn = transactions.number_of(convert.txn_from_wire(request.txn)) if request.HasField("txn") else None
    return Write([Append(request.producer_id, request.epoch, entries)], txn)


def _whole(request: pb.WriteTransactionRequest) -> Write:
    appends = [
        Append(each.producer_id, each.epoch, [convert.entry_from_wire(entry) for entry in each.entries])
        for each in request.appends
    ]
    if not appends or not all(append.entries for append in appends):
        raise InvalidArgumentError(
            "A whole transaction without entries can't be told from its repetition.",
            "Begin and end one that writes nothing by calls of their own.",
        )
    return Write(appends, timeout_ms=request.timeout_ms)


def _appended(written: Written) -> pb.AppendResponse:
    [appended] = written.appended
    return pb.AppendResponse(
        positions=[at.key for at in appended.positions],
        partitions=appended.partitions,
        needs_copies=appended.needs_copies,
    )


def _committed(written: Written) -> pb.WriteTransactionResponse:
    assert written.txn is not None
    return pb.WriteTransactionResponse(
        id=convert.txn_to_wire(id_of(written.txn)),
        appended=[
            pb.WriteTransactionResponse.Appended(
                positions=[at.key for at in each.positions],
                partitions=each.partitions,
                needs_copies=each.needs_copies,
            )
            for each in written.appended
        ],
    )
