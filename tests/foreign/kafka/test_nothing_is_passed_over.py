"""Folders as users have them, and damaged ones: the right rows or an error, and never fewer rows in silence."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from random import Random
from zlib import crc32

import pyarrow.fs as fs
import pytest

from tests.foreign.kafka.batch_writer import Batch, Record, encode_batch
from tests.foreign.kafka.partition_writer import PartitionWriter
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.kafka.batch_headers import find_batches
from txn_source.foreign.kafka.kafka_log import KafkaLog
from txn_source.foreign.kafka.partition import KafkaPartition
from txn_source.foreign.kafka.partition_folders import Folder
from txn_source.model.errors import DataLossError, LogNotFoundError, LogVersionError, SegmentUnreadableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange

LAST_OFFSET_DELTA = 23
CHECKPOINTS = ("replication-offset-checkpoint", "log-start-offset-checkpoint")


def opened(root: Path) -> KafkaPartition:
    return KafkaLog([Folder(fs.LocalFileSystem(), str(root))]).partition(PartitionName("t", 0))


def offsets(root: Path, start: int | None = None, level: str = "read_uncommitted") -> list[int]:
    """Return the offsets that a read shows, to the end of the log."""
    partition = opened(root)
    bounds = partition.bounds()
    low = bounds.log_start if start is None else Position.from_key(start)
    of = PositionRange(low, bounds.upper(IsolationLevel(level)))
    batches = partition.read(of, IsolationLevel(level), partition.decisions(of), ["offset"])
    return [at for batch in batches for at in batch.column(0).to_pylist()]


def log_file(root: Path) -> Path:
    """Return the last segment's log."""
    return max((root / "t-0").glob("*.log"))


def tens(root: Path, count: int = 5, *, checkpoints: bool = True, index: bool = True) -> list[int]:
    """Write batches of ten records; return where each begins in the file."""
    writer = PartitionWriter(root, segment_bytes=1 << 20, index_interval=1 if index else 1 << 20)
    for number in range(count):
        writer.send([Record(b"k", b"%d" % (10 * number + each)) for each in range(10)])
    writer.close()
    if not checkpoints:
        without_checkpoints(root)
    data = log_file(root).read_bytes()
    return find_batches(data).begins


def without_checkpoints(root: Path) -> None:
    for name in CHECKPOINTS:
        (root / name).unlink()


def test_checkpoints_of_windows_count(tmp_path: Path) -> None:
    """End the lines of all small files with CRLF: the bounds are the checkpoints'."""
    writer = PartitionWriter(tmp_path)
    for number in range(10):
        writer.send([Record(b"k", b"%d" % number)])
    writer.close(high_watermark=8, log_start=4)
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    for path in [*tmp_path.glob("*-checkpoint"), *tmp_path.glob("t-0/*-checkpoint")]:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    bounds = opened(tmp_path).bounds()
    assert (bounds.log_start.key, bounds.high_watermark.key) == (4, 8)
    assert offsets(tmp_path) == [4, 5, 6, 7]


@pytest.mark.parametrize("start", [0, 9, 20, 23, 25, 29])
def test_batch_whose_end_is_damaged_hides_nothing(tmp_path: Path, start: int) -> None:
    """Change a batch's last offset in its header: a read of its offsets fails, with file and offset."""
    begins = tens(tmp_path, index=False)
    data = bytearray(log_file(tmp_path).read_bytes())
    at = begins[start // 10] + LAST_OFFSET_DELTA
    data[at : at + 4] = struct.pack(">i", 3)
    log_file(tmp_path).write_bytes(data)
    with pytest.raises(SegmentUnreadableError, match=f"offset {start // 10 * 10}: its checksum is wrong"):
        offsets(tmp_path, start)
    if start >= 20:
        assert offsets(tmp_path, 30) == list(range(30, 50))


@pytest.mark.parametrize("at", [LAST_OFFSET_DELTA, 70, 77])
@pytest.mark.parametrize("commit", [True, False])
def test_damaged_marker_is_told(tmp_path: Path, commit: bool, at: int) -> None:
    """Damage a marker with batches behind it, in a log without checkpoints: nobody takes its transaction for open."""
    writer = PartitionWriter(tmp_path, segment_bytes=1 << 20)
    writer.send([Record(b"k", b"0")], 1, transactional=True)
    begin = len(writer._log)
    marker = writer.end_transaction(1, commit=commit)
    for _ in range(3):
        writer.send([Record(b"k", b"1")])
    writer.close()
    without_checkpoints(tmp_path)
    for path in tmp_path.glob("t-0/*.txnindex"):
        path.unlink()
    data = bytearray(log_file(tmp_path).read_bytes())
    data[begin + at] ^= 0x80
    log_file(tmp_path).write_bytes(data)
    with pytest.raises(SegmentUnreadableError, match=f"offset {marker}"):
        offsets(tmp_path, level="read_committed")


@pytest.mark.parametrize("index", [True, False])
def test_flipped_bits_hide_no_row(tmp_path: Path, index: bool) -> None:
    """Flip bits of the last segment, without checkpoints: each read gives all rows from its start on, or an error.

    The last batch may be what was being written; nothing behind says that it was whole.
    """
    begins = tens(tmp_path, 6, checkpoints=False, index=index)
    sound = log_file(tmp_path).read_bytes()
    random = Random(0)
    for _ in range(50):
        data = bytearray(sound)
        at = random.randrange(0, begins[-1])
        data[at] ^= 1 << random.randrange(8)
        log_file(tmp_path).write_bytes(data)
        start = random.randrange(50)
        with suppress(SegmentUnreadableError, DataLossError, LogVersionError):
            assert offsets(tmp_path, start) == list(range(start, 60)), (at, start)


def old_message(magic: int, offset: int, size: int = 20) -> bytes:
    """Return a message of format 0 or 1 with so many bytes of value."""
    body = bytes([magic, 0]) + bytes(8) * magic + b"\xff\xff\xff\xff" + struct.pack(">i", size) + b"v" * size
    return struct.pack(">qi", offset, len(body) + 4) + crc32(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [0, 5, 5 << 20])
def test_old_messages_of_any_size_are_refused(tmp_path: Path, magic: int, size: int) -> None:
    """Have a log of one message that is shorter than a header of today, or longer than what is read at once."""
    tens(tmp_path, 1)
    log_file(tmp_path).write_bytes(old_message(magic, 0, size))
    with pytest.raises(LogVersionError, match=f"format {magic}"):
        offsets(tmp_path, 0)


def test_short_old_message_in_a_closed_segment_is_refused(tmp_path: Path) -> None:
    """Have one in a closed segment, and sound batches in the next one."""
    writer = PartitionWriter(tmp_path, segment_bytes=200)
    for number in range(6):
        writer.send([Record(b"k", b"%d" % number)])
    writer.close()
    min((tmp_path / "t-0").glob("*.log")).write_bytes(old_message(1, 0, 1))
    with pytest.raises(LogVersionError, match="format 1"):
        offsets(tmp_path, 0)
    assert offsets(tmp_path, writer.bases[1]) == list(range(writer.bases[1], 6))


@pytest.mark.parametrize("entries", [[], [(2, 2)], [(1, 1), (3, 3)]])
def test_batches_behind_old_messages_are_read(tmp_path: Path, entries: list[tuple[int, int]]) -> None:
    """Mix the formats in one segment, with index entries of old messages: batches behind these are readable."""
    tens(tmp_path, 1, checkpoints=False)
    batches = [encode_batch(Batch(at, (Record(b"k", b"v"),))) for at in range(4, 8)]
    old = [old_message(1, at, 3 * at) for at in range(4)]
    log_file(tmp_path).write_bytes(b"".join(old + batches))
    for path in tmp_path.glob("t-0/*index"):
        path.unlink()
    index = [struct.pack(">ii", offset, sum(map(len, old[:number]))) for offset, number in entries]
    log_file(tmp_path).with_suffix(".index").write_bytes(b"".join(index))
    for start in range(4, 8):
        assert offsets(tmp_path, start) == list(range(start, 8))
    for start in range(4):
        with pytest.raises(LogVersionError, match="Read from a later offset"):
            offsets(tmp_path, start)


@pytest.mark.parametrize("with_properties", [True, False])
def test_folder_above_brokers_is_no_log(tmp_path: Path, with_properties: bool) -> None:
    """Open the folder that has brokers' log directories, which have names as partitions have."""
    for number in range(2):
        root = tmp_path / f"broker-{number}"
        tens(root)
        if with_properties:
            (root / "meta.properties").write_text("version=1\ncluster.id=c\n")
    with pytest.raises(LogNotFoundError, match=r"broker-0.*broker-1"):
        opened(tmp_path)
    (tmp_path / "broker-0" / "t-9999999999").mkdir()
    assert offsets(tmp_path / "broker-0") == list(range(50))
