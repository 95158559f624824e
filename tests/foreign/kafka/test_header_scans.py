"""Headers that are read without their batches are those of all batches, whatever their sizes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow.fs as fs
import pytest

from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.partition_writer import PartitionWriter
from txn_source.foreign.kafka.segment_reader import SegmentReader
from txn_source.foreign.kafka.segments import PlainFiles


@pytest.mark.parametrize("seed", range(6))
def test_passing_over_large_batches_misses_none(seed: int, tmp_path: Path) -> None:
    """Write batches from small to large with markers between them; the last one may be cut off."""
    rng = random.Random(seed)
    writer = PartitionWriter(tmp_path / "log", segment_bytes=1 << 30)
    for _ in range(rng.choice([5, 700])):
        if rng.random() < 0.2:
            writer.end_transaction(rng.randrange(3), commit=rng.random() < 0.5)
        size = rng.choice([10, 3_900, 4_030, 4_100, 20_000, 70_000] if seed % 2 else [20_000])
        writer.send([Record(None, bytes(size), 1)], rng.randrange(3), transactional=True)
    writer.close()
    [path] = writer.folder.glob("*.log")
    if seed % 3 == 0:
        path.write_bytes(path.read_bytes()[:-20])
    log = PlainFiles(fs.LocalFileSystem(), str(path), {}).open_log()
    scans = {}
    for sparse in (False, True):
        reader = SegmentReader(log, "place", 0, None)
        found = list(reader.headers(0, sparse=sparse))
        for headers, whole, which in found:
            assert np.array_equal(headers.positions[which], whole.headers.positions)
            assert set(np.flatnonzero(headers.control)) <= set(which.tolist())
        columns = {
            name: np.concatenate([headers[name] for headers, _, _ in found]).tolist()
            for name in ("base_offset", "length", "attributes", "producer_id", "crc")
        }
        positions = np.concatenate([headers.positions for headers, _, _ in found]).tolist()
        scans[sparse] = columns, positions, reader.end, reader.stop, reader.reached
    assert scans[True] == scans[False]
    assert len(scans[True][1]) > 3
