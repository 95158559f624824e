"""Headers of record batches (magic 2): found in a run of bytes, and as arrays, one element to a batch."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from txn_source.foreign.kafka.varints import Bytes, Ints

Flags = npt.NDArray[np.bool_]

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
HEADER_BYTES = HEADER.itemsize
BEFORE_LENGTH = 12
"""Bytes up to the end of the length, which counts those behind it."""
CHECKED_FROM = 21
"""The checksum covers all from here to the batch's end."""
MAGIC, MAGIC_AT = 2, 16

_CODEC, _APPEND_TIME, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_SIZE_AND_MAGIC = struct.Struct(">8xi4xb")


class Stop:
    """Why a run of batches ended."""

    END = "end"
    """Nothing follows."""
    INCOMPLETE = "incomplete"
    """What follows is the beginning of a batch, or of its header."""
    OLD_MAGIC = "old magic"
    NEW_MAGIC = "new magic"
    NO_BATCH = "no batch"
    """What follows is no header."""
    OTHER_LEADER = "other leader"
    """What follows is of a leader that doesn't count at its offset."""


@dataclass(frozen=True, slots=True)
class Run:
    """Whole batches that follow each other in some bytes."""

    begins: list[int]
    """Where each begins."""
    end: int
    """Where the last one ends, exclusive."""
    stop: str
    wanted: int
    """Bytes from ``end`` on that the next batch, or its header, takes; 0 unless it is incomplete."""


def find_batches(data: memoryview | bytes, at: int = 0) -> Run:
    """Return the whole batches that follow each other from a place on."""
    begins: list[int] = []
    size, unpack = len(data), _SIZE_AND_MAGIC.unpack_from
    while at + HEADER_BYTES <= size:
        length, magic = unpack(data, at)
        if magic != MAGIC or length < HEADER_BYTES - BEFORE_LENGTH:
            return Run(begins, at, _no_batch(length, magic), 0)
        end = at + BEFORE_LENGTH + length
        if end > size:
            return Run(begins, at, Stop.INCOMPLETE, end - at)
        begins.append(at)
        at = end
    if at + _SIZE_AND_MAGIC.size <= size:
        length, magic = unpack(data, at)
        if magic < MAGIC and at + BEFORE_LENGTH + length <= size and _no_batch(length, magic) == Stop.OLD_MAGIC:
            return Run(begins, at, Stop.OLD_MAGIC, 0)  # which may be shorter than a header
    return Run(begins, at, Stop.END if at == size else Stop.INCOMPLETE, 0 if at == size else HEADER_BYTES)


def _no_batch(length: int, magic: int) -> str:
    if magic in (0, 1) and length >= 14:  # the shortest message: checksum, magic, attributes and two lengths
        return Stop.OLD_MAGIC
    return Stop.NEW_MAGIC if magic > MAGIC and length > 0 else Stop.NO_BATCH


class BatchHeaders:
    """Headers of batches, in the order of the log, and where each batch lies in its file."""

    def __init__(self, fields: npt.NDArray[Any], positions: Ints) -> None:
        self._fields = fields
        self.positions = positions

    @classmethod
    def at(cls, data: Bytes, begins: Ints, position: int = 0) -> BatchHeaders:
        """Return the headers that begin at some places of bytes whose first lies at a position of the file."""
        return cls.at_places(data, begins, begins + position)

    @classmethod
    def at_places(cls, data: Bytes, begins: Ints, positions: Ints) -> BatchHeaders:
        """Return the headers that begin at some places of bytes, whose batches lie at some positions of the file."""
        rows = data.take(begins[:, None] + np.arange(HEADER_BYTES))
        return cls(rows.view(HEADER).reshape(len(begins)), positions)

    def __len__(self) -> int:
        return len(self._fields)

    def where(self, which: npt.NDArray[Any]) -> BatchHeaders:
        """Return some of them, by indexes or by a flag for each."""
        return BatchHeaders(self._fields[which], self.positions[which])

    def __getitem__(self, name: str) -> Ints:
        """Return a field of the header, by its name."""
        return self._fields[name].astype(np.int64)

    @property
    def sizes(self) -> Ints:
        """Bytes of each batch, its header included."""
        return self["length"] + BEFORE_LENGTH

    @property
    def last_offsets(self) -> Ints:
        """Inclusive; compaction doesn't move it."""
        return self["base_offset"] + self["last_offset_delta"]

    @property
    def codecs(self) -> Ints:
        return self["attributes"] & _CODEC

    @property
    def has_append_time(self) -> Flags:
        """True where the time of each record is the batch's ``max_timestamp``, and not the producer's."""
        return self._flag(_APPEND_TIME)

    @property
    def transactional(self) -> Flags:
        return self._flag(_TRANSACTIONAL)

    @property
    def control(self) -> Flags:
        return self._flag(_CONTROL)

    def _flag(self, bit: int) -> Flags:
        return np.asarray((self["attributes"] & bit) != 0, np.bool_)
