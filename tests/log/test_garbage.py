"""Garbage: a file is deleted only if the log knows that nobody can need it; what nobody knows is told, and stays."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import BY_HAND, UNCOMMITTED, registered, send_each, values
from tests.log.sites import Site
from txn_source import InvalidArgumentError, Log, ProducerFencedError, TopicNotFoundError, UnavailableError
from txn_source.client.tiering.garbage import collect_garbage
from txn_source.client.writing.bulk_writer import BulkWriter
from txn_source.model.errors import StaleSegmentError
from txn_source.model.spark_commit import Sink
from txn_source.model.topic_name import TopicName

pytestmark = pytest.mark.also("objects", "copies")

_DAY_S = 24 * 3600
_WEEK_S = 7 * _DAY_S


def segments(site: Site) -> set[str]:
    return {path.relative_to(site.root).as_posix() for path in (site.root / "segments").rglob("*.arrow")}


def left_by(site: Site, producer_id: int, name: str = "a" * 12, size: int = 1, age_s: float = 0, topic: int = 1) -> str:
    """Leave a file behind that a writer never registered from."""
    path = site.root / "segments" / str(topic) / "0" / f"1-{producer_id}-{name}.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    at = path.stat().st_mtime - age_s
    os.utime(path, (at, at))
    return path.relative_to(site.root).as_posix()


def writer(log: Log, topic: str = "orders", transactional_id: str | None = None) -> int:
    """Open a producer, and return its id."""
    return log.metadata.open_producer(TopicName.parse(topic), transactional_id, None)[0].producer_id


# Whose file it is decides


@pytest.mark.files
def test_what_ended_writers_left_goes_and_everything_else_stays(site: Site) -> None:
    """Leave a file of each kind beside those with committed, aborted and open messages: only what nothing can be
    registered from any more is removed, and what nobody knows is told."""
    log = site.connect()
    log.create_topic("orders")
    open_, old, newer = writer(log), writer(log, transactional_id="teller"), writer(log, transactional_id="teller")
    closed = log.producer("orders")
    send_each(closed, [b"plain"])
    closed.close()
    of_closed = int(next(iter(segments(site))).split("-")[1])
    for end in ("commit", "abort", "id"):
        transaction = log.begin_transaction()
        send_each(log.producer("orders"), [end.encode()], txn=transaction)
        getattr(transaction, end)() if end != "id" else None
    referenced = segments(site)
    left = {left_by(site, old), left_by(site, of_closed)}
    writing = {left_by(site, open_), left_by(site, newer)}
    unknown = left_by(site, 0)  # of a job of an earlier release

    found = log.collect_garbage(older_than=0, dry_run=True)
    assert (set(found.paths), found.bytes, found.unknown) == (left, 2, (unknown,))
    assert segments(site) == referenced | left | writing | {unknown}
    assert log.collect_garbage(older_than=0) == found
    assert segments(site) == referenced | writing | {unknown}
    assert log.collect_garbage(older_than=0).paths == ()
    assert sorted(values(log, "orders", UNCOMMITTED)) == [b"abort", b"commit", b"id", b"plain"]


@pytest.mark.files
def test_only_old_files_are_tried(site: Site) -> None:
    """Look at one file a second before it is a day old, and a second after; choose another age."""
    log = site.connect()
    log.create_topic("orders")
    path = left_by(site, _closed(log))
    written_s = (site.root / path).stat().st_mtime
    for later_s, found in ((_DAY_S - 1, ()), (_DAY_S + 1, (path,))):
        garbage = collect_garbage(log.access, _DAY_S, dry_run=True, clock=lambda: written_s + later_s)  # noqa: B023
        assert garbage.paths == found
    ahead = left_by(site, _closed(log), "b" * 12, age_s=-1e6)  # of a clock that is ahead: it is left for later
    assert log.collect_garbage(older_than=0).paths == (path,)
    assert segments(site) == {ahead}
    with pytest.raises(InvalidArgumentError, match="-1 s is not an age"):
        log.collect_garbage(older_than=-1)


def _closed(log: Log) -> int:
    opened = log.metadata.open_producer(TopicName.parse("orders"), None, None)[0]
    log.metadata.close_producer(opened)
    return opened.producer_id


@pytest.mark.files
@pytest.mark.parametrize("what", ["1-99", "9-0", "1-0"], ids=["producer", "topic", "object"])
def test_nothing_goes_while_the_database_is_older_than_its_files(site: Site, what: str) -> None:
    """Put a file of a number that was never given beside garbage, as a newer database would have it: nothing goes."""
    log = site.connect()
    log.create_topic("orders")
    garbage = left_by(site, _closed(log))
    topic, producer_id = map(int, what.split("-"))
    if what == "1-0":
        send_each(log.producer("orders"), [b"x"])
        log.roll_ledger("orders")
        log.offload("orders")
        [made] = (site.root / "tiered").rglob("*.parquet")
        ahead = made.with_name(made.name.replace("ledger-1-", "ledger-77-"))
        ahead.write_bytes(made.read_bytes())
    else:
        left_by(site, producer_id, topic=topic)
    for call in (lambda: log.collect_garbage(older_than=0), log.unknown_files, lambda: log.delete_unknown(0)):
        with pytest.raises(UnavailableError, match="hasn't given out: its database is older than its files"):
            call()
    assert garbage in segments(site)


@pytest.mark.files
def test_unknown_files_go_at_the_operators_word_alone(site: Site) -> None:
    """List them, delete the old ones, and find nothing else gone; each deletion is a line of the audit."""
    log = site.connect()
    log.create_topic("orders")
    send_each(log.producer("orders"), [b"x"])
    old, young = left_by(site, 0, "a" * 12, 7, _WEEK_S + 60), left_by(site, 0, "b" * 12, 5)
    torn = site.root / "tiered" / "public" / "default" / "orders" / "0" / f"ledger-1-{'c' * 12}.parquet"
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"PAR1")
    assert [(file.place, file.uri, file.size) for file in log.unknown_files()][:1] == [("main", old, 7)]
    assert {file.uri for file in log.unknown_files()} == {old, young, torn.relative_to(site.root).as_posix()}
    assert log.collect_garbage(older_than=0).paths == ()
    with _audited() as lines:
        assert log.delete_unknown().paths == (old,)
    assert [json.loads(line)["what"]["file"] for line in lines] == [old]
    assert {file.uri for file in log.unknown_files()} == {young, torn.relative_to(site.root).as_posix()}
    log.delete_unknown(0)
    assert log.unknown_files() == []
    assert values(log, "orders") == [b"x"]


class _audited(logging.Handler):
    """The lines of the audit while a block runs."""

    def __enter__(self) -> list[str]:
        self.lines: list[str] = []
        self._logger = logging.getLogger("txnlog.audit")
        self._logger.addHandler(self)
        self._logger.setLevel(logging.INFO)
        return self.lines

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(logging.NOTSET)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_what_is_not_ours_is_not_garbage(site: Site) -> None:
    """Put files with other names among the segments: whoever put them there knows why."""
    log = site.connect()
    log.create_topic("orders")
    folder = site.root / "segments" / "1" / "0"
    folder.mkdir(parents=True)
    others = [folder / name for name in ("notes.txt", "1-0-xyz.arrow", f"1-0-{'a' * 12}.arrow.bak")]
    for other in others:
        other.write_text("mine")
    assert log.collect_garbage(older_than=0).paths == ()
    assert log.unknown_files() == []
    assert all(other.exists() for other in others)


# Topics


@pytest.mark.files
def test_what_is_written_to_a_deleted_topic_goes_with_the_next_maintenance(site: Site) -> None:
    """Let a producer go on after its topic was deleted: it is told, and what it wrote goes."""
    log = site.connect()
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    log.delete_topic("orders")
    producer.send(b"late")
    with pytest.raises(TopicNotFoundError):
        producer.flush()
    assert len(segments(site)) == 1
    log.maintain()
    assert segments(site) == set()


@pytest.mark.files
def test_topic_that_is_deleted_meanwhile_ends_no_collection(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each topic be deleted after it was listed."""
    log = site.connect()
    log.create_topic("orders")
    path = left_by(site, _closed(log))
    monkeypatch.setattr(log.metadata, "list_topics", lambda: [TopicName.parse("gone"), TopicName.parse("orders")])
    assert log.collect_garbage(older_than=0).paths == (path,)


# Links


@pytest.mark.files
@pytest.mark.parametrize("link", ["segments/1", "segments/1/0", "tiered/public"])
def test_links_below_the_root_are_followed(site: Site, tmp_path: Path, link: str) -> None:
    """Move a part of the log to another disk, and link it: its garbage is found there, and so are its messages; the
    topic can be deleted."""
    log = site.connect()
    log.create_topic("orders")
    send_each(log.producer("orders"), [b"x"])
    log.roll_ledger("orders")
    log.offload("orders")
    left = left_by(site, _closed(log))
    unknown = site.root / "tiered" / "public" / "default" / "orders" / "0" / f"ledger-1-{'c' * 12}.parquet"
    unknown.write_bytes(b"PAR1")
    (site.root / link).rename(tmp_path / "disk")
    (site.root / link).symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "loop").symlink_to(site.root)
    found = log.collect_garbage(older_than=0)
    assert (found.paths, found.unknown) == ((left,), (unknown.relative_to(site.root).as_posix(),))
    assert not (site.root / left).exists()
    log.delete_hot("orders")
    assert values(log, "orders") == [b"x"]
    (tmp_path / "disk" / "loop").unlink()
    log.delete_topic("orders")
    assert list(site.root.glob("segments/*")) == []
    assert [file.uri for file in log.unknown_files()] == [*found.unknown]


# Writers


def pass_days(site: Site, log: Log, days: float) -> None:
    """Let measured time go on, and have the service look at it."""
    site.execute("UPDATE log_info SET measured_ms = measured_ms + :ms", ms=int(days * _DAY_S * 1000))
    site.execute("UPDATE log_info SET looked_at_ms = looked_at_ms - 20000")
    log.abort_transaction(log.begin_transaction().id)


@pytest.mark.files
@pytest.mark.parametrize("whole", [False, True], ids=["append", "whole transaction"])
def test_producer_that_was_idle_writes_anew_what_was_collected(site: Site, whole: bool) -> None:
    """Let a producer write once a month, and collect garbage just before it registers: what a killed one left goes in
    a week, and all that this one wrote is there."""
    log, other = site.connect(), site.connect()
    log.create_topic("orders")
    monthly, killed = log.producer("orders", batching=BY_HAND), writer(log)
    path = left_by(site, killed)
    send_each(monthly, [b"0"])
    pass_days(site, log, 6.9)
    assert log.collect_garbage(older_than=0).paths == ()
    log.roll_ledger("orders")  # so that it writes to another file
    send_each(monthly, [b"1"])
    log.roll_ledger("orders")
    pass_days(site, log, 23)
    taken: list[str] = []
    with stepping_in(log, "write_transaction" if whole else "append", lambda: taken.extend(collected(other))):
        if whole:
            with log.begin_transaction() as transaction:
                monthly.send(b"2", txn=transaction)
        else:
            send_each(monthly, [b"2"])
    assert len(taken) == 2
    assert path in taken
    assert values(log, "orders") == [b"0", b"1", b"2"]
    assert other.collect_garbage(older_than=0).paths == ()


def collected(log: Log) -> tuple[str, ...]:
    return log.collect_garbage(older_than=0).paths


@contextmanager
def stepping_in(log: Log, call: str, what: Callable[[], object]) -> Iterator[None]:
    """Do something once, just before a call of the log's reaches the service."""
    made, done = getattr(log.metadata, call), []

    def late(*given: Any) -> Any:
        if not done:
            done.append(what())
        return made(*given)

    setattr(log.metadata, call, late)
    try:
        yield
    finally:
        setattr(log.metadata, call, made)
    assert done


def test_closed_producer_appends_no_more(site: Site) -> None:
    """Append in the name of a producer that was closed: it is refused, and a repetition of what it stored isn't."""
    log = site.connect()
    log.create_topic("orders")
    opened, _ = log.metadata.open_producer(TopicName.parse("orders"), None, None)
    log.metadata.close_producer(opened)
    log.metadata.close_producer(opened)
    producer = log.producer("orders")
    send_each(producer, [b"x"])
    producer.close()
    with pytest.raises(ProducerFencedError, match=r"was closed\. Open another one"):
        log.metadata.append(opened, None, [])


# Jobs


@pytest.fixture
def task(log: Log) -> Iterator[BulkWriter]:
    """A job's task that has written one message."""
    log.create_topic("orders")
    writer = BulkWriter(log.access, TopicName.parse("orders"))
    writer.write(pa.record_batch({"value": [b"job"]}))
    yield writer
    writer.discard()


def test_files_of_a_task_stay_until_its_job_has_ended(log: Log, task: BulkWriter) -> None:
    """Collect garbage between a task's write and the job's commit, and after it: nothing goes."""
    batch = task.finish()
    assert log.collect_garbage(older_than=0).paths == ()
    log.metadata.commit_batch(Sink("query", 0, "spark", None), [batch], "job")
    assert log.collect_garbage(older_than=0).paths == ()
    assert values(log, "orders") == [b"job"]


def test_task_that_fails_leaves_nothing(log: Log, task: BulkWriter) -> None:
    """Discard a task: its files go, and a commit of them is refused."""
    batch = task.finish()
    task.discard()
    for _ in range(2):
        with pytest.raises(StaleSegmentError, match=r"has ended, so they may be gone\. Run the job again"):
            log.metadata.commit_batch(Sink("query", 0, "spark", None), [batch], "job")
    assert values(log, "orders", UNCOMMITTED) == []
    assert log.unknown_files() == []
    assert registered(log) == []
