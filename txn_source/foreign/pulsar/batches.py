"""Messages inside batches: where each begins, and its metadata.

A message's place is only known from the length of the one before it. What could be the start of one is found by a look
at all bytes at once (two zero bytes and a tag a little later, since metadata is short), and decoded for all of
them at once; then the lengths tell which are the right ones: those that one comes to from the batch's start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from txn_source.foreign.pulsar import wire
from txn_source.foreign.pulsar.wire import BYTES, NUMBER, REPEATED, ByteArray, Fields, big_endian
from txn_source.model.visibility import IntArray

PROPERTIES, KEY, SIZE, COMPACTED_OUT, EVENT_TIME = 1, 2, 3, 4, 5
KEY_IS_BASE64, ORDERING_KEY, SEQUENCE, NULL_VALUE, NULL_KEY = 6, 7, 8, 9, 10
KINDS = {
    PROPERTIES: REPEATED,
    **dict.fromkeys((KEY, ORDERING_KEY), BYTES),
    **dict.fromkeys((SIZE, COMPACTED_OUT, EVENT_TIME, KEY_IS_BASE64, SEQUENCE, NULL_VALUE, NULL_KEY), NUMBER),
}
_LENGTH_BYTES = 4
_LARGEST_FOUND = 16
"""Metadata of so many times 256 bytes, or more, is not found by the look at all bytes."""
_FIRST_TAGS = np.array((PROPERTIES << 3 | 2, KEY << 3 | 2, SIZE << 3), np.uint8)
"""What metadata begins with: all writers have their fields in order, and a size is always there."""
_LOOK_BYTES = 512 << 10
"""So many bytes are looked at together: they, and what is made of them, stay in a processor's cache."""
_MANY = 16
_MAX_GUESSES = 8


class BatchError(Exception):
    """A batch whose messages can't be told apart: its number, and what is wrong with it."""

    def __init__(self, batch: int, what: str) -> None:
        super().__init__(what)
        self.batch, self.what = batch, what


@dataclass(frozen=True, slots=True)
class BatchedMessages:
    """The messages of batches: their metadata, and where their payloads lie."""

    metadata: Fields
    starts: IntArray
    ends: IntArray


def find_messages(data: ByteArray, starts: IntArray, ends: IntArray, counts: IntArray) -> BatchedMessages:
    """Return the messages of batches, in their order.

    Args:
        data: bytes; the batches, not compressed, lie inside, one behind the other.
        starts: where each batch begins.
        ends: where it ends, exclusive.
        counts: how many messages it has.

    Raises:
        BatchError: a batch doesn't have so many, or isn't one.
    """
    guesses = _guesses(data, starts, ends, int(counts.sum()))
    found = _decoded(data, guesses, KINDS)
    if not _is_chain(guesses, found, starts, ends, counts):
        heads = _heads(data, guesses, found, starts, ends, counts)
        found = _decoded(data, heads, KINDS)
    return found


def _guesses(data: ByteArray, starts: IntArray, ends: IntArray, count: int) -> IntArray:
    """Return where messages may begin, ascending; there may be more, and some that begin nothing, but few."""
    found: list[IntArray] = []
    size = 0
    for first in range(int(starts[0]), int(ends[-1]), _LOOK_BYTES) if len(starts) else ():
        part = data[first : min(first + _LOOK_BYTES + _LENGTH_BYTES, int(ends[-1]))]
        found.append(_guesses_in(part) + first)
        size += len(found[-1])
        if size > _MAX_GUESSES * (count + 1000):
            return np.zeros(0, np.int64)
    at = np.concatenate(found) if found else np.zeros(0, np.int64)
    if len(starts) > 1 and not (ends[:-1] == starts[1:]).all():
        batch = np.searchsorted(starts, at, "right") - 1
        at = at[at < ends[batch]]
    return at


def _guesses_in(part: ByteArray) -> IntArray:
    """Return where messages may begin in some bytes, but for the last four."""
    zero = part == 0
    pairs = zero[:-_LENGTH_BYTES] & zero[1 : max(len(part) - _LENGTH_BYTES + 1, 1)]
    if np.count_nonzero(pairs) > len(pairs) // _MANY:
        pairs &= (part[2 : len(part) - 2] < _LARGEST_FOUND) & np.isin(part[_LENGTH_BYTES:], _FIRST_TAGS)
    at = np.flatnonzero(pairs)
    return at[(part[at + 2] < _LARGEST_FOUND) & np.isin(part[at + _LENGTH_BYTES], _FIRST_TAGS)]


def _decoded(data: ByteArray, heads: IntArray, kinds: dict[int, str]) -> BatchedMessages:
    """Return what begins at places of the data: metadata and payload."""
    begin = heads + _LENGTH_BYTES
    bodies = begin + big_endian(data, heads, _LENGTH_BYTES)
    outside = bodies > len(data)
    metadata = wire.decode(data, begin, np.where(outside, begin, bodies), kinds)
    sizes = metadata.number(SIZE)
    metadata.bad |= outside | ~metadata.has(SIZE) | (sizes < 0) | (sizes > len(data) - bodies)
    return BatchedMessages(metadata, bodies, np.where(metadata.bad, bodies, bodies + sizes))


def _is_chain(heads: IntArray, found: BatchedMessages, starts: IntArray, ends: IntArray, counts: IntArray) -> bool:
    """True if what was found at places is the messages of the batches, all of them and no other."""
    if len(heads) != counts.sum() or found.metadata.bad.any():
        return False
    if (counts == 0).any():
        return bool((starts == ends)[counts == 0].all() and len(heads) == 0)
    firsts = np.cumsum(counts) - counts
    wanted = np.empty_like(heads)
    wanted[1:] = found.ends[:-1]
    wanted[firsts] = starts
    return bool((heads == wanted).all() and (found.ends[firsts + counts - 1] == ends).all())


def _heads(
    data: ByteArray,
    guesses: IntArray,
    found: BatchedMessages,
    starts: IntArray,
    ends: IntArray,
    counts: IntArray,
) -> IntArray:
    """Return where messages begin, found one by one from each batch's start; guesses save most of the steps."""
    sound = ~found.metadata.bad
    known = dict(zip(guesses[sound].tolist(), found.ends[sound].tolist(), strict=True))
    heads: list[int] = []
    for batch, (at, end, count) in enumerate(zip(starts.tolist(), ends.tolist(), counts.tolist(), strict=True)):
        for message in range(count):
            heads.append(at)
            after = known.get(at) or _next(data, at, end)
            if after is None or after > end:
                raise BatchError(batch, f"message {message} of its {count} is cut, or can't be parsed")
            at = after
        if at != end:
            raise BatchError(batch, f"it has {end - at} bytes behind its {count} messages")
    return np.array(heads, np.int64)


def _next(data: ByteArray, at: int, end: int) -> int | None:
    """Return where the message ends that begins at a place; None if none does."""
    if at + _LENGTH_BYTES > end:
        return None
    begin = at + _LENGTH_BYTES
    body = begin + int.from_bytes(data[at:begin].tobytes(), "big")
    if body > end:
        return None
    metadata = wire.decode(data, np.array([begin]), np.array([body]), {SIZE: NUMBER})
    size = int(metadata.number(SIZE)[0])
    if metadata.bad[0] or not metadata.has(SIZE)[0] or size < 0 or body + size > end:
        return None
    return body + size
