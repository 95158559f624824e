"""Protobuf's wire format for many messages at once: one step decodes the next field of all of them.

A batch of Pulsar's has metadata for each of its messages, a few bytes each. Messages of one batch have mostly the same
fields in the same order, so a step is mostly one field of all messages, and a few numpy operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from txn_source.model.visibility import BoolArray, IntArray

ByteArray = npt.NDArray[np.uint8]

NUMBER, BYTES, REPEATED = "number", "bytes", "repeated"
"""Kinds of fields: a varint; text, bytes or a message of which the last one counts; one of which all count."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MAX_SHIFT = 63


class Fields:
    """The fields of many messages of one type, an item a message.

    A number is the bit pattern of 64 bits, as a signed one. Bytes are where they lie in the data. What a message
    doesn't have is 0, or empty. ``bad`` is true for a message that isn't protobuf; nothing of it means anything.
    """

    def __init__(self, count: int, kinds: Mapping[int, str]) -> None:
        self._count = count
        self._kinds = kinds
        self._has: dict[int, BoolArray] = {}
        self._values: dict[int, IntArray] = {}
        self._ends: dict[int, IntArray] = {}
        self._repeated: dict[int, list[tuple[IntArray, IntArray, IntArray]]] = {}
        self.bad: BoolArray = np.zeros(count, np.bool_)

    def has(self, field: int) -> BoolArray:
        """Return which messages have the field."""
        found = self._has.get(field)
        return np.zeros(self._count, np.bool_) if found is None else found

    def number(self, field: int) -> IntArray:
        """Return a field's numbers."""
        found = self._values.get(field)
        return np.zeros(self._count, np.int64) if found is None else found

    def slices(self, field: int) -> tuple[IntArray, IntArray]:
        """Return where a field's bytes begin and end in the data."""
        ends = self._ends.get(field)
        if ends is None:
            return np.zeros(self._count, np.int64), np.zeros(self._count, np.int64)
        return self._values[field], ends

    def repeated(self, field: int) -> tuple[IntArray, IntArray, IntArray]:
        """Return, for each time that a repeated field is there: the message, and where its bytes begin and end.

        They are in the order of the messages, and within a message in that of the data.
        """
        parts = self._repeated.get(field)
        if not parts:
            return (np.zeros(0, np.int64),) * 3
        if len(parts) == 1:
            return parts[0]
        rows, starts, ends = (np.concatenate([part[at] for part in parts]) for at in range(3))
        order = np.argsort(rows, kind="stable")
        return rows[order], starts[order], ends[order]

    def put(self, rows: Any, field: int, wire: int, values: IntArray, ends: IntArray) -> None:
        """Keep what a step found in some messages; ``rows`` are their indexes, or a slice of all."""
        kind = self._kinds.get(field)
        if kind is None or wire != (_VARINT if kind is NUMBER else _LENGTH):
            return
        if kind is REPEATED:
            which = np.arange(self._count)[rows] if isinstance(rows, slice) else rows
            self._repeated.setdefault(field, []).append((which, values, ends))
            return
        if field not in self._has:
            self._has[field] = np.zeros(self._count, np.bool_)
            self._values[field] = np.zeros(self._count, np.int64)
            if kind is BYTES:
                self._ends[field] = np.zeros(self._count, np.int64)
        self._has[field][rows] = True
        self._values[field][rows] = values
        if kind is BYTES:
            self._ends[field][rows] = ends


def decode(data: ByteArray, starts: IntArray, ends: IntArray, kinds: Mapping[int, str]) -> Fields:
    """Return the fields of the messages that lie at ``[starts, ends)`` of the data.

    Args:
        data: bytes; the messages lie inside.
        starts: where each begins.
        ends: where it ends, exclusive.
        kinds: the kind of each field that is wanted; others are passed over.
    """
    found = Fields(len(starts), kinds)
    rows: Any = slice(None)
    at = starts
    if not (at < ends).all():
        rows = np.flatnonzero(at < ends)
        at, ends = at[rows], ends[rows]
    while len(at):
        tags, after, sound = varints(data, at)
        first = int(tags[0])
        if (tags == first).all():
            at, sound = _step(data, after, ends, first, rows, found, sound)
        else:
            at = np.empty_like(at)
            which = np.arange(found.bad.size)[rows] if isinstance(rows, slice) else rows
            for tag in np.unique(tags).tolist():
                of = np.flatnonzero(tags == tag)
                at[of], sound[of] = _step(data, after[of], ends[of], tag, which[of], found, sound[of])
        going = sound & (at < ends)
        if not going.all():
            which = np.arange(found.bad.size)[rows] if isinstance(rows, slice) else rows
            found.bad[which[~sound]] = True
            rows, at, ends = which[going], at[going], ends[going]
    return found


def _step(
    data: ByteArray, at: IntArray, ends: IntArray, tag: int, rows: Any, found: Fields, sound: BoolArray
) -> tuple[IntArray, BoolArray]:
    """Take one field, with one tag, of messages; return where the next one begins, and which of them are sound."""
    field, wire = tag >> 3, tag & 7
    if wire == _VARINT:
        values, after, whole = varints(data, at)
        found.put(rows, field, wire, values, after)
    elif wire == _LENGTH:
        sizes, begin, whole = varints(data, at)
        whole = whole & (sizes >= 0) & (sizes <= ends - begin)
        after = begin + np.where(whole, sizes, 0)
        found.put(rows, field, wire, begin, after)
    elif wire in (_FIXED64, _FIXED32):
        whole = sound
        after = at + (8 if wire == _FIXED64 else 4)
    else:
        return at, np.zeros(len(at), np.bool_)
    whole = whole & sound & (after <= ends)
    return after, whole if field > 0 else np.zeros(len(at), np.bool_)


def varints(data: ByteArray, at: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
    """Return the varints that begin at places of the data, where each ends, and which of them do end."""
    byte = data.take(at, mode="clip")
    values = byte.astype(np.int64)
    after = at + 1
    sound = np.ones(len(at), np.bool_)
    if not len(at) or byte.max() < 0x80:
        return values, after, sound
    more = np.flatnonzero(byte >= 0x80)
    values[more] &= 0x7F
    shift = 7
    while len(more) and shift <= _MAX_SHIFT:
        byte = data.take(after[more], mode="clip")
        values[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    sound[more] = False
    return values, after, sound


def fields_of(data: bytes) -> list[tuple[int, int | bytes]] | None:
    """Return the fields of one message, which is small, as numbers and bytes; None if it isn't protobuf.

    Numbers are the bit pattern of 64 bits, as a signed one; those of fixed width are passed over.
    """
    found: list[tuple[int, int | bytes]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while shift <= _MAX_SHIFT:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                value &= (1 << 64) - 1
                return value - (1 << 64) if value >> 63 else value
            shift += 7
        raise IndexError

    try:
        while at < len(data):
            field, wire = divmod(varint(), 8)
            if field <= 0:
                return None
            if wire == _VARINT:
                found.append((field, varint()))
            elif wire == _LENGTH:
                size = varint()
                if not 0 <= size <= len(data) - at:
                    return None
                found.append((field, data[at : at + size]))
                at += size
            elif wire in (_FIXED64, _FIXED32):
                at += 8 if wire == _FIXED64 else 4
            else:
                return None
    except IndexError:
        return None
    return found if at == len(data) else None


def big_endian(data: ByteArray, at: IntArray, width: int) -> IntArray:
    """Return the unsigned integers of ``width`` bytes, 4 at most, that begin at places of the data."""
    value = np.zeros(len(at), np.int64)
    for byte in range(width):
        value = value << 8 | data.take(at + byte, mode="clip")
    return value
