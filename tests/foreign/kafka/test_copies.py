"""Reads partitions of which several copies are there, and of which segments are missing or move meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.fs as fs
import pytest

from tests.foreign.kafka.batch_writer import ABORT, COMMIT, Batch, Record
from tests.foreign.kafka.partition_writer import TOPIC_ID, PartitionWriter
from tests.foreign.kafka.samples import unpack
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.kafka import decided
from txn_source.foreign.kafka.kafka_log import KafkaLog
from txn_source.foreign.kafka.partition import KafkaPartition
from txn_source.foreign.kafka.partition_folders import Folder
from txn_source.model.errors import DataLossError, SegmentUnreadableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange

T = PartitionName("t", 0)
LEVEL = IsolationLevel.READ_COMMITTED


def open_log(*paths: Path) -> KafkaPartition:
    return KafkaLog([Folder(fs.LocalFileSystem(), str(path)) for path in paths]).partition(T)


def values(partition: KafkaPartition, start: int | None = None, end: int | None = None) -> list[tuple[int, bytes]]:
    bounds = partition.bounds()
    low = bounds.log_start if start is None else Position.from_key(start)
    of = PositionRange(low, bounds.upper(LEVEL) if end is None else Position.from_key(end))
    batches = partition.read(of, LEVEL, partition.decisions(of), ["offset", "value"])
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


def write(root: Path, count: int, *, epochs: dict[int, int] | None = None, tag: str = "", roll: int = 10) -> None:
    """Write one record to a batch and some batches to a segment; ``epochs`` has where each leader begins."""
    writer = PartitionWriter(root, segment_bytes=1 << 30, index_interval=0)
    epoch = 0
    for offset in range(count):
        if epochs and offset in epochs:
            epoch = epochs[offset]
        if offset and offset % roll == 0:
            writer.roll()
        name = tag if epoch else ""
        writer.append(Batch(0, (Record(b"k", f"{name}{offset}".encode(), 1000 + offset),), leader_epoch=epoch))
    writer.close()
    lines = [(0, 0), *((of, at) for at, of in sorted((epochs or {}).items()))]
    text = "".join(f"{of} {at}\n" for of, at in lines)
    (writer.folder / "leader-epoch-checkpoint").write_text(f"0\n{len(lines)}\n{text}")


def as_remote(root: Path, remote: Path, bases: list[int], number: str) -> None:
    """Copy segments of a broker's folder as ``LocalTieredStorage`` does."""
    folder = remote / f"t-0-{TOPIC_ID}"
    folder.mkdir(parents=True, exist_ok=True)
    for base in bases:
        for kind in ("log", "index", "timeindex"):
            name = folder / f"{base:020}-{number * 22}.{kind}"
            shutil.copy(root / "t-0" / f"{base:020}.{kind}", name)
        shutil.copy(root / "t-0" / "leader-epoch-checkpoint", name.with_suffix(".leader_epoch_checkpoint"))


def plain(count: int) -> list[tuple[int, bytes]]:
    return [(offset, str(offset).encode()) for offset in range(count)]


def test_replica_that_followed_another_leader_is_read_up_to_there(tmp_path: Path) -> None:
    """Have two replicas: from offset 25 on one has what a leader wrote that wasn't elected by the others."""
    write(tmp_path / "a", 60, epochs={25: 1}, tag="stale")
    write(tmp_path / "b", 45, epochs={25: 2}, tag="")
    for path in (tmp_path / "a", tmp_path / "b"):
        (path / "replication-offset-checkpoint").unlink()
    for paths in ((tmp_path / "a", tmp_path / "b"), (tmp_path / "b", tmp_path / "a")):
        partition = open_log(*paths)
        assert partition.bounds().log_end.key == 45
        assert values(partition) == plain(45)
        assert values(partition, 27, 38) == plain(45)[27:38]


def test_remote_segments_of_a_leader_that_lost_are_cut(tmp_path: Path) -> None:
    """Have remote segments of two leaders that rolled elsewhere, and the log's end on a disk, and without one."""
    write(tmp_path / "a", 60, epochs={25: 1}, tag="stale", roll=15)
    write(tmp_path / "b", 70, epochs={25: 2}, tag="")
    as_remote(tmp_path / "a", tmp_path / "remote", [0, 15, 30, 45], "A")
    as_remote(tmp_path / "b", tmp_path / "remote", [20, 30, 40, 50], "B")
    for base in (0, 10, 20, 30):
        (tmp_path / "b" / "t-0" / f"{base:020}.log").unlink()
    assert values(open_log(tmp_path / "remote", tmp_path / "b")) == plain(70)
    assert values(open_log(tmp_path / "remote")) == plain(60)


@pytest.mark.parametrize("first", ["A", "B"])
def test_copy_that_was_broken_off_hides_nothing(tmp_path: Path, first: str) -> None:
    """A remote copy that ends with a whole batch, and one that was made anew, in either order of names."""
    write(tmp_path / "b", 30)
    as_remote(tmp_path / "b", tmp_path / "remote", [0, 10, 20], first)
    as_remote(tmp_path / "b", tmp_path / "remote", [10], "AB".replace(first, ""))
    broken = next((tmp_path / "remote").rglob(f"{10:020}-A*.log"))
    data = broken.read_bytes()
    broken.write_bytes(data[: len(data) // 10 * 4])
    assert values(open_log(tmp_path / "remote")) == plain(30)


def test_last_copy_that_was_broken_off_hides_nothing(tmp_path: Path) -> None:
    """Break off the last remote copy, in either order of names and of writing: a whole one of the segment is there."""
    for broken, whole, first in ("ABA", "BAB", "ABB", "BAA"):
        root = tmp_path / f"{broken}{first}"
        write(root / "b", 30)
        for name in sorted("AB", key=first.find, reverse=True):
            as_remote(root / "b", root / "remote", [0, 10, 20] if name == whole else [20], name)
        path = next((root / "remote").rglob(f"{20:020}-{broken}*.log"))
        path.write_bytes(path.read_bytes()[:200])
        assert values(open_log(root / "remote")) == plain(30)


def test_remote_segment_that_reaches_over_many_others_is_found(tmp_path: Path) -> None:
    """Have a leader's large segment, and many small ones of others that end early, as of one that lost its office."""
    write(tmp_path / "a", 100, roll=100)
    write(tmp_path / "b", 60, roll=5)
    for name in ("a", "b"):  # neither is its folder's last one: that isn't copied
        bases = [0] if name == "a" else list(range(0, 55, 5))
        as_remote(tmp_path / name, tmp_path / "remote", bases, name)
    for path in (tmp_path / "remote").rglob("*-bbbb*.log"):
        if path.name > f"{20:020}":
            path.write_bytes(path.read_bytes()[:150])
    partition = open_log(tmp_path / "remote")
    assert values(partition, 0, 100) == plain(100)
    assert values(partition, 42, 48) == plain(100)[42:48]


@pytest.mark.parametrize("stale", [True, False])
def test_transaction_index_of_a_replica_counts_as_far_as_its_log_does(
    stale: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that followed another leader has an aborted transaction that isn't; one that is behind lacks one."""
    monkeypatch.setattr(decided, "_CHEAP_SEGMENTS", 0)
    record = Record(b"k", b"v")

    def replica(name: str, *, behind: bool) -> None:
        writer = PartitionWriter(tmp_path / name, segment_bytes=1 << 30)
        for producer in (1, 2):
            writer.send([record], producer, transactional=True)
        writer.append(Batch(0, (), producer_id=1, producer_epoch=1, control=ABORT))
        if not behind or stale:
            kind, epoch = (ABORT, 0) if behind else (COMMIT if stale else ABORT, 1)
            writer.append(Batch(0, (), producer_id=2, producer_epoch=1, control=kind, leader_epoch=epoch))
            text = "0\n1\n0 0\n" if behind else "0\n2\n0 0\n1 3\n"
            (writer.folder / "leader-epoch-checkpoint").write_text(text)
        writer.close()

    replica("a", behind=True)
    replica("b", behind=False)
    if stale:
        next((tmp_path / "b").rglob("*.txnindex")).unlink()
        for path in tmp_path.rglob("*.snapshot"):
            path.unlink()
    (tmp_path / "a" / "replication-offset-checkpoint").unlink()
    for paths in (("a", "b"), ("b", "a")):
        partition = open_log(*(tmp_path / name for name in paths))
        assert values(partition) == ([(1, b"v")] if stale else [])


def test_segment_that_is_missing_in_the_middle_is_data_loss(tmp_path: Path) -> None:
    """Take a segment away before the log is opened: nothing else has its offsets, and nothing was compacted."""
    write(tmp_path / "log", 50)
    for path in (tmp_path / "log" / "t-0").glob(f"{20:020}.*"):
        path.unlink()
    partition = open_log(tmp_path / "log")
    with pytest.raises(DataLossError, match=r"\[20, 30\) are lost") as lost:
        values(partition)
    assert lost.value.lost == PositionRange(Position.from_key(20), Position.from_key(30))
    assert values(partition, 0, 20) + values(partition, 30) == [*plain(50)[:20], *plain(50)[30:]]
    (tmp_path / "log" / "replication-offset-checkpoint").write_text("0\n1\nt 0 25\n")  # a read ends inside of the gap
    with pytest.raises(DataLossError, match=r"\[20, 30\) are lost"):
        values(open_log(tmp_path / "log"))


@pytest.mark.parametrize("indexes", [True, False])
def test_batches_cut_off_a_closed_segment_are_told(tmp_path: Path, indexes: bool) -> None:
    """Cut whole batches off a segment that others follow: its indexes know them, and the next one's beginning does."""
    write(tmp_path / "log", 30)
    path = tmp_path / "log" / "t-0" / f"{10:020}.log"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 10 * 7])
    if not indexes:
        for kind in ("index", "timeindex"):
            path.with_suffix(f".{kind}").unlink()
    with pytest.raises((SegmentUnreadableError, DataLossError), match="17"):
        values(open_log(tmp_path / "log"))


def test_cleaned_segment_that_is_taking_its_place_is_read(tmp_path: Path) -> None:
    """Stop a broker while it puts one cleaned segment in the place of three: some of these are gone already."""
    case = unpack("compact", tmp_path)
    name = PartitionName("compact-plain", 0)
    folder = case / "log" / "compact-plain-0"
    system = fs.LocalFileSystem()

    def read() -> list[object]:
        partition = KafkaLog([Folder(system, str(case / "log"))]).partition(name)
        of = PositionRange(partition.bounds().log_start, partition.bounds().upper(LEVEL))
        batches = partition.read(of, LEVEL, partition.decisions(of), ["offset", "value"])
        return [row for batch in batches for row in batch.to_pylist()]

    whole = read()
    first, second = sorted(folder.glob("*.log"))[:2]
    merged = first.read_bytes() + second.read_bytes()
    first.with_name(first.name + ".swap").write_bytes(merged)
    assert read() == whole
    first.unlink()
    assert read() == whole
    second.unlink()
    assert read() == whole


def test_segments_that_move_under_a_plan_are_found_again(tmp_path: Path) -> None:
    """Move segments to the remote tier after the plan, and delete what retention takes: no row is lost unsaid."""
    write(tmp_path / "log", 50)
    (tmp_path / "remote" / f"t-0-{TOPIC_ID}").mkdir(parents=True)
    partition = open_log(tmp_path / "log", tmp_path / "remote")
    assert partition.bounds().log_end.key == 50
    as_remote(tmp_path / "log", tmp_path / "remote", [0, 10, 20], "A")
    for base in (0, 10, 20):
        (tmp_path / "log" / "t-0" / f"{base:020}.log").unlink()
    assert values(partition) == plain(50)
    for path in (tmp_path / "remote").rglob(f"{0:020}-*"):
        path.unlink()
    with pytest.raises(DataLossError) as lost:
        values(partition)
    assert lost.value.lost == PositionRange(Position.from_key(0), Position.from_key(10))


def test_segments_that_are_merged_under_a_plan_are_found_again(tmp_path: Path) -> None:
    """Put one segment in the place of two, as the cleaner does, between plan and read."""
    write(tmp_path / "log", 50)
    partition = open_log(tmp_path / "log")
    assert partition.bounds().log_end.key == 50
    first, second = (tmp_path / "log" / "t-0" / f"{base:020}.log" for base in (10, 20))
    first.write_bytes(first.read_bytes() + second.read_bytes())
    second.unlink()
    assert values(partition, 25) == plain(50)[25:]
    assert values(open_log(tmp_path / "log")) == plain(50)


@pytest.mark.parametrize("cut", [0, 1, 2, None])
def test_wrong_transaction_index_of_a_small_log_changes_nothing(tmp_path: Path, cut: int | None) -> None:
    """Cut entries off a transaction index, or name others' offsets: the markers are read where that is cheap."""
    writer = PartitionWriter(tmp_path / "log", segment_bytes=1 << 20)
    for producer in range(1, 5):
        writer.send([Record(b"k", b"%d" % producer)] * 3, producer, transactional=True)
        writer.end_transaction(producer, commit=producer == 2)
    writer.close()
    [path] = (tmp_path / "log").rglob("*.txnindex")
    data = bytearray(path.read_bytes())
    if cut is None:
        data[17] ^= 2  # the first offset of the first one
    else:
        del data[cut * 34 :]
    path.write_bytes(data)
    assert [value for _, value in values(open_log(tmp_path / "log"))] == [b"2"] * 3


def test_damaged_data_doesnt_hide_what_the_markers_say(tmp_path: Path) -> None:
    """Damage a batch that can be no marker: the log can be planned, and all but that batch be read."""
    writer = PartitionWriter(tmp_path / "log", segment_bytes=1 << 20)
    for producer in (1, 2):
        writer.send([Record(b"k", b"v" * 50)] * 3, producer, transactional=True)
        writer.send([Record(b"k", b"w" * 50)], producer, transactional=True)
        writer.end_transaction(producer, commit=producer == 1)
    writer.close()
    path = tmp_path / "log" / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    for lost in ("snapshot", "txnindex"):
        for file in (tmp_path / "log").rglob(f"*.{lost}"):
            file.unlink()
    partition = open_log(tmp_path / "log")
    of = PositionRange(partition.bounds().log_start, partition.bounds().upper(LEVEL))
    skipped: list[SegmentUnreadableError] = []
    batches = partition.read(of, LEVEL, partition.decisions(of), ["offset"], skipped.append)
    assert [row for batch in batches for row in batch.column(0).to_pylist()] == [3]
    assert len(skipped) == 1


def test_preallocated_log_ends_with_its_last_batch(tmp_path: Path) -> None:
    """Have zeros behind the last batch, as ``log.preallocate`` leaves them after a crash, in the indexes, too."""
    write(tmp_path / "log", 25)
    for kind, size in (("log", 1 << 20), ("index", 8 << 10), ("timeindex", 12 << 10)):
        path = tmp_path / "log" / "t-0" / f"{20:020}.{kind}"
        path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    partition = open_log(tmp_path / "log")
    assert partition.bounds().log_end.key == 25
    assert values(partition) == plain(25)
    found = partition.position_at(1000 + 22)
    assert found == Position.from_key(22)
