"""Damages logs at random: what is read then is what was written, or an error of ours says what is wrong."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow.fs as fs

from tests.foreign.kafka.batch_writer import CODECS, Batch, Record, encode_batch
from tests.foreign.kafka.histories import Row, random_record, read, write_history
from tests.foreign.kafka.partition_writer import PartitionWriter
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.kafka.batch_headers import HEADER_BYTES, BatchHeaders, find_batches
from txn_source.foreign.kafka.compression import CompressionError, decompress
from txn_source.foreign.kafka.kafka_log import KafkaLog
from txn_source.foreign.kafka.partition import KafkaPartition
from txn_source.foreign.kafka.partition_folders import Folder
from txn_source.foreign.kafka.records import DamagedRecords, decode
from txn_source.model.errors import InternalError, TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange


def damage(rng: random.Random, path: Path) -> None:
    """Flip a bit, cut the end off, write zeros over a part, or repeat one."""
    data = bytearray(path.read_bytes())
    if not data:
        return
    at = rng.randrange(len(data))
    match rng.randrange(5):
        case 0 | 1:
            data[at] ^= 1 << rng.randrange(8)
        case 2:
            del data[at:]
        case 3:
            data[at : at + 40] = bytes(len(data[at : at + 40]))
        case 4:
            data[at:at] = data[max(at - 78, 0) : at]
    path.write_bytes(data)


def check(seed: int, root: Path) -> str:
    """Read a damaged log; return how it went.

    The end of the last segment may be taken for what a killed broker was writing. All other rows must be there.
    """
    rng = random.Random(seed)
    writer = PartitionWriter(root, segment_bytes=1200)
    naive = write_history(rng, writer, 40)
    writer.close()
    last = writer.bases[-1]
    kind = rng.choice(["log", "log", "index", "timeindex", "txnindex", "snapshot"])
    files = sorted(root.rglob(f"*.{kind}"))
    if not files:
        return "nothing"
    file = rng.choice(files)
    damage(rng, file)
    try:
        partition = KafkaLog([Folder(fs.LocalFileSystem(), str(root))]).partition(PartitionName("t", 0))
        bounds = partition.bounds()
        for level in IsolationLevel:
            of = PositionRange(bounds.log_start, bounds.upper(level))
            rows = read(partition, level, of)
            right = naive.visible(level, 0, bounds.upper(level).key, bounds.high_watermark.key)
            if bounds.log_end.key == writer.end:
                assert rows == right, (seed, kind, level)
            else:
                assert bounds.log_end.key >= last, (seed, kind)  # it was cut off, or is all zeros from there on
                assert [row[:3] for row in rows] == [row[:3] for row in right][: len(rows)], (seed, kind, level)
        partition.position_at(1_750_000_050_000)
        partition.transactions(PositionRange(bounds.log_start, bounds.high_watermark))
    except InternalError:
        raise
    except TxnLogError:
        return "refused"
    return "read"


def test_damaged_logs_give_no_wrong_row(tmp_path: Path) -> None:
    """Read 15 logs, each with a file that was damaged."""
    outcomes = []
    for seed in range(15):
        outcomes.append(check(seed, tmp_path / "log"))
        shutil.rmtree(tmp_path / "log")
    assert {"read", "refused"} <= set(outcomes)


def test_damage_that_the_log_end_passes_over_is_told(tmp_path: Path) -> None:
    """The last segment is damaged before the place that its index names last, from which its end is found."""
    for seed in (51162, 52697, 52824):
        assert check(seed, tmp_path / "log") == "refused"
        shutil.rmtree(tmp_path / "log")


def decoded(data: bytes, columns: list[str]) -> list[dict[str, object]] | None:
    """Decode one batch without looking at its checksum; None if that is refused."""
    array = np.frombuffer(data, np.uint8)
    headers = BatchHeaders.at(array, np.zeros(1, np.int64))
    try:
        records = np.frombuffer(decompress(int(headers.codecs[0]), memoryview(data)[HEADER_BYTES:]), np.uint8)
        ends = np.array([len(records)])
        batch = decode(records, headers, np.zeros(1, np.int64), ends, columns, (-(1 << 63), (1 << 63) - 1))
    except (CompressionError, DamagedRecords, TxnLogError):
        return None
    batch.validate(full=True)
    rows: list[dict[str, object]] = batch.to_pylist()
    return rows


COLUMNS = ["offset", "timestamp", "key", "value", "headers", "__sequence"]


def fuzz_records(seed: int) -> bool:
    """Flip bits in the records of a batch; what is decoded all the same has as many rows as the header says."""
    rng = random.Random(seed)
    records = [random_record(rng) for _ in range(rng.choice([1, 3, 300]))]
    sound = encode_batch(Batch(7, records, rng.choice([*CODECS, "none", "none"])))
    assert decoded(sound, COLUMNS) is not None
    data = bytearray(sound)
    for _ in range(rng.choice([1, 1, 5])):
        data[rng.randrange(HEADER_BYTES, len(data))] ^= 1 << rng.randrange(8)
    rows = decoded(bytes(data), rng.sample(COLUMNS, rng.randrange(1, len(COLUMNS))))
    assert rows is None or len(rows) == len(records)
    return rows is None


def test_damaged_records_are_decoded_or_refused() -> None:
    """Decode 60 damaged batches whose checksum nobody looked at: none may read beyond itself or crash."""
    refused = [fuzz_records(seed) for seed in range(60)]
    assert 10 < sum(refused) < 60


def test_random_bytes_are_no_records() -> None:
    """Decode random bytes under a sound header."""
    rng = random.Random(5)
    sound = encode_batch(Batch(0, [Record(b"k", b"v")] * 50))
    for _ in range(300):
        noise = rng.randbytes(rng.choice([1, 60, 350, 5000]))
        rows = decoded(sound[:HEADER_BYTES] + noise, COLUMNS)
        assert rows is None


def test_bounds_of_a_damaged_log_are_positions(tmp_path: Path) -> None:
    """A log whose last segment is noise ends where that begins."""
    writer = PartitionWriter(tmp_path / "log", segment_bytes=600)
    write_history(random.Random(1), writer, 40)
    writer.close(0)
    last = writer.folder / f"{writer.bases[-1]:020}.log"
    last.write_bytes(random.Random(2).randbytes(500))
    partition = KafkaLog([Folder(fs.LocalFileSystem(), str(tmp_path / "log"))]).partition(PartitionName("t", 0))
    assert partition.bounds().log_end == Position.from_key(writer.bases[-1])


def flip(seed: int, root: Path) -> str:
    """Flip a bit of a batch's checked bytes; who leaves damaged batches out misses that one's rows alone."""
    rng = random.Random(seed)
    writer = PartitionWriter(root, segment_bytes=rng.choice([900, 1 << 20]))
    write_history(rng, writer, 30)
    writer.close()

    def open_log() -> KafkaPartition:
        return KafkaLog([Folder(fs.LocalFileSystem(), str(root))]).partition(PartitionName("t", 0))

    def rows(level: IsolationLevel, skipped: list[TxnLogError] | None) -> list[Row]:
        partition = open_log()
        of = PositionRange(partition.bounds().log_start, partition.bounds().upper(level))
        tell = None if skipped is None else skipped.append
        batches = partition.read(of, level, partition.decisions(of), ["offset", "key", "value"], tell)
        return [(row["offset"], row["key"], row["value"], None) for batch in batches for row in batch.to_pylist()]

    right = {level: rows(level, None) for level in IsolationLevel}
    path = rng.choice([path for path in sorted(root.rglob("*.log")) if path.stat().st_size])
    data = bytearray(path.read_bytes())
    begins = np.array(find_batches(bytes(data)).begins)
    headers = BatchHeaders.at(np.frombuffer(bytes(data), np.uint8), begins)
    which = rng.randrange(len(begins))
    data[int(begins[which]) + rng.randrange(17, int(headers.sizes[which]))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    damaged = range(int(headers["base_offset"][which]), int(headers.last_offsets[which]) + 1)
    outcome = "read"
    for level in IsolationLevel:
        reached = any(offset < open_log().segments.end for offset in damaged)
        try:
            assert rows(level, None) == right[level], (seed, level)
            assert not reached or level is IsolationLevel.READ_COMMITTED, (seed, level)
        except TxnLogError:
            outcome = "refused"
        try:
            found = rows(level, [])
        except TxnLogError:
            continue  # a marker may be what is damaged
        assert not set(found) - set(right[level]), (seed, level)
        if not headers.control[which]:
            assert {row[0] for row in right[level]} - {row[0] for row in found} <= set(damaged), (seed, level)
            outcome = "left out"
    return outcome


def test_damaged_batches_are_left_out_alone(tmp_path: Path) -> None:
    """Damage 6 logs in one batch each."""
    outcomes = []
    for seed in range(6):
        outcomes.append(flip(seed, tmp_path / "log"))
        shutil.rmtree(tmp_path / "log")
    assert outcomes.count("left out") > 2
