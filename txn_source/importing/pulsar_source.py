"""Topics of Pulsar's as an import takes them: key, value, properties and event time.

Other metadata, if it is asked for, becomes properties that have its columns' names. Times are milliseconds since 1970,
bytes are base64 (``__ordering_key;base64``), and ``__message_id`` is Pulsar's own, ``12:40:-1:3`` inside a batch. A
property of that name that a message has of its own stays.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.pulsar.columns import maps, numbers, taken
from txn_source.foreign.pulsar.entries import txn_bits
from txn_source.foreign.pulsar.partition import PulsarPartition
from txn_source.foreign.pulsar.pulsar_log import PulsarLog
from txn_source.importing.history import (
    ABORTED,
    BEYOND,
    COMMITTED,
    UNDECIDED,
    Part,
    Parts,
    Rows,
    SourcePartition,
    SourceTopic,
)
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.position import PositionRange, key_of
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TransactionState, TxnId
from txn_source.model.visibility import NO_TXN, IntArray
from txn_source.storage.arrays import numbers_in, truths_in
from txn_source.storage.schema import EVENT_TIME, PROPERTIES, RAW_SCHEMA, check_topic_schema

_COLUMNS = ("key", "value", "__event_time", "__properties", "__ledger_id", "__entry_id", "__txn_id")
_MESSAGE_ID = "__message_id"
METADATA = (
    _MESSAGE_ID,
    "__publish_time",
    "__ordering_key",
    "__producer_name",
    "__sequence_id",
    "__schema_version",
    "__replicated_from",
    "__deliver_at",
    "__broker_publish_time",
    "__index",
)
"""What can be kept as properties."""
_LEAST_BITS = 47


def pulsar_topics(
    log: PulsarLog, names: Sequence[str], metadata: Sequence[str] = (), *, typed: bool = False
) -> list[SourceTopic]:
    """Return topics; a transaction's id is the same on all of their partitions.

    Raises:
        InvalidArgumentError: types are asked for, and no schema was given; or metadata that there is not.
        SchemaMismatchError: a topic of the target can't have these types.
    """
    kept = METADATA if list(metadata) == ["all"] else tuple(metadata)
    unknown = [name for name in kept if name not in METADATA]
    if unknown or len(set(kept)) < len(kept):
        raise InvalidArgumentError(
            f"There is no metadata {unknown[0]!r}." if unknown else "Metadata is named twice.",
            f"Use all, or some of {', '.join(METADATA)}, each once.",
        )
    found = []
    for name in names:
        full = str(TopicName.parse(name))
        of_topic = [partition for partition in log.partitions() if partition.topic == full]
        partitions = [log.partition(partition) for partition in of_topic or [PartitionName(full, -1)]]
        schema = _target_schema(log, full) if typed else None
        sources = [_source(partition, kept, schema or RAW_SCHEMA) for partition in partitions]
        found.append(SourceTopic(name, f"pulsar:{full}", sources, schema))
    return found


def _target_schema(log: PulsarLog, topic: str) -> pa.Schema:
    types = log.types(topic)
    if not types:
        raise InvalidArgumentError(
            f"What keys and values of {topic} are isn't known.", "Give option 'schema', or import them as bytes."
        )
    return check_topic_schema(pa.schema([pa.field(of.name, types.get(of.name, of.type)) for of in RAW_SCHEMA]))


def _source(partition: PulsarPartition, metadata: Sequence[str], schema: pa.Schema) -> SourcePartition:
    """Return a partition, or a topic without partitions."""
    if schema is RAW_SCHEMA:
        partition.schema = None  # an import of bytes ignores the types that the source's options give
    asked = [name for name in metadata if name != _MESSAGE_ID]
    columns = [*_COLUMNS, *asked, *(["__batch_index"] if _MESSAGE_ID in metadata else [])]
    number = max(partition.name.partition, 0)
    rows = partial(_rows, metadata=metadata, schema=schema)
    return SourcePartition(number, partition, columns, rows, partial(_parts, partition))


def _parts(partition: PulsarPartition, of: PositionRange) -> Parts:
    rows: list[Part] = []
    for txn in partition.outcomes().all():
        if txn.first < 0 or txn.first >= of.end.key:
            continue
        marker = max(txn.marker, txn.last + 1)
        state = COMMITTED
        if txn.state is TransactionState.ABORTED:
            state = ABORTED
        elif txn.state is TransactionState.OPEN:
            marker = BEYOND
            state = COMMITTED if txn.first < txn.open_from else UNDECIDED
        rows.append((txn.txn, txn.first, marker, max(txn.last, txn.first), state, txn_bits(txn.txn)))
    return Parts.of(rows)


def _rows(batch: pa.RecordBatch, metadata: Sequence[str], schema: pa.Schema) -> Rows:
    key, value, time, properties, ledger, entry, txn = batch.columns[: len(_COLUMNS)]
    if metadata:
        properties = _with_metadata(batch, properties, metadata)
    has_time = time.null_count < len(time)
    has_properties = len(properties.keys) > 0
    columns = [key, value, *[time] * has_time, *[properties] * has_properties]
    fields = pa.schema([*schema, *[EVENT_TIME] * has_time, *[PROPERTIES] * has_properties])
    keys = key_of(numbers_in(ledger).astype(np.int64), numbers_in(entry).astype(np.int64))
    return Rows(pa.RecordBatch.from_arrays(columns, schema=fields), keys, _numbers(txn))


def _with_metadata(batch: pa.RecordBatch, properties: pa.MapArray, metadata: Sequence[str]) -> pa.Array:
    """Return properties with metadata among them; of one name the message's own counts, which is its last."""
    count = batch.num_rows
    offsets = numbers_in(properties.offsets)
    own = slice(int(offsets[0]), int(offsets[-1]))
    parts = [(np.repeat(np.arange(count), np.diff(offsets)), properties.keys[own], properties.items[own])]
    for name in metadata:
        values = _message_ids(batch) if name == _MESSAGE_ID else batch.column(batch.schema.get_field_index(name))
        rows = np.flatnonzero(truths_in(values.is_valid()))
        shown, texts = _shown(name, values.drop_null())
        parts.insert(0, (rows, pa.array([shown], pa.string()).take(pa.array([0] * len(rows), pa.int64())), texts))
    rows = np.concatenate([part[0] for part in parts])
    keys, texts = pa.concat_arrays([part[1] for part in parts]), pa.concat_arrays([part[2] for part in parts])
    order = np.argsort(rows, kind="stable")
    return maps(rows[order], count, taken(keys, order), taken(texts, order))


def _message_ids(batch: pa.RecordBatch) -> pa.Array:
    columns = (batch.column(name).to_pylist() for name in ("__ledger_id", "__entry_id", "__batch_index"))
    texts = [f"{ledger}:{entry}:-1" + (f":{at}" if at >= 0 else "") for ledger, entry, at in zip(*columns, strict=True)]
    return pa.array(texts, pa.string())


def _shown(name: str, values: pa.Array) -> tuple[str, pa.Array]:
    """Return the property's name and values as text; none is null."""
    if pa.types.is_binary(values.type):
        return f"{name};base64", pa.array(
            [base64.b64encode(value).decode() for value in values.to_pylist()], pa.string()
        )
    if pa.types.is_timestamp(values.type):
        values = numbers(pa.int64(), numbers_in(values.cast(pa.int64())) // 1000)
    return name, values.cast(pa.string())


def _numbers(txns: pa.Array) -> IntArray:
    """Return the numbers of transactions by their ids."""
    names = np.full(len(txns), NO_TXN, np.int64)
    if txns.null_count < len(txns):
        coded = txns.dictionary_encode()
        ids = [TxnId.parse(text) for text in coded.dictionary.to_pylist()]
        numbers = np.array([txn.most_sig_bits << _LEAST_BITS | txn.least_sig_bits for txn in ids], np.int64)
        there = truths_in(txns.is_valid())
        names[there] = numbers[numbers_in(coded.indices.filter(txns.is_valid()))]
    return names
