"""Hadoop's MapFiles, as the filesystem offloader writes them: a SequenceFile of ``LongWritable`` to ``BytesWritable``.

A SequenceFile has a header, and then records one by one (with values compressed by themselves or not), or blocks of
them, in which the lengths of keys, keys, lengths of values, and values are compressed each as a whole. Before each
block, and now and then before a record, stands an escape and 16 bytes that are the file's own, its sync marker.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.fs as fs

from txn_source.foreign.pulsar.ledger_index import LedgerMetadata, parse_metadata
from txn_source.foreign.pulsar.raw_entries import PIECE_BYTES, ObjectFile, RawEntries, Stretch, damaged, joined
from txn_source.model.errors import LogVersionError, SegmentUnreadableError
from txn_source.storage.untrusted import most_bytes

_KEY, _VALUE = b"org.apache.hadoop.io.LongWritable", b"org.apache.hadoop.io.BytesWritable"
_ZLIB_CODECS = {b"org.apache.hadoop.io.compress.DefaultCodec": 15, b"org.apache.hadoop.io.compress.DeflateCodec": 15}
_GZIP_CODECS = {b"org.apache.hadoop.io.compress.GzipCodec": 31}
_CODECS = _ZLIB_CODECS | _GZIP_CODECS
_METADATA_KEY = -1
_ESCAPE = -1
_HEADER_BYTES = 64 << 10
"""So much is read to learn which ledger a file has."""


class UnfinishedError(SegmentUnreadableError):
    """A MapFile ends too early: it is being written, or its end was cut off."""


class _Cursor:
    """Reads a file of a size from a byte on, in pieces."""

    def __init__(self, file: ObjectFile, at: int, size: int, piece: int) -> None:
        self._file, self._at, self._size, self._piece = file, at, size, piece
        self._data, self._offset = b"", 0

    @property
    def at(self) -> int:
        """The byte that is read next."""
        return self._at + self._offset

    @property
    def ended(self) -> bool:
        """True at the file's end."""
        return self.at >= self._size

    def take(self, size: int) -> bytes:
        """Return so many bytes."""
        if size < 0 or self.at + size > self._size:
            if size < 0:
                raise damaged(self._file.uri, f"it has a length of {size} before byte {self.at}")
            raise _cut(self._file.uri, f"it is cut: {size} bytes are missing at byte {self.at} of {self._size}")
        if self._offset + size > len(self._data):
            self._at, self._offset = self.at, 0
            self._data = self._file.read(self._at, max(size, min(self._piece, self._size - self._at)))
            if len(self._data) < size:
                raise damaged(self._file.uri, f"it ends at byte {self._at + len(self._data)}")
        self._offset += size
        return self._data[self._offset - size : self._offset]

    def int32(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def vlong(self) -> int:
        """Return one of Hadoop's integers of variable length."""
        first = struct.unpack("b", self.take(1))[0]
        if first >= -112:
            return int(first)
        negative = first < -120
        value = int.from_bytes(self.take(-(first + (120 if negative else 112))), "big")
        return ~value if negative else value

    def text(self) -> bytes:
        return self.take(self.vlong())


class MapFile:
    """The entries of a ledger in a MapFile's data; places are where a sync marker, or the first record, begins."""

    def __init__(self, file: ObjectFile, size: int) -> None:
        self._file = file
        self.uri = file.uri
        self.bytes = size
        cursor = _Cursor(file, 0, size, _HEADER_BYTES)
        header = _header(cursor, self.uri, _VALUE)
        self._compressed, self._blocks, self._codec, self._sync = header
        self._start = cursor.at
        self.ledger = self._metadata()
        self.entries = self.ledger.entries

    def _metadata(self) -> LedgerMetadata:
        for _, keys, values in self._records(self._start, _HEADER_BYTES):
            if _METADATA_KEY in keys:
                return parse_metadata(values[keys.index(_METADATA_KEY)], self.uri)
            break
        else:
            raise _cut(self.uri, "it ends before the ledger's metadata")
        raise damaged(self.uri, "it doesn't begin with the ledger's metadata")

    def read(self, first: int, end: int, within: Stretch | None = None) -> Iterator[RawEntries]:
        """Yield the entries ``[first, end)``, and perhaps some before them; see ``EntrySource``."""
        entry: int | None = 0 if within is None else None
        parts: list[tuple[bytes, int]] = []
        places: list[int] = []
        size = 0
        records = self._records(self._start if within is None else within.place)
        for at, keys, values in records:
            for key, value in zip(keys, values, strict=True):
                if key == _METADATA_KEY:
                    continue
                if entry is None:
                    entry = key
                if key != entry or not 0 <= key < self.entries:
                    raise damaged(self.uri, f"it has entry {key} where entry {entry} should be, at byte {at}")
                entry += 1
                if key < first or key >= end:
                    continue
                parts.append((value, 0))
                places.append(at)
                size += len(value)
            reached = 0 if entry is None else min(entry, end)
            if parts and (size >= PIECE_BYTES or reached == end):
                yield joined(parts, places, reached - len(parts))
                parts, places, size = [], [], 0
            if reached == end:
                if entry == self.entries and next(records, None) is not None:
                    raise damaged(self.uri, f"it has more than the {self.entries} entries that it says")
                return
        raise _cut(self.uri, f"it ends before entry {entry or 0} of {self.entries}")

    def _records(self, at: int, piece: int = 0) -> Iterator[tuple[int, list[int], list[bytes]]]:
        """Yield records from a place on: where one may begin to read for them, keys and values."""
        cursor = _Cursor(self._file, at, self.bytes, piece or PIECE_BYTES)
        place = at
        while not cursor.ended:
            begin = cursor.at
            size = cursor.int32()
            if size == _ESCAPE:
                if cursor.take(16) != self._sync:
                    raise damaged(self.uri, f"it has no sync marker at byte {begin}")
                place = begin
                if self._blocks:
                    yield place, *self._block(cursor)
            elif self._blocks:
                raise damaged(self.uri, f"no block begins at byte {begin}")
            else:
                key_bytes = cursor.int32()
                if key_bytes != 8 or size < key_bytes:
                    raise damaged(self.uri, f"a record at byte {begin} has a key of {key_bytes} bytes")
                key = struct.unpack(">q", cursor.take(8))[0]
                value = cursor.take(size - key_bytes)
                yield place, [key], [self._bare(self._inflated(value) if self._compressed else value)]

    def _block(self, cursor: _Cursor) -> tuple[list[int], list[bytes]]:
        """Return keys and values of a block of records."""
        count = cursor.vlong()
        _, keys, value_sizes, values = (self._inflated(cursor.text()) for _ in range(4))
        if count < 0 or len(keys) != 8 * count:
            raise damaged(self.uri, f"a block before byte {cursor.at} has {len(keys)} bytes of keys for {count}")
        sizes = _vlongs(value_sizes, count)
        if sizes is None or sum(sizes) != len(values) or min(sizes, default=4) < 4:
            raise damaged(self.uri, f"a block before byte {cursor.at} has lengths that don't fit its values")
        ends = np.cumsum(np.array(sizes, np.int64)).tolist()
        return (
            list(struct.unpack(f">{count}q", keys)),
            [self._bare(values[end - size : end]) for size, end in zip(sizes, ends, strict=True)],
        )

    def _bare(self, value: bytes) -> bytes:
        """Return the bytes of a ``BytesWritable``."""
        if len(value) < 4 or int.from_bytes(value[:4], "big") != len(value) - 4:
            raise damaged(self.uri, f"a value of {len(value)} bytes doesn't have its length")
        return value[4:]

    def _inflated(self, data: bytes) -> bytes:
        most, stream = most_bytes(len(data)), zlib.decompressobj(self._codec)
        try:
            found = stream.decompress(data, most + 1)
        except zlib.error as error:
            raise damaged(self.uri, f"what is compressed can't be decompressed ({error})") from None
        if not stream.eof or len(found) > most:
            raise damaged(self.uri, f"what is compressed is cut off, or has more than {most} bytes")
        return found


def is_unfinished(system: fs.FileSystem, data: str) -> bool:
    """True if the index beside a MapFile's data has no records yet: they are written when the file is closed."""
    path = f"{data.rpartition('/')[0]}/index"
    try:
        info = system.get_file_info(path)
        if info.type is not fs.FileType.File:
            return False
        cursor = _Cursor(ObjectFile(system, path), 0, info.size, _HEADER_BYTES)
        _header(cursor, path, _KEY)
        return cursor.ended
    except UnfinishedError:
        return True
    except (SegmentUnreadableError, LogVersionError, OSError, pa.ArrowException):
        return False


def _header(cursor: _Cursor, uri: str, value: bytes) -> tuple[bool, bool, int, bytes]:
    """Take a SequenceFile's header: whether it is compressed, and by blocks, zlib's window bits, its sync marker."""
    magic = cursor.take(4)
    if magic[:3] != b"SEQ":
        raise damaged(uri, "it isn't a SequenceFile")
    if magic[3] != 6:
        raise LogVersionError(f"{uri} is a SequenceFile of version {magic[3]}.", "Only version 6 can be read.")
    classes = cursor.text(), cursor.text()
    if classes != (_KEY, value):
        raise damaged(uri, f"it has {classes[0]!r} and {classes[1]!r}, not an offloaded ledger")
    compressed, blocks = cursor.take(1) != b"\0", cursor.take(1) != b"\0"
    codec = 0
    if compressed:
        name = cursor.text()
        if name not in _CODECS:
            raise LogVersionError(
                f"{uri} is compressed by {name.decode(errors='replace')}.",
                "Only DefaultCodec, DeflateCodec and GzipCodec can be read.",
            )
        codec = _CODECS[name]
    for _ in range(2 * cursor.int32()):
        cursor.text()
    return compressed, blocks, codec, cursor.take(16)


def _cut(uri: str, what: str) -> UnfinishedError:
    return UnfinishedError(
        f"{uri} is damaged: {what}.",
        "Wait until Pulsar has written it, copy it anew, or read a range that leaves the ledger out.",
    )


def _vlongs(data: bytes, count: int) -> list[int] | None:
    """Return so many of Hadoop's integers of variable length, none negative; None if the data has others."""
    found: list[int] = []
    at = 0
    while at < len(data) and len(found) < count:
        first = data[at] - 256 if data[at] > 127 else data[at]
        if first >= -112:
            found.append(first)
            at += 1
            continue
        size = -(first + 112)
        if size > 8 or at + 1 + size > len(data):
            return None
        found.append(int.from_bytes(data[at + 1 : at + 1 + size], "big"))
        at += 1 + size
    return found if len(found) == count and at == len(data) and min(found, default=0) >= 0 else None
