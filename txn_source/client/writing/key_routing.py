"""Columns of keys to partitions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.model.routing import partitions_of
from txn_source.storage.arrays import array_of, truths_in


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
