"""A segment of a partition: where its bytes are, whichever way they are laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

import pyarrow as pa
import pyarrow.fs as fs

from txn_source.model.errors import SegmentUnreadableError

INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT = "index", "timeindex", "txnindex", "snapshot"
LEADER_EPOCHS = "leader_epoch_checkpoint"
_PIECE = 64 << 10


class LogBytes(Protocol):
    """The log of a segment, opened."""

    size: int

    def read_at(self, position: int, count: int) -> bytes:
        """Return so many bytes from a position on, or fewer at the end."""

    def close(self) -> None:
        """Let go of the file."""


class SegmentFiles(Protocol):
    """The files of a segment. Each call raises OSError if the storage refuses, FileNotFoundError if it has gone."""

    @property
    def place(self) -> str:
        """The log's path."""

    @property
    def sparse(self) -> bool:
        """Whether reading little here and there is cheaper than reading all."""

    def open_log(self) -> LogBytes:
        """Open the log."""

    def small(self, kind: str) -> bytes | None:
        """Return a file beside the log; None if there is none."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment; what it has begins at or behind its base offset."""

    base_offset: int
    files: SegmentFiles
    folder: str
    """Where the partition's other segments of the same copy are."""
    remote: bool
    """In the remote tier: it is closed, and its snapshot is the state at its end."""
    size: int
    """Bytes of its log when it was listed."""
    reaches_over: bool = False
    """It is about to take the place of segments behind it, and has what they have."""
    diverges: bool = False
    """On a broker's disk: what it has behind some offset is of a leader that doesn't count."""


class _PlainLog:
    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self.size: int = file.size()

    def read_at(self, position: int, count: int) -> bytes:
        data: bytes = self._file.read_at(min(count, max(self.size - position, 0)), position)
        return data

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class PlainFiles:
    """Files as a broker writes them: one for each kind."""

    system: fs.FileSystem
    place: str
    others: Mapping[str, str]
    """Paths of the files beside the log, by kind."""

    @property
    def sparse(self) -> bool:
        return isinstance(self.system, fs.LocalFileSystem)

    def open_log(self) -> LogBytes:
        return _PlainLog(self.system.open_input_file(self.place))

    def small(self, kind: str) -> bytes | None:
        path = self.others.get(kind)
        if path is None:
            return None
        return read_file(self.system, path, _PIECE if self.sparse and kind in (INDEX, TIME_INDEX) else None)


def read_file(system: fs.FileSystem, path: str, piece: int | None = None) -> bytes | None:
    """Return a whole small file; None if it isn't there.

    ``piece``: it is read in pieces of so many bytes, up to one of zeros: an index that a broker writes has 10 MiB.

    Raises:
        SegmentUnreadableError: the storage refuses.
    """
    try:
        with system.open_input_file(path) as file:
            if piece is not None:
                parts = takewhile(lambda part: part.count(0) < len(part), iter(lambda: bytes(file.read(piece)), b""))
                return b"".join(parts)
            data: bytes = file.read()
            return data
    except FileNotFoundError:
        return None
    except OSError as error:
        raise not_readable(path, error) from None


def not_readable(path: str, error: OSError) -> SegmentUnreadableError:
    """Return the error for a file that the storage doesn't give."""
    return SegmentUnreadableError(f"{path} can't be read: {error}.", "Check that it is there and may be read.")
