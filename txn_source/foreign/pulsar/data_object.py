"""Data objects of the jcloud offloader: blocks of entries, read by range from their index."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from txn_source.foreign.pulsar.ledger_index import Block, LedgerIndex
from txn_source.foreign.pulsar.raw_entries import PIECE_BYTES, ObjectFile, RawEntries, Stretch, damaged

_BLOCK_MAGIC = 0xFBDBABCB
_FILLER = b"\xfe\xdc\xde\xad"
_HEADER = struct.Struct(">Iqqq")
_ENTRY = struct.Struct(">iq")


class DataObject:
    """The entries of a ledger in its data object; places are where entries begin."""

    def __init__(self, file: ObjectFile, index: LedgerIndex) -> None:
        self._file = file
        self._index = index
        self.uri = file.uri
        self.entries = index.ledger.entries
        self.bytes = index.data_bytes

    def read(self, first: int, end: int, within: Stretch | None = None) -> Iterator[RawEntries]:
        """Yield the entries ``[first, end)``, and perhaps some before them; see ``EntrySource``."""
        for block in self._index.blocks:
            if block.first + block.entries <= first or block.first >= end:
                continue
            stop = block.end
            if within is not None and block.start < within.stop < block.end:
                stop = within.stop
            if within is not None and block.start < within.place < block.end:
                yield from self._entries(block, within.entry, min(end, block.first + block.entries), within.place, stop)
            else:
                yield from self._entries(block, block.first, min(end, block.first + block.entries), block.start, stop)

    def _check(self, block: Block, data: bytes) -> None:
        """Raise unless a block begins with the header that the index announces."""
        if len(data) < _HEADER.size:
            raise damaged(self.uri, f"it ends before the block at byte {block.start}")
        magic, header_bytes, length, first = _HEADER.unpack_from(data)
        if magic != _BLOCK_MAGIC:
            raise damaged(self.uri, f"the block at byte {block.start} begins with {magic:08x}, not {_BLOCK_MAGIC:08x}")
        wanted = (self._index.header_bytes, block.end - block.start, block.first)
        if (header_bytes, length, first) != wanted:
            raise damaged(
                self.uri,
                f"the block at byte {block.start} has a header of {header_bytes} bytes, {length} bytes and first entry"
                f" {first}, where its index says {wanted[0]}, {wanted[1]} and {wanted[2]}",
            )

    def _entries(self, block: Block, first: int, end: int, start: int, stop: int) -> Iterator[RawEntries]:
        """Yield the entries ``[first, end)`` of a block, which lie in the bytes ``[start, stop)`` of the object.

        Before the first one lies the header, if they begin with the block.
        """
        entry, at = first, start
        data = b""
        header = self._index.header_bytes if start == block.start else 0
        for piece in self._file.pieces(start, stop, PIECE_BYTES):
            data = data + piece if data else piece
            starts, ends = [], []
            if len(data) < header:
                continue
            if header:
                self._check(block, data)
            offset, header = header, 0
            while entry < end and offset + _ENTRY.size <= len(data):
                size, found = _ENTRY.unpack_from(data, offset)
                if found != entry or size < 0:
                    what = f"entry {found} of {size} bytes" if size >= 0 else "filler"
                    raise damaged(self.uri, f"it has {what} at byte {at + offset}, where entry {entry} should be")
                if offset + _ENTRY.size + size > len(data):
                    break
                starts.append(offset + _ENTRY.size)
                offset += _ENTRY.size + size
                ends.append(offset)
                entry += 1
            if starts:
                array, begins, stops = (
                    np.frombuffer(data, np.uint8),
                    np.array(starts, np.int64),
                    np.array(ends, np.int64),
                )
                yield RawEntries(array, entry - len(starts), begins, stops, begins - _ENTRY.size + at, stops + at)
            at += offset
            data = data[offset:]
            if entry == end:
                break
        if header:
            self._check(block, data)
        if entry < end:
            raise damaged(self.uri, f"it is cut in entry {entry}, which begins at byte {at}")
        if entry == block.first + block.entries:
            self._check_end(block, at, data)

    def _check_end(self, block: Block, at: int, data: bytes) -> None:
        """Raise if something else than filler lies behind the last entry of a block: the index may be damaged.

        Args:
            block: the block.
            at: where its last entry ends.
            data: what is known of the bytes from there on.
        """
        left = min(len(_FILLER), block.end - at)
        if len(data) < left:
            data = self._file.read(at, left)
        if data[:left] != _FILLER[:left]:
            raise damaged(self.uri, f"it has more at byte {at}, behind the last entry that its index has for the block")
