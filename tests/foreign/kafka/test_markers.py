"""What control batches say, and how transactions follow from them: cases of Kafka's own suites among them."""

from __future__ import annotations

import struct
from pathlib import Path

import crc32c
import numpy as np
import pyarrow.fs as fs
import pytest

from tests.foreign.kafka.batch_writer import ABORT, COMMIT, Batch, Record, encode_batch
from tests.foreign.kafka.partition_writer import PartitionWriter
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.kafka.batch_headers import BatchHeaders, find_batches
from txn_source.foreign.kafka.kafka_log import KafkaLog
from txn_source.foreign.kafka.partition import KafkaPartition
from txn_source.foreign.kafka.partition_folders import Folder
from txn_source.foreign.kafka.segment_reader import Chunk
from txn_source.foreign.kafka.transactions import UNKNOWN, marker_kinds
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import PositionRange


def chunk_of(*batches: Batch) -> Chunk:
    data = b"".join(map(encode_batch, batches))
    begins = np.array(find_batches(data).begins)
    array = np.frombuffer(data, np.uint8)
    return Chunk(array, begins, BatchHeaders.at(array, begins), 0)


def control(kind: int, version: int = 0, value: bytes | None = None, headers: int = 0) -> Batch:
    key = struct.pack(">hh", version, kind)
    named = [(b"h", b"v")] * headers
    return Batch(0, [Record(key, struct.pack(">hi", 0, 0) if value is None else value, headers=named)], control=kind)


def test_kinds_of_control_batches() -> None:
    """Markers of both kinds, in the usual form and others, of newer versions, and control batches of other types."""
    batches = [
        control(ABORT),
        control(COMMIT),
        control(COMMIT, version=3),
        control(ABORT, value=bytes(30)),
        control(COMMIT, headers=2),
        control(2),
        control(300),
        Batch(0, [Record(b"k", b"v")]),
    ]
    assert marker_kinds(chunk_of(*batches), "x").tolist() == [0, 1, 1, 0, 1, UNKNOWN, UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_marker_without_a_key_is_damage(key: bytes | None) -> None:
    """A control record has a key of two numbers, the first not negative."""
    with pytest.raises(SegmentUnreadableError, match="no key of a control record"):
        marker_kinds(chunk_of(Batch(0, [Record(key, b"123456")], control=0)), "x")


class Case:
    """A partition in the notation of Kafka's tests: ``P1*5`` five records of producer 1, ``A1`` its abort, ``N*3``."""

    def __init__(self, root: Path, text: str) -> None:
        self.root = root
        self.writer = PartitionWriter(root, segment_bytes=400)
        for step in text.split():
            name, _, count = step.partition("*")
            producer = int(name[1:] or -1)
            if name[0] in "AC":
                self.writer.end_transaction(producer, commit=name[0] == "C")
            else:
                records = [Record(b"k", b"v")] * int(count or 1)
                self.writer.send(records, producer, transactional=name[0] == "P")

    def partition(self, mark: int | None = None, start: int = 0, *, trust: bool = True) -> KafkaPartition:
        self.writer.close(mark, start)
        log = KafkaLog([Folder(fs.LocalFileSystem(), str(self.root))], trust_indexes=trust)
        return log.partition(PartitionName("t", 0))

    def seen(self) -> list[int]:
        """Return the offsets that read_committed shows."""
        partition = self.partition()
        bounds = partition.bounds()
        of = PositionRange(bounds.log_start, bounds.last_stable)
        batches = partition.read(of, IsolationLevel.READ_COMMITTED, partition.decisions(of), ["offset"])
        return [offset for batch in batches for offset in batch.column(0).to_pylist()]


@pytest.mark.parametrize("trust", [True, False])
def test_last_stable_follows_the_high_watermark(tmp_path: Path, trust: bool) -> None:
    """A marker counts once it lies below the high watermark."""
    case = Case(tmp_path / "log", "P1*5 N*3 P2*2 P1*4 N*2 P1*10 C1 A2")
    for mark, stable in ((26, 0), (27, 8), (28, 28)):
        assert case.partition(mark, trust=trust).bounds().last_stable.key == stable


def test_last_stable_is_never_below_the_start(tmp_path: Path) -> None:
    """The start is moved into what an open transaction wrote, and behind it."""
    case = Case(tmp_path / "log", "P1*5 N*3 P1*5")
    assert case.partition(start=5).bounds().last_stable.key == 5
    assert case.partition(start=8).bounds().last_stable.key == 8


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("P1*2 P2 C1 P2 A2 P1 P2 P1 A1 C2", [0, 1, 7]),
        ("P1*2 A1 A1 P1*2 C1", [4, 5]),
        ("A1 P1*3 C1", [1, 2, 3]),
        ("I1*2 P1*2 A1 I1*2", [0, 1, 5, 6]),
        ("C1 A2", []),
        ("P1 P2*2 C2", []),
    ],
)
def test_committed_rows(tmp_path: Path, text: str, seen: list[int]) -> None:
    """Interleaved, doubled and empty markers, plain records of a producer with transactions, and an open one."""
    assert Case(tmp_path / "log", text).seen() == seen


def test_emptied_control_batch_ends_nothing() -> None:
    """Compaction leaves control batches without a record."""
    data = bytearray(encode_batch(Batch(0, (), producer_id=1, transactional=True)))
    data[22] |= 0x20
    data[17:21] = crc32c.crc32c(data[21:]).to_bytes(4, "big")
    begins = np.zeros(1, np.int64)
    array = np.frombuffer(bytes(data), np.uint8)
    headers = BatchHeaders.at(array, begins)
    assert (headers.control[0], headers["count"][0]) == (True, 0)
    assert marker_kinds(Chunk(array, begins, headers, 0), "x").tolist() == [UNKNOWN]
