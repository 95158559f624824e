"""A batch whose rows are spread over partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.model.values import dataclass
from txn_source.storage.arrays import array_of


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
