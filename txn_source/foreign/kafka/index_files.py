"""The small files beside a segment: offset index, time index, transaction index, and the state of its producers.

None of them has to be believed: what they say is held against the log where it is used, and each can be made anew from
the log. Only the state of the producers carries a checksum.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar

import crc32c
import numpy as np
import numpy.typing as npt

from txn_source.foreign.kafka.varints import Ints

_OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_TXN_ENTRY = np.dtype(
    [("version", ">i2"), ("producer_id", ">i8"), ("first", ">i8"), ("last", ">i8"), ("last_stable", ">i8")]
)
_PRODUCER = np.dtype(
    [
        ("producer_id", ">i8"),
        ("epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("txn_first", ">i8"),
    ]
)
_SNAPSHOT_HEADER = struct.Struct(">hII")
_SNAPSHOT_VERSION = 1
_CHECKED_FROM = 6
NONE = -1


@dataclass(frozen=True, slots=True)
class OffsetIndex:
    """Places in a segment: at a position a batch begins that has no offset above the one beside it.

    Both ascend. What a broker that was killed left preallocated isn't among them.
    """

    offsets: Ints
    positions: Ints

    @classmethod
    def parse(cls, data: bytes, base_offset: int, log_size: int) -> OffsetIndex:
        """Return the entries up to the first one that can't follow the one before it, or lies outside the log."""
        entries = _entries(data, _OFFSET_ENTRY)
        offsets, positions = entries["offset"].astype(np.int64), entries["position"].astype(np.int64)
        sound = (positions >= 0) & (positions < log_size) & (offsets >= 0)
        sound[1:] &= (np.diff(offsets) > 0) & (np.diff(positions) > 0)
        sound[:1] &= (offsets[:1] > 0) | (positions[:1] > 0)  # an entry of zeros is where none was written
        count = len(sound) if sound.all() else int(np.argmin(sound))
        return cls(offsets[:count] + base_offset, positions[:count])

    def position_below(self, offset: int) -> int:
        """Return the last position from which a walk over batches comes to an offset; 0 if there is no entry."""
        at = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        return 0 if at < 0 else int(self.positions[at])

    def position_above(self, offset: int) -> int | None:
        """Return a position before which all batches lie that have an offset below one; None if no entry says so."""
        at = int(np.searchsorted(self.offsets, offset))
        if at == 0 or self.offsets[at - 1] < offset - 1:  # the entry's own batch may begin below
            at += 1
        return int(self.positions[at]) if at < len(self.positions) else None


def parse_time_index(data: bytes, base_offset: int) -> tuple[Ints, Ints]:
    """Return timestamps, each the largest so far, and offsets that have them; both ascend."""
    entries = _entries(data, _TIME_ENTRY)
    timestamps, offsets = entries["timestamp"].astype(np.int64), entries["offset"].astype(np.int64)
    sound = (timestamps > 0) | (offsets > 0)
    sound[1:] &= (np.diff(timestamps) >= 0) & (np.diff(offsets) >= 0)
    count = len(sound) if sound.all() else int(np.argmin(sound))
    return timestamps[:count], offsets[:count] + base_offset


@dataclass(frozen=True, slots=True)
class TransactionIndex:
    """The aborted transactions whose markers lie in a segment, in the order of the markers."""

    ENTRY_BYTES: ClassVar[int] = _TXN_ENTRY.itemsize

    producer_ids: Ints
    firsts: Ints
    """Offset of the first record, inclusive; it may lie before the segment, and before the log's start."""
    markers: Ints
    """Offset of the abort marker."""
    last_stables: Ints
    """Below these every transaction was decided when the marker was written; exclusive."""

    @classmethod
    def parse(cls, data: bytes, base_offset: int, end: int) -> TransactionIndex | None:
        """Return the entries of a segment that ends before an offset; None if they can't be its.

        The beginning of an entry at the file's end is passed over, as Kafka does.
        """
        entries = _entries(data, _TXN_ENTRY)
        firsts, markers = entries["first"].astype(np.int64), entries["last"].astype(np.int64)
        producers, stable = entries["producer_id"].astype(np.int64), entries["last_stable"].astype(np.int64)
        sound = (entries["version"] == 0) & (producers >= 0) & (firsts >= 0) & (firsts < markers)
        sound &= (markers >= base_offset) & (markers < end) & (stable >= 0) & (stable <= markers + 1)
        if not sound.all() or (np.diff(markers) <= 0).any():
            return None
        return cls(producers, firsts, markers, stable)


def parse_snapshot(data: bytes) -> npt.NDArray[Any] | None:
    """Return the state of producers, an element to each with the fields of Kafka's; None if its checksum is wrong."""
    if len(data) < _SNAPSHOT_HEADER.size:
        return None
    version, crc, _ = _SNAPSHOT_HEADER.unpack_from(data)
    (count,) = struct.unpack_from(">i", data, _CHECKED_FROM)
    begin = _CHECKED_FROM + 4
    if version != _SNAPSHOT_VERSION or count < 0 or len(data) != begin + count * _PRODUCER.itemsize:
        return None
    if crc32c.crc32c(data[_CHECKED_FROM:]) != crc:
        return None
    return np.frombuffer(data, _PRODUCER, count, begin)


def _entries(data: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(data, dtype, len(data) // dtype.itemsize)
