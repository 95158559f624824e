"""Decodes random batches, many at once, and compares each row with the record that was written."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import txn_source
from benchmarks.kafka_files import write_partition
from tests.foreign.kafka.batch_writer import Batch, Record, encode_batch, encode_record, varint
from tests.selection import for_each
from txn_source.foreign.kafka import batch_reader
from txn_source.foreign.kafka.batch_headers import HEADER_BYTES, BatchHeaders, find_batches
from txn_source.foreign.kafka.decoding_turn import decoding_turn
from txn_source.foreign.kafka.record_walk import HEAD, DamagedRecords, walk
from txn_source.foreign.kafka.records import decode

TIME = 1_750_000_000_000
COLUMNS = ["offset", "__timestamp_ms", "key", "value", "headers"]
Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]
Make = Callable[[random.Random], Record]
NESTED = encode_record(Record(b"k", b"v", TIME), 5, TIME) * 3
"""Bytes that look like records inside of a value."""

MAKERS: dict[str, Make] = {
    "one length": lambda rng: Record(b"%08d" % rng.randrange(10**8), rng.randbytes(120), TIME + rng.randrange(9000)),
    "any length": lambda rng: Record(rng.randbytes(rng.randrange(20)), rng.randbytes(rng.randrange(300)), TIME),
    "shortest": lambda rng: Record(None, None, TIME),
    "empty": lambda rng: Record(b"", b"", TIME),
    "nulls": lambda rng: Record(rng.choice([None, b"key"]), rng.choice([None, b"", b"value"]), TIME),
    "zeros": lambda rng: Record(bytes(8), bytes(rng.randrange(200)), TIME),
    "nested": lambda rng: Record(b"k", NESTED * rng.randrange(4), TIME),
    "large": lambda rng: Record(b"k", rng.randbytes(1) * rng.randrange(8150, 8250), TIME),
    "mostly small": lambda rng: Record(b"k", bytes(70_000 if rng.random() < 0.01 else rng.randrange(90)), TIME),
    "any time": lambda rng: Record(b"key", b"value", rng.choice([0, TIME, TIME + (1 << 40), -(1 << 50)])),
    "headers": lambda rng: Record(b"k", b"v", TIME, [(b"name", rng.choice([None, b"", b"text"]))] * rng.randrange(3)),
}


def written(make: Make, rng: random.Random, counts: Sequence[int]) -> tuple[bytes, list[Row]]:
    """Return batches that follow each other, with lost offsets between some of their records, and their rows."""
    data, rows, base = bytearray(), list[Row](), rng.randrange(1 << 40)
    for count in counts:
        records, delta = [], 0
        for _ in range(count):
            record = make(rng)
            records.append(Record(record.key, record.value, record.timestamp, record.headers, delta))
            named = [(name.decode(), value) for name, value in record.headers] or None
            rows.append((base + delta, record.timestamp, record.key, record.value, named))
            delta += 1 if rng.random() < 0.9 else rng.randrange(1, 200)
        data += encode_batch(Batch(base, records))
        base += delta + rng.randrange(3)
    return bytes(data), rows


def decoded(data: bytes, of: tuple[int, int]) -> list[Row]:
    """Return the rows of a range."""
    begins = np.array(find_batches(data).begins, np.int64)
    headers = BatchHeaders.at(np.frombuffer(data, np.uint8), begins)
    columns = decode(
        np.frombuffer(data, np.uint8), headers, begins + HEADER_BYTES, begins + headers.sizes, COLUMNS, of
    ).to_pydict()
    named = [
        None if of_row is None else [(header["key"], header["value"]) for header in of_row]
        for of_row in columns["headers"]
    ]
    return list(zip(*(columns[name] for name in COLUMNS[:-1]), named, strict=True))


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("counts", [(3, 1, 2), (700, 1, 40, 900)])
def test_rows_are_the_records(kind: str, counts: Sequence[int]) -> None:
    """Few batches and many, of few records and many, whole and in two ranges that a batch is cut between."""
    rng = random.Random(f"{kind} {counts}")
    data, rows = written(MAKERS[kind], rng, counts)
    end = rows[-1][0] + 1
    assert decoded(data, (0, end)) == rows
    split = rng.randrange(rows[0][0], end)
    assert decoded(data, (0, split)) + decoded(data, (split, end)) == rows


def test_all_kinds_in_one_batch() -> None:
    """What is true of most records of a chunk, such as one length, isn't of some."""
    rng = random.Random(1)

    def any_kind(of: random.Random) -> Record:
        return MAKERS[of.choice(list(MAKERS))](of)

    for _ in range(8):
        data, rows = written(any_kind, rng, [rng.randrange(1, 400) for _ in range(rng.randrange(1, 12))])
        assert decoded(data, (0, rows[-1][0] + 1)) == rows


def test_numbers_in_more_bytes_than_they_need() -> None:
    """A length may be padded with bytes that add nothing, which Kafka reads, too: a record's begin doesn't tell it."""
    body = encode_record(Record(b"key", b"value", TIME), 0, TIME)[1:]
    padded = bytes([varint(len(body))[0] | 128, 128, 0]) + body
    plain = varint(len(body)) + body
    data = np.frombuffer(plain + padded + plain, np.uint8)
    found = walk(data, np.array([0]), np.array([len(data)]), np.array([3]))
    assert found.begins.tolist() == [0, len(plain), len(plain) + len(padded)]
    assert (found.bodies - np.arange(3) * HEAD).tolist() == [1, 3, 1]


def test_any_flipped_byte_is_no_other_walk() -> None:
    """Records that don't fill their batch are refused; those that do follow each other without a gap."""
    rng = random.Random(2)
    data, _ = written(MAKERS["any length"], rng, (200, 150))
    begins = np.array(find_batches(data).begins, np.int64)
    headers = BatchHeaders.at(np.frombuffer(data, np.uint8), begins)
    firsts, ends, counts = begins + HEADER_BYTES, begins + headers.sizes, headers["count"]
    refused = 0
    for _ in range(300):
        flipped = np.frombuffer(data, np.uint8).copy()
        flipped[rng.randrange(int(firsts[0]), len(data))] ^= 1 << rng.randrange(8)
        try:
            found = walk(flipped, firsts, ends, counts)
        except DamagedRecords:
            refused += 1
            continue
        edges = [*found.begins[:200].tolist(), int(ends[0])]
        assert found.begins[0] == firsts[0]
        assert list(zip(found.begins[:200].tolist(), found.ends[:200].tolist(), strict=True)) == list(pairwise(edges))
    assert 0 < refused < 300


@for_each("count", [-1, 0, 9, 11, 1 << 20, (1 << 31) - 1])
def test_impossible_counts_are_refused(count: int) -> None:
    """A header that says more records than its batch has room for is refused before anything is made for them."""
    data = b"".join(encode_record(Record(b"key", b"value", TIME), delta, TIME) for delta in range(10))
    of = (np.array([0]), np.array([len(data)]), np.array([count]))
    with pytest.raises(DamagedRecords):
        walk(np.frombuffer(data, np.uint8), *of)


def test_one_thread_decodes_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a scan are read by several threads, and decoded in turns; a fork's turn is nobody else's."""
    write_partition(tmp_path, 0, 100)
    turns = []

    def watched(*args: Any) -> pa.RecordBatch:
        free = ThreadPoolExecutor(1)
        turns.append(free.submit(decoding_turn().acquire, blocking=False).result())
        free.shutdown()
        return decode(*args)

    monkeypatch.setattr(batch_reader, "decode", watched)
    with txn_source.connect(f"kafka:{tmp_path}") as log:
        assert sum(batch.num_rows for batch in log.scan("t")) == 100_000
    assert len(turns) > 2
    assert not any(turns)
    with decoding_turn(), multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(free_turn)


def free_turn() -> bool:
    return decoding_turn().acquire(blocking=False)
