"""Entries looked into: checksums, and the metadata that a whole entry has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from crc32c import crc32c

from txn_source.foreign.pulsar import wire
from txn_source.foreign.pulsar.raw_entries import RawEntries
from txn_source.foreign.pulsar.wire import BYTES, NUMBER, REPEATED, Fields, big_endian
from txn_source.model.errors import LogVersionError, SegmentUnreadableError
from txn_source.model.position import Position, key_of
from txn_source.model.visibility import NO_TXN, BoolArray, IntArray

PRODUCER, SEQUENCE, PUBLISH_TIME, PROPERTIES, REPLICATED_FROM, KEY = 1, 2, 3, 4, 5, 6
COMPRESSION, UNCOMPRESSED_SIZE, MESSAGES, EVENT_TIME = 8, 9, 11, 12
ENCRYPTION_KEYS, SCHEMA_VERSION, KEY_IS_BASE64, ORDERING_KEY = 13, 16, 17, 18
DELIVER_AT, MARKER, TXN_LEAST, TXN_MOST, NULL_VALUE = 19, 20, 22, 23, 25
UUID, CHUNKS, CHUNKED_SIZE, CHUNK, NULL_KEY = 26, 27, 28, 29, 30
_KINDS = {
    **dict.fromkeys((PRODUCER, REPLICATED_FROM, KEY, SCHEMA_VERSION, ORDERING_KEY, UUID), BYTES),
    **dict.fromkeys((SEQUENCE, PUBLISH_TIME, COMPRESSION, UNCOMPRESSED_SIZE, MESSAGES, EVENT_TIME), NUMBER),
    **dict.fromkeys(
        (KEY_IS_BASE64, DELIVER_AT, MARKER, TXN_LEAST, TXN_MOST, NULL_VALUE, CHUNKS, CHUNKED_SIZE, CHUNK), NUMBER
    ),
    **dict.fromkeys((NULL_KEY, DELIVER_AT), NUMBER),
    **dict.fromkeys((PROPERTIES, ENCRYPTION_KEYS), REPEATED),
}
BROKER_TIME, BROKER_INDEX = 1, 2
_BROKER_KINDS = {BROKER_TIME: NUMBER, BROKER_INDEX: NUMBER}
_BROKER_MAGIC, _CHECKSUM_MAGIC = 0x0E02, 0x0E01
COMMIT, ABORT = 21, 22
"""Types of the markers that end a transaction; there are others, which end nothing."""
_LEAST_BITS, _MOST_BITS = 47, 16
_MAX_MESSAGES = 1 << 24


@dataclass(frozen=True, slots=True)
class Entries:
    """Neighbouring entries of one ledger, an item an entry: ``metadata`` lies at ``heads``, payload at ``bodies``.

    ``txns`` are numbers of transactions (``txn_number``), ``markers`` is true for what a broker wrote for itself, and
    ``messages`` how many there are in the entry, 0 in a marker.
    """

    raw: RawEntries
    uri: str
    ledger_id: int
    keys: IntArray
    metadata: Fields
    broker: Fields
    heads: IntArray
    bodies: IntArray
    txns: IntArray
    markers: BoolArray
    batches: BoolArray
    messages: IntArray

    def __len__(self) -> int:
        return len(self.keys)

    def unreadable(self, at: int, what: str) -> SegmentUnreadableError:
        """Return the error for one of the entries."""
        return unreadable(self.uri, self.ledger_id, self.raw, at, what)

    def encrypted(self) -> BoolArray:
        """Return which entries' payloads are encrypted."""
        found = np.zeros(len(self), np.bool_)
        found[self.metadata.repeated(ENCRYPTION_KEYS)[0]] = True
        return found

    def chunks(self) -> BoolArray:
        """Return which entries are parts of a message only."""
        return (self.metadata.number(CHUNKS) > 1) & ~self.batches & ~self.markers

    def decided(self) -> tuple[BoolArray, BoolArray]:
        """Return which entries commit a transaction, and which abort one."""
        kind = np.where(self.txns != NO_TXN, self.metadata.number(MARKER), 0)
        return kind == COMMIT, kind == ABORT


def txn_number(most: int, least: int) -> int:
    """Return the number that stands for a transaction's id in arrays; ``txn_bits`` is its inverse."""
    return most << _LEAST_BITS | least


def txn_bits(number: int) -> tuple[int, int]:
    """Return the two halves of the id of the transaction with a number."""
    return number >> _LEAST_BITS, number & ((1 << _LEAST_BITS) - 1)


def look_into(raw: RawEntries, uri: str, ledger_id: int) -> Entries:
    """Check entries and decode their metadata.

    Raises:
        SegmentUnreadableError: one has a wrong checksum, or isn't an entry of Pulsar's.
        LogVersionError: a transaction has an id that no coordinator gives.
    """

    def check(sound: BoolArray, what: str) -> None:
        if not sound.all():
            raise unreadable(uri, ledger_id, raw, int(np.argmin(sound)), what)

    data, at, ends = raw.data, raw.starts, raw.ends
    has_broker = (ends - at >= 6) & (big_endian(data, at, 2) == _BROKER_MAGIC)
    broker_starts = np.where(has_broker, at + 6, at)
    broker_ends = np.where(has_broker, broker_starts + big_endian(data, at + 2, 4), at)
    check(broker_ends <= ends, "its broker metadata is cut")
    broker = wire.decode(data, broker_starts, broker_ends, _BROKER_KINDS)
    check(~broker.bad, "its broker metadata can't be parsed")
    at = broker_ends
    summed = (ends - at >= 6) & (big_endian(data, at, 2) == _CHECKSUM_MAGIC)
    sums = big_endian(data, at + 2, 4)
    at = np.where(summed, at + 6, at)
    _check_sums(raw, uri, ledger_id, np.flatnonzero(summed), at, sums)
    heads = at + 4
    check(heads <= ends, "it has no metadata")
    bodies = heads + big_endian(data, at, 4)
    check(bodies <= ends, "its metadata is cut")
    found = wire.decode(data, heads, bodies, _KINDS)
    check(~found.bad, "its metadata can't be parsed")
    check(found.has(PRODUCER) & found.has(SEQUENCE) & found.has(PUBLISH_TIME), "its metadata lacks what each has")
    markers = found.has(MARKER)
    batches = found.has(MESSAGES) & ~markers
    messages = np.where(markers, 0, np.where(batches, found.number(MESSAGES), 1))
    check((messages >= 0) & (messages <= _MAX_MESSAGES), "it has an impossible number of messages")
    keys = key_of(np.full(len(raw), ledger_id, np.int64), np.arange(raw.first, raw.first + len(raw), dtype=np.int64))
    return Entries(
        raw, uri, ledger_id, keys, found, broker, heads, bodies, _txns(found, uri), markers, batches, messages
    )


def unreadable(uri: str, ledger_id: int, raw: RawEntries, at: int, what: str) -> SegmentUnreadableError:
    """Return the error for one of some entries."""
    return SegmentUnreadableError(
        f"Entry {Position(ledger_id, raw.first + at)} in {uri} is damaged: {what}.",
        "Copy the object anew, or read a range that leaves the entry out.",
    )


def _check_sums(raw: RawEntries, uri: str, ledger_id: int, which: IntArray, at: IntArray, sums: IntArray) -> None:
    """Raise unless the checksums of some entries, over all that follows them, are right."""
    view = raw.data.data
    for entry, start, end, wanted in zip(
        which.tolist(), at[which].tolist(), raw.ends[which].tolist(), sums[which].tolist(), strict=True
    ):
        if (found := crc32c(view[start:end])) != wanted:
            what = f"it has checksum {found:08x} where {wanted:08x} was written (CRC-32C)"
            raise unreadable(uri, ledger_id, raw, entry, what)


def _txns(found: Fields, uri: str) -> IntArray:
    """Return the numbers of entries' transactions, ``NO_TXN`` where there is none."""
    inside = found.has(TXN_MOST) & found.has(TXN_LEAST)
    most, least = found.number(TXN_MOST), found.number(TXN_LEAST)
    strange = inside & ((most >> _MOST_BITS != 0) | (least >> _LEAST_BITS != 0))
    if strange.any():
        at = int(np.argmax(strange))
        raise LogVersionError(
            f"{uri} has a transaction with the id ({int(most[at])},{int(least[at])}).",
            f"Only ids below ({1 << _MOST_BITS},{1 << _LEAST_BITS}) can be read.",
        )
    return np.where(inside, most << _LEAST_BITS | least, NO_TXN)
