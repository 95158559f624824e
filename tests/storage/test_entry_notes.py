"""The notes of entries: how they are encoded, and what of them is believed."""

from __future__ import annotations

import io
import json
import random
import struct
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

from txn_source.client.writing import entry_notes
from txn_source.client.writing.entry_notes import EntryNotes
from txn_source.model.entry import NewEntry
from txn_source.model.position import Position
from txn_source.storage.entry_notes import KEY, NO_TXN, packed, parse_note, with_note
from txn_source.storage.message_walk import FoundMessage, walk

SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary()), pa.field("n", pa.int64())])
SEGMENT = "segments/1/0/3-5-abcdefabcdef.arrow"


def batch_of(*values: bytes) -> pa.RecordBatch:
    columns = [pa.array([b"k"] * len(values), pa.binary()), pa.array(values, pa.binary()), range(len(values))]
    return pa.record_batch(columns, SCHEMA)


def found_in(data: bytes) -> list[FoundMessage]:
    messages = [message for message in walk(data) if isinstance(message, FoundMessage)]
    return [message for message in messages if not message.is_schema]


def test_arrows_readers_skip_notes_and_ours_finds_them() -> None:
    """Write small and large batches with notes of all lengths, as a segment has them."""
    chance = random.Random(3)
    stream, batches, notes = io.BytesIO(), [], []
    stream.write(SCHEMA.serialize())
    for _ in range(100):
        values = [chance.randbytes(chance.choice([0, 9, 300, 90_000])) for _ in range(chance.choice([0, 1, 1, 3, 40]))]
        batches.append(batch_of(*values))
        notes.append(chance.randbytes(chance.choice([1, 7, 8, 70, 5_000, 200_000])))
        for part in with_note(batches[-1], notes[-1]):
            stream.write(part)
    data = stream.getvalue()
    assert [message.note for message in found_in(data)] == notes
    with pa.ipc.open_stream(data) as reader:
        assert list(reader) == batches
    whole = pa.Table.from_batches(batches)
    assert polars.read_ipc_stream(io.BytesIO(data)).to_arrow().cast(SCHEMA) == whole
    assert duckdb.from_arrow(pa.ipc.open_stream(data)).to_arrow_table().num_rows == whole.num_rows


def test_notes_of_older_releases_are_read() -> None:
    """Have notes in the metadata that Arrow has for it, and none."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as stream:
        for note in (b"one", b"two"):
            stream.write_batch(batch_of(b"x"), custom_metadata={b"other": b"y", KEY: note})
        stream.write_batch(batch_of(b"x"))
    assert [message.note for message in found_in(sink.getvalue().to_pybytes())] == [b"one", b"two", None]


def test_a_note_with_a_flipped_bit_is_none() -> None:
    """Flip each bit behind Arrow's metadata, up to the body."""
    batch, note = batch_of(b"x"), packed(12, 7, None, 1_000_000)
    data = b"".join(with_note(batch, note))
    bare = 8 + int.from_bytes(memoryview(batch.serialize())[4:8], "little")
    for bit in range(8 * bare, 8 * (8 + int.from_bytes(data[4:8], "little"))):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        [found] = found_in(bytes(flipped))
        padding = bare + len(note) <= bit // 8 < bare + len(note) + -len(note) % 8
        assert found.note == (note if padding else None)


def test_packed_notes_say_what_json_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write random notes in either form, with numbers that fit and some that don't."""
    chance = random.Random(5)
    times = [1_790_000_000.0]
    writers = [EntryNotes(5, "p", clock=lambda: times[-1]) for _ in range(2)]
    told: list[list[Any]] = [[], []]
    forms = set()
    for writer in writers:
        writer.opened(SEGMENT)
    sequence = 0
    for _ in range(300):
        txn = chance.choice([None, NO_TXN, 1, 70_000, 1 << 40])
        rows = [
            NewEntry(12, sequence + i, chance.choice([1, 9]), SEGMENT, chance.choice([8, 1 << 33]), 99, 0xFFFFFFFF)
            for i in range(chance.choice([0, 1, 1, 3]))
        ]
        for number, writer in enumerate(writers):
            with monkeypatch.context() as patch:
                if number:
                    patch.setattr(entry_notes, "packed", _refuse)
                note = writer.of_entry(SEGMENT, 12, sequence, txn, first=False)
            writer.told(SEGMENT)
            forms.add((number, note[:1] == b"{"))
            parsed = parse_note(note)
            assert parsed is not None
            told[number].append({name: value for name, value in parsed.items() if name != "w"})
            of = None if txn == NO_TXN else txn
            at_us = int(times[-1] * 1e6)
            writer.registered(rows, [Position(3, sequence + i) for i in range(len(rows))], at_us, of)
        if txn is not None and txn > 0 and chance.random() < 0.7:
            committed = chance.random() < 0.5
            for writer in writers:
                writer.ended(txn, committed=committed)
        sequence += 10
        times.append(times[-1] + chance.choice([0.0, 1.5, -3.0, 1e5]))
    assert told[0] == told[1]
    assert forms == {(0, False), (0, True), (1, True)}


def _refuse(*_: object, **__: object) -> bytes:
    raise struct.error


def test_cut_notes_are_none() -> None:
    """Cut a packed note, and make it longer."""
    entry = NewEntry(12, 6, 1, SEGMENT, 8, 99, 1)
    note = packed(12, 7, 3, 1_000_000, [(entry, 5, 999_999, NO_TXN)], [[3, 1]])
    expected = {"v": 1, "p": 12, "s": 7, "t": 3, "at": 1_000_000, "e": [[3, 1]]}
    expected["r"] = {"": [[12, 8, 99, 1, 6, 1, 5, 999_999, NO_TXN]]}
    for changed in [note[:length] for length in range(len(note))] + [note + b"\0", note + note]:
        assert parse_note(changed) is None
    assert parse_note(note) == expected
    assert parse_note(json.dumps(expected).encode()) == expected
