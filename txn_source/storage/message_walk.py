"""Finding the messages in a segment's bytes without the database: where each begins, its rows, and its note.

An Arrow message is eight bytes, a mark and the length of what follows, then a flatbuffer that says what the message is,
then its body. Only what is needed is read of the flatbuffer. Behind a damaged message the next sound one is looked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from txn_source.model.values import dataclass
from txn_source.storage.entry_notes import KEY, note_in

_MARK = b"\xff\xff\xff\xff"
_ALIGNED = 8
_SCHEMA, _RECORD_BATCH = 1, 3
_MOST_BYTES = 1 << 31
_heading = struct.Struct("<II").unpack_from
_u8, _u16, _u32 = (struct.Struct(f"<{kind}").unpack_from for kind in "BHI")
_i32, _i64 = (struct.Struct(f"<{kind}").unpack_from for kind in "iq")
Data = memoryview | bytes


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message: its bytes are ``[start, end)``; ``note`` is what its writer noted."""

    start: int
    end: int
    is_schema: bool
    rows: int
    note: bytes | None


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no whole message: ``[start, end)``."""

    start: int
    end: int


def walk(data: Data, start: int = 0) -> Iterator[FoundMessage | Damage]:
    """Yield all messages from an offset on, and what lies between them that is none."""
    at, size = start, len(data)
    while at < size:
        try:
            found = _message(data, at, size)
        except (struct.error, ValueError):
            following = _next(data, at + _ALIGNED, size)
            yield Damage(at, following)
            at = following
            continue
        if found is None:  # a stream's end
            at += _ALIGNED
            continue
        yield found
        at = found.end


def _next(data: Data, at: int, size: int) -> int:
    """Return where the next whole message begins."""
    whole = bytes(data[at:])
    found = whole.find(_MARK)
    while found >= 0:
        if (at + found) % _ALIGNED == 0:
            try:
                if _message(data, at + found, size) is not None:
                    return at + found
            except (struct.error, ValueError):
                pass
        found = whole.find(_MARK, found + 1)
    return size


def _message(data: Data, at: int, size: int) -> FoundMessage | None:
    mark, length = _heading(data, at)
    if mark != 0xFFFFFFFF:
        raise ValueError("no message")
    if length == 0:
        return None
    base = at + 8
    root = base + _u32(data, base)[0]
    fields = _Table(data, root)
    kind = fields.at(1)
    header = fields.at(2)
    body = fields.at(3)
    body_bytes = _i64(data, body)[0] if body else 0
    end = base + length + body_bytes
    if not kind or not header or not 0 <= body_bytes < _MOST_BYTES or length > _MOST_BYTES or end > size:
        raise ValueError("no whole message")
    number = _u8(data, kind)[0]
    if number not in (_SCHEMA, _RECORD_BATCH):
        raise ValueError("no schema and no batch")
    rows_at = 0 if number == _SCHEMA else _Table(data, header + _u32(data, header)[0]).at(0)
    rows = _i64(data, rows_at)[0] if rows_at else 0
    note = None
    if number == _RECORD_BATCH and (note := note_in(data, base, base + length)) is None and (given := fields.at(4)):
        note = _older_note(data, given + _u32(data, given)[0])
    return FoundMessage(at, end, number == _SCHEMA, rows, note)


def _older_note(data: Data, vector: int) -> bytes | None:
    for index in range(_u32(data, vector)[0]):
        slot = vector + 4 + 4 * index
        pair = _Table(data, slot + _u32(data, slot)[0])
        if _text(data, pair.at(0)) == KEY:
            return _text(data, pair.at(1))
    return None


def _text(data: Data, slot: int) -> bytes:
    at = slot + _u32(data, slot)[0]
    return bytes(data[at + 4 : at + 4 + _u32(data, at)[0]])


class _Table:
    """A flatbuffer's table: where its fields lie."""

    __slots__ = ("_data", "_fields", "_root", "_size")

    def __init__(self, data: Data, root: int) -> None:
        self._data, self._root = data, root
        self._fields = root - _i32(data, root)[0]
        if self._fields < 0:
            raise ValueError("no table")
        self._size = _u16(data, self._fields)[0]

    def at(self, field: int) -> int:
        """Return where a field lies; 0: it isn't there."""
        slot = 4 + 2 * field
        offset: int = _u16(self._data, self._fields + slot)[0] if slot < self._size else 0
        return self._root + offset if offset else 0
