"""Index objects of the jcloud offloader: which ledger an object has, and where its blocks begin."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from txn_source.foreign.pulsar import wire
from txn_source.foreign.pulsar.raw_entries import damaged
from txn_source.model.errors import LogVersionError
from txn_source.model.position import MAX_ENTRY_ID

_MAGIC, _STREAMING_MAGIC = 0xDE47DE47, 0x3D1FB0BC
_HEAD = struct.Struct(">IiqqiI")
_STREAMED_HEAD, _STREAMED_LEDGER = struct.Struct(">Iiqq"), struct.Struct(">qii")
_BLOCK = struct.Struct(">qiq")
_TOPIC_KEY = b"pulsar/managed-ledger"
_LENGTH, _LAST_ENTRY, _STATE, _CUSTOM = 3, 4, 5, 11
_CLOSED = 3


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """What BookKeeper knew of a ledger: its entries, their bytes, and the managed ledger that it belongs to."""

    entries: int
    bytes: int
    managed_ledger: str | None


@dataclass(frozen=True, slots=True)
class Block:
    """A run of entries in a data object, from ``start`` (its header) to ``end``, exclusive, filler included."""

    first: int
    entries: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LedgerIndex:
    """An index object: the ledger's metadata, and the blocks of its data object in their order."""

    ledger: LedgerMetadata
    header_bytes: int
    data_bytes: int
    blocks: tuple[Block, ...]


def parse_metadata(data: bytes, uri: str) -> LedgerMetadata:
    """Return a ledger's metadata from BookKeeper's ``LedgerMetadataFormat``.

    Raises:
        SegmentUnreadableError: it is none, or that of a ledger that wasn't closed.
    """
    fields = wire.fields_of(data)
    numbers = {field: value for field, value in fields or () if isinstance(value, int)}
    last = numbers.get(_LAST_ENTRY)
    if fields is None or last is None:
        raise damaged(uri, "its ledger metadata can't be parsed")
    if (state := numbers.get(_STATE, 0)) != _CLOSED:
        raise damaged(uri, f"its ledger is in state {state}, not closed")
    if not -1 <= last <= MAX_ENTRY_ID:
        raise damaged(uri, f"its ledger's last entry is {last}")
    name = None
    for field, value in fields:
        pair = dict(wire.fields_of(value) or ()) if field == _CUSTOM and isinstance(value, bytes) else {}
        topic = pair.get(2, b"")
        if pair.get(1) == _TOPIC_KEY and isinstance(topic, bytes):
            name = topic.decode(errors="replace")
    return LedgerMetadata(last + 1, max(numbers.get(_LENGTH, 0), 0), name)


def parse_index(data: bytes, uri: str) -> LedgerIndex:
    """Return what an index object says.

    Raises:
        SegmentUnreadableError: it is damaged.
        LogVersionError: it is one of another format.
    """
    if len(data) < _HEAD.size:
        raise damaged(uri, f"it has {len(data)} bytes, too few for an index")
    magic, length, data_bytes, header_bytes, count, metadata_bytes = _HEAD.unpack_from(data)
    if magic == _STREAMING_MAGIC:
        raise LogVersionError(
            f"{uri} was written by Pulsar's streaming offloader.", "Only the ledger-based offloader's can be read."
        )
    if magic != _MAGIC:
        raise damaged(uri, f"it begins with {magic:08x}, not {_MAGIC:08x}")
    if length != len(data) or _HEAD.size + metadata_bytes + count * _BLOCK.size != length or count < 0:
        raise damaged(uri, f"it has {len(data)} bytes, and says {length}, with {count} blocks")
    metadata = parse_metadata(data[_HEAD.size : _HEAD.size + metadata_bytes], uri)
    entries = list(_BLOCK.iter_unpack(data[_HEAD.size + metadata_bytes :]))
    firsts = [first for first, _, _ in entries]
    starts = [start for _, _, start in entries]
    ends, stops = [*starts[1:], data_bytes], [*firsts[1:], metadata.entries]
    blocks = tuple(
        Block(first, stop - first, start, end)
        for first, stop, start, end in zip(firsts, stops, starts, ends, strict=True)
    )
    whole = all(block.entries > 0 and block.start + header_bytes <= block.end for block in blocks)
    if header_bytes < 28 or not whole or firsts[:1] != [0][: len(blocks)] or starts[:1] != [0][: len(blocks)]:
        raise damaged(uri, "its blocks don't follow each other")
    if not blocks and metadata.entries:
        raise damaged(uri, f"it has no blocks for {metadata.entries} entries")
    return LedgerIndex(metadata, header_bytes, data_bytes, blocks)


def streamed_ledgers(data: bytes) -> list[int]:
    """Return the ledgers that an index of the streaming offloader names; none, if the data is something else."""
    found: list[int] = []
    if len(data) < _STREAMED_HEAD.size or _STREAMED_HEAD.unpack_from(data)[0] != _STREAMING_MAGIC:
        return found
    at = _STREAMED_HEAD.size
    while at + _STREAMED_LEDGER.size <= len(data):
        ledger, count, metadata_bytes = _STREAMED_LEDGER.unpack_from(data, at)
        if ledger < 0 or count < 0 or metadata_bytes < 0:
            break
        found.append(ledger)
        at += _STREAMED_LEDGER.size + metadata_bytes + count * _BLOCK.size
    return found
