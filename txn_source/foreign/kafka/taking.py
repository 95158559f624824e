"""How far a number of records, or of bytes, reaches: from the headers of batches."""

from __future__ import annotations

import numpy as np

from txn_source.foreign.foreign_log import Taken
from txn_source.foreign.kafka.segment_list import SegmentList
from txn_source.model.position import Position, PositionRange


def take(segments: SegmentList, of: PositionRange, rows: int, size: int) -> Taken:
    """Return the beginning of a range of offsets that has so many records at most, or about so many bytes.

    At least one offset is taken. Records of aborted transactions count, markers don't.
    """
    start, end = of.start.key, of.end.key
    taken = taken_bytes = 0
    full = False
    for scanned in segments.headers(start, end, over_gaps=True):
        headers = scanned.headers
        which = np.flatnonzero(~headers.control & (headers["count"] > 0))
        if not len(which):
            continue
        data = headers.where(which)
        bases, lasts = data["base_offset"], data.last_offsets
        begins, behind = np.maximum(bases, start), np.minimum(lasts + 1, end)
        if full:  # what comes next is taken by the next batch
            return Taken(Position.from_key(int(begins[0])), taken, taken_bytes)
        counts = np.minimum(data["count"], behind - begins)
        rows_to, bytes_to = taken + np.cumsum(counts), taken_bytes + np.cumsum(data.sizes)
        reached = (rows_to >= rows) | (bytes_to >= size)
        if not reached.any():
            taken, taken_bytes = int(rows_to[-1]), int(bytes_to[-1])
            continue
        index = int(np.argmax(reached))
        over = int(rows_to[index]) - rows
        taken, taken_bytes = int(rows_to[index]), int(bytes_to[index])
        if over > 0:
            inside = int(begins[index]) + max(int(counts[index]) - over, 1)
            return Taken(Position.from_key(min(inside, end)), rows, taken_bytes)
        if index + 1 < len(which):
            return Taken(Position.from_key(int(begins[index + 1])), taken, taken_bytes)
        full = True
    return Taken(of.end, taken, taken_bytes)
