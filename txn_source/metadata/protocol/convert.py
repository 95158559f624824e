"""Protobuf to model and back: what both rims of the service need."""

from __future__ import annotations

import dataclasses

import pyarrow as pa

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.model.bounds import Bounds
from txn_source.model.copies import LedgerCopies, TieredCopy
from txn_source.model.entry import NewEntry, OpenedProducer
from txn_source.model.errors import ERROR_CLASSES, InternalError, TxnLogError
from txn_source.model.ledger import OffloadableLedger
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.position import Position
from txn_source.model.roots import ONLY_MAIN, HotRoot
from txn_source.model.spark_commit import TopicBatch
from txn_source.model.topic import PartitionView, Topic
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId


def topic_to_wire(topic: Topic) -> pb.Topic:
    """Return the message for a topic."""
    return pb.Topic(
        topic_id=topic.topic_id,
        name=str(topic.name),
        schema=topic.schema,
        policies=limits_to_wire(topic.limits),
        created_at_ms=topic.created_at_ms,
    )


def topic_from_wire(message: pb.Topic) -> Topic:
    """Return the topic in a message."""
    return Topic(
        message.topic_id,
        TopicName.parse(message.name),
        message.schema if message.HasField("schema") else None,
        limits_from_wire(message.policies),
        message.created_at_ms,
    )


def limits_to_wire(limits: LedgerLimits) -> pb.TopicPolicies:
    """Return the message for a topic's limits."""
    return pb.TopicPolicies(
        ledger_max_entries=limits.max_entries,
        ledger_max_bytes=limits.max_bytes,
        ledger_max_age_ms=limits.max_age_ms,
    )


def limits_from_wire(message: pb.TopicPolicies) -> LedgerLimits:
    """Return the limits in a message."""
    return LedgerLimits(message.ledger_max_entries, message.ledger_max_bytes, message.ledger_max_age_ms)


def partition_to_wire(view: PartitionView) -> pb.Partition:
    """Return the message for a partition's view."""
    bounds = view.bounds
    return pb.Partition(
        partition_id=view.partition_id,
        index=view.index,
        log_start=bounds.log_start.key,
        last_stable=bounds.last_stable.key,
        high_watermark=bounds.high_watermark.key,
        log_end=bounds.log_end.key,
        messages=view.messages,
        bytes=view.bytes,
        trimmed_end=view.trimmed_end.key,
    )


def partition_from_wire(message: pb.Partition) -> PartitionView:
    """Return the partition's view in a message."""
    bounds = Bounds(
        Position.from_key(message.log_start),
        Position.from_key(message.last_stable),
        Position.from_key(message.high_watermark),
        Position.from_key(message.log_end),
    )
    return PartitionView(
        message.partition_id,
        message.index,
        bounds,
        message.messages,
        message.bytes,
        Position.from_key(message.trimmed_end),
    )


def txn_to_wire(txn: TxnId) -> pb.TxnId:
    """Return the message for a transaction's id."""
    return pb.TxnId(most_sig_bits=txn.most_sig_bits, least_sig_bits=txn.least_sig_bits)


def txn_from_wire(message: pb.TxnId) -> TxnId:
    """Return the transaction id in a message."""
    return TxnId(message.most_sig_bits, message.least_sig_bits)


def root_to_wire(root: HotRoot) -> pb.HotRoot:
    """Return the message for a root."""
    return pb.HotRoot(root_id=root.root_id, name=root.name, uri=root.uri)


def root_from_wire(message: pb.HotRoot) -> HotRoot:
    """Return the root in a message."""
    return HotRoot(message.root_id, message.name, message.uri)


def entry_to_wire(entry: NewEntry) -> pb.NewEntry:
    """Return the message for a new entry."""
    return pb.NewEntry(
        partition_id=entry.partition_id,
        base_sequence=entry.base_sequence,
        messages=entry.messages,
        segment=entry.segment,
        offset=entry.offset,
        length=entry.length,
        crc32c=entry.crc32c,
        roots=0 if entry.roots == ONLY_MAIN else entry.roots,
    )


def entry_from_wire(message: pb.NewEntry) -> NewEntry:
    """Return the new entry in a message."""
    return NewEntry(
        message.partition_id,
        message.base_sequence,
        message.messages,
        message.segment,
        message.offset,
        message.length,
        message.crc32c,
        message.roots or ONLY_MAIN,
    )


def topic_batch_to_wire(batch: TopicBatch) -> pb.CommitBatchRequest.Topic:
    """Return the message for what a job wrote to a topic."""
    message = pb.CommitBatchRequest.Topic(
        name=str(batch.topic),
        topic_id=batch.topic_id,
        entries=[entry_to_wire(entry) for entry in batch.entries],
        content=batch.content,
    )
    if batch.owner is not None:
        message.producer_id, message.epoch = batch.owner.producer_id, batch.owner.epoch
    return message


def topic_batch_from_wire(message: pb.CommitBatchRequest.Topic, producer_name: str) -> TopicBatch:
    """Return what a job wrote to a topic from a message."""
    owner = None
    if message.HasField("producer_id"):
        owner = OpenedProducer(message.producer_id, message.epoch, producer_name)
    entries = tuple(entry_from_wire(entry) for entry in message.entries)
    return TopicBatch(TopicName.parse(message.name), message.topic_id, entries, owner, message.content)


def tiered_to_wire(copy: TieredCopy) -> pb.TieredCopy:
    """Return the message for a tiered copy."""
    return pb.TieredCopy(uri=copy.uri, size=copy.size, footer_bytes=copy.footer_bytes, footer_crc32c=copy.footer_crc32c)


def tiered_from_wire(message: pb.TieredCopy) -> TieredCopy:
    """Return the tiered copy in a message."""
    return TieredCopy(message.uri, message.size, message.footer_bytes, message.footer_crc32c)


def copies_to_wire(copies: LedgerCopies) -> pb.LedgerCopies:
    """Return the message for a ledger's copies."""
    tiered = None if copies.tiered is None else tiered_to_wire(copies.tiered)
    return pb.LedgerCopies(ledger_id=copies.ledger_id, hot=copies.hot, tiered=tiered)


def copies_from_wire(message: pb.LedgerCopies) -> LedgerCopies:
    """Return a ledger's copies in a message."""
    tiered = tiered_from_wire(message.tiered) if message.HasField("tiered") else None
    return LedgerCopies(message.ledger_id, message.hot, tiered)


def offloadable_to_wire(ledger: OffloadableLedger) -> pb.OffloadableLedger:
    """Return the message for a ledger that may be offloaded."""
    return pb.OffloadableLedger(**dataclasses.asdict(ledger))


def offloadable_from_wire(message: pb.OffloadableLedger) -> OffloadableLedger:
    """Return the ledger that may be offloaded in a message."""
    return OffloadableLedger.of(message)


def error_to_wire(error: TxnLogError) -> pb.Error:
    """Return the message for an error."""
    return pb.Error(code=error.code, fact=error.fact, remedy=error.remedy)


def error_from_wire(message: pb.Error) -> TxnLogError:
    """Return the error that the service raised; one that only newer releases have is an InternalError that says so."""
    known = ERROR_CLASSES.get(message.code)
    if known is not None:
        return known(message.fact, message.remedy)
    fact = f"{message.fact} (The service calls it {message.code!r}, an error that this release doesn't know.)"
    return InternalError(fact, message.remedy)


def table_to_wire(table: pa.Table) -> bytes:
    """Return an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def table_from_wire(data: bytes) -> pa.Table:
    """Return the table in an Arrow IPC stream."""
    try:
        with pa.ipc.open_stream(data) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InternalError(
            f"The metadata service answered with {len(data)} bytes that are no table: {error}.",
            "Check that client and service are of the same release.",
        ) from None
