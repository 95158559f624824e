"""Data objects of the jcloud offloader: blocks of entries, read by range from their index."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from txn_source.foreign.pulsar.ledger_index import Block, LedgerIndex
from txn_source.foreign.pulsar.raw_entries import PIECE_BYTES, ObjectFile, RawEntries, damaged

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

    def read(self, first: int, end: int, begin: tuple[int, int] | None = None) -> Iterator[RawEntries]:
        """Yield the entries ``[first, end)``, and perhaps some before them; see ``EntrySource``."""
        for block in self._index.blocks:
            if block.first + block.entries <= first or block.first >= end:
                continue
            if begin is not None and block.start < begin[1] < block.end:
                yield from self._entries(block, begin[0], min(end, block.first + block.entries), begin[1])
            else:
                self._check(block)
                start = block.start + self._index.header_bytes
                yield from self._entries(block, block.first, min(end, block.first + block.entries), start)

    def _check(self, block: Block) -> None:
        """Raise unless a block's header is the one that the index announces."""
        data = self._file.read(block.start, _HEADER.size)
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

    def _entries(self, block: Block, first: int, end: int, start: int) -> Iterator[RawEntries]:
        """Yield the entries ``[first, end)`` of a block, of which the first begins at a byte of the object."""
        entry, at, wanted = first, start, PIECE_BYTES
        while entry < end:
            data = self._file.read(at, min(wanted, block.end - at))
            starts, ends = [], []
            offset = 0
            wanted = PIECE_BYTES
            while entry < end and offset + _ENTRY.size <= len(data):
                size, found = _ENTRY.unpack_from(data, offset)
                if found != entry or size < 0:
                    what = f"entry {found} of {size} bytes" if size >= 0 else "filler"
                    raise damaged(self.uri, f"it has {what} at byte {at + offset}, where entry {entry} should be")
                if offset + _ENTRY.size + size > len(data):
                    wanted = max(wanted, _ENTRY.size + size)
                    break
                starts.append(offset + _ENTRY.size)
                offset += _ENTRY.size + size
                ends.append(offset)
                entry += 1
            if not starts:
                if wanted > len(data) and at + wanted <= block.end and len(data) >= min(PIECE_BYTES, block.end - at):
                    continue
                raise damaged(self.uri, f"it is cut in entry {entry}, which begins at byte {at}")
            begins = np.array(starts, np.int64)
            yield RawEntries(
                np.frombuffer(data, np.uint8),
                entry - len(starts),
                begins,
                np.array(ends, np.int64),
                begins - _ENTRY.size + at,
            )
            at += offset
        if entry == block.first + block.entries:
            self._check_end(block, at)

    def _check_end(self, block: Block, at: int) -> None:
        """Raise if something else than filler lies behind the last entry of a block: the index may be damaged."""
        left = min(len(_FILLER), block.end - at)
        if self._file.read(at, left) != _FILLER[:left]:
            raise damaged(self.uri, f"it has more at byte {at}, behind the last entry that its index has for the block")
