"""Messages as rows of JSON."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_source.client.reading.columns import columns_beside, select_columns
from txn_source.console.values import columns_of
from txn_source.model.message_ranges import index_of, packed, position_of
from txn_source.model.position import key_of as position_key
from txn_source.storage.arrays import numbers_in, numbers_or
from txn_source.storage.schema import KEY, RAW_SCHEMA

_LEFT_OUT = ("__topic", "__sequence_id")


class Row(NamedTuple):
    """A message: when it was published (microseconds since the epoch), its place (``message_key``), and its JSON."""

    published_us: int
    key: int
    shown: dict[str, Any]


def schema_of(payload: pa.Schema) -> pa.Schema:
    """Return the columns that rows are made of."""
    beside = [name for name in columns_beside(payload) if name not in _LEFT_OUT]
    return select_columns(payload, [*payload.names, *beside])


def is_raw(payload: pa.Schema) -> bool:
    """True if a topic has keys and values, and no columns of its own."""
    return bool(payload.equals(RAW_SCHEMA))


class Found:
    """Messages of one partition in the order of their positions."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        ledgers, entries, indexes = (
            np.asarray(numbers_in(batch.column(f"__{name}")), np.int64)
            for name in ("ledger_id", "entry_id", "batch_index")
        )
        self._positions, self._indexes = position_key(ledgers, entries), indexes

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def key(self, row: int) -> int:
        """Return the place of a message."""
        return packed(int(self._positions[row]), int(self._indexes[row]))

    def first_at(self, key: int) -> int:
        """Return the number of the first message at or above a place."""
        at, index = position_of(key).key, index_of(key)
        above = (self._positions > at) | ((self._positions == at) & (self._indexes >= index))
        return int(above.argmax()) if above.any() else len(self)

    def part(self, first: int, last: int) -> Found:
        """Return the messages with numbers in ``[first, last)``."""
        return Found(self.batch.slice(first, max(0, last - first)))

    def rows(self, payload: pa.Schema, most: int) -> list[Row]:
        """Return the messages as rows, each value shortened to ``most`` characters or bytes."""
        values, shortened = columns_of(self.batch.select(payload.names), most)
        about, _ = columns_of(self.batch.select(["__producer_name", "__txn_id", "__txn_status", "__properties"]), most)
        keys = values["key"] if is_raw(payload) else columns_of(self.batch.select([KEY.name]), most)[0][KEY.name]
        published, events = (
            self.batch.column(f"__{name}_time").cast(pa.int64()).to_pylist() for name in ("publish", "event")
        )
        partitions = self.batch.column("__partition").to_pylist()
        raw, sizes = is_raw(payload), _sizes(self.batch, payload)
        rows = []
        for row in range(len(self)):
            key, fields = self.key(row), {name: column[row] for name, column in values.items()}
            shown = {
                "partition": partitions[row],
                "position": str(position_of(key)),
                "index": index_of(key),
                "key": keys[row],
                "value": fields["value"] if raw else fields,
                "event_ms": None if events[row] is None else events[row] // 1000,
                "publish_ms": published[row] // 1000,
                "producer": about["__producer_name"][row],
                "txn": about["__txn_id"][row],
                "status": about["__txn_status"][row],
                "properties": about["__properties"][row],
                "bytes": sizes[row],
                "shortened": shortened[row],
            }
            rows.append(Row(published[row], key, shown))
        return rows


def _sizes(batch: pa.RecordBatch, payload: pa.Schema) -> list[int]:
    """Return about how many bytes the values of each message have."""
    total = np.zeros(batch.num_rows, np.int64)
    for field in payload:
        column, kind = batch.column(field.name), field.type
        if any(is_(kind) for is_ in _LONG):
            total += numbers_or(pc.binary_length(column).cast(pa.int64()), 0)
        elif pa.types.is_nested(kind):
            total += np.array([column.slice(row, 1).nbytes for row in range(batch.num_rows)], np.int64)
        else:
            total += max(1, kind.bit_width // 8)
    return [int(size) for size in total]


_LONG = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)
