"""Messages of the topics in which a namespace's brokers keep snapshots of their transaction buffers, as Avro has them.

Pulsar writes the fields of a record in the order of their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from txn_source.foreign.pulsar.avro_types import parse_avro
from txn_source.foreign.pulsar.avro_values import decode_avro

TOPICS = (
    "__transaction_buffer_snapshot",
    "__transaction_buffer_snapshot_segments",
    "__transaction_buffer_snapshot_indexes",
)
"""Snapshots as one, and those in segments with their indexes."""
_LONG, _TEXT = "long", ["null", "string"]


def _record(**fields: Any) -> dict[str, Any]:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "_".join(fields), "fields": named}


def _list(of: Any) -> list[Any]:
    return ["null", {"type": "array", "items": of}]


_ID = _record(leastSigBits=_LONG, mostSigBits=_LONG)
_ABORT = _record(entryId=_LONG, ledgerId=_LONG, txnIdLeastBits=_LONG, txnIdMostBits=_LONG)
_INDEX = _record(
    abortedMarkEntryID=_LONG, abortedMarkLedgerID=_LONG, segmentEntryID=_LONG, segmentLedgerID=_LONG, sequenceID=_LONG
)
_METADATA = _record(aborts=_list(_ID), maxReadPositionEntryId=_LONG, maxReadPositionLedgerId=_LONG)
_KINDS = [
    parse_avro(schema)
    for schema in (
        _record(aborts=_list(_ABORT), maxReadPositionEntryId=_LONG, maxReadPositionLedgerId=_LONG, topicName=_TEXT),
        _record(indexList=_list(_INDEX), snapshot=["null", _METADATA], topicName=_TEXT),
        _record(
            aborts=_list(_ID),
            persistentPositionEntryId=_LONG,
            persistentPositionLedgerId=_LONG,
            sequenceId=_LONG,
            topicName=_TEXT,
        ),
    )
]


def decode_message(data: bytes) -> Mapping[str, Any] | None:
    """Return what a message says, whichever kind of snapshot it is, or part of one; None if it is none."""
    array = np.frombuffer(data, np.uint8)
    for kind in _KINDS:
        values, bad = decode_avro(kind, array, np.zeros(1, np.int64), np.full(1, len(array)))
        if not bad[0]:
            found: Mapping[str, Any] = values.to_pylist()[0]
            if "://" in str(found["topicName"]) and found.get("snapshot", found) is not None:
                return found
    return None
