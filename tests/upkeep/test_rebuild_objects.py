"""A log on an object store loses its database, and has it made again from the objects."""

from __future__ import annotations

import json
import random
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import txn_source
from tests.importing.imported_topics import target_rows, write_partitions
from tests.log.objects import new_prefix, s3_surroundings
from tests.log.reading import BY_HAND
from tests.upkeep.histories import TOPICS, History, check_goes_on, commit, make, seen, values, without_database, worst
from tests.upkeep.test_rebuild_batches import check_repeated, counts, written
from txn_source import IsolationLevel, Log, LogNotFoundError, UnavailableError
from txn_source.cli.app import app
from txn_source.client.target import metadata_url, open_service
from txn_source.importing import batch_writer, feed, import_topics
from txn_source.metadata.service.server import Server
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.spark_commit import AppVersion, Sink
from txn_source.storage import apart_notes, batch_notes, root_files
from txn_source.storage.apart_notes import put_apart, read_apart
from txn_source.storage.object_requests import S3Requests
from txn_source.storage.root_files import put_file, read_file
from txn_source.storage.store_errors import StoreError
from txn_source.upkeep import rebuild as module
from txn_source.upkeep.doctor.examination import examine
from txn_source.upkeep.doctor.opening import Where, opened
from txn_source.upkeep.rebuild import rebuild


@pytest.fixture
def uri() -> Iterator[str]:
    """The URI of a prefix for a log."""
    with s3_surroundings():
        yield new_prefix()


def seeds(quick: int, long: int) -> list[object]:
    """Return seeds, most of them for ``--long``."""
    return [seed if seed < quick else pytest.param(seed, marks=pytest.mark.long) for seed in range(long)]


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_readers_see_what_they_saw(uri: str, tmp_path: Path, seed: int) -> None:
    """Write, commit, abort, offload, trim at random; lose the database: all is the same at both levels."""
    log = make(uri, tmp_path / "lost.db")
    History(log, seed, kills=False).run(60)
    before = {topic: seen(log, topic) for topic in TOPICS}
    log.close()
    made = tmp_path / "made.db"
    report = rebuild(uri, metadata=metadata_url(made), undecided="abort")
    assert [(t.without_receipt, t.left_out, t.lost) for t in report.topics] == [(0, 0, ())] * 2
    assert not [note for note in report.notes if "can be read" in note]
    assert not worst(uri, made)
    with txn_source.connect(uri, metadata=made) as log:
        check_goes_on(log, before, seed)


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_what_killed_writers_have_stored_is_there(uri: str, tmp_path: Path, seed: int) -> None:
    """Let writers end without noting their last receipts: all messages are there, as many as there were."""
    log = make(uri, tmp_path / "lost.db")
    history = History(log, seed, kills=True)
    history.run(60)
    before = {topic: seen(log, topic) for topic in TOPICS}
    made = tmp_path / "made.db"
    rebuild(uri, metadata=metadata_url(made), undecided="commit")
    assert not worst(uri, made)
    with txn_source.connect(uri, metadata=made) as log:
        first = {topic: seen(log, topic) for topic in TOPICS}
    assert {topic: values(first[topic]) for topic in TOPICS} == {topic: values(before[topic]) for topic in TOPICS}
    again = tmp_path / "again.db"
    report = rebuild(uri, metadata=metadata_url(again))
    assert (report.undecided, [topic.without_receipt for topic in report.topics]) == ({}, [0, 0])
    with txn_source.connect(uri, metadata=again) as log:
        for topic in TOPICS:
            columns = [*first[topic]["read_committed"].column_names[:5]]
            for level, table in first[topic].items():
                assert seen(log, topic)[level].select(columns).to_pylist() == table.select(columns).to_pylist()


JOBS = [Sink("query", 3, "spark-query", None, "run-1"), Sink(None, 0, "spark-app", None, app=AppVersion("app", 7))]


def two_topics(uri: str, tmp_path: Path) -> Log:
    log = txn_source.connect(uri, metadata=tmp_path / "lost.db")
    log.create_topic("a", 2)
    log.create_topic("b")
    return log


def again_after(uri: str, made: Path) -> Log:
    """Make the metadata again in a new file, and open the log."""
    rebuild(uri, metadata=metadata_url(made))
    return txn_source.connect(uri, metadata=made)


def names(log: Log, ending: str) -> list[str]:
    """Return what lies among the segments."""
    return [found.path for found in log.access.segments.stored() if found.path.endswith(ending)]


@pytest.mark.parametrize("sink", JOBS, ids=["query", "application"])
def test_repeated_batch_is_stored_once(uri: str, tmp_path: Path, sink: Sink) -> None:
    """Commit a batch of two topics: what is noted of it is one object in each. Lose the database, repeat the batch."""
    log = two_topics(uri, tmp_path)
    assert not commit(log, sink, written(log, "a", "b"))
    assert len(names(log, ".notes")) == 2
    with again_after(uri, tmp_path / "made.db") as again:
        check_repeated(again, sink)


@pytest.mark.parametrize("notes", [0, 1])
def test_batch_of_a_killed_driver_is_there_as_a_whole_or_not_at_all(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: int
) -> None:
    """Kill the driver when the batch is committed, and so many of its notes are put: Spark repeats the batch."""
    log = two_topics(uri, tmp_path)
    batches = written(log, "a", "b")
    left_to_put = [notes]

    def killed(*arguments: Any) -> None:
        if not left_to_put[0]:
            raise KeyboardInterrupt
        left_to_put[0] -= 1
        put_file(*arguments)

    monkeypatch.setattr(apart_notes, "put_file", killed)
    with pytest.raises(KeyboardInterrupt):
        commit(log, JOBS[0], batches)
    monkeypatch.undo()
    with again_after(uri, tmp_path / "made.db") as again:
        assert counts(again) == ([2, 1] if notes else [0, 0])
        assert commit(again, replace(JOBS[0], run_id="run-2"), written(again, "a", "b")) == bool(notes)
        assert counts(again) == [2, 1]


def test_large_batch_is_noted_file_by_file(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no note have more than two entries."""
    monkeypatch.setattr(batch_notes, "_MOST_ROWS", 2)
    log = two_topics(uri, tmp_path)
    commit(log, JOBS[0], written(log, "a", "b"))
    with again_after(uri, tmp_path / "made.db") as again:
        assert counts(again) == [2, 1]


def test_import_is_there_and_is_not_done_again(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import in small batches, lose the database, and import once more."""
    monkeypatch.setattr(batch_writer, "BATCH_ROWS", 15)
    monkeypatch.setattr(feed, "STEP_ROWS", 7)
    source = tmp_path / "kafka"
    source.mkdir()
    write_partitions(random.Random(5), source, 2)

    def imported(log: Log) -> list[Any]:
        return [target_rows(log, "t", partition, level) for partition in range(2) for level in IsolationLevel]

    with txn_source.connect(uri, metadata=tmp_path / "lost.db") as log:
        import_topics(f"kafka:{source}", "t", log)
        before = imported(log)
        assert len(names(log, ".notes")) > 1
    made = tmp_path / "made.db"
    with again_after(uri, made) as again:
        assert imported(again) == before
        assert import_topics(f"kafka:{source}", "t", again).messages == 0
        assert imported(again) == before
    assert not worst(uri, made)


def test_flushes_put_nothing_more_and_the_last_receipts_come_with_the_close(uri: str, tmp_path: Path) -> None:
    """Flush several times, and close: an object for each flush, and one note. A transaction that ends later is noted,
    too."""
    log = two_topics(uri, tmp_path)
    with log.begin_transaction() as txn:
        with log.producer("a", batching=BY_HAND) as producer:
            for number in range(3):
                producer.send(b"%d" % number, txn=txn)
                producer.flush()
            assert (len(names(log, ".arrows")), len(names(log, ".notes"))) == (3, 0)
        assert (len(names(log, ".arrows")), len(names(log, ".notes"))) == (3, 1)
    report = rebuild(uri, metadata=metadata_url(tmp_path / "made.db"))
    assert [(topic.messages, topic.without_receipt) for topic in report.topics] == [(3, 0), (0, 0)]


def test_notes_go_with_the_last_segment_that_they_tell_of(uri: str, tmp_path: Path) -> None:
    """Trim what a first note tells of, and let another one tell of that and of what stays: garbage collection removes
    the first one alone, and the doctor takes neither for a finding."""
    log = two_topics(uri, tmp_path)
    for value in (b"1", b"2"):
        with log.producer("b", batching=BY_HAND) as producer:
            producer.send(value)
        if value == b"1":
            log.roll_ledger("b")
    first, second = names(log, ".arrows"), names(log, ".notes")
    put_apart(log.access.root, log.metadata.log_id, first, b'{"v":1,"w":9}')
    [third] = set(names(log, ".notes")) - set(second)
    assert log.collect_garbage(0).paths == ()
    log.trim("b", keep_bytes=1)
    [gone] = set(first) - set(names(log, ".arrows"))
    [of_gone] = [path for path in second if gone in read_apart(log.access.root, path).of]
    with opened(Where(uri, metadata=str(tmp_path / "lost.db"))) as looked:
        assert not {"file-strange", "segment-unreferenced"} & {one.code for one in examine(looked).findings}
    assert log.collect_garbage(0, dry_run=True).paths == log.collect_garbage(0).paths == (of_gone,)
    assert set(names(log, ".notes")) == {third, *second} - {of_gone}
    assert log.collect_garbage(0).paths == ()


def test_young_notes_stay(uri: str, tmp_path: Path) -> None:
    """Leave a note of nothing: it goes by its age, as other garbage does."""
    log = two_topics(uri, tmp_path)
    put_apart(log.access.root, log.metadata.log_id, ["segments/1/2-aaaaaaaaaaaa.arrows"], b'{"v":1,"w":9}')
    assert log.collect_garbage().paths == ()
    [note] = names(log, ".notes")
    assert log.collect_garbage(0).paths == (note,)
    assert names(log, ".notes") == []


def test_store_that_takes_no_notes_holds_nothing_up(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Refuse descriptions and notes: topics are made, batches committed and producers closed all the same, and after
    the first refusal the store isn't asked again for a while."""
    asked = []

    def refused(self: S3Requests, path: str, data: bytes, **more: Any) -> None:
        if not path.endswith(".arrows"):
            asked.append(path)
            assert more["within_s"] <= 10
            raise StoreError("the store denies access", refused=True)
        put(self, path, data, **more)

    put = S3Requests.put
    log = txn_source.connect(uri, metadata=tmp_path / "lost.db")
    monkeypatch.setattr(S3Requests, "put", refused)
    log.create_topic("a", 2)
    log.create_topic("b")
    assert not commit(log, JOBS[0], written(log, "a", "b"))
    with log.producer("a") as producer:
        producer.send(b"1")
    assert counts(log) == [3, 1]
    assert asked == ["segments/1/topic.json"]
    assert [record.getMessage() for record in caplog.records] == [
        "the description of topic a was not written: the store denies access"
    ]
    monkeypatch.undo()
    monkeypatch.setattr(root_files, "_RESTS_UNTIL", {})
    log.maintain()
    assert len(names(log, "topic.json")) == 2


def test_what_is_named_must_fit(uri: str, tmp_path: Path) -> None:
    """Name no place for the metadata, one that is taken, and prefixes that are no log's."""
    two_topics(uri, tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"can't hold its metadata.*--metadata"):
        rebuild(uri)
    with pytest.raises(InvalidArgumentError, match=r"There is .*lost\.db"):
        rebuild(uri, metadata=metadata_url(tmp_path / "lost.db"))
    with pytest.raises(LogNotFoundError, match=r"has no txnlog\.json"):
        rebuild(new_prefix(), metadata=metadata_url(tmp_path / "made.db"))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        there = f"s3://bucket/log?endpoint_override=http://127.0.0.1:{nobody.getsockname()[1]}&max_attempts=1"
        with pytest.raises(UnavailableError, match=r"can't be read for now: .*reached"):
            rebuild(there, metadata=metadata_url(tmp_path / "made.db"))
    assert not list(tmp_path.glob("made.db*"))


@pytest.mark.parametrize("name", ["list_topics", "find_topic", "_fill", "scan_all"])
def test_interrupted_rebuild_leaves_nothing(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Interrupt steps, into a file and into PostgreSQL; the prefix is as it was, and the next rebuild is whole."""
    log = two_topics(uri, tmp_path)
    with log.producer("b") as producer:
        producer.send(b"1")
    before = {path: read_file(log.access.root, path) for path in [*names(log, ""), "txnlog.json"]}
    files = sorted(tmp_path.iterdir())

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, name, interrupt)
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        for url in (metadata_url(tmp_path / "made.db"), DatabaseUrl("postgresql://nobody@127.0.0.1:1/none")):
            with pytest.raises(KeyboardInterrupt):
                rebuild(uri, metadata=url)
    assert sorted(tmp_path.iterdir()) == files
    assert {path: read_file(log.access.root, path) for path in [*names(log, ""), "txnlog.json"]} == before
    with again_after(uri, tmp_path / "made.db") as again:
        assert counts(again) == [0, 1]


def test_objects_that_are_missing_or_damaged_are_told(uri: str, tmp_path: Path) -> None:
    """Remove an object, and put other bytes in the place of one: the others' messages are there."""
    log = two_topics(uri, tmp_path)
    paths: dict[bytes, str] = {}
    with log.producer("b", batching=BY_HAND) as producer:
        for value in (b"1", b"2", b"3", b"4"):
            producer.send(value)
            producer.flush()
            [paths[value]] = set(names(log, ".arrows")) - set(paths.values())
    of = {row["value"]: (row["__ledger_id"], row["__entry_id"]) for row in log.scan("b").read_all().to_pylist()}
    log.access.segments.delete(paths[b"1"])
    log.access.segments.put(paths[b"4"], b"x" * 100)
    report = rebuild(uri, metadata=metadata_url(tmp_path / "made.db"))
    told = next(topic for topic in report.topics if topic.name == "b")
    assert told.lost == tuple("0/{}:{}".format(*of[value]) for value in (b"1", b"4"))
    assert any("are damaged" in note for note in report.notes)
    with txn_source.connect(uri, metadata=tmp_path / "made.db") as again:
        assert [row["value"] for row in again.scan("b").read_all().to_pylist()] == [b"2", b"3"]


def test_strange_notes_are_told(uri: str, tmp_path: Path) -> None:
    """Put into the places of notes what is none."""
    log = two_topics(uri, tmp_path)
    for number, text in enumerate((b"", b"[]", b'{"of":[]}', b'{"of":[],"note":{"v":1,"r":{"x":[[1]]}}}')):
        path = f"segments/1/2-{number:012x}.notes"
        put_file(log.access.root, log.metadata.log_id, path, text)
    report = rebuild(uri, metadata=metadata_url(tmp_path / "made.db"))
    assert sum("isn't a note" in note for note in report.notes) == 4


def test_metadata_goes_to_postgres(uri: str, tmp_path: Path, url: DatabaseUrl) -> None:
    """Make it again in an empty database, by the command, and serve it."""
    log = two_topics(uri, tmp_path)
    with log.producer("b") as producer:
        producer.send(b"1")
    log.close()
    done = CliRunner(env={"TXNLOG_METADATA": url.revealed}).invoke(app, ["--root", uri, "rebuild"])
    assert done.exit_code == 0, done.output
    assert f"Made {url}." in done.output
    service = open_service(uri, url)
    try:
        with Server(service, "127.0.0.1", 0) as server, txn_source.connect(endpoint=server.address) as again:
            assert counts(again) == [0, 1]
    finally:
        service.close()
    assert len(json.loads(read_file(log.access.root, "txnlog.json"))["rebuilt_at_ms"]) == 1


def test_database_is_made_elsewhere_to_have_a_look(uri: str, tmp_path: Path) -> None:
    """Make one topic of two by the command: the prefix doesn't change."""
    log = two_topics(uri, tmp_path)
    before = read_file(log.access.root, "txnlog.json")
    look = tmp_path / "look.db"
    done = CliRunner().invoke(app, ["--root", uri, "rebuild", "--into", str(look), "--topic", "b"])
    assert done.exit_code == 0, done.output
    assert read_file(log.access.root, "txnlog.json") == before
    with txn_source.connect(uri, metadata=look) as again:
        assert [str(topic) for topic in again.topics()] == ["b"]


def test_copies_on_stores_are_found(uri: str, tmp_path: Path, root: Path) -> None:
    """Keep hot entries of a log in a folder on two stores alone: what is noted of them lies in the folder."""
    log = txn_source.connect(root)
    for name in ("x", "y"):
        log.add_root(name, new_prefix())
    log.create_topic("a", 2)
    log.create_topic("b")
    for topic in ("a", "b"):
        log.set_policies(topic, hot_copies="x,y")
    assert not commit(log, JOBS[0], written(log, "a", "b"))
    with log.producer("b") as producer:
        producer.send(b"1")
    assert not list((root / "segments").rglob("*.arrow*"))
    left = without_database(root, tmp_path / "left")
    report = rebuild(left)
    assert [(topic.messages, topic.without_receipt, topic.left_out) for topic in report.topics] == [(2, 0, 0)] * 2
    assert not worst(left)


def test_deleted_topic_stays_deleted(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete a topic, and kill the deletion of another one in the middle."""
    log = two_topics(uri, tmp_path)
    log.delete_topic("a")
    assert [path for path in names(log, "") if path.startswith("segments/1/")] == []

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(log.metadata, "delete_topic", killed)
        with pytest.raises(KeyboardInterrupt):
            log.delete_topic("b")
    with pytest.raises(InvalidArgumentError, match="deletion of all topics"):
        rebuild(uri, metadata=metadata_url(tmp_path / "made.db"))
    rebuild(uri, ["b"], metadata=metadata_url(tmp_path / "made.db"))
