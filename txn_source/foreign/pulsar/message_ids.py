"""Pulsar's message ids in the forms that its clients and tools give them, as positions."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import numpy as np

from txn_source.foreign.pulsar import wire
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.position import EARLIEST, LATEST, MessageId, Position

_COLONS = re.compile(r"([0-9]{1,19}):([0-9]{1,19})(?::(-1|[0-9]{1,10}))?(?::(-1|[0-9]{1,10}))?")
_TUPLE = re.compile(r"\((-?[0-9]{1,19}), ?(-?[0-9]{1,19}), ?(-?[0-9]{1,10}), ?(-?[0-9]{1,10})\)")
_LEDGER, _ENTRY, _PARTITION, _BATCH_INDEX, _FIRST_CHUNK = 1, 2, 3, 4, 7
_MAX = (1 << 63) - 1
_REMEDY = (
    'Write "ledger:entry", such as "12:40"; or give a message id as a Pulsar client prints it (12:40:-1, 12:40:-1:3,'
    " (12,40,-1,3)) or its bytes as base64."
)


def point_of(value: Any) -> Position | str:
    """Return the position of a message id, or ``earliest`` or ``latest``.

    These are ``ledger:entry``; txnlog's ``ledger:entry:index``; what Pulsar's clients print, ``ledger:entry:-1``,
    ``ledger:entry:partition:index`` and ``(ledger,entry,partition,index)``; and the bytes that a client makes of one,
    as such or as base64. The partition isn't compared with anything. A chunked message is where its last chunk is.

    Raises:
        InvalidArgumentError: it is none, or names a message inside an entry.
    """
    if isinstance(value, Position):
        return value
    if isinstance(value, MessageId):
        return _position(str(value), value.ledger_id, value.entry_id, value.batch_index)
    if isinstance(value, (bytes, bytearray)):
        return _from_bytes(bytes(value), value)
    text = value.strip() if isinstance(value, str) else ""
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if found := _COLONS.fullmatch(text):
        return _position(text, int(found[1]), int(found[2]), int((found[3] if found[4] is None else found[4]) or -1))
    if found := _TUPLE.fullmatch(text):
        return _position(text, int(found[1]), int(found[2]), int(found[4]))
    try:
        data = base64.b64decode(text, altchars=b"-_" if "-" in text or "_" in text else None, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    return _from_bytes(data, value)


def _from_bytes(data: bytes, given: Any) -> Position | str:
    """Return the position in a serialized ``MessageIdData``."""
    kinds = dict.fromkeys((_LEDGER, _ENTRY, _PARTITION, _BATCH_INDEX), wire.NUMBER)
    array = np.frombuffer(data, np.uint8)
    found = wire.decode(array, np.zeros(1, np.int64), np.full(1, len(array)), kinds) if len(array) else None
    if found is None or found.bad[0] or not found.has(_LEDGER)[0] or not found.has(_ENTRY)[0]:
        raise InvalidArgumentError(f"{given!r:.80} is not a position.", _REMEDY)
    index = int(found.number(_BATCH_INDEX)[0]) if found.has(_BATCH_INDEX)[0] else -1
    return _position(f"{given!r:.80}", int(found.number(_LEDGER)[0]), int(found.number(_ENTRY)[0]), index)


def _position(shown: str, ledger: int, entry: int, index: int) -> Position | str:
    if (ledger, entry) == (-1, -1):
        return EARLIEST
    if (ledger, entry) == (_MAX, _MAX):
        return LATEST
    at = Position(ledger, entry)
    if index > 0:
        raise InvalidArgumentError(
            f"Message {shown} lies inside its entry, and a read starts and ends between entries.",
            f"Use {at} for the entry with all of its messages, or {at.plus(1)} for the next.",
        )
    return at
