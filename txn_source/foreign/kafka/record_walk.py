"""Finds where each record of many batches begins.

A record begins with its length, so a batch must be walked, one record after another. Walking all batches of a chunk in
step makes that a few numpy operations for many records. Where batches are few and large, each is walked from several
places at once: places that look like the beginning of a record. A guess is only believed if the walk from the place
before it arrives there exactly; since the first place is the batch's own beginning, all that is believed is true. A
batch with a wrong guess is walked again without any.
"""

from __future__ import annotations

import numpy as np

from txn_source.foreign.kafka.varints import INT_BYTES, LONG_BYTES, Bytes, Ints, read_varint, read_varints
from txn_source.model.values import dataclass

LEAST_RECORD = 7
"""Bytes of the shortest record: its length, attributes, two deltas, two lengths and the count of headers."""
_WALKS = 512
_LEAST_STEPS = 48
_FEW = 8
_LOOKED_AT = 16
_WINDOW_MAX = 4096


@dataclass(frozen=True, slots=True)
class Walk:
    """Where the bodies of records lie, in the order of their batches; a body begins behind its length."""

    begins: Ints
    ends: Ints
    damaged: Ints
    """Indexes of the batches whose records don't fill them exactly; none of theirs is among the others."""


def walk(data: Bytes, begins: Ints, ends: Ints, counts: Ints) -> Walk:
    """Return where the records of batches lie.

    Args:
        data: the bytes, in which batches are in ascending order.
        begins: where each batch's first record begins, inclusive.
        ends: where its last one ends, exclusive.
        counts: how many it has.
    """
    starts, limits, owners = _places(data, begins, ends, counts)
    found, arrived = _in_step(data, starts, limits)
    at = np.sort(np.concatenate([np.empty(0, np.int64), *found]))
    wrong = np.unique(owners[arrived != limits])
    if len(wrong):
        guessed = wrong[np.isin(wrong, owners[1:][owners[1:] == owners[:-1]])]
        again = [_alone(data.data, int(begins[b]), int(ends[b]), len(data))[0] for b in guessed]
        at = np.sort(np.concatenate([_without(at, begins, wrong), *again]))
    damaged = np.flatnonzero(np.searchsorted(at, ends) - np.searchsorted(at, begins) != counts)
    at = _without(at, begins, damaged) if len(damaged) else at
    lengths, bodies = read_varints(data, at, INT_BYTES)
    record_ends = bodies + lengths
    odd = _ill_fitting(at, lengths, record_ends, begins, ends)
    if len(odd):
        kept = np.isin(at, _without(at, begins, odd))
        bodies, record_ends = bodies[kept], record_ends[kept]
    return Walk(bodies, record_ends, np.union1d(damaged, odd))


def _ill_fitting(at: Ints, lengths: Ints, record_ends: Ints, begins: Ints, ends: Ints) -> Ints:
    """Return the batches that have a record of an impossible length, or one that doesn't end where the next begins."""
    if not len(at):
        return at
    batch = np.searchsorted(begins, at, side="right") - 1
    last = np.append(batch[1:] != batch[:-1], True)
    following = np.where(last, ends[batch], np.append(at[1:], 0))
    wrong = (record_ends != following) | (lengths < LEAST_RECORD - 1)
    return np.unique(batch[wrong]) if np.count_nonzero(wrong) else np.empty(0, np.int64)


def _in_step(data: Bytes, starts: Ints, limits: Ints) -> tuple[list[Ints], Ints]:
    """Walk from each start to its limit; return the places of each step, and where each walk came to.

    Lengths are believed: those that no record can have are found when all places are known. A walk always goes on.
    """
    found = []
    arrived = starts.copy()
    active = np.flatnonzero(starts < limits)
    at, limit = starts[active], limits[active]
    while len(at) >= _FEW:
        found.append(at)
        first = data.take(at, mode="clip").astype(np.int64)
        step = (first >> 1) + 1
        long = first > 127
        if np.count_nonzero(long):
            second = data.take(at + 1, mode="clip").astype(np.int64)
            step = np.where(long, ((first + ((second - 1) << 7)) >> 1) + 2, step)
            more = second > 127
            if np.count_nonzero(more):
                longer = np.flatnonzero(more & long)
                length, end = read_varints(data, at[longer], INT_BYTES)
                step[longer] = np.maximum(end + length - at[longer], 1)
        at = at + step
        going = at < limit
        if np.count_nonzero(going) < len(going):
            arrived[active] = at
            active, at, limit = active[going], at[going], limit[going]
    for index, place, end_of in zip(active.tolist(), at.tolist(), limit.tolist(), strict=True):
        places, arrived[index] = _alone(data.data, place, end_of, len(data))
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
    steps = max(_LEAST_STEPS, int(counts.sum()) // _WALKS)
    large = np.flatnonzero(counts >= 4 * steps)
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
    parts, sights = [], []
    sight = 0
    for begin, end, count, wanted in zip(begins.tolist(), ends.tolist(), counts.tolist(), walks.tolist(), strict=True):
        spacing = (end - begin) // wanted
        window = min(2 * (end - begin) // count + 8, spacing, _WINDOW_MAX)
        shape, strides = (wanted - 1, window), (spacing, 1)
        looked = np.ndarray(shape, np.uint8, data, begin + spacing, strides)
        row, column = np.nonzero(looked == 0)  # a record's attributes are 0
        near = np.arange(len(row)) - np.searchsorted(row, row) < _LOOKED_AT
        row, column = row[near], column[near]
        parts.append(begin + spacing * (row + 1) + column)
        sights.append(row + sight)
        sight += wanted
    attributes = np.concatenate(parts)
    place = np.concatenate([attributes - size for size in (1, 2, 3)])
    body, seen = np.tile(attributes, 3), np.tile(np.concatenate(sights), 3)
    length, body_begin = read_varints(data, place, INT_BYTES)
    batch = np.searchsorted(begins, place, side="right") - 1
    likely = (body_begin == body) & (length >= LEAST_RECORD - 1) & (body + length + LEAST_RECORD <= ends[batch])
    place, body, seen, batch, following = (of[likely] for of in (place, body, seen, batch, body + length))
    next_length, next_body = read_varints(data, following, INT_BYTES)
    delta, next_delta = _offset_deltas(data, body), _offset_deltas(data, next_body)
    likely = (next_length >= LEAST_RECORD - 1) & (data.take(next_body, mode="clip") == 0)
    likely &= (delta > 0) & (next_delta > delta)
    place, seen, batch = place[likely], seen[likely], batch[likely]
    order = np.argsort(place, kind="stable")
    _, first = np.unique(seen[order], return_index=True)
    return place[order][first], batch[order][first]


def _offset_deltas(data: Bytes, bodies: Ints) -> Ints:
    _, after_time = read_varints(data, bodies + 1, LONG_BYTES)
    return read_varints(data, after_time, INT_BYTES)[0]
