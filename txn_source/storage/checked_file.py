"""Checksums of all bytes of a file but its footer, which carries them.

Parquet's own checksums leave page headers out: one flipped bit in a header can give other rows without an error. Here
each run of bytes that the Parquet writer writes at once has a CRC-32C; runs never reach over the end of a column chunk.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c

_JOIN_GAP_BYTES = 64 << 10
"""Ranges that lie closer together are read at once."""


class ChecksummingSink(io.RawIOBase):
    """Passes bytes on to a stream, and keeps length and checksum of each run."""

    def __init__(self, sink: pa.NativeFile) -> None:
        self._sink = sink
        self.lengths: list[int] = []
        self.checksums: list[int] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._sink.write(data)
        self.lengths.append(size)
        self.checksums.append(crc32c(data))
        return size


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of bytes from the start of a file on: where they begin, with the end of the last, and their CRC-32C."""

    edges: npt.NDArray[np.int64]
    checksums: npt.NDArray[np.int64]

    @classmethod
    def of(cls, lengths: npt.ArrayLike, checksums: npt.ArrayLike) -> Runs:
        """Return the runs that were written one after the other."""
        edges = np.concatenate(([0], np.cumsum(np.asarray(lengths, np.int64))))
        return cls(edges.astype(np.int64), np.asarray(checksums, np.int64))

    def covers(self, start: int, end: int) -> bool:
        """True if a range begins where a run does and ends where one does."""
        low, high = np.searchsorted(self.edges, (start, end))
        return bool(high < len(self.edges) and self.edges[low] == start and self.edges[high] == end)

    def within(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
        """Return offset, length and checksum of each run of the ranges ``[start, end)``."""
        found: list[tuple[int, int, int]] = []
        for start, end in ranges:
            low, high = np.searchsorted(self.edges, (start, end)).tolist()
            edges = self.edges[low : high + 1]
            found += zip(edges[:-1].tolist(), np.diff(edges).tolist(), self.checksums[low:high].tolist(), strict=True)
        return found

    def check(self, start: int, data: memoryview) -> None:
        """Raise ValueError unless the bytes from ``start`` on are those that were written."""
        low, high = np.searchsorted(self.edges, (start, start + len(data))).tolist()
        edges, checksums = self.edges[low : high + 1].tolist(), self.checksums[low:high].tolist()
        for first, last, wanted in zip(edges, edges[1:], checksums, strict=False):
            found = crc32c(data[first - start : last - start])
            if found != wanted:
                raise ValueError(
                    f"bytes {first} to {last} have checksum {found:08x} where {wanted:08x} was written (CRC-32C)"
                )


@dataclass
class CheckedSource(io.RawIOBase):
    """A file of which only ranges can be read that were loaded before, and checked."""

    file: pa.NativeFile
    runs: Runs
    size: int
    _loaded: list[tuple[int, pa.Buffer]] = field(default_factory=list)
    _at: int = 0

    def load(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Read ranges ``[start, end)`` instead of those that were loaded before, and check them.

        Raises:
            OSError: they can't be read.
            ValueError: they are not what was written.
        """
        self._loaded = []
        for start, end in _joined(sorted(ranges)):
            data = self.file.read_at(end - start, start)
            buffer = pa.py_buffer(data)
            if buffer.size != end - start:
                raise ValueError(f"it ends at byte {start + buffer.size}, inside of what was written")
            self._loaded.append((start, buffer))
        for start, end in ranges:
            self.runs.check(start, memoryview(self._slice(start, end - start)))

    def release(self) -> None:
        """Let go of what was loaded."""
        self._loaded = []

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int = -1) -> Any:
        length = self.size - self._at if size < 0 else min(size, self.size - self._at)
        data = self._slice(self._at, length)
        self._at += length
        return data

    def _slice(self, start: int, length: int) -> pa.Buffer:
        for first, buffer in self._loaded:
            if first <= start and start + length <= first + buffer.size:
                return buffer.slice(start - first, length)
        raise OSError(f"bytes {start} to {start + length} were not asked for")


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in ranges:
        if joined and start - joined[-1][1] <= _JOIN_GAP_BYTES:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined
