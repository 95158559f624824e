"""Entries as they lie in an offloaded ledger: bytes that are not looked into yet."""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.fs as fs

from txn_source.foreign.pulsar.wire import ByteArray
from txn_source.model.errors import DataLossError, SegmentUnreadableError
from txn_source.model.visibility import IntArray
from txn_source.storage.object_store import reason

PIECE_BYTES = 4 << 20
"""So much of a ledger is decoded at once: small enough for a processor's caches, large enough for numpy."""
_AHEAD = 3
"""So many pieces are asked for at once of a store that isn't this machine's."""
_LOCAL_THREADS, _REMOTE_THREADS = 4, 16


@dataclass(frozen=True, slots=True)
class RawEntries:
    """Neighbouring entries of one ledger, in one run of bytes.

    ``places`` are where a reader of the ledger may begin for an entry: bytes of the object, ascending. Entries that
    can be had together only have the same one. ``stops`` are where it may end behind an entry; 0 if that isn't known.
    """

    data: ByteArray
    first: int
    starts: IntArray
    ends: IntArray
    places: IntArray
    stops: IntArray

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Where some entries lie: the first one, its place, and where to stop behind the last one; 0: that isn't known."""

    entry: int
    place: int
    stop: int = 0


class EntrySource(Protocol):
    """The entries of one ledger in its object."""

    uri: str
    entries: int
    bytes: int

    def read(self, first: int, end: int, within: Stretch | None = None) -> Iterator[RawEntries]:
        """Yield the entries ``[first, end)``, and perhaps some before them.

        Args:
            first: the first entry, inclusive.
            end: the entry to stop at, exclusive.
            within: where they lie, perhaps with others; None if that isn't known.

        Raises:
            SegmentUnreadableError: the object is damaged, or doesn't answer.
            DataLossError: it is gone.
        """


def threads_for(system: fs.FileSystem) -> int:
    """Return how many objects are looked at at once: a store takes its time for each answer."""
    return _LOCAL_THREADS if isinstance(system, fs.LocalFileSystem) else _REMOTE_THREADS


def joined(parts: list[tuple[bytes, int]], places: list[int], first: int) -> RawEntries:
    """Return entries that lie in bytes of their own, each from an offset on, as one run."""
    data = np.frombuffer(b"".join(part for part, _ in parts), np.uint8)
    ends = np.cumsum(np.array([len(part) for part, _ in parts], np.int64))
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1])) + np.array([skip for _, skip in parts], np.int64)
    return RawEntries(data, first, starts, ends, np.array(places, np.int64), np.zeros(len(places), np.int64))


def damaged(uri: str, what: str) -> SegmentUnreadableError:
    """Return the error for an object that isn't what Pulsar writes."""
    return SegmentUnreadableError(
        f"{uri} is damaged: {what}.", "Copy the object anew, or read a range that leaves the ledger out."
    )


class ObjectFile:
    """One object that is read by ranges; it is opened at the first one, in each process."""

    def __init__(self, system: fs.FileSystem, path: str) -> None:
        self._system = system
        self.uri = path
        self._file: pa.NativeFile | None = None
        self._process = 0

    def read(self, start: int, size: int) -> bytes:
        """Return bytes of the object; fewer, if it ends there."""
        try:
            if self._file is None or self._process != os.getpid():
                self._file, self._process = self._system.open_input_file(self.uri), os.getpid()
            return bytes(self._file.read_at(size, start))
        except FileNotFoundError:
            raise gone(self.uri) from None
        except (OSError, pa.ArrowException) as error:
            if self._is_gone():
                raise gone(self.uri) from None
            raise SegmentUnreadableError(
                f"{self.uri} can't be read: {reason(error)}.", "Check the store and its credentials, then try again."
            ) from None

    def pieces(self, start: int, end: int, size: int) -> Iterator[bytes]:
        """Yield the bytes ``[start, end)`` in pieces of a size; a store is asked for the next ones meanwhile.

        The last piece is shorter, also where the object ends before ``end``.
        """
        ranges = iter([(at, min(size, end - at)) for at in range(start, end, size)])
        if isinstance(self._system, fs.LocalFileSystem) or end - start <= size:
            for at, length in ranges:
                yield self.read(at, length)
            return
        with ThreadPoolExecutor(_AHEAD) as pool:
            asked = deque(pool.submit(self.read, *piece) for piece in itertools.islice(ranges, _AHEAD))
            try:
                while asked:
                    yield asked.popleft().result()
                    asked.extend(pool.submit(self.read, *piece) for piece in itertools.islice(ranges, 1))
            finally:
                for piece in asked:
                    piece.cancel()

    def _is_gone(self) -> bool:
        try:
            return bool(self._system.get_file_info(self.uri).type is fs.FileType.NotFound)
        except (OSError, pa.ArrowException):
            return False


def gone(uri: str) -> DataLossError:
    """Return the error for an object that was there when the log was opened."""
    return DataLossError(
        f"{uri} is gone: Pulsar has deleted the ledger, or somebody else its object.",
        "Open the log anew, and begin where it begins now.",
    )
