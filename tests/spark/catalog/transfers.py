"""A writer whose transactions each write the same rows to several topics: no reader may see half of one."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pyarrow as pa

import txn_source

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
_FIRST = 10
"""So many are there before a test begins."""


class Transfers:
    """Writes as long as it is entered, or ``most`` transactions; each fifth one is aborted."""

    def __init__(self, root: str | Path, topics: Sequence[str], most: float = math.inf) -> None:
        self._root = root
        self._topics = topics
        self._most = most
        self._stop = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._begun.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        with txn_source.connect(self._root) as log:
            producers = [log.producer(topic) for topic in self._topics]
            counts = [len(log.stats(topic).partitions) for topic in self._topics]
            number = 0
            while number < self._most and not self._stop.wait(0.004):  # else the tests would only wait for it
                rows = pa.table({"id": [number] * 2, "n": [0, 1]}, schema=SCHEMA)
                txn = log.begin_transaction()
                for producer, count in zip(producers, counts, strict=True):
                    producer.send_batch(rows, txn=txn, partition=number % count)
                (txn.abort if number % 5 == 4 else txn.commit)()
                number += 1
                if number == _FIRST:
                    self._begun.set()
