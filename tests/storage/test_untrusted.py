"""Bytes under a right checksum that point beyond their data, are compressed, or say impossible sizes."""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import pyarrow as pa
import pytest

from txn_source.storage.untrusted import check_rows, first_odd, most_bytes

TEXTS = [f"text {n}" for n in range(10)]
COLUMNS: dict[str, pa.Array] = {
    "binary": pa.array([text.encode() for text in TEXTS]),
    "string": pa.array(TEXTS),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "with nulls": pa.array([None, *TEXTS[1:]]),
    "list": pa.array([[n, n] for n in range(10)]),
    "list of text": pa.array([[text] for text in TEXTS]),
    "map": pa.array([[(text, 1)] for text in TEXTS], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"x": text} for text in TEXTS]),
}


def entry(column: pa.Array, times: int = 1, compression: str | None = None) -> pa.Buffer:
    """Return rows as the message of an entry."""
    batch = pa.record_batch([pa.concat_arrays([column] * times)], names=["c"])
    if compression is None:
        return batch.serialize()
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    messages = pa.ipc.MessageReader.open_stream(stream.getvalue())
    messages.read_next_message()
    return messages.read_next_message().serialize()


def wild(message: pa.Buffer, column: pa.Array) -> bytes:
    """Return a message with an offset that lies far beyond the data, between others that don't."""
    buffers = [b for b in column.buffers() if b is not None]
    wide = pa.types.is_large_string(column.type)
    for buffer in buffers:
        offsets = buffer.to_pybytes()
        at = message.to_pybytes().find(offsets[: 6 * (8 if wide else 4)])
        if len(offsets) < (48 if wide else 24):
            continue
        values = struct.unpack("<6q" if wide else "<6i", offsets[: 48 if wide else 24])
        if at >= 0 and values[0] == 0 < values[5] < 1000 and list(values) == sorted(values):
            changed = bytearray(message.to_pybytes())
            struct.pack_into("<q" if wide else "<i", changed, at + 3 * (8 if wide else 4), 1 << 30)
            return bytes(changed)
    raise AssertionError("the column has no offsets")


@pytest.mark.parametrize("times", [1, 100], ids=["few rows", "many"])
@pytest.mark.parametrize("name", COLUMNS)
def test_offset_beyond_its_data_is_found(name: str, times: int) -> None:
    column = COLUMNS[name]
    whole = pa.concat_arrays([column] * times)
    message, schema = entry(column, times), pa.schema([("c", column.type)])
    check_rows(pa.ipc.read_record_batch(message, schema))
    bad = pa.ipc.read_record_batch(wild(message, whole), schema)
    with pytest.raises(pa.ArrowInvalid):
        check_rows(bad)


def test_text_that_is_not_utf8_is_no_matter_of_memory() -> None:
    check_rows(pa.record_batch([pa.array([b"\xff"]).view(pa.string())], names=["c"]))


def test_compressed_or_other_messages_are_found() -> None:
    """Put messages behind each other: the first one that isn't a plain batch is named, wherever it is."""
    plain = [entry(column).to_pybytes() for column in COLUMNS.values()]
    odd = {
        "zstd": entry(COLUMNS["binary"], 100, compression="zstd").to_pybytes(),
        "lz4": entry(COLUMNS["binary"], 100, compression="lz4").to_pybytes(),
        "schema": pa.schema([("c", pa.int64())]).serialize().to_pybytes(),
        "old framing": plain[0][4:],
        "nothing": b"",
        "zeros": bytes(64),
        "ones": b"\xff" * 64,
    }
    starts = [sum(map(len, plain[:n])) for n in range(len(plain))]
    assert first_odd(pa.py_buffer(b"".join(plain)), starts) is None
    for name, message in odd.items():
        data = plain[0] + plain[1] + message + plain[2]
        end = len(plain[0] + plain[1])
        assert first_odd(pa.py_buffer(data[: end + len(message)]), [0, len(plain[0]), end]) == 2, name


def test_flipped_messages_are_refused_or_of_their_size(pytestconfig: pytest.Config) -> None:
    """Flip bytes of messages: what is left is decoded without more memory than it has, or refused."""
    dice = random.Random(7)
    for _ in range(20_000 if pytestconfig.getoption("--all") else 500):
        name = dice.choice([*COLUMNS])
        changed = bytearray(entry(COLUMNS[name]).to_pybytes())
        for _ in range(dice.randint(1, 4)):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        message = pa.py_buffer(bytes(changed))
        if first_odd(message, [0]) is not None:
            continue
        before = pa.total_allocated_bytes()
        try:
            batch = pa.ipc.read_record_batch(message, pa.schema([("c", COLUMNS[name].type)]))
            batch.validate()
            check_rows(batch)
        except (pa.ArrowException, OSError):
            continue
        assert pa.total_allocated_bytes() - before < 1 << 20
        for value in batch.column(0):
            with suppress(UnicodeDecodeError):
                str(value)


def test_bound_of_what_is_decompressed() -> None:
    assert most_bytes(0) == 64 << 20
    assert most_bytes(262_144) < 350 << 20
    assert most_bytes(1 << 30) == (1 << 31) - 1
