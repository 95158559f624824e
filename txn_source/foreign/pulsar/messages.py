"""Messages of entries as Arrow batches: payloads decompressed, batches taken apart, no object for each message."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txn_source.foreign.foreign_log import TransactionSpans
from txn_source.foreign.pulsar import batches, wire
from txn_source.foreign.pulsar import entries as of
from txn_source.foreign.pulsar.avro_values import spread
from txn_source.foreign.pulsar.columns import (
    bits,
    columns_schema,
    from_base64,
    maps,
    numbers,
    slices,
    taken,
    texts,
    truths,
)
from txn_source.foreign.pulsar.entries import Entries
from txn_source.foreign.pulsar.payloads import Chunked, Group, load, no_payloads
from txn_source.foreign.pulsar.value_schema import Decode, TopicSchema
from txn_source.foreign.pulsar.wire import Fields
from txn_source.model.errors import InvalidArgumentError, MessageUnreadableError, SchemaMismatchError
from txn_source.model.position import Position, entry_of, ledger_of
from txn_source.model.transaction import TxnId
from txn_source.model.visibility import NO_TXN, BoolArray, IntArray, hidden
from txn_source.reading.places import Inside

TARGET_ROWS = 65_536
TARGET_BYTES = 16 << 20
_OF_MESSAGES = ("key", "__key_is_base64", "__ordering_key", "__properties", "__event_time", "__sequence_id")
"""Columns that a batch has in its payload, and a single message in its entry's metadata."""
_MAX_MS = (1 << 63) // 1000 - 1


@dataclass(frozen=True, slots=True)
class Decoder:
    """Makes batches of columns from entries.

    Args:
        schema: the columns.
        aborted: numbers of the transactions that are aborted, of those in the entries.
        undecided: those that are open, and from where on: what lies before is committed.
        keep_encrypted: give an encrypted entry as one message with its payload as it is; else it is refused.
        typed: the topic's schema, where keys and values are not bytes.
    """

    schema: pa.Schema
    aborted: IntArray
    undecided: TransactionSpans
    keep_encrypted: bool = False
    typed: TopicSchema | None = None

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        aborted: IntArray | None = None,
        undecided: TransactionSpans | None = None,
        *,
        keep_encrypted: bool = False,
        typed: TopicSchema | None = None,
    ) -> Decoder:
        """Return the decoder for columns by their names."""
        return cls(
            columns_schema(tuple(columns), typed.types() if typed else {}),
            np.zeros(0, np.int64) if aborted is None else aborted,
            TransactionSpans.none() if undecided is None else undecided,
            keep_encrypted,
            typed,
        )

    def batches(
        self, found: Entries, seen: BoolArray, chunked: Mapping[int, Chunked], inside: Inside | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the entries that are seen, in their order.

        Args:
            found: the entries.
            seen: which of them; no markers, and of chunked messages only last chunks in ``chunked``.
            chunked: by the index of the last chunk's entry, what comes before it.
            inside: which of the entries are there in part.

        Raises:
            SegmentUnreadableError: an entry is damaged.
            InvalidArgumentError: one is encrypted, and those are refused, or it is to be there in part.
        """
        which = np.flatnonzero(seen)
        if not len(which):
            return
        encrypted = found.encrypted()
        if not self.keep_encrypted and encrypted[which].any():
            raise _refused(found, int(which[np.argmax(encrypted[which])]))
        for edge in (inside.start, inside.end) if inside is not None else ():
            if edge is not None and (encrypted & found.batches & seen & (found.keys == edge.position.key)).any():
                raise InvalidArgumentError(
                    f"Entry {edge.position} in {found.uri} is encrypted by its producer, so no read starts or ends"
                    " inside it.",
                    f"Use {edge.position} for the entry with all of its messages, or {edge.position.plus(1)} for the"
                    " next.",
                )
        raw_sizes = found.raw.ends[which] - found.heads[which]
        sizes = np.where(
            encrypted[which],
            raw_sizes,
            np.maximum(raw_sizes, found.metadata.number(of.UNCOMPRESSED_SIZE)[which] & 0xFFFFFFFF),
        )
        rows = np.where(encrypted, 1, found.messages)[which]
        bytes_to, rows_to = np.cumsum(sizes), np.cumsum(rows)
        at = 0
        while at < len(which):
            bytes_before, rows_before = int(bytes_to[at] - sizes[at]), int(rows_to[at] - rows[at])
            end = min(
                int(np.searchsorted(bytes_to, bytes_before + TARGET_BYTES, "right")),
                int(np.searchsorted(rows_to, rows_before + TARGET_ROWS, "right")),
            )
            end = max(end, at + 1)
            batch = _Group(self, found, which[at:end], encrypted, chunked, inside).batch()
            if batch.num_rows:
                yield batch
            at = end


class _Group:
    """Entries that become one batch."""

    def __init__(
        self,
        decoder: Decoder,
        found: Entries,
        which: IntArray,
        encrypted: BoolArray,
        chunked: Mapping[int, Chunked],
        inside: Inside | None,
    ) -> None:
        self._decoder = decoder
        self._found = found
        self._which = which
        self._encrypted = encrypted
        self._chunked = chunked
        self._inside = inside
        self._in_batch = found.batches[which] & ~encrypted[which]
        self._counts = np.where(self._in_batch, found.messages[which], 1)
        names = set(decoder.schema.names)
        self._payloads = no_payloads(len(which))
        if not names.isdisjoint((*_OF_MESSAGES, "value")):
            group = Group(found, which, self._in_batch, encrypted[which])
            self._payloads = load(group, chunked, metadata=not names.isdisjoint(_OF_MESSAGES), values="value" in names)
        self._data = self._payloads.data
        self._batched = self._payloads.batched
        self._entries = np.repeat(which, self._counts)
        """Of each row, its entry."""
        firsts = np.cumsum(self._counts) - self._counts
        self._places = np.arange(len(self._entries)) - np.repeat(firsts, self._counts)
        """Of each row, its index in the entry."""
        self._is_batched = np.repeat(self._in_batch, self._counts)
        self._mixed = not (self._in_batch.all() or not self._in_batch.any())

    def batch(self) -> pa.RecordBatch:
        """Return the columns that are asked for."""
        schema = self._decoder.schema
        made = [self._column(name) for name in schema.names]
        if not made:
            empty = pa.StructArray.from_buffers(pa.struct([]), len(self._entries), [None])
            return pa.RecordBatch.from_struct_array(empty)
        batch = pa.RecordBatch.from_arrays(made, schema=schema)
        kept = self._kept()
        return batch if kept is None else batch.filter(truths(kept))

    def _kept(self) -> BoolArray | None:
        """Return which messages are read, of those that compaction has left in their batches; None if all are."""
        kept = np.ones(len(self._entries), np.bool_)
        if self._batched is not None:
            kept[self._is_batched] = self._batched.metadata.number(batches.COMPACTED_OUT) == 0
        if self._inside is not None:
            kept &= self._is_inside(self._inside)
        return None if kept.all() else kept

    def _is_inside(self, inside: Inside) -> BoolArray:
        """Return which messages lie at or behind a range's start, and before its end."""
        keys = self._found.keys[self._entries]
        outside = np.zeros(len(keys), np.bool_)
        if inside.start is not None:
            outside |= (keys == inside.start.position.key) & (self._places < inside.start.batch_index)
        if inside.end is not None:
            outside |= (keys == inside.end.position.key) & (self._places >= inside.end.batch_index)
        return ~outside

    def _column(self, name: str) -> pa.Array:
        return getattr(self, f"_made_{name.removeprefix('__')}")()

    def _merged(self, single: IntArray, batched: IntArray) -> IntArray:
        """Return a value for each row, from one for each entry and one for each message of batches."""
        if self._batched is None:
            return single[self._entries]
        if not self._mixed:
            return batched
        values = single[self._entries]
        values[self._is_batched] = batched
        return values

    def _number(self, single: int, batched: int, *, inherited: bool = True) -> IntArray:
        """Return a number for each row.

        Args:
            single: the field of an entry's metadata.
            batched: that of a message's in a batch.
            inherited: what a message in a batch lacks is the entry's, as for Pulsar's clients.
        """
        own = self._found.metadata.number(single)
        if self._batched is None:
            return own[self._entries]
        metadata = self._batched.metadata
        given = metadata.number(batched)
        if inherited and own.any() and not (has := metadata.has(batched)).all():
            given = np.where(has, given, own[self._entries[self._is_batched]])
        return self._merged(own, given)

    def _flag(self, single: int, batched: int, *, inherited: bool = True) -> BoolArray:
        return np.asarray(self._number(single, batched, inherited=inherited) != 0)

    def _shift(self) -> IntArray:
        """Return, by entry, how far its metadata lies in the data from where it lies in the entries' bytes."""
        shift = np.zeros(len(self._found), np.int64)
        shift[self._which] = self._payloads.heads - self._found.heads[self._which]
        return shift

    def _bytes(self, single: int, batched: int, absent: BoolArray | None = None) -> tuple[pa.Array, BoolArray]:
        """Return a field of bytes for each row, and which rows have it."""
        metadata, batch = self._found.metadata, None if self._batched is None else self._batched.metadata
        starts, ends = (part + self._shift() for part in metadata.slices(single))
        none = np.zeros(0, np.int64)
        batch_starts, batch_ends = (none, none) if batch is None else batch.slices(batched)
        in_batch = none if batch is None else batch.has(batched).astype(np.int64)
        valid = np.asarray(self._merged(metadata.has(single).astype(np.int64), in_batch) != 0)
        if absent is not None:
            valid = valid & ~absent
        return slices(self._data, self._merged(starts, batch_starts), self._merged(ends, batch_ends), valid), valid

    def _typed(self, name: str, raw: pa.Array, decode: Decode) -> pa.Array:
        """Return keys or values by the topic's schema.

        Raises:
            MessageUnreadableError: one isn't of the schema, and that isn't to be null.
            SchemaMismatchError: a version of the schema isn't known.
        """
        kept = self._kept()
        if kept is not None:
            raw = spread(taken(raw, np.flatnonzero(kept)), np.flatnonzero(kept), len(raw))
        try:
            found, bad = decode(raw, self._schema_versions()[self._entries])
        except SchemaMismatchError as error:
            first = Position.from_key(int(self._found.keys[self._which[0]]))
            fact = f"Messages from entry {first} on can't be decoded: {error.fact}"
            raise SchemaMismatchError(fact, error.remedy) from None
        if not bad.any():
            return found
        if self._decoder.typed is not None and self._decoder.typed.bad_as_null:
            sound = np.flatnonzero(~bad)
            return spread(taken(found, sound), sound, len(found))
        at = int(np.argmax(bad))
        place = Position.from_key(int(self._found.keys[self._entries[at]]))
        of_batch = f", number {int(self._places[at])} of its batch," if self._is_batched[at] else ""
        raise MessageUnreadableError(
            f"The {name} of the message at {place}{of_batch} in {self._found.uri} isn't what the schema says.",
            "Read with badValues=null, with the schema that it was written with, or without one.",
        )

    def _schema_versions(self) -> IntArray:
        """Return the version of the schema that each entry names, as a number; -1 where it names none."""
        starts, ends = self._found.metadata.slices(of.SCHEMA_VERSION)
        data = self._found.raw.data
        high, low = wire.big_endian(data, starts, 4), wire.big_endian(data, starts + 4, 4)
        return np.where((ends - starts == 8) & (high < 1 << 31), high << 32 | low, -1)

    def _made_value(self) -> pa.Array:
        raw = self._bare_value()
        return raw if self._decoder.typed is None else self._typed("value", raw, self._decoder.typed.decode_value)

    def _made_key(self) -> pa.Array:
        part = self._decoder.typed.typed_key() if self._decoder.typed else None
        return self._bare_key() if part is None else self._typed("key", self._bare_key(), part.decode)

    def _bare_value(self) -> pa.Array:
        starts, ends = np.zeros(len(self._found), np.int64), np.zeros(len(self._found), np.int64)
        starts[self._which], ends[self._which] = self._payloads.bodies, self._payloads.ends
        batch = self._batched
        none = np.zeros(0, np.int64)
        null = self._flag(of.NULL_VALUE, batches.NULL_VALUE) & ~self._encrypted[self._entries]
        return slices(
            self._data,
            self._merged(starts, none if batch is None else batch.starts),
            self._merged(ends, none if batch is None else batch.ends),
            ~null,
        )

    def _bare_key(self) -> pa.Array:
        keys, valid = self._bytes(of.KEY, batches.KEY, self._flag(of.NULL_KEY, batches.NULL_KEY))
        coded = self._flag(of.KEY_IS_BASE64, batches.KEY_IS_BASE64, inherited=False) & valid
        if not coded.any():
            return keys
        decoded, wrong = from_base64(keys, coded)
        if wrong is not None:
            raise self._found.unreadable(int(self._entries[wrong]), "the key of a message isn't base64, as it says")
        return decoded

    def _made_key_is_base64(self) -> pa.Array:
        return truths(self._flag(of.KEY_IS_BASE64, batches.KEY_IS_BASE64, inherited=False))

    def _made_ordering_key(self) -> pa.Array:
        return self._bytes(of.ORDERING_KEY, batches.ORDERING_KEY)[0]

    def _made_properties(self) -> pa.Array:
        rows_of = np.zeros(len(self._found), np.int64)
        rows_of[self._which] = np.cumsum(self._counts) - self._counts
        alone = np.zeros(len(self._found), np.bool_)
        alone[self._which] = ~self._in_batch
        at, starts, ends = self._found.metadata.repeated(of.PROPERTIES)
        kept = alone[at]
        at, shift = at[kept], self._shift()
        rows, starts, ends = rows_of[at], starts[kept] + shift[at], ends[kept] + shift[at]
        if self._batched is not None:
            message, batch_starts, batch_ends = self._batched.metadata.repeated(batches.PROPERTIES)
            batch_rows = np.flatnonzero(self._is_batched)[message]
            if len(rows):
                rows = np.concatenate((rows, batch_rows))
                starts, ends = np.concatenate((starts, batch_starts)), np.concatenate((ends, batch_ends))
                order = np.argsort(rows, kind="stable")
                rows, starts, ends = rows[order], starts[order], ends[order]
            else:
                rows, starts, ends = batch_rows, batch_starts, batch_ends
        pairs = wire.decode(self._data, starts, ends, {1: wire.BYTES, 2: wire.BYTES})
        if pairs.bad.any():
            raise self._found.unreadable(int(self._entries[rows[np.argmax(pairs.bad)]]), "a property can't be parsed")
        names, values = (texts(self._parts(pairs, part, starts)) for part in (1, 2))
        return maps(rows, len(self._entries), names, values)

    def _parts(self, pairs: Fields, part: int, places: IntArray) -> pa.Array:
        """Return a field of bytes of pairs, empty where one has none; ``places`` are where the pairs begin."""
        starts, ends = (np.where(pairs.has(part), x, places) for x in pairs.slices(part))
        return slices(self._data, starts, ends, np.ones(len(places), np.bool_))

    def _made_event_time(self) -> pa.Array:
        times = self._number(of.EVENT_TIME, batches.EVENT_TIME)
        return self._times(times, times != 0, "__event_time")

    def _made_publish_time(self) -> pa.Array:
        return self._times(self._found.metadata.number(of.PUBLISH_TIME)[self._entries], None, "__publish_time")

    def _made_deliver_at(self) -> pa.Array:
        metadata = self._found.metadata
        valid = metadata.has(of.DELIVER_AT)[self._entries]
        return self._times(metadata.number(of.DELIVER_AT)[self._entries], valid, "__deliver_at")

    def _times(self, times: IntArray, valid: BoolArray | None, name: str) -> pa.Array:
        outside = (times < 0) | (times > _MAX_MS)
        if outside.any():
            at = int(np.argmax(outside))
            place = Position.from_key(int(self._found.keys[self._entries[at]]))
            raise InvalidArgumentError(
                f"A message of entry {place} in {self._found.uri} has {name} {int(times[at]) & (1 << 64) - 1} ms,"
                " which no timestamp can be.",
                f"Leave {name} out.",
            )
        return numbers(self._decoder.schema.field(name).type, times * 1000, valid)

    def _made_sequence_id(self) -> pa.Array:
        return numbers(pa.int64(), self._number(of.SEQUENCE, batches.SEQUENCE))

    def _made_ledger_id(self) -> pa.Array:
        return numbers(pa.int64(), ledger_of(self._found.keys[self._entries]))

    def _made_entry_id(self) -> pa.Array:
        return numbers(pa.int64(), entry_of(self._found.keys[self._entries]))

    def _made_batch_index(self) -> pa.Array:
        return numbers(pa.int32(), np.where(self._is_batched, self._places, -1))

    def _made_batch_size(self) -> pa.Array:
        return numbers(pa.int32(), np.where(self._is_batched, self._found.messages[self._entries], 0))

    def _per_entry(self, array: pa.Array) -> pa.Array:
        """Return, for each row, an item of an array with one for each entry of the group."""
        return taken(array, np.repeat(np.arange(len(self._which)), self._counts))

    def _entry_bytes(self, field: int) -> pa.Array:
        starts, ends = (part[self._which] for part in self._found.metadata.slices(field))
        return slices(self._found.raw.data, starts, ends, self._found.metadata.has(field)[self._which])

    def _made_producer_name(self) -> pa.Array:
        return self._per_entry(texts(self._entry_bytes(of.PRODUCER)))

    def _made_replicated_from(self) -> pa.Array:
        return self._per_entry(texts(self._entry_bytes(of.REPLICATED_FROM)))

    def _made_schema_version(self) -> pa.Array:
        return self._per_entry(self._entry_bytes(of.SCHEMA_VERSION))

    def _made_txn_id(self) -> pa.Array:
        ids = self._found.txns[self._which].tolist()
        named = [None if txn == NO_TXN else str(TxnId(*of.txn_bits(txn))) for txn in ids]
        return self._per_entry(_texts_of(named))

    def _made_txn_status(self) -> pa.Array:
        txns = self._found.txns[self._which]
        states = np.where(self._is_undecided(txns), 0, 1)
        states[hidden(txns, self._decoder.aborted)] = 2
        words = ("open", "committed", "aborted")
        pairs = zip(txns.tolist(), states.tolist(), strict=True)
        return self._per_entry(_texts_of([None if txn == NO_TXN else words[state] for txn, state in pairs]))

    def _is_undecided(self, txns: IntArray) -> BoolArray:
        """Return which of the group's entries, with these transactions, lie where theirs is undecided."""
        names, since = self._decoder.undecided.names, self._decoder.undecided.firsts
        if not len(names):
            return np.zeros(len(txns), np.bool_)
        order = np.argsort(names)
        at = order[np.minimum(np.searchsorted(names[order], txns), len(order) - 1)]
        return np.asarray((names[at] == txns) & (since[at] <= self._found.keys[self._which]))

    def _made_first_chunk(self) -> pa.Array:
        firsts = [str(self._chunked[e].first) if e in self._chunked else None for e in self._which.tolist()]
        return self._per_entry(_texts_of(firsts))

    def _made_broker_publish_time(self) -> pa.Array:
        times = self._found.broker.number(of.BROKER_TIME)[self._entries]
        valid = self._found.broker.has(of.BROKER_TIME)[self._entries]
        return self._times(times, valid, "__broker_publish_time")

    def _made_index(self) -> pa.Array:
        last = self._found.broker.number(of.BROKER_INDEX)[self._entries]
        later = np.where(self._is_batched, self._found.messages[self._entries] - 1 - self._places, 0)
        return numbers(pa.int64(), last - later, self._found.broker.has(of.BROKER_INDEX)[self._entries])

    def _made_encrypted(self) -> pa.Array:
        return truths(self._encrypted[self._entries])


def _texts_of(values: Collection[str | None]) -> pa.Array:
    encoded = [b"" if value is None else value.encode() for value in values]
    valid = np.array([value is not None for value in values], np.bool_)
    offsets = np.concatenate(([0], np.cumsum([len(item) for item in encoded]))).astype(np.int32)
    buffers = [bits(valid), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def _refused(found: Entries, at: int) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Entry {Position.from_key(int(found.keys[at]))} in {found.uri} is encrypted by its producer.",
        "Read it with encrypted payloads kept as they are, or leave it out.",
    )
