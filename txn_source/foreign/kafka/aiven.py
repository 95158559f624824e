"""Remote segments as Aiven's plugin for tiered storage lays them out: chunks, each compressed, and a manifest.

The manifest says where each chunk lies in the object. The other files of the segment are one object, end to end.
What is encrypted is refused: its key is in none of the files.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs

from txn_source.foreign.kafka.segments import (
    INDEX,
    LEADER_EPOCHS,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    LogBytes,
    not_readable,
    read_file,
)
from txn_source.model.errors import LogVersionError, SegmentUnreadableError

_VERSION = "1"
_NAMES = {
    INDEX: "offset",
    TIME_INDEX: "timestamp",
    SNAPSHOT: "producerSnapshot",
    TXN_INDEX: "transaction",
    LEADER_EPOCHS: "leaderEpoch",
}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a manifest says of a segment."""

    chunk_bytes: int
    """Of the log that one chunk holds; the last holds what is left."""
    log_bytes: int
    stored: list[int]
    """Where each chunk begins in the object, and where the last one ends."""
    compressed: bool
    indexes: dict[str, tuple[int, int]]
    """Position and size of each other file, by our kinds."""

    @classmethod
    def parse(cls, data: bytes, place: str) -> Manifest:
        """Read a manifest.

        Raises:
            LogVersionError: it is of a version that isn't known, or the segment is encrypted.
            SegmentUnreadableError: it isn't whole.
        """
        try:
            values = json.loads(data)
            if values["version"] != _VERSION:
                raise LogVersionError(f"{place} is of version {values['version']!r}; 1 is known.", "Update txnlog.")
            if values.get("encryption") is not None:
                raise LogVersionError(
                    f"The segment of {place} is encrypted, and its key is known to its brokers alone.",
                    "Read the topic from a broker's log directory, or copy it with a consumer.",
                )
            chunks = values["chunkIndex"]
            size, total = int(chunks["originalChunkSize"]), int(chunks["originalFileSize"])
            stored = list(accumulate(_stored_sizes(chunks, size, total), initial=0))
            places = values.get("segmentIndexes") or {}  # older releases keep them apart
            found = {kind: places.get(name) for kind, name in _NAMES.items()}
            indexes = {kind: (int(at["position"]), int(at["size"])) for kind, at in found.items() if at is not None}
            if size < 1 or total < 0 or len(stored) - 1 != -(-total // size):
                raise ValueError("its chunks don't make up its segment")
            return cls(size, total, stored, bool(values["compression"]), indexes)
        except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
            raise SegmentUnreadableError(
                f"{place} is no manifest of a segment: {error!r}.", "Restore it from a backup."
            ) from None


def _stored_sizes(chunks: dict[str, Any], size: int, total: int) -> list[int]:
    if chunks["type"] == "fixed":
        count = -(-total // size)
        return [int(chunks["transformedChunkSize"])] * (count - 1) + [int(chunks["finalTransformedChunkSize"])] * (
            count > 0
        )
    if chunks["type"] != "variable":
        raise ValueError(f"chunks of type {chunks['type']!r}")
    data = base64.b64decode(chunks["transformedChunks"])
    return decode_sizes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())


def decode_sizes(data: bytes) -> list[int]:
    """Return sizes from the plugin's form: a count, the smallest, bytes for each above it, and the last in full."""
    count = _int(data, 0, 4)
    if count < 2:
        return [_int(data, 4, 4)] if count else []
    smallest, width = _int(data, 4, 4), data[8]
    sizes = [smallest + _int(data, 9 + index * width, width) for index in range(count - 1)]
    return [*sizes, _int(data, 9 + (count - 1) * width, 4)]


def _int(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise ValueError("the sizes of its chunks are cut off")
    return int.from_bytes(data[at : at + size], "big")


@dataclass(frozen=True)
class AivenFiles:
    """The objects of a segment."""

    system: fs.FileSystem
    place: str
    manifest_path: str
    indexes_path: str | None
    sparse: bool = False

    @cached_property
    def manifest(self) -> Manifest:
        data = read_file(self.system, self.manifest_path)
        if data is None:
            raise FileNotFoundError(self.manifest_path)
        return Manifest.parse(data, self.manifest_path)

    def open_log(self) -> LogBytes:
        return _ChunkedLog(self.system.open_input_file(self.place), self.manifest, self.place)

    def small(self, kind: str) -> bytes | None:
        try:
            where = self.manifest.indexes.get(kind)
            if where is None or self.indexes_path is None:
                return None
            with self.system.open_input_file(self.indexes_path) as file:
                data: bytes = file.read_at(where[1], where[0])
                return data
        except FileNotFoundError:
            return None
        except OSError as error:
            raise not_readable(self.indexes_path or self.manifest_path, error) from None


class _ChunkedLog:
    """Gives the bytes of the log, as if they lay in one file; the last chunk is kept."""

    def __init__(self, file: pa.NativeFile, manifest: Manifest, place: str) -> None:
        self._file = file
        self._manifest = manifest
        self._place = place
        self._kept: tuple[int, bytes] = (-1, b"")
        self.size = manifest.log_bytes

    def read_at(self, position: int, count: int) -> bytes:
        end = min(position + count, self.size)
        if position >= end:
            return b""
        size = self._manifest.chunk_bytes
        parts = []
        for index in range(position // size, -(-end // size)):
            chunk = self._chunk(index)
            parts.append(chunk[max(position - index * size, 0) : end - index * size])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _chunk(self, index: int) -> bytes:
        if self._kept[0] != index:
            begin, end = self._manifest.stored[index : index + 2]
            data: bytes = self._file.read_at(end - begin, begin)
            wanted = min(self._manifest.chunk_bytes, self.size - index * self._manifest.chunk_bytes)
            if self._manifest.compressed:
                try:
                    data = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
                except (OSError, pa.ArrowException) as error:
                    raise self._damaged(index, str(error)) from None
            if len(data) != wanted:
                raise self._damaged(index, f"it has {len(data)} bytes in place of {wanted}")
            self._kept = index, data
        return self._kept[1]

    def _damaged(self, index: int, why: str) -> SegmentUnreadableError:
        return SegmentUnreadableError(
            f"{self._place} is damaged in chunk {index}: {why}.", "Restore the object from a backup."
        )

    def close(self) -> None:
        self._file.close()
