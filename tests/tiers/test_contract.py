"""What every store must do: one suite over a bucket, and in long runs over the log's own root and another folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.log.reading import COMMITTED, UNCOMMITTED, told_by
from tests.log.tiers import everything, tiers_of, write_ledgers
from tests.tiers.stores import Bucket, Store
from txn_source import Log, SegmentUnreadableError
from txn_source.storage import tiered

LEVELS = (COMMITTED, UNCOMMITTED)
READER = """
import os, sys
from txn_source import connect

def rows():
    return connect(sys.argv[1], create=False).scan("orders", sys.argv[2]).read_all().num_rows

here = rows()
child = os.fork()
if child == 0:
    os._exit(0 if rows() == here else 1)
print(here, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(autouse=True)
def _several_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 5)


@pytest.fixture
def before(log_with_store: Log) -> dict[str, pa.Table]:
    """What was read of three closed ledgers and an open one, by level, before anything was offloaded."""
    log_with_store.create_topic("orders")
    write_ledgers(log_with_store)
    return {level: everything(log_with_store, "orders", level) for level in LEVELS}


def test_reads_are_the_same_from_either_copy(log_with_store: Log, before: dict[str, pa.Table]) -> None:
    """Offload, and read all columns at both levels with both priorities: the same rows, from the copies asked for."""
    assert len(log_with_store.offload("orders").ledger_ids) == 3
    assert tiers_of(log_with_store, "orders") == [{"bookkeeper", "tiered"}] * 3
    for priority, expected in (("tiered-first", (1, 3)), ("bookkeeper-first", (4, 0))):
        for level in LEVELS:
            reader = log_with_store.scan("orders", level, before[level].schema.names, read_priority=priority)
            assert reader.read_all().equals(before[level])
            copies = log_with_store.copies_read(reader)
            assert (copies.hot_ledgers, copies.tiered_ledgers) == expected
            assert copies.failures == []


def test_each_ledger_becomes_one_parquet_file(log_with_store: Log, store: Store, before: dict[str, pa.Table]) -> None:
    """Look into the store: Parquet files with what read_committed sees, a second file with the rest for each, below the
    topic's name, and no more if asked again."""
    report = log_with_store.offload("orders")
    names, everything = store.names(), store.files()
    assert len(names) == 3
    seconds = [name for name in everything if name not in names]
    assert sorted(name.replace("/_", "/").replace(".aborted", ".parquet") for name in seconds) == names
    assert all(name.startswith("public/default/orders/0/ledger-") and name.endswith(".parquet") for name in names)
    files = [pq.ParquetFile(pa.BufferReader(store.read(name))) for name in names]
    assert sum(len(store.read(name)) for name in everything) == report.tiered_bytes
    assert sum(file.metadata.num_rows for file in files) == before[COMMITTED].num_rows - 1
    hidden = sum(pq.read_metadata(pa.BufferReader(store.read(name))).num_rows for name in seconds)
    assert hidden == before[UNCOMMITTED].num_rows - before[COMMITTED].num_rows
    assert report.messages == before[UNCOMMITTED].num_rows - 1
    assert all(file.metadata.num_row_groups > 2 for file in files)
    assert log_with_store.offload("orders").ledger_ids == ()
    assert store.files() == everything


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize(
    "delete", [Log.delete_topic, lambda log, topic: log.trim(topic, keep_bytes=0)], ids=["topic", "ledgers"]
)
def test_deleted_topic_and_trimmed_ledgers_leave_no_objects(
    log_with_store: Log, store: Store, delete: Callable[[Log, str], object]
) -> None:
    """Delete the topic, or trim all that is closed: its objects are gone, those of another topic stay."""
    log_with_store.create_topic("other")
    write_ledgers(log_with_store, "other", 1)
    for topic in ("orders", "other"):
        log_with_store.offload(topic)
    log_with_store.delete_hot("orders")
    delete(log_with_store, "orders")
    kept = store.files()
    assert len(kept) == 2
    assert all(name.startswith("public/default/other/") for name in kept)


@pytest.mark.long
@pytest.mark.usefixtures("before")
def test_object_that_is_gone_already_is_deleted_without_a_word(
    log_with_store: Log, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Remove an object, and the second file of another, by hand before the copies are deleted: nothing is doomed any
    more afterwards, nothing warned."""
    log_with_store.offload("orders")
    store.remove(store.names()[0])
    store.remove(next(name for name in store.files() if "_ledger-2-" in name))
    assert log_with_store.delete_offloaded("orders") == 3
    assert store.files() == []
    assert log_with_store.metadata.list_doomed_files() == []
    assert told_by("client.tiering", caplog) == []


@pytest.mark.usefixtures("before")
def test_offload_that_cannot_finish_leaves_no_object(log_with_store: Log, store: Store) -> None:
    """Damage a segment so that the offload fails in the middle of an object: none is left of that ledger."""
    segments = sorted((log_with_store.root / "segments").rglob("*.arrow"), key=lambda p: int(p.name.split("-")[0]))
    data = segments[1].read_bytes()
    segments[1].write_bytes(data[:-1000])
    with pytest.raises(SegmentUnreadableError, match=r"\[TXNLOG_SEGMENT_UNREADABLE\] Segment"):
        log_with_store.offload("orders")
    assert [name.split("-")[1] for name in store.files()] == ["1", "3"] * 2
    segments[1].write_bytes(data)
    assert log_with_store.offload("orders").ledger_ids == (2,)
    assert len(store.files()) == 6
    assert log_with_store.metadata.list_doomed_files() == []


@pytest.mark.long
def test_other_processes_and_their_forks_read_objects(
    log: Log, bucket: Bucket, before_in_bucket: dict[str, pa.Table], tmp_path: Path
) -> None:
    """Read in a new process, and in a fork of it that was made after its connections were."""
    script = tmp_path / "reader.py"
    script.write_text(READER)
    for level in LEVELS:
        done = subprocess.run(
            [sys.executable, str(script), str(log.root), level], capture_output=True, text=True, env=dict(os.environ)
        )
        assert (done.stdout.split(), done.stderr) == ([str(before_in_bucket[level].num_rows), "0"], "")


@pytest.fixture
def before_in_bucket(log: Log, bucket: Bucket) -> dict[str, pa.Table]:
    """The same, offloaded to a bucket, without hot copies."""
    log.create_topic("orders", offload_uri=bucket.uri)
    write_ledgers(log)
    found = {level: everything(log, "orders", level) for level in LEVELS}
    log.offload("orders")
    log.delete_hot("orders")
    return found
