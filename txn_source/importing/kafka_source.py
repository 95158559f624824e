"""Topics of Kafka's as an import takes them.

Headers become properties. A value that is text in UTF-8 is kept as it is. What a property can't be is kept under a
name that says so: ``name;base64`` for other bytes, ``name;null`` (empty) for a null; the second and later ones of one
name are ``name;2``, ``name;3`` and so on.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from txn_source.foreign.kafka.kafka_log import KafkaLog
from txn_source.foreign.kafka.partition import KafkaPartition
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
from txn_source.model.errors import TopicNotFoundError, shown
from txn_source.model.position import PositionRange
from txn_source.model.transaction import TransactionState
from txn_source.model.visibility import NO_TXN
from txn_source.storage.arrays import numbers_in, truths_in
from txn_source.storage.schema import EVENT_TIME, PROPERTIES, RAW_SCHEMA
from txn_source.storage.soundness import FIRST_MICROS, LAST_MICROS, repeats_a_name

_COLUMNS = ("key", "value", "offset", "__timestamp_ms", "headers", "__producer_id", "__txn_status")
_STATES = {
    TransactionState.OPEN: UNDECIDED,
    TransactionState.COMMITTED: COMMITTED,
    TransactionState.ABORTED: ABORTED,
}
_NO_TIMESTAMP = -1
_FIRST, _LAST = -(-FIRST_MICROS // 1000), LAST_MICROS // 1000


def kafka_topics(log: KafkaLog, names: Sequence[str]) -> list[SourceTopic]:
    """Return topics, with transactions that are known on all partitions where each has an epoch of its own."""
    cluster = next(iter(log.cluster_ids), "")
    found = []
    for name in names:
        of_topic = [partition for partition in log.partitions() if partition.topic == name]
        if not of_topic:
            there = sorted({partition.topic for partition in log.partitions()})
            raise TopicNotFoundError(f"There is no topic {shown(name)}.", f"There are {', '.join(there)}.")
        partitions = [log.partition(partition) for partition in of_topic]
        ids = {partition.identity for partition in partitions if partition.identity}
        identity = f"kafka:{cluster}:{name}:{','.join(sorted(ids))}"
        sources = [SourcePartition(of.name.partition, of, _COLUMNS, _rows, partial(_parts, of)) for of in partitions]
        found.append(SourceTopic(name, identity, sources))
    return found


def _parts(partition: KafkaPartition, of: PositionRange) -> Parts:
    rows: list[Part] = []
    for txn in partition.transactions(of):
        marker = BEYOND if txn.marker is None else txn.marker.key
        last = marker - 1 if txn.last is None or txn.marker is None else txn.last.key
        rows.append((txn.producer_id, txn.first.key, marker, last, _STATES[txn.state], txn.identity))
    return Parts.of(rows)


def _rows(batch: pa.RecordBatch) -> Rows:
    key, value, offset, time, headers, producer, status = batch.columns
    names = np.where(truths_in(status.is_valid()), numbers_in(producer), NO_TXN)
    columns, fields = [key, value, event_times(time)], [*RAW_SCHEMA, EVENT_TIME]
    if (properties := properties_of(headers)) is not None:
        columns.append(properties)
        fields.append(PROPERTIES)
    rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    return Rows(rows, numbers_in(offset).astype(np.int64), names)


def event_times(millis: pa.Array) -> pa.Array:
    """Return timestamps as event times: null where a record has none, or one that no message can have."""
    times = numbers_in(millis)
    right = (times >= _FIRST) & (times <= _LAST) & (times != _NO_TIMESTAMP)
    micros = np.where(right, times, 0) * 1000
    there = None if right.all() else pa.py_buffer(np.packbits(right, bitorder="little"))
    return pa.Array.from_buffers(EVENT_TIME.type, len(times), [there, pa.py_buffer(micros)])


def properties_of(headers: pa.ListArray) -> pa.Array | None:
    """Return headers as properties; None if no record has any."""
    items = headers.flatten()
    if not len(items):
        return None
    keys, values = items.field(0), items.field(1)
    counts = numbers_in(headers.value_lengths().fill_null(0)).astype(np.int64)
    texts = None
    if not values.null_count and not repeats_a_name(keys, counts):
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            texts = None
    if texts is None:
        return pa.array([_as_properties(row) for row in headers.to_pylist()], PROPERTIES.type)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    there = np.packbits(counts > 0, bitorder="little")
    fields = [PROPERTIES.type.key_field, PROPERTIES.type.item_field]
    pairs = pa.StructArray.from_arrays([keys, texts], fields=fields)
    buffers = [pa.py_buffer(there), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(PROPERTIES.type, len(headers), buffers, children=[pairs])


def _as_properties(headers: list[dict[str, object]] | None) -> list[tuple[str, str]] | None:
    taken: dict[str, str] = {}
    for header in headers or ():
        name, value = str(header["key"]), header["value"]
        text = ""
        if value is None:
            name += ";null"
        else:
            assert isinstance(value, bytes)
            try:
                text = value.decode()
            except UnicodeDecodeError:
                name, text = f"{name};base64", base64.b64encode(value).decode()
        number, free = 1, name
        while free in taken:
            number += 1
            free = f"{name};{number}"
        taken[free] = text
    return list(taken.items()) or None
