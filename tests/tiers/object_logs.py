"""What tests of a log on an object store look at: requests, objects, and what they write."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from tests.tiers.proxy import Proxy
from tests.tiers.stores import Bucket


def asked(proxy: Proxy) -> Counter[str]:
    """Return how many requests of each method there were since the last time."""
    found = Counter(request.method for request in proxy.requests)
    proxy.requests.clear()
    return found


def objects(bucket: Bucket) -> list[str]:
    """Return the paths of the segments."""
    return [name for name in bucket.files() if name.endswith(".arrows")]


def batch(rows: int, width: int = 1000) -> pa.RecordBatch:
    """Return so many messages of so many bytes."""
    value = pa.array([bytes(width)] * rows, pa.binary())
    return pa.record_batch({"key": pa.nulls(rows, pa.binary()), "value": value})
