"""Damaged segments: whatever happens to a file, its entries are read as they were written, or the read fails."""

from __future__ import annotations

import functools
import os
import re
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import given, settings

from tests.selection import examples, for_each
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.position import Position
from txn_source.storage.segment import SegmentReader, SegmentWriter, StoredEntry

PATH = "segments/1/0/a.arrow"
BATCHES = [
    pa.record_batch({"id": pa.array([1, 2, None], pa.int64()), "value": pa.array([b"x" * n, b"y", None], pa.binary())})
    for n in (1, 300, 20)
]
POSITIONS = [Position(7, i) for i in range(len(BATCHES))]


@functools.cache
def written() -> tuple[bytes, tuple[StoredEntry, ...]]:
    """Return a whole segment's bytes and its entries."""
    with tempfile.TemporaryDirectory() as folder:
        writer = SegmentWriter(Path(folder), PATH, BATCHES[0].schema)
        entries = tuple(writer.append(batch) for batch in BATCHES)
        writer.close()
        return (Path(folder) / PATH).read_bytes(), entries


HEADER, SIZE = written()[1][0].offset, len(written()[0])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    (folder / PATH).parent.mkdir(parents=True)
    return folder


def read(root: Path, data: bytes, *indexes: int) -> list[pa.RecordBatch]:
    """Store the bytes as a segment, and read those entries with one read of the file."""
    (root / PATH).write_bytes(data)
    chosen = [written()[1][i] for i in indexes]
    with SegmentReader(root, PATH) as reader:
        return list(
            reader.read(
                [e.offset for e in chosen],
                [e.offset + e.length for e in chosen],
                [e.crc32c for e in chosen],
                [POSITIONS[i].key for i in indexes],
            )
        )


def flipped(at: int, mask: int) -> bytes:
    data = bytearray(written()[0])
    data[at] ^= mask
    return bytes(data)


@given(at=st.integers(HEADER, SIZE - 1), mask=st.integers(1, 255))
@settings(max_examples=examples(100), deadline=None)
def test_flipped_byte_in_an_entry_is_found(root: Path, at: int, mask: int) -> None:
    """Damage a byte anywhere behind the header: the error names file, entry and both checksums; others are read."""
    for index, entry in enumerate(written()[1]):
        if not entry.offset <= at < entry.offset + entry.length:
            assert read(root, flipped(at, mask), index) == [BATCHES[index]]
            continue
        with pytest.raises(SegmentUnreadableError) as caught:
            read(root, flipped(at, mask), index)
        found = re.fullmatch(
            rf"\[TXNLOG_SEGMENT_UNREADABLE\] Segment {re.escape(str(root / PATH))} is unreadable: entry 7:{index} has"
            r" checksum ([0-9a-f]{8}) where ([0-9a-f]{8}) was written \(CRC-32C\)\. Restore .*",
            str(caught.value),
        )
        assert found
        assert found[1] != found[2] == f"{entry.crc32c:08x}"


@given(at=st.integers(0, HEADER - 1), mask=st.integers(1, 255))
@settings(max_examples=examples(100), deadline=None)
def test_flipped_byte_in_the_header_is_found(root: Path, at: int, mask: int) -> None:
    """Damage the schema message: a renamed column or another type must not turn entries into other rows."""
    for index in range(len(BATCHES)):
        with pytest.raises(SegmentUnreadableError, match=rf"Segment {root / PATH} is unreadable: (its header|entry 7)"):
            read(root, flipped(at, mask), index)


@given(size=st.integers(0, SIZE - 1))
@settings(max_examples=examples(100), deadline=None)
def test_truncated_file_gives_whole_entries_or_an_error(root: Path, size: int) -> None:
    """Cut the file anywhere: entries wholly in it are read, any other is reported with the place where it broke off."""
    data = written()[0][:size]
    for index, entry in enumerate(written()[1]):
        end = entry.offset + entry.length
        if size >= end:
            assert read(root, data, index) == [BATCHES[index]]
            continue
        with pytest.raises(SegmentUnreadableError) as caught:
            read(root, data, index)
        expected = (
            "its header is damaged" if size < HEADER else f"entry 7:{index} ends at byte {end}, the file at {size}"
        )
        assert expected in str(caught.value)
        assert str(root / PATH) in str(caught.value)


@pytest.mark.parametrize("index", range(len(BATCHES)))
def test_damaged_one_of_several_entries_is_named(root: Path, index: int) -> None:
    """Read three entries at once of which one is damaged: the error names that one."""
    entry = written()[1][index]
    with pytest.raises(SegmentUnreadableError, match=rf"entry 7:{index} has checksum"):
        read(root, flipped(entry.offset + entry.length - 1, 1), 0, 1, 2)


def test_checksum_covers_the_header_and_the_whole_entry() -> None:
    """Calculate the checksums from the file's bytes, as another program would."""
    data, entries = written()
    for entry in entries:
        message = data[entry.offset : entry.offset + entry.length]
        assert crc32c(data[:HEADER] + message) == entry.crc32c


def test_sound_bytes_that_are_no_entry_are_unreadable(root: Path) -> None:
    """Register bytes with their right checksum that Arrow can't decode: the error names the entry, too."""
    data, junk = written()[0], b"\xff\xff\xff\xff\x10\0\0\0" + b"j" * 16
    (root / PATH).write_bytes(data + junk)
    with (
        SegmentReader(root, PATH) as reader,
        pytest.raises(SegmentUnreadableError, match=r"entry 7:9 can't be decoded \("),
    ):
        list(reader.read([SIZE], [SIZE + len(junk)], [crc32c(data[:HEADER] + junk)], [Position(7, 9).key]))


@for_each(
    "data",
    [b"", b"\xff\xff\xff\xff", b"not arrow at all", b"\xff\xff\xff\xff\xff\xff\xff\xff" + b"x" * 100, b"PAR1" * 100],
)
def test_file_that_is_no_segment_is_unreadable(root: Path, data: bytes) -> None:
    """Put other bytes where a segment was."""
    with pytest.raises(SegmentUnreadableError, match="its header is damaged"):
        read(root, data, 0)


def test_absurd_header_is_not_read_into_memory(root: Path) -> None:
    """Say in the first bytes that the schema has a gigabyte, and make the file, sparse, that long."""
    (root / PATH).write_bytes(b"\xff\xff\xff\xff" + (1 << 30).to_bytes(4, "little"))
    os.truncate(root / PATH, (1 << 30) + 8)
    with pytest.raises(SegmentUnreadableError, match=r"its header is damaged\. Restore"):
        SegmentReader(root, PATH)


def test_file_that_shrinks_under_a_reader_is_unreadable(root: Path) -> None:
    """Truncate the file after it was opened: the read notices, instead of handing out what it didn't read."""
    data, (first, *_) = written()
    (root / PATH).write_bytes(data)
    with SegmentReader(root, PATH) as reader:
        (root / PATH).write_bytes(data[: first.offset + 5])
        with pytest.raises(SegmentUnreadableError, match=r"ends at byte \d+, inside entry 7:0"):
            list(reader.read([first.offset], [first.offset + first.length], [first.crc32c], [POSITIONS[0].key]))
