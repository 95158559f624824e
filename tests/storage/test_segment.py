"""Hot segments: what was appended is read back, and is a plain Arrow stream; what storage refuses is said."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from txn_source.model.errors import InternalError, SegmentUnreadableError, StorageWriteError
from txn_source.model.position import Position
from txn_source.storage.schema import RAW_SCHEMA
from txn_source.storage.segment import (
    SegmentReader,
    SegmentWriter,
    StoredEntry,
    segment_path,
    stored_segments,
    topic_prefix,
)

PATH = "segments/1/0/a.arrow"
TYPED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("amount", pa.decimal128(20, 2)),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("at", pa.timestamp("us", tz="UTC")),
    ]
)


def raw(*values: bytes | None) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary())], schema=RAW_SCHEMA)


def write(root: Path, *batches: pa.RecordBatch, path: str = PATH) -> list[StoredEntry]:
    writer = SegmentWriter(root, path, batches[0].schema)
    try:
        entries = [writer.append(batch) for batch in batches]
        writer.sync()
    finally:
        writer.close()
    return entries


def read(reader: SegmentReader, entries: list[StoredEntry]) -> Iterator[pa.RecordBatch]:
    return reader.read(
        [e.offset for e in entries],
        [e.offset + e.length for e in entries],
        [e.crc32c for e in entries],
        [Position(7, i).key for i in range(len(entries))],
    )


def test_entries_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    """Write batches with nulls, nested values, no rows and a sliced one, and read all of them, then some, back."""
    columns = [[1, 2, 3], ["0.00", "1.25", None], [["a"], None, []], [None, 5, 6]]
    whole = pa.record_batch([pa.array(c).cast(t) for c, t in zip(columns, TYPED.types, strict=True)], schema=TYPED)
    batches = [whole, whole.slice(1, 1), whole.slice(0, 0), whole]
    entries = write(tmp_path, *batches)
    with SegmentReader(tmp_path, PATH) as reader:
        assert reader.schema.equals(TYPED)
        assert list(read(reader, entries)) == batches
        assert list(read(reader, entries[1:2])) == batches[1:2]
        assert list(read(reader, [entries[0], entries[3]])) == [batches[0], batches[3]]  # with a gap between


def test_file_is_an_arrow_stream_for_any_reader(tmp_path: Path) -> None:
    """Open a segment with pyarrow alone."""
    write(tmp_path, raw(b"a", b"b"), raw(b"c"))
    with pa.ipc.open_stream(tmp_path / PATH) as stream:
        assert stream.schema.equals(RAW_SCHEMA)
        assert stream.read_all().column("value").to_pylist() == [b"a", b"b", b"c"]


def test_reader_keeps_working_when_the_file_is_deleted(tmp_path: Path) -> None:
    """Delete the file under an open reader, and read it twice."""
    entries = write(tmp_path, raw(b"a"), raw(b"b"))
    with SegmentReader(tmp_path, PATH) as reader:
        (tmp_path / PATH).unlink()
        assert list(read(reader, entries)) == list(read(reader, entries)) == [raw(b"a"), raw(b"b")]


def test_batches_outlive_their_reader(tmp_path: Path) -> None:
    """Use a batch after its reader was closed, twice."""
    entries = write(tmp_path, raw(b"a" * 5000))
    reader = SegmentReader(tmp_path, PATH)
    [batch] = read(reader, entries)
    reader.close()
    reader.close()
    batch.validate(full=True)
    assert batch == raw(b"a" * 5000)


def test_segment_is_never_written_over(tmp_path: Path) -> None:
    """Create a second writer of the same path: it is refused, and the file stays as it was."""
    write(tmp_path, raw(b"a"))
    before = (tmp_path / PATH).read_bytes()
    with pytest.raises(StorageWriteError, match=r"a\.arrow can't be written: file exists\. The messages were not"):
        SegmentWriter(tmp_path, PATH, RAW_SCHEMA)
    assert (tmp_path / PATH).read_bytes() == before


def test_root_that_is_no_folder_refuses_writes(tmp_path: Path) -> None:
    """Write below a file: the error names the segment, and nothing is made."""
    (tmp_path / "segments").write_bytes(b"")
    with pytest.raises(StorageWriteError, match=r"^\[TXNLOG_STORAGE_WRITE_FAILED\] Segment .*/segments/1/0/a\.arrow "):
        SegmentWriter(tmp_path, PATH, RAW_SCHEMA)
    assert [p.name for p in tmp_path.iterdir()] == ["segments"]


LIMITED = """
import resource, sys
from pathlib import Path
import pyarrow as pa
from txn_source.model.errors import StorageWriteError
from txn_source.storage.schema import RAW_SCHEMA
from txn_source.storage.segment import SegmentReader, SegmentWriter

root, path = Path(sys.argv[1]), sys.argv[2]
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
writer = SegmentWriter(root, path, RAW_SCHEMA)
kept = pa.record_batch([pa.array([b"k"]), pa.array([b"a" * 10_000])], schema=RAW_SCHEMA)
entry = writer.append(kept)
writer.sync()
try:
    writer.append(pa.record_batch([pa.array([b"k"]), pa.array([b"b" * 100_000])], schema=RAW_SCHEMA))
except StorageWriteError as error:
    print(error)
print(writer.broken)
with SegmentReader(root, path) as reader:
    [batch] = reader.read([entry.offset], [entry.offset + entry.length], [entry.crc32c], [0])
print(batch == kept)
"""


def test_write_that_the_system_cuts_short_is_an_error(tmp_path: Path) -> None:
    """Write past a limit of the file's size, in a process of its own: part of the entry is written, then refused."""
    command = [sys.executable, "-W", "error", "-c", LIMITED, str(tmp_path), PATH]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    error, broken, kept = done.stdout.splitlines()
    assert error.startswith(
        f"[TXNLOG_STORAGE_WRITE_FAILED] Segment {tmp_path / PATH} can't be written: file too large."
    )
    assert (broken, kept) == ("True", "True")
    assert (tmp_path / PATH).stat().st_size == 20_000


def test_every_segment_gets_a_path_of_its_own() -> None:
    """Ask for many paths of one producer and ledger: they differ, and lie in the folder of topic and partition."""
    paths = {segment_path(3, 1, 12, 5) for _ in range(1000)}
    assert len(paths) == 1000
    assert all(Path(path).parent == Path("segments/3/1") for path in paths)
    assert all(Path(path).name.startswith("12-5-") and path.endswith(".arrow") for path in paths)
    assert topic_prefix(3) == "segments/3"


def test_stored_segments_are_listed_by_path(tmp_path: Path) -> None:
    """List the files of a root without segments, then with two; nothing outside their folder is listed."""
    assert list(stored_segments(tmp_path)) == []
    (tmp_path / "metadata.db").write_bytes(b"x")
    for path in (PATH, "segments/2/0/b.arrow"):
        write(tmp_path, raw(b"a"), path=path)
    sizes = {path: state.st_size for path, state in stored_segments(tmp_path)}
    assert sizes == {path: os.path.getsize(tmp_path / path) for path in (PATH, "segments/2/0/b.arrow")}


def test_missing_segment_is_unreadable(tmp_path: Path) -> None:
    """Open a path where no file is: the error names it, and nothing is made."""
    with pytest.raises(SegmentUnreadableError) as caught:
        SegmentReader(tmp_path, PATH)
    assert str(caught.value) == (
        f"[TXNLOG_SEGMENT_UNREADABLE] Segment {tmp_path / PATH} is unreadable: it can't be opened (No such file or"
        " directory). Restore the file from a backup; the other entries of the topic can still be read by position."
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["write", "fdatasync"])
def test_interrupted_segment_is_never_written_to_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Interrupt just after the system call: what was written before is read back, and nothing more is taken."""
    writer = SegmentWriter(tmp_path, PATH, RAW_SCHEMA)
    first = writer.append(raw(b"a"))
    inner = getattr(os, where)

    def interrupted(*arguments: object) -> None:
        inner(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, where, interrupted)
        if where == "fdatasync":
            writer.append(raw(b"b"))
        with pytest.raises(KeyboardInterrupt):
            writer.sync() if where == "fdatasync" else writer.append(raw(b"b"))
    assert writer.broken
    for call in (lambda: writer.append(raw(b"c")), writer.sync):
        with pytest.raises(InternalError, match="after it was broken"):
            call()
    writer.close()
    with SegmentReader(tmp_path, PATH) as reader:
        assert [batch.column("value").to_pylist() for batch in read(reader, [first])] == [[b"a"]]
