"""Finds where each record of many batches begins.

A record begins with its length, so a batch must be walked, one record after another. Walking all batches of a chunk in
step makes that a few numpy operations for many records. Where batches are few and large, each is walked from several
places at once: places that look like the beginning of a record. A guess is only believed if the walk from the place
before it arrives there exactly; since the first place is the batch's own beginning, all that is believed is true. A
batch with a wrong guess is walked again without any.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from txn_source.foreign.kafka.varints import (
    INT_BYTES,
    LONG_BYTES,
    Bytes,
    Flags,
    Ints,
    bytes_at,
    read_varint,
    read_varints,
)

LEAST_RECORD = 7
"""Bytes of the shortest record: its length, attributes, two deltas, two lengths and the count of headers."""
HEAD = 16
"""Bytes that hold the length, the attributes, both deltas and the key's length of a usual record."""
_LEAST_STEPS = 48
_STEPS_TO_WALKS = 0.4
"""A step of all walks costs about as much as so many guesses."""
_UNLOOKED = 16
"""Steps between two looks at which walks are done."""
_FEW = 8
_LOOKED_AT = 16
_WINDOW_MAX = 4096


def _sizes_by_two_bytes() -> Ints:
    """Return the size of a record by its first two bytes, its length's own bytes included.

    It is 0 where these aren't the whole length, or where no record can have it.
    """
    first, second = np.arange(1 << 16) & 255, np.arange(1 << 16) >> 8
    short = first < 128
    raw = np.where(short, first, first - 128 + (second << 7))
    sound = (raw % 2 == 0) & (raw >> 1 >= LEAST_RECORD - 1) & (short | (second < 128))
    return np.where(sound, (raw >> 1) + np.where(short, 1, 2), 0)


_SIZES = _sizes_by_two_bytes()


class DamagedRecords(Exception):
    """A batch's records aren't what its header says; ``batch`` is its index among those given."""

    def __init__(self, batch: int, why: str) -> None:
        super().__init__(why)
        self.batch = batch
        self.why = why


@dataclass(frozen=True, slots=True)
class Walk:
    """Where records lie, in the order of their batches."""

    begins: Ints
    """Where each begins, with its length."""
    ends: Ints
    heads: Bytes
    """The first ``HEAD`` bytes of each, one record's behind the other's."""
    bodies: Ints
    """Where each one's body begins in the heads: behind its length."""


def walk(data: Bytes, begins: Ints, ends: Ints, counts: Ints) -> Walk:
    """Return where the records of batches lie.

    Args:
        data: the bytes, in which batches are in ascending order.
        begins: where each batch's first record begins, inclusive.
        ends: where its last one ends, exclusive.
        counts: how many it has.

    Raises:
        DamagedRecords: the records of a batch don't fill it exactly.
    """
    _require_all((counts >= 0) & (counts * LEAST_RECORD <= ends - begins))
    starts, limits, owners = _places(data, begins, ends, counts)
    found, arrived = _in_step(data, starts, limits)
    at = np.sort(np.concatenate([np.empty(0, np.int64), *found]))
    if not arrived.all():
        wrong = np.unique(owners[~arrived])
        guessed = wrong[np.isin(wrong, owners[1:][owners[1:] == owners[:-1]])]
        again = [_alone(data.data, int(begins[b]), int(ends[b]), len(data))[0] for b in guessed]
        at = np.sort(np.concatenate([_without(at, begins, wrong), *again]))
    _require_all(np.searchsorted(at, ends) - np.searchsorted(at, begins) == counts)
    ends_of = _ends_of(at, ends, counts)
    heads, own = _heads(data, at), np.arange(len(at)) * HEAD
    lengths, bodies = read_varints(heads, own, INT_BYTES)
    sound = (at + (bodies - own) + lengths == ends_of) & (lengths >= LEAST_RECORD - 1)
    if not sound.all():
        _require_all(np.isin(np.arange(len(counts)), np.repeat(np.arange(len(counts)), counts)[~sound], invert=True))
    return Walk(at, ends_of, heads, bodies)


def _require_all(sound: Flags) -> None:
    """Raise if not all batches are sound."""
    if not sound.all():
        raise DamagedRecords(int(np.argmin(sound)), "its records aren't as many, or as long, as it says")


def _ends_of(at: Ints, ends: Ints, counts: Ints) -> Ints:
    """Return where records end that fill their batches: where the next one begins, or the batch ends."""
    found = np.empty_like(at)
    found[:-1] = at[1:]
    some = np.flatnonzero(counts)
    found[np.cumsum(counts[some]) - 1] = ends[some]
    return found


def _heads(data: Bytes, at: Ints) -> Bytes:
    """Return the first bytes of records, from one look at each; past the end of the data its last byte comes again."""
    whole = int(np.searchsorted(at, len(data) - HEAD, side="right"))
    heads = bytes_at(data, HEAD)[at[:whole]].view(np.uint8)
    if whole == len(at):
        return heads
    last = data.take(at[whole:, None] + np.arange(HEAD), mode="clip").reshape(-1)
    return np.concatenate([heads, last])


def _in_step(data: Bytes, starts: Ints, limits: Ints) -> tuple[list[Ints], Flags]:
    """Walk from each start to its limit; return the places, and which walks came to their limit exactly.

    Lengths are believed: those that no record can have are found when all places are known. A walk that is at its end
    goes on until the next look; what it finds there is dropped.
    """
    found = []
    arrived = starts == limits
    active = np.flatnonzero(starts < limits)
    at, limit = starts[active], limits[active]
    pairs, top = bytes_at(data, 2).view("<u2"), len(data) - 2
    steps = _UNLOOKED
    while len(at) >= _FEW:
        places = np.empty((steps + 1, len(at)), np.int64)
        places[0] = at
        for step in range(steps):
            at = np.add(at, _SIZES.take(pairs[np.minimum(at, top)]), out=places[step + 1])
        found.append(places[:-1][places[:-1] < limit])
        still = (at == places[-2]) & (at < limit)
        if still.any():  # lengths of three bytes and more, or none that a record can have
            found[-1] = np.unique(found[-1])
            at = at.copy()
            longer = np.flatnonzero(still)
            length, end = read_varints(data, at[longer], INT_BYTES)
            at[longer] = np.maximum(end + length, at[longer] + 1)
            places[-1], steps = at, 1
        going = at < limit
        if not going.all():
            done = ~going
            arrived[active[done]] = (places[:, done] == limit[done]).any(axis=0)
            active, at, limit = active[going], at[going], limit[going]
    for index, place, end_of in zip(active.tolist(), at.tolist(), limit.tolist(), strict=True):
        places, reached = _alone(data.data, place, end_of, len(data))
        arrived[index] = reached == end_of
        found.append(places)
    return found, arrived


def _alone(data: memoryview, at: int, limit: int, end: int) -> tuple[Ints, int]:
    """Walk from one place to a limit; return the places, and where the walk came to: -1 if a length is impossible."""
    places = []
    while at < limit:
        places.append(at)
        length = data[at]
        if length > 127:
            length, at = read_varint(data, at, min(end, at + INT_BYTES))
        else:
            length, at = (length >> 1) ^ -(length & 1), at + 1
        if length < LEAST_RECORD - 1:
            return np.array(places, np.int64), -1
        at += length
    return np.array(places, np.int64), at


def _without(at: Ints, begins: Ints, batches: Ints) -> Ints:
    """Return the places that lie in none of some batches."""
    drop = np.zeros(len(begins), np.bool_)
    drop[batches] = True
    return at[~drop[np.searchsorted(begins, at, side="right") - 1]]


def _places(data: Bytes, begins: Ints, ends: Ints, counts: Ints) -> tuple[Ints, Ints, Ints]:
    """Return from where walks begin, up to where each goes, and which batch each is in."""
    own = np.arange(len(begins))
    steps = max(_LEAST_STEPS, int((int(counts.sum()) * _STEPS_TO_WALKS) ** 0.5))
    large = np.flatnonzero(counts >= 2 * steps)
    if not len(large):
        return begins, ends, own
    guesses, owners = _guesses(data, begins[large], ends[large], counts[large], counts[large] // steps)
    start, owner = np.concatenate([begins, guesses]), np.concatenate([own, large[owners]])
    order = np.argsort(start, kind="stable")
    start, owner = start[order], owner[order]
    limits = np.append(start[1:], 0)
    last = np.append(owner[1:] != owner[:-1], True)
    limits[last] = ends[owner[last]]
    return start, limits, owner


def _guesses(data: Bytes, begins: Ints, ends: Ints, counts: Ints, walks: Ints) -> tuple[Ints, Ints]:
    """Return places at which a record seems to begin, evenly spread over batches, and which batch each is in."""
    spacing = (ends - begins) // walks
    owner = np.repeat(np.arange(len(begins)), walks - 1)
    nth = np.arange(1, len(owner) + 1) - np.repeat(np.cumsum(walks - 1) - (walks - 1), walks - 1)
    sights = begins[owner] + spacing[owner] * nth
    window = min(2 * int(((ends - begins) // counts).max()) + 8, int(spacing.min()), _WINDOW_MAX)
    looked = bytes_at(data, window)[sights].view(np.uint8).reshape(len(sights), window)
    row, column = np.nonzero(looked == 0)  # a record's attributes are 0
    near = np.arange(len(row)) - np.searchsorted(row, np.arange(len(sights)))[row] < _LOOKED_AT
    row, column = row[near], column[near]
    attributes = sights[row] + column
    place = np.concatenate([attributes - size for size in (1, 2, 3)])
    body, seen = np.tile(attributes, 3), np.tile(row, 3)
    length, body_begin = read_varints(data, place, INT_BYTES)
    likely = (body_begin == body) & (length >= LEAST_RECORD - 1) & (place >= begins[owner[seen]])
    likely &= body + length + LEAST_RECORD <= ends[owner[seen]]
    place, body, seen, following = (of[likely] for of in (place, body, seen, body + length))
    next_length, next_body = read_varints(data, following, INT_BYTES)
    delta, next_delta = _offset_deltas(data, body), _offset_deltas(data, next_body)
    likely = (next_length >= LEAST_RECORD - 1) & (data.take(next_body, mode="clip") == 0)
    likely &= (delta > 0) & (next_delta > delta)
    place, seen = place[likely], seen[likely]
    order = np.lexsort((place, seen))
    _, first = np.unique(seen[order], return_index=True)
    chosen, batch = place[order][first], owner[seen[order][first]]
    fresh = np.diff(chosen, prepend=-1) > 0
    return chosen[fresh], batch[fresh]


def _offset_deltas(data: Bytes, bodies: Ints) -> Ints:
    _, after_time = read_varints(data, bodies + 1, LONG_BYTES)
    return read_varints(data, after_time, INT_BYTES)[0]
