"""Batches of jobs, queries and imports after a rebuild: what was done is there as a whole, and isn't done again."""

from __future__ import annotations

import json
import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_source
from tests.importing.imported_topics import target_rows, write_partitions
from tests.upkeep.histories import commit, without_database, worst
from txn_source import IsolationLevel, Log
from txn_source.client.writing import copied_segments
from txn_source.client.writing.task_writer import BulkWriter
from txn_source.importing import batch_writer, feed, import_topics
from txn_source.model.spark_commit import AppVersion, Sink, TopicBatch
from txn_source.model.topic_name import TopicName
from txn_source.storage import batch_notes
from txn_source.upkeep.rebuild import rebuild

QUERY = Sink("query", 3, "spark-query", None, "run-1")
APP = Sink(None, 0, "spark-app", None, app=AppVersion("app", 7))


@pytest.fixture
def log(root: Path) -> Log:
    log = txn_source.connect(root)
    log.create_topic("a", 2)
    log.create_topic("b")
    return log


def written(log: Log, *topics: str) -> list[TopicBatch]:
    """Write a row to each partition of topics, in files that nothing refers to."""
    batches = []
    for topic in topics:
        writer = BulkWriter(log.access, TopicName.parse(topic))
        for partition in range(len(log.stats(topic).partitions)):
            rows = {
                "value": pa.array([b"%d" % partition], pa.binary()),
                "__partition": pa.array([partition], pa.int32()),
            }
            writer.write(pa.record_batch(rows))
        batches.append(writer.finish())
    return batches


def counts(log: Log) -> list[int]:
    return [log.count(topic, "read_uncommitted") for topic in ("a", "b")]


@pytest.mark.parametrize("sink", [QUERY, APP], ids=["query", "application"])
@pytest.mark.parametrize("copies", [False, True])
def test_repeated_batch_is_stored_once(log: Log, root: Path, tmp_path: Path, sink: Sink, copies: bool) -> None:
    """Commit a batch of two topics, lose the database, repeat the batch, and commit the next one."""
    if copies:
        for name in ("x", "y"):
            log.add_root(name, tmp_path / name)
        for topic in ("a", "b"):
            log.set_policies(topic, hot_copies="x,y")
    assert not commit(log, sink, written(log, "a", "b"))
    left = without_database(root, tmp_path / "left")
    assert sum(topic.left_out for topic in rebuild(left).topics) == 0
    assert not worst(left)
    with txn_source.connect(left) as again:
        check_repeated(again, sink)


def check_repeated(again: Log, sink: Sink) -> None:
    """Repeat a batch of two topics, which stores nothing, and commit the next one."""
    assert counts(again) == [2, 1]
    assert commit(again, replace(sink, run_id="run-2"), written(again, "a", "b"))
    assert counts(again) == [2, 1]
    app = None if sink.app is None else AppVersion("app", 8)
    assert not commit(again, replace(sink, batch_id=4, app=app), written(again, "a", "b"))
    assert counts(again) == [4, 2]


@pytest.mark.parametrize("notes", [0, 1, 2])
def test_batch_of_a_killed_driver_is_there_as_a_whole_or_not_at_all(
    log: Log, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: int
) -> None:
    """Kill the driver when the batch is committed, and so many files have their notes: Spark repeats the batch."""
    append = copied_segments.append_to_all
    left_to_put = [notes]

    def killed(*arguments: Any) -> bool:
        if not left_to_put[0]:
            raise KeyboardInterrupt
        left_to_put[0] -= 1
        return append(*arguments)

    monkeypatch.setattr("txn_source.client.writing.job_notes.append_to_all", killed)
    with pytest.raises(KeyboardInterrupt):
        commit(log, QUERY, written(log, "a", "b"))
    monkeypatch.undo()
    left = without_database(root, tmp_path / "left")
    rebuild(left)
    with txn_source.connect(left) as again:
        assert counts(again) == ([2, 1] if notes else [0, 0])
        assert commit(again, replace(QUERY, run_id="run-2"), written(again, "a", "b")) == bool(notes)
        assert counts(again) == [2, 1]


def test_large_batch_is_noted_file_by_file(
    log: Log, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let no note have more than two entries."""
    monkeypatch.setattr(batch_notes, "_MOST_ROWS", 2)
    commit(log, QUERY, written(log, "a", "b"))
    left = without_database(root, tmp_path / "left")
    rebuild(left)
    with txn_source.connect(left) as again:
        assert counts(again) == [2, 1]


@pytest.mark.parametrize("field", ["b", "t", "w", "by", "r", "e", "q"])
@pytest.mark.parametrize("value", ["?", -1, [[]]])
def test_broken_notes_of_batches_break_no_rebuild(
    log: Log, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, value: object
) -> None:
    """Let a field of all notes of a batch have another value: the batch is there, or left out and counted."""
    encoded = batch_notes._encoded

    def broken(parts: Any) -> bytes:
        note = json.loads(encoded(parts))
        for part in note["b"]:
            part[field] = value
        return json.dumps({**note, "b": value} if field == "b" else note).encode()

    monkeypatch.setattr(batch_notes, "_encoded", broken)
    commit(log, QUERY, written(log, "a"))
    left = without_database(root, tmp_path / "left")
    report = rebuild(left, undecided="abort")
    with txn_source.connect(left) as again:
        assert counts(again)[0] == 2 or sum(topic.left_out for topic in report.topics) == 2


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that Kafka wrote; imports go in small batches."""
    monkeypatch.setattr(batch_writer, "BATCH_ROWS", 15)
    monkeypatch.setattr(feed, "STEP_ROWS", 7)
    folder = tmp_path / "kafka"
    folder.mkdir()
    write_partitions(random.Random(5), folder, 2)
    return folder


def imported(log: Log) -> list[Any]:
    return [target_rows(log, "t", partition, level) for partition in range(2) for level in IsolationLevel]


def test_import_is_there_and_is_not_done_again(source: Path, root: Path, tmp_path: Path) -> None:
    """Import all, lose the database, and import once more."""
    with txn_source.connect(root) as log:
        import_topics(f"kafka:{source}", "t", log)
        before = imported(log)
    left = without_database(root, tmp_path / "left")
    report = rebuild(left)
    assert [(topic.left_out, topic.without_receipt) for topic in report.topics] == [(0, 0)]
    assert not worst(left)
    with txn_source.connect(left) as again:
        assert imported(again) == before
        assert import_topics(f"kafka:{source}", "t", again).messages == 0
        assert imported(again) == before


def test_import_whose_files_are_gone_is_known_by_the_description(source: Path, root: Path, tmp_path: Path) -> None:
    """Offload all of an import, delete the hot copies, maintain, and lose the database."""
    with txn_source.connect(root) as log:
        import_topics(f"kafka:{source}", "t", log)
        log.roll_ledger("t")
        log.offload("t")
        log.delete_hot("t")
        log.maintain()
        before = imported(log)
    left = without_database(root, tmp_path / "left")
    rebuild(left)
    with txn_source.connect(left) as again:
        assert imported(again) == before
        assert import_topics(f"kafka:{source}", "t", again).messages == 0


@pytest.mark.parametrize("calls", range(1, 4))
def test_import_goes_on_where_it_was_stopped(
    source: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Stop an import after so many batches, lose the database, and go on: all is there once, or what can't go on says
    so."""
    with txn_source.connect(tmp_path / "whole") as log:
        import_topics(f"kafka:{source}", "t", log)
        whole = imported(log)
    with txn_source.connect(root) as log:
        stopped_after(calls, log, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            import_topics(f"kafka:{source}", "t", log)
        monkeypatch.undo()
    left = without_database(root, tmp_path / "left")
    refused = pytest.raises(txn_source.TransactionEndedError, match="delete the topics")
    expected = refused if rebuild(left, undecided="abort").undecided else nullcontext()
    with txn_source.connect(left) as again, expected:
        import_topics(f"kafka:{source}", "t", again)
        assert imported(again) == whole


def stopped_after(calls: int, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the call raise that registers the next batch, when that is done."""
    register = log.metadata.import_batch
    left = [calls]

    def stop(*arguments: Any) -> Any:
        placed = register(*arguments)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return placed

    monkeypatch.setattr(log.metadata, "import_batch", stop)
