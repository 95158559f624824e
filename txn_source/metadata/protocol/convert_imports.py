"""An import's batches between the model and the wire."""

from __future__ import annotations

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.convert import entry_from_wire, entry_to_wire, txn_from_wire, txn_to_wire
from txn_source.model.entry import OpenedProducer
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.imported import ImportedBatch, ImportedEntries, ImportedTopic, TxnRef
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId


def import_to_wire(batch: ImportedBatch, request_id: str) -> pb.ImportBatchRequest:
    """Return the message for a batch."""
    return pb.ImportBatchRequest(
        request_id=request_id,
        topics=[
            pb.ImportBatchRequest.Topic(
                name=str(of.topic),
                topic_id=of.topic_id,
                producer_id=of.producer.producer_id,
                epoch=of.producer.epoch,
                expected=of.expected,
                progress=of.progress,
            )
            for of in batch.topics
        ],
        begun=batch.begun,
        writes=[
            pb.ImportBatchRequest.Write(
                topic=write.topic,
                txn=None if write.txn is None else _ref_to_wire(write.txn),
                entries=[entry_to_wire(entry) for entry in write.entries],
            )
            for write in batch.writes
        ],
        ends=[pb.ImportBatchRequest.End(txn=_ref_to_wire(txn), commit=commit) for txn, commit in batch.ends],
        kept=[txn_to_wire(txn) for txn in batch.kept],
    )


def import_from_wire(message: pb.ImportBatchRequest) -> ImportedBatch:
    """Return the batch in a message."""
    begun, topics = message.begun, len(message.topics)
    for write in message.writes:
        if write.topic >= topics:
            raise InvalidArgumentError(
                f"Entries are of topic number {write.topic} of {topics}.", "Count the call's topics from 0."
            )
    return ImportedBatch(
        tuple(
            ImportedTopic(
                TopicName.parse(of.name),
                of.topic_id,
                OpenedProducer(of.producer_id, of.epoch, ""),
                of.expected,
                of.progress,
            )
            for of in message.topics
        ),
        begun,
        tuple(
            ImportedEntries(
                write.topic,
                _ref_from_wire(write.txn, begun) if write.HasField("txn") else None,
                tuple(entry_from_wire(entry) for entry in write.entries),
            )
            for write in message.writes
        ),
        tuple((_ref_from_wire(end.txn, begun), end.commit) for end in message.ends),
        tuple(txn_from_wire(txn) for txn in message.kept),
    )


def _ref_to_wire(txn: TxnRef) -> pb.ImportBatchRequest.Transaction:
    if isinstance(txn, TxnId):
        return pb.ImportBatchRequest.Transaction(id=txn_to_wire(txn))
    return pb.ImportBatchRequest.Transaction(begun=txn)


def _ref_from_wire(message: pb.ImportBatchRequest.Transaction, begun: int) -> TxnRef:
    if message.HasField("begun") == message.HasField("id"):
        raise InvalidArgumentError("A transaction of an import has no number and id, or both.", "Give one of them.")
    if message.HasField("id"):
        return txn_from_wire(message.id)
    if message.begun >= begun:
        raise InvalidArgumentError(
            f"Transaction {message.begun} of {begun} that are begun is named.", "Count those from 0."
        )
    return message.begun
