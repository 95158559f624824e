"""The segments that a writer has open: which are never used again, and what a caller finds who discards them."""

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
from txn_source.storage.segment import SegmentReader

BATCH = pa.record_batch({"value": pa.array([b"a", b"b"], pa.binary())})
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

    def opened(**options: Callable[[str], object]) -> SegmentFiles:
        return SegmentFiles(tmp_path, 3, Partitions(view_of(2)), 7, 8, **options)

    return opened


def rows(root: Path, entry: NewEntry) -> list[dict[str, object]]:
    with SegmentReader(root, entry.segment) as reader:
        [batch] = reader.read([entry.offset], [entry.offset + entry.length], [entry.crc32c], [0])
    return batch.to_pylist()


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
