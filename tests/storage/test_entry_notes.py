"""The notes of entries: how they are encoded, and what of them is believed."""

from __future__ import annotations

import random

import pyarrow as pa

from txn_source.storage.entry_notes import NoteEncoder, serialized

SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary()), pa.field("n", pa.int64())])


def test_messages_of_a_shared_stream_are_those_of_their_own() -> None:
    """Encode small and large batches in turns, with notes of all lengths; none changes when later ones come."""
    chance = random.Random(3)
    encoder, made = NoteEncoder(SCHEMA), []
    header = SCHEMA.serialize().size
    for _ in range(400):
        rows = chance.choice([0, 1, 1, 3, 40])
        values = [chance.randbytes(chance.choice([0, 9, 300, 9000])) for _ in range(rows)]
        batch = pa.record_batch(
            [pa.array([b"k"] * rows, pa.binary()), pa.array(values, pa.binary()), range(rows)], SCHEMA
        )
        note = b"x" * chance.choice([0, 1, 100, 5000, 9000])
        made.append((encoder.message(batch, note), serialized(batch, SCHEMA, note).slice(header).to_pybytes()))
    assert [message.to_pybytes() for message, _ in made] == [alone for _, alone in made]
