"""The segments that a writer has open: which file an entry goes to, what is synced, and what is never used again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from txn_source.client.writing.partitions import Partitions
from txn_source.client.writing.segment_files import SegmentFiles
from txn_source.model.bounds import Bounds
from txn_source.model.entry import NewEntry
from txn_source.model.errors import StorageWriteError
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.position import Position
from txn_source.model.topic import PartitionView, Topic, TopicView
from txn_source.model.topic_name import TopicName
from txn_source.storage.segment import SegmentName, SegmentReader

BATCH = pa.record_batch({"value": pa.array([b"a", b"b"], pa.binary())})
OTHER = pa.record_batch({"value": pa.array([b"c"], pa.binary()), "key": pa.array([b"k"], pa.binary())})
Open = Callable[..., SegmentFiles]


def view_of(partitions: int) -> TopicView:
    """Return a topic with id 3, whose partition ``n`` has id ``10 + n`` and the open ledger ``20 + n``."""
    topic = Topic(3, TopicName.parse("orders"), None, LedgerLimits(), 0)
    empty = [Position(20 + index, 0) for index in range(partitions)]
    views = [PartitionView(10 + i, i, Bounds(at, at, at, at), 0, 0, Position(0, 0)) for i, at in enumerate(empty)]
    return TopicView(topic, tuple(views))


@pytest.fixture
def files(tmp_path: Path) -> Open:
    (tmp_path / "segments").mkdir()

    def opened(partitions: int = 2, max_open: int = 8, **options: object) -> SegmentFiles:
        known = options.pop("known", None) or Partitions(view_of(partitions))
        return SegmentFiles(tmp_path, 3, known, 7, max_open, **options)  # type: ignore[arg-type]

    return opened


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were synced, in order."""
    names: list[str] = []
    sync = os.fdatasync

    def note(fd: int) -> None:
        sync(fd)
        names.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))

    monkeypatch.setattr(os, "fdatasync", note)
    return names


def rows(root: Path, entry: NewEntry) -> list[dict[str, object]]:
    with SegmentReader(root, entry.segment) as reader:
        [batch] = reader.read([entry.offset], [entry.offset + entry.length], [entry.crc32c], [0])
    return batch.to_pylist()


def test_each_partition_and_set_of_columns_has_one_file(files: Open, tmp_path: Path) -> None:
    """Append twice for each of three; read each entry back."""
    opened = files()
    wanted = [(0, BATCH), (1, BATCH), (0, OTHER)] * 2
    entries = [opened.append(partition, number, batch) for number, (partition, batch) in enumerate(wanted)]
    opened.start()
    opened.close()
    assert [e.segment for e in entries[:3]] == [e.segment for e in entries[3:]]
    assert len({e.segment for e in entries}) == 3
    assert [(e.partition_id, e.base_sequence, e.messages) for e in entries] == [
        (10 + partition, number, batch.num_rows) for number, (partition, batch) in enumerate(wanted)
    ]
    assert SegmentName.parse(entries[1].segment) == SegmentName(3, 1, 21, 7)
    assert [rows(tmp_path, e) for e in entries] == [batch.to_pylist() for _, batch in wanted]


def test_new_ledger_gets_a_new_file(files: Open) -> None:
    """Follow one of two partitions to its next ledger: the other one keeps its file."""
    known = Partitions(view_of(2))
    opened = files(known=known)
    before = [opened.append(partition, 0, BATCH).segment for partition in (0, 1)]
    known.follow(1, 30)
    after = [opened.append(partition, 2, BATCH).segment for partition in (0, 1)]
    assert after[0] == before[0]
    assert SegmentName.parse(after[1]) == SegmentName(3, 1, 30, 7)
    opened.close()


def test_only_what_was_appended_is_synced(files: Open, synced: list[str]) -> None:
    """Sync after appending to one file twice, then to none, then to another one."""
    opened = files()
    first = opened.append(0, 0, BATCH).segment
    opened.append(0, 2, BATCH)
    opened.start()
    opened.start()
    second = opened.append(1, 0, BATCH).segment
    opened.start()
    opened.close()
    assert synced == [os.path.basename(path) for path in (first, second)]


def test_file_that_makes_room_is_synced_before_it_is_closed(files: Open, synced: list[str]) -> None:
    """Open three with two at most: the oldest is safe and closed, and its partition gets another file."""
    opened = files(partitions=3, max_open=2)
    entries = [opened.append(partition, 0, BATCH) for partition in range(3)]
    assert synced == [os.path.basename(entries[0].segment)]
    opened.start()
    assert sorted(synced) == sorted(os.path.basename(e.segment) for e in entries)
    assert opened.append(0, 2, BATCH).segment != entries[0].segment
    opened.close()


@pytest.mark.parametrize("name", ["write", "fdatasync"])
def test_broken_file_is_never_written_to_again(
    files: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Interrupt a write, and a sync: the next entry goes to a new file, and the sync after it succeeds."""
    opened = files()
    first = opened.append(0, 0, BATCH)
    other = opened.append(1, 0, BATCH)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            opened.append(0, 2, BATCH) if name == "write" else opened.start()
    size = (tmp_path / first.segment).stat().st_size
    again = opened.append(0, 2, BATCH)
    assert again.segment != first.segment
    assert opened.append(1, 2, BATCH).segment == other.segment
    opened.start()
    opened.close()
    assert (tmp_path / first.segment).stat().st_size == size
    assert rows(tmp_path, again) == BATCH.to_pylist()


def test_path_is_noted_before_its_file_is_made(files: Open, tmp_path: Path) -> None:
    """Fail to make a file: its path is known all the same, so that whoever discards finds each file."""
    noted: list[str] = []
    opened = files(note=noted.append)
    opened.append(0, 0, BATCH)
    assert [(tmp_path / path).exists() for path in noted] == [True]
    (tmp_path / "segments" / "3" / "1").touch()
    with pytest.raises(StorageWriteError):
        opened.append(1, 0, BATCH)
    assert len(noted) == 2
    opened.close()


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt
