"""The transactions of a partition, from its batches: a marker ends what its producer has open there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from txn_source.foreign.kafka.batch_headers import HEADER_BYTES, BatchHeaders
from txn_source.foreign.kafka.record_walk import DamagedRecords
from txn_source.foreign.kafka.records import decode
from txn_source.foreign.kafka.segment_reader import Chunk, damaged
from txn_source.foreign.kafka.varints import Ints

ABORT, COMMIT = 0, 1
UNKNOWN = -1
"""A control batch that ends no transaction: of a type that isn't known here, or emptied by compaction."""
NO_EPOCH = -1
_KEY_BYTES = 4
_USUAL = np.array([0x20, 0, 0, 0, 0x08])
"""A marker's record up to its key: 16 bytes, no attributes, no deltas, a key of 4 bytes."""
_USUAL_AT = np.arange(HEADER_BYTES, HEADER_BYTES + len(_USUAL) + _KEY_BYTES)
_USUAL_BYTES = 78


@dataclass(slots=True)
class Begun:
    """A transaction of a producer, as far as it was seen."""

    first: int
    last: int | None
    """The last offset of its data; None if only its first is known."""
    epoch: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A transaction that has data and a marker."""

    producer_id: int
    epoch: int
    first: int
    last: int | None
    marker: int
    aborted: bool
    own_epoch: bool = False
    """No other transaction of the producer has its epoch: its marker raised that, as transaction.version 2 does."""


Open = dict[int, Begun]
"""By producer id: a producer has one transaction at a time."""


def marker_kinds(chunk: Chunk, place: str) -> Ints:
    """Return of each batch ``ABORT``, ``COMMIT``, or ``UNKNOWN``, which data is, too; their checksums are right.

    Raises:
        SegmentUnreadableError: a control batch is damaged.
    """
    kinds = np.full(len(chunk.headers), UNKNOWN)
    control = np.flatnonzero(chunk.headers.control & (chunk.headers["count"] > 0))
    if not len(control):
        return kinds
    begins = chunk.begins[control]
    # Brokers write all markers alike; where the bytes up to the key are these, it is where it always is.
    bytes_there = chunk.data.take(begins[:, None] + _USUAL_AT, mode="clip").astype(np.int64)
    usual = (bytes_there[:, : len(_USUAL)] == _USUAL).all(axis=1) & (chunk.headers.codecs[control] == 0)
    usual &= chunk.headers.sizes[control] == _USUAL_BYTES
    version, types = bytes_there[:, -_KEY_BYTES], bytes_there[:, -2] * 256 + bytes_there[:, -1]
    kinds[control] = np.where(usual & (version < 128) & (types <= COMMIT), types, UNKNOWN)
    control = control[~usual | (version > 127)]
    if not len(control):
        return kinds
    headers, begins = chunk.headers.where(control), chunk.begins[control]

    def error(index: int, why: str) -> Exception:
        return damaged(place, int(headers.positions[index]), int(headers["base_offset"][index]), why)

    if headers.codecs.any():
        raise error(int(np.argmax(headers.codecs > 0)), "it is a compressed control batch")
    ends = begins + headers.sizes
    try:
        keys = decode(chunk.data, headers, begins + HEADER_BYTES, ends, ["key"], (0, (1 << 63) - 1)).column(0)
    except DamagedRecords as found:
        raise error(found.batch, found.why) from None
    firsts = np.cumsum(headers["count"]) - headers["count"]
    for index, key in zip(control.tolist(), keys.take(firsts).to_pylist(), strict=True):
        if key is None or len(key) < _KEY_BYTES or key[0] > 127:  # a negative version
            raise error(int(np.searchsorted(control, index)), "its record has no key of a control record")
        kind = int.from_bytes(key[2:_KEY_BYTES], "big")
        kinds[index] = kind if kind in (ABORT, COMMIT) else UNKNOWN
    return kinds


def replay(opened: Open, headers: BatchHeaders, kinds: Ints) -> Iterator[Ended]:
    """Yield the transactions that batches end; those left open are in ``opened`` afterwards.

    A marker is matched by producer id alone: its epoch may be above that of the data. One of a producer that has
    nothing open ends nothing.

    Args:
        opened: what was open before the batches; it is changed.
        headers: those of all batches of a run, or of those of transactions.
        kinds: what ``marker_kinds`` says of each.
    """
    which = np.flatnonzero(headers.transactional)
    if not len(which):
        return
    some = headers.where(which)
    columns = (some["producer_id"], some["base_offset"], some.last_offsets, some["producer_epoch"], some.control)
    rows = zip(*(column.tolist() for column in columns), kinds[which].tolist(), strict=True)
    for producer, base, last, epoch, control, kind in rows:
        begun = opened.get(producer)
        if not control:
            if begun is None:
                opened[producer] = Begun(base, last, epoch)
            else:
                begun.last = last
                begun.epoch = epoch
        elif begun is not None and kind != UNKNOWN:
            del opened[producer]
            yield Ended(producer, begun.epoch, begun.first, begun.last, base, kind == ABORT, epoch == begun.epoch + 1)
