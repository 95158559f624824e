"""Rows to partitions: by key, by number, or piece by piece in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.model.routing import partitions_of
from txn_source.storage.arrays import array_of, truths_in


@dataclass(frozen=True, slots=True)
class RoutedBatch:
    """What a batch brings to each partition, and its rows in their order.

    A run is rows in a row for one partition: its index, and how many rows of the batch the partition has before them.
    """

    parts: list[tuple[int, pa.RecordBatch]]
    runs: list[tuple[int, int]]

    @classmethod
    def whole(cls, batch: pa.RecordBatch, partition: int) -> RoutedBatch:
        """Return a batch that goes to one partition."""
        return cls([(partition, batch)], [(partition, 0)])

    @classmethod
    def spread(cls, pieces: Sequence[pa.RecordBatch], first: int, partitions: int) -> RoutedBatch:
        """Return a batch whose pieces go to one partition after the other, beginning with the first one."""
        parts, runs = [], []
        before: Counter[int] = Counter()
        for number, piece in enumerate(pieces):
            partition = (first + number) % partitions
            parts.append((partition, piece))
            runs.append((partition, before[partition]))
            before[partition] += piece.num_rows
        return cls(parts, runs)

    @classmethod
    def of(cls, batch: pa.RecordBatch, targets: npt.NDArray[np.int64]) -> RoutedBatch:
        """Return a batch each row of which goes to a partition of its own."""
        parts = [
            (int(target), batch.take(array_of(np.flatnonzero(targets == target)))) for target in np.unique(targets)
        ]
        edges = np.flatnonzero(np.diff(targets, prepend=-1))
        owners, counts = targets[edges], np.diff(edges, append=len(targets))
        in_order = np.argsort(owners, kind="stable")
        before = np.cumsum(counts[in_order]) - counts[in_order]
        firsts = np.diff(owners[in_order], prepend=-1) != 0
        starts = np.empty_like(before)
        starts[in_order] = before - before[firsts][np.cumsum(firsts) - 1]
        return cls(parts, list(zip(owners.tolist(), starts.tolist(), strict=True)))


def route(keys: pa.BinaryArray, partitions: int, without_key: int) -> npt.NDArray[np.int64]:
    """Return the partition of each row by its key; rows whose key is null go to ``without_key``."""
    if not len(keys):
        return np.empty(0, np.int64)
    _, offsets, data = keys.buffers()
    of_rows = np.frombuffer(offsets, np.int32, len(keys) + 1, keys.offset * 4)
    targets = partitions_of(np.frombuffer(data or b"", np.uint8), of_rows, partitions)
    if keys.null_count:
        targets[truths_in(keys.is_null())] = without_key
    return targets


def group(targets: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.Array]]:
    """Yield each partition that rows go to, ascending, and the indexes of its rows in their order."""
    counts = np.bincount(targets)
    narrow = np.int16 if len(counts) <= 1 << 15 else np.int64  # numpy sorts the narrow ones several times as fast
    order = np.argsort(targets.astype(narrow), kind="stable")
    ends = np.cumsum(counts)
    for target in np.flatnonzero(counts).tolist():
        yield target, array_of(order[ends[target] - counts[target] : ends[target]])
