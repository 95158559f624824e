"""Columns of keys to partitions."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.model.routing import partition_of


def route(keys: pa.Array, partitions: int, without_key: int) -> npt.NDArray[np.int64]:
    """Return the partition of each row by its key; rows whose key is null go to ``without_key``."""
    unique = keys.dictionary_encode()
    targets = np.array([partition_of(key, partitions) for key in unique.dictionary.to_pylist()], dtype=np.int64)
    codes = unique.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.where(codes < 0, without_key, targets[codes] if len(targets) else without_key)
