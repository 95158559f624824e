"""Reads partitions laid out in other ways: what killed brokers leave, copies on two disks, and remote tiers."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from zlib import crc32

import pyarrow.fs as fs
import pytest

from tests.foreign.kafka.aiven_writer import encode_sizes, lay_out
from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.partition_writer import PartitionWriter
from tests.foreign.kafka.samples import COLUMNS, expected, log_of, partitions, rows_of, unpack
from tests.foreign.kafka.test_samples import read_all
from tests.selection import for_each
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.kafka.aiven import decode_sizes
from txn_source.foreign.kafka.kafka_log import KafkaLog
from txn_source.foreign.kafka.partition_folders import Folder
from txn_source.model.errors import (
    InvalidArgumentError,
    LogNotFoundError,
    LogVersionError,
    SegmentUnreadableError,
    TopicNotFoundError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange

TORN, TXN, TIERED = PartitionName("torn", 0), PartitionName("txn", 0), PartitionName("tiered", 0)


def folder(path: Path) -> Folder:
    return Folder(fs.LocalFileSystem(), str(path))


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    return unpack("tiered", tmp_path)


@pytest.fixture
def txn(tmp_path: Path) -> Path:
    return unpack("txn", tmp_path)


@pytest.mark.parametrize("tail", ["truncated-batch", "truncated-header", "bad-crc", "zeros"])
def test_torn_tail_is_the_end(tail: str, tmp_path: Path) -> None:
    """Put a tail behind the active segment of a killed broker: bounds and rows stay, without a checkpoint, too."""
    case = unpack("killed", tmp_path)
    [replacement] = [path for path in (case / "tails" / tail).rglob("*") if path.is_file()]
    shutil.copy(replacement, case / "log" / "torn-0" / "00000000000000000170.log")
    (case / "log" / "replication-offset-checkpoint").unlink()
    partition = log_of(case).partition(TORN)
    bounds = partition.bounds()
    told = partitions(case)[TORN]
    assert (bounds.high_watermark.key, bounds.last_stable.key) == (told["high_watermark"], told["last_stable_offset"])
    for level in IsolationLevel:
        assert read_all(partition, level) == expected(case, TORN, level.value)


def test_damage_below_the_high_watermark_is_no_torn_tail(txn: Path) -> None:
    """Flip a byte in the last batch of the log: it was there, so who reads so far is told."""
    path = max((txn / "log" / "txn-0").glob("*.log"), key=lambda path: (path.stat().st_size > 0, path.name))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    partition = log_of(txn).partition(TXN)
    assert partition.bounds().log_end.key == 187
    with pytest.raises(SegmentUnreadableError, match=rf"{path.name}.*its checksum is wrong"):
        read_all(partition, IsolationLevel.READ_UNCOMMITTED)


def as_aiven(case: Path, to: Path, *, chunk: int, compress: bool, variable: bool) -> Path:
    """Lay the remote segments of the tiered case out as Aiven's plugin does."""
    [remote] = (case / "remote" / "kafka-tiered-storage").glob("tiered-0-*")
    segments: dict[str, dict[str, Path]] = {}
    for path in remote.iterdir():
        segments.setdefault(path.stem, {})[path.suffix[1:]] = path
    topic_id = remote.name.removeprefix("tiered-0-")
    for stem, files in segments.items():
        lay_out(files, to / f"tiered-{topic_id}" / "0" / stem, chunk=chunk, compress=compress, variable=variable)
    return to


@pytest.mark.parametrize(
    ("chunk", "compress", "variable"),
    [(1 << 20, False, False), (700, False, False), (700, False, True), (900, True, True)],
)
def test_aivens_layout_gives_the_same_rows(tiered: Path, chunk: int, compress: bool, variable: bool) -> None:
    """Read the remote part from chunks, compressed or not, and the rest from the broker's disk."""
    remote = as_aiven(tiered, tiered / "aiven", chunk=chunk, compress=compress, variable=variable)
    partition = KafkaLog([folder(tiered / "log"), folder(remote)]).partition(TIERED)
    for level in IsolationLevel:
        assert read_all(partition, level) == expected(tiered, TIERED, level.value)


def test_encrypted_segments_are_refused(tiered: Path) -> None:
    """Say in a manifest that its segment is encrypted."""
    remote = as_aiven(tiered, tiered / "aiven", chunk=700, compress=False, variable=False)
    for path in remote.rglob("*.rsm-manifest"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"encryption": {"dataKey": "k:AA==", "aad": "AA=="}}))
    with pytest.raises(LogVersionError, match="is encrypted"):
        KafkaLog([folder(remote)]).partition(TIERED).bounds()


@for_each("text", ["", "{}", "[]", '{"version": "2"}', '{"version": "1", "chunkIndex": {"type": "x"}}'])
def test_wrong_manifest_is_refused(tiered: Path, text: str) -> None:
    """Write something else in place of a manifest."""
    remote = as_aiven(tiered, tiered / "aiven", chunk=700, compress=False, variable=False)
    for path in remote.rglob("*.rsm-manifest"):
        path.write_text(text)
    with pytest.raises((SegmentUnreadableError, LogVersionError), match="manifest"):
        KafkaLog([folder(remote)]).partition(TIERED).bounds()


@pytest.mark.parametrize("sizes", [[], [7], [5, 5], [1000000, 1000010, 3], [70000, 1, 300, 1 << 30]])
def test_sizes_of_chunks_are_decoded(sizes: list[int]) -> None:
    """Encode and decode lists of sizes."""
    assert decode_sizes(encode_sizes(sizes)) == sizes


def test_remote_part_alone_ends_where_it_was_copied_to(tiered: Path) -> None:
    """Read remote segments without a broker's disk: what they have is decided but for what is open at their end."""
    partition = KafkaLog([folder(tiered / "remote")]).partition(TIERED)
    bounds = partition.bounds()
    assert (bounds.log_start.key, bounds.log_end.key) == (0, 180)
    rows = expected(tiered, TIERED, "read_committed")
    assert read_all(partition, IsolationLevel.READ_COMMITTED) == [
        row for row in rows if row[0] < bounds.last_stable.key
    ]


def test_segment_is_read_from_its_other_copy(txn: Path) -> None:
    """Damage a segment on one disk, lose another, and have a second disk with both."""
    copy = txn / "other"
    shutil.copytree(txn / "log", copy)
    logs = sorted((txn / "log" / "txn-0").glob("*.log"))
    data = bytearray(logs[1].read_bytes())
    data[len(data) // 2] ^= 1
    partition = KafkaLog([folder(txn / "log"), folder(copy)]).partition(TXN)
    logs[1].write_bytes(data)
    logs[3].unlink()
    level = IsolationLevel.READ_UNCOMMITTED
    of = PositionRange(Position.from_key(0), partition.bounds().upper(level))
    rows = rows_of(partition.read(of, level, partition.decisions(of), COLUMNS))
    assert rows == expected(txn, TXN, level.value)


def test_damaged_batch_is_named_or_skipped(txn: Path) -> None:
    """Flip a byte of a value: the error names file, position and offset, and whoever wants to goes on behind it."""
    path = sorted((txn / "log" / "txn-0").glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[127 + 100] ^= 4  # in the second batch, offsets 3 to 5
    path.write_bytes(data)
    partition = log_of(txn).partition(TXN)
    level = IsolationLevel.READ_UNCOMMITTED
    of = PositionRange(Position.from_key(0), Position.from_key(30))
    decisions = partition.decisions(of)
    with pytest.raises(SegmentUnreadableError, match=rf"{path}.* position 127, offset 3: its checksum is wrong"):
        rows_of(partition.read(of, level, decisions, COLUMNS))
    skipped: list[SegmentUnreadableError] = []
    rows = rows_of(partition.read(of, level, decisions, COLUMNS, skipped.append))
    assert len(skipped) == 1
    assert rows == [row for row in expected(txn, TXN, level.value) if row[0] < 30 and row[0] not in (3, 4, 5)]


def old_messages(magic: int) -> bytes:
    """Return a message of magic 0 or 1 as brokers before 0.11 stored it."""
    body = bytes([magic, 0]) + bytes(8) * magic + b"\xff\xff\xff\xff" + b"\0\0\0\x40" + b"v" * 64
    return bytes(8) + (len(body) + 4).to_bytes(4, "big") + crc32(body).to_bytes(4, "big") + body


def test_newer_format_of_messages_is_refused(txn: Path) -> None:
    """Have a batch of a format that isn't there yet; old ones have tests of their own."""
    path = sorted((txn / "log" / "txn-0").glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[16] = 3
    path.write_bytes(data)
    partition = log_of(txn).partition(TXN)
    of = PositionRange(Position.from_key(0), Position.from_key(5))
    with pytest.raises(LogVersionError, match="format 3"):
        rows_of(partition.read(of, IsolationLevel.READ_UNCOMMITTED, partition.decisions(of), COLUMNS))


def test_topic_made_again_isnt_mixed_with_the_old_one(tiered: Path) -> None:
    """Have remote segments of another topic id: a broker's disk tells which to read, and nothing else does."""
    [remote] = (tiered / "remote" / "kafka-tiered-storage").glob("tiered-0-*")
    shutil.copytree(remote, remote.with_name("tiered-0-" + "A" * 22))
    assert read_all(log_of(tiered).partition(TIERED), IsolationLevel.READ_COMMITTED) == expected(
        tiered, TIERED, "read_committed"
    )
    with pytest.raises(InvalidArgumentError, match=r"AAAAAAAAAA.*deleted and made again"):
        KafkaLog([folder(tiered / "remote")]).partition(TIERED)


def test_what_is_no_kafka_log_is_said(txn: Path, tmp_path: Path) -> None:
    """Open folders that aren't there, are empty, or of two clusters, and ask for a topic that isn't there."""
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "missing"):
        with pytest.raises(LogNotFoundError, match=re.escape(str(path))):
            KafkaLog([folder(path)])
    with pytest.raises(TopicNotFoundError, match=r"nobody-0.*txn3"):
        log_of(txn).partition(PartitionName("nobody", 0))
    other = tmp_path / "other"
    other.mkdir()
    (other / "meta.properties").write_text("version=1\ncluster.id=another\n")
    with pytest.raises(InvalidArgumentError, match="several clusters"):
        KafkaLog([folder(txn / "log"), folder(other)])


def test_files_of_deletions_and_swaps_are_left_out(txn: Path) -> None:
    """Have what brokers leave while they delete, clean and move."""
    log = txn / "log"
    base = log / "txn-0" / "00000000000000000000"
    for suffix in (".log.deleted", ".log.cleaned", ".log.swap", ".index.deleted"):
        base.with_name(base.name + suffix).write_bytes(b"x")
    for name in ("txn-1.0123456789abcdef0123456789abcdef-delete", "txn-2.0123-future", "txn-3.0123-stray"):
        shutil.copytree(log / "txn-0", log / name)
    read = log_of(txn)
    assert [name for name in read.partitions() if name.topic == "txn"] == [TXN]
    assert read_all(read.partition(TXN), IsolationLevel.READ_COMMITTED) == expected(txn, TXN, "read_committed")


def test_transactions_are_listed(txn: Path) -> None:
    """Compare the listed transactions with the index and the open one."""
    partition = log_of(txn).partition(TXN)
    bounds = partition.bounds()
    found = partition.transactions(PositionRange(bounds.log_start, bounds.high_watermark))
    lines = (txn / "expected" / "txn-0.txnindex.jsonl").read_text().splitlines()
    aborted = {(row["producer_id"], row["first_offset"], row["last_offset"]) for row in map(json.loads, lines)}
    listed = {
        (at.producer_id, at.first.key, at.marker.key)
        for at in found
        if at.state.value == "aborted" and at.marker is not None
    }
    assert listed == aborted
    [opened] = [at for at in found if at.marker is None]
    assert (opened.producer_id, opened.producer_epoch, opened.first.key) == (52, 0, 175)


def test_position_of_a_time_is_the_first_record_at_or_after_it(txn: Path) -> None:
    """Ask for the time of each record, and of the millisecond behind it, with time indexes and without."""
    for lost in (False, True):
        if lost:
            for path in txn.rglob("*.timeindex"):
                path.unlink()
        partition = log_of(txn).partition(TXN)
        rows = expected(txn, TXN, "read_uncommitted")
        for row in rows[::10]:
            found = partition.position_at(row[1])
            assert found is not None  # it may be a marker's
            assert found.key <= min(other[0] for other in rows if other[1] >= row[1])
            assert all(other[1] < row[1] for other in rows if other[0] < found.key)
        assert partition.position_at(1 << 50) is None


@pytest.mark.parametrize("snapshots", [True, False])
def test_what_lies_behind_messages_of_old_formats_is_read(tmp_path: Path, snapshots: bool) -> None:
    """Have a topic from before Kafka 0.11 that went on: its bounds are known, and what is read behind old messages."""
    writer = PartitionWriter(tmp_path / "log", segment_bytes=300)
    for number in range(20):
        writer.send([Record(b"k", b"%d" % number)], 1, transactional=True)
    writer.end_transaction(1, commit=True)
    writer.close()
    (writer.folder / f"{0:020}.log").write_bytes(old_messages(1) + old_messages(0))
    for path in [] if snapshots else list(writer.folder.glob("*.snapshot")):
        path.unlink()
    partition = KafkaLog([folder(tmp_path / "log")]).partition(PartitionName("t", 0))
    bounds = partition.bounds()
    assert (bounds.log_start.key, bounds.log_end.key) == (0, 21)
    start = writer.bases[1]
    of = PositionRange(Position.from_key(start), bounds.log_end)
    batches = partition.read(of, IsolationLevel.READ_UNCOMMITTED, partition.decisions(of), ["offset"])
    assert [at for batch in batches for at in batch.column(0).to_pylist()] == list(range(start, 20))


def test_names_of_topics_and_of_other_things_are_told_apart(tmp_path: Path) -> None:
    """Topics whose names look like partitions or topic ids, and a folder that is named like a segment."""
    topics = ["a-1", "a.b_c-d", "orders-0-" + "A" * 22, "x" * 200, "1", "t-some-long-topic-name-12", "-"]
    for topic in topics:
        writer = PartitionWriter(tmp_path / "log", topic)
        writer.send([Record(b"k", topic.encode())])
        writer.close()
        (writer.folder / f"{9:020}.log").mkdir()
    log = KafkaLog([folder(tmp_path / "log")])
    assert log.partitions() == sorted(PartitionName(topic, 0) for topic in topics)
    assert all(log.partition(name).bounds().log_end.key == 1 for name in log.partitions())
