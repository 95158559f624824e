"""What a rebuild does where something is missing, damaged, undecided, or another's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_source
from tests.log.reading import BY_HAND
from tests.upkeep.histories import without_database, worst
from txn_source import Log, TxnLogError
from txn_source.client import topic_description, topics
from txn_source.client.writing import job_notes
from txn_source.client.writing.entry_notes import EntryNotes
from txn_source.client.writing.task_writer import BulkWriter
from txn_source.model.errors import InvalidArgumentError, PermissionDeniedError, TopicNotFoundError
from txn_source.model.spark_commit import Sink
from txn_source.model.topic_name import TopicName
from txn_source.storage.entry_notes import parse_note
from txn_source.storage.segment import SegmentWriter
from txn_source.upkeep import rebuild as module
from txn_source.upkeep import rebuild_place
from txn_source.upkeep.rebuild import rebuild

JOB = Sink(None, 0, "job", None)


@pytest.fixture
def log(root: Path) -> Log:
    log = txn_source.connect(root)
    log.create_topic("t")
    return log


def send(log: Log, *messages: bytes) -> None:
    """Write each message as an entry, and close the producer."""
    with log.producer("t", batching=BY_HAND) as producer:
        for value in messages:
            producer.send(value)
            producer.flush()


def values(root: Path, level: str = "read_committed", topic: str = "t") -> list[bytes]:
    with txn_source.connect(root) as log:
        return [row["value"] for row in log.scan(topic, level, columns=["value"]).read_all().to_pylist()]


def places(root: Path) -> list[tuple[int, int, bytes]]:
    """Return ledger, entry and value of each message that read_committed shows, in their order."""
    columns = ["__ledger_id", "__entry_id", "value"]
    with txn_source.connect(root) as log:
        rows = log.scan("t", columns=columns).read_all().to_pylist()
    return sorted((row["__ledger_id"], row["__entry_id"], row["value"]) for row in rows)


def segments(root: Path) -> list[Path]:
    return sorted((root / "segments").rglob("*.arrow*"))


def test_undecided_transactions_are_refused_or_ended_as_asked(log: Log, root: Path, tmp_path: Path) -> None:
    """Lose the database while a transaction is open."""
    send(log, b"1")
    producer = log.producer("t", batching=BY_HAND)
    txn = log.begin_transaction()
    producer.send(b"2", txn=txn)
    producer.flush()
    for end, committed in (("abort", [b"1"]), ("commit", [b"1", b"2"])):
        left = without_database(root, tmp_path / end)
        with pytest.raises(InvalidArgumentError, match=r"how 1 transactions ended.*\(1 messages\)"):
            rebuild(left)
        assert not list(left.glob("metadata.db*"))
        assert list(rebuild(left, undecided=end).undecided.values()) == [1]  # its id was not known when it was written
        assert values(left) == committed
        assert values(left, "read_uncommitted") == [b"1", b"2"]
    with pytest.raises(InvalidArgumentError, match="can't be 'guess'"):
        rebuild(left, undecided="guess")


def test_end_of_a_transaction_is_noted_after_its_producer_was_closed(log: Log, root: Path, tmp_path: Path) -> None:
    """Commit one, and abort one, when their producer is closed."""
    ends = []
    with log.producer("t", batching=BY_HAND) as producer:
        for value in (b"1", b"2"):
            txn = log.begin_transaction()
            producer.send(value, txn=txn)
            ends.append(txn)
    ends[0].commit()
    ends[1].abort()
    left = without_database(root, tmp_path / "left")
    assert rebuild(left).undecided == {}
    assert (values(left), values(left, "read_uncommitted")) == ([b"1"], [b"1", b"2"])


def test_append_that_is_tried_again_is_answered_as_before(log: Log, root: Path, tmp_path: Path) -> None:
    """Repeat a registered append at the log that was made again: it is stored once."""
    with log.producer("t", batching=BY_HAND) as producer:
        producer.send(b"1")
        producer.flush()
        opened = producer._store.producer
    [view] = log.metadata.get_view([TopicName.parse("t")]).topics
    [page] = log.metadata.list_entries(view.partitions[0].partition_id, _whole(view))
    [row] = page.entries.to_pylist()
    left = without_database(root, tmp_path / "left")
    rebuild(left)
    entry = txn_source.model.entry.NewEntry(
        view.partitions[0].partition_id, row["base_sequence"], 1, str(segments(left)[0].relative_to(left)),
        row["offset"], row["length"], row["crc32c"],
    )  # fmt: skip
    with txn_source.connect(left) as again:
        assert [at.key for at in again.metadata.append(opened, None, [entry]).positions] == [row["position"]]
    assert values(left) == [b"1"]


def _whole(view: object) -> object:
    from txn_source.model.position import PositionRange

    bounds = view.partitions[0].bounds  # type: ignore[attr-defined]
    return PositionRange(bounds.log_start, bounds.log_end)


def test_committed_jobs_are_there_and_others_are_not(log: Log, root: Path, tmp_path: Path) -> None:
    """Write as two jobs do, of which one never commits."""
    batches = []
    for value in (b"1", b"2"):
        writer = BulkWriter(log.access, TopicName.parse("t"))
        writer.write(pa.record_batch({"value": pa.array([value], pa.binary())}))
        batches.append(writer.finish())

    log.metadata.commit_batch(
        JOB, batches[:1], "key", lambda txn, at: job_notes.note_committed(log.access, JOB, batches[:1], txn, at)
    )
    left = without_database(root, tmp_path / "left")
    report = rebuild(left)
    assert [topic.left_out for topic in report.topics] == [1]
    assert any("1 entries of jobs are left out" in note for note in report.notes)
    assert values(left, "read_uncommitted") == [b"1"]


def test_nothing_is_changed_where_a_database_is(log: Log, root: Path) -> None:
    """Rebuild a log that has its database, and where there is none."""
    send(log, b"1")
    log.close()
    with pytest.raises(InvalidArgumentError, match=r"There is .*metadata\.db"):
        rebuild(root)
    with pytest.raises(TopicNotFoundError, match="'other' is not described"):
        rebuild(root, ["other"], into=root.with_name("new.db"))
    rebuild(root, ["t"], into=root.with_name("new.db"), check=False)
    with pytest.raises(InvalidArgumentError, match=r"There is .*new\.db"):
        rebuild(root, into=root.with_name("new.db"))
    assert values(root) == [b"1"]


@pytest.mark.parametrize("name", ["find_topic", "decide", "_fill", "pass_over", "scan_all", "sync_file"])
def test_interrupted_rebuild_leaves_nothing(
    log: Log, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Interrupt each step; the next rebuild is as if there had been none."""
    send(log, b"1")
    left = without_database(root, tmp_path / "left")
    before = sorted(path.name for path in left.iterdir())

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rebuild_place if name == "sync_file" else module, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            rebuild(left)
    assert sorted(path.name for path in left.iterdir()) == before
    rebuild(left)
    assert values(left) == [b"1"]


def test_log_is_rebuilt_again_and_goes_on(log: Log, root: Path, tmp_path: Path) -> None:
    """Lose the database of a log that was rebuilt before; the root says how often that was."""
    send(log, b"1")
    for number in range(3):
        root = without_database(root, tmp_path / f"left{number}")
        rebuild(root)
        assert not worst(root)
        with txn_source.connect(root) as again:
            send(again, b"%d" % number)
    assert values(root) == [b"1", b"0", b"1", b"2"]
    assert len(json.loads((root / "txnlog.json").read_text())["rebuilt_at_ms"]) == 3


def test_second_rebuild_finds_what_the_first_one_worked_out(log: Log, root: Path, tmp_path: Path) -> None:
    """Kill two writers, rebuild, go on, and lose the database again: readers have seen what the first rebuild made."""
    killed = [log.producer("t", batching=BY_HAND) for _ in range(2)]
    txn = log.begin_transaction()
    killed[0].send(b"undecided", txn=txn)
    killed[0].flush()
    txn.commit()
    killed[1].send(b"without receipt")
    killed[1].flush()
    first = without_database(root, tmp_path / "first")
    assert rebuild(first, undecided="commit").undecided
    before = places(first)
    assert sorted(value for _, _, value in before) == [b"undecided", b"without receipt"]
    with txn_source.connect(first) as again:
        send(again, b"later")
        again.maintain()
    second = without_database(first, tmp_path / "second")
    report = rebuild(second)
    assert (report.undecided, report.topics[0].without_receipt) == ({}, 0)
    assert places(second)[: len(before)] == before
    assert not worst(second)


def test_broken_notes_of_an_earlier_rebuild_break_none(log: Log, root: Path, tmp_path: Path) -> None:
    send(log, b"1")
    for number, broken in enumerate((5, None, {"v": 1, "w": 1, "r": {"x": [[1]]}}, {"v": 1, "r": {"": []}})):
        left = without_database(root, tmp_path / f"left{number}")
        (left / "segments/1/1-0123456789ab.notes").write_text(json.dumps({"of": [], "note": broken}))
        rebuild(left)
        assert values(left) == [b"1"]


def test_deleted_topics_stay_deleted(log: Log, root: Path, tmp_path: Path) -> None:
    """Delete a topic, and leave a file of it; make another of its name."""
    send(log, b"1")
    kept = {path: path.read_bytes() for path in segments(root)}
    log.delete_topic("t")
    log.create_topic("t")
    for path, data in kept.items():
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    left = without_database(root, tmp_path / "left")
    report = rebuild(left)
    assert any("segments/1, which is no topic's" in note for note in report.notes)
    assert values(left, "read_uncommitted") == []


def test_killed_deletion_brings_no_topic_back(
    log: Log, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill a deletion before and after it counted: the topic is left out, told, and made only if it is named."""
    send(log, b"1")
    log.create_topic("other")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for number, at in enumerate(("metadata.delete_topic", "delete_doomed_files")):
        with monkeypatch.context() as patch:
            if number:
                patch.setattr(topics, at, killed)
            else:
                patch.setattr(log.metadata, "delete_topic", killed)
            with pytest.raises(KeyboardInterrupt):
                log.delete_topic("t")
        left = without_database(root, tmp_path / f"left{number}")
        assert any("Topic t is left out: its deletion was begun." in note for note in rebuild(left).notes)
        with txn_source.connect(left) as again:
            assert again.topics() == ["other"]
        named = without_database(root, tmp_path / f"named{number}")
        rebuild(named, ["t"])
        assert values(named) == [b"1"]


def test_topic_whose_deletion_failed_is_made_again(
    log: Log, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the service refuse a deletion."""

    def refuse(_: object) -> None:
        raise PermissionDeniedError("No.", "Ask.")

    with monkeypatch.context() as patch:
        patch.setattr(log.metadata, "delete_topic", refuse)
        with pytest.raises(PermissionDeniedError):
            log.delete_topic("t")
    left = without_database(root, tmp_path / "left")
    assert not any("left out" in note for note in rebuild(left).notes)


def test_description_that_comes_too_late_goes_again(log: Log, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete a topic while it is described."""
    write = topic_description.write_topic_file

    def late(*arguments: Any) -> None:
        monkeypatch.setattr(topic_description, "write_topic_file", write)
        log.delete_topic("t")
        write(*arguments)

    monkeypatch.setattr(topic_description, "write_topic_file", late)
    log.update_topic("t", 2)
    assert not list(root.glob("segments/*/topic.json"))


def test_trimmed_messages_stay_trimmed(log: Log, root: Path, tmp_path: Path) -> None:
    """Trim a ledger whose file has messages of the next one, too; a repeated append of it is not stored anew."""
    with log.producer("t", batching=BY_HAND) as producer:
        appended = _kept_appends(log)
        for number in range(4):
            producer.send(b"%d" % number)
            producer.flush()
            if number == 1:
                log.roll_ledger("t")
    log.trim("t", keep_bytes=1)
    before = values(root)
    left = without_database(root, tmp_path / "left")
    rebuild(left)
    assert values(left) == before
    with txn_source.connect(left) as again, pytest.raises(InvalidArgumentError, match="so long ago"):
        again.metadata.append(*appended[0])
    assert values(left) == before


def _kept_appends(log: Log) -> list[Any]:
    """Return what is going to have the arguments of all appends."""
    kept = []
    append = log.metadata.append

    def kept_append(*arguments: Any) -> Any:
        kept.append(arguments)
        return append(*arguments)

    log.metadata.append = kept_append  # type: ignore[method-assign]
    return kept


def test_aborted_messages_whose_places_are_guessed_are_not_shown(
    log: Log, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Abort what nobody noted the place of, describe the topic, and lose the database: it is not taken as committed
    because it lies below what was stable."""
    with monkeypatch.context() as patch:
        patch.setattr(EntryNotes, "registered", lambda *_: None)
        patch.setattr(EntryNotes, "ended", lambda *_, **__: None)
        with log.producer("t", batching=BY_HAND) as producer:
            txn = log.begin_transaction()
            producer.send(b"no", txn=txn)
            producer.flush()
            txn.abort()
    send(log, b"1", b"2")
    log.maintain()
    left = without_database(root, tmp_path / "left")
    rebuild(left, undecided="abort")
    assert values(left) == [b"1", b"2"]


def test_subscriptions_stand_where_they_stood_at_the_last_maintenance(log: Log, root: Path, tmp_path: Path) -> None:
    """Acknowledge some, maintain, acknowledge more."""
    log.create_subscription("t", "s")
    send(log, b"1", b"2", b"3")
    with log.subscribe("t", "s") as consumer:
        message = consumer.receive(timeout=60)
        assert message is not None
        consumer.acknowledge(message)
    log.maintain()
    left = without_database(root, tmp_path / "left")
    rebuild(left)
    with txn_source.connect(left) as again:
        assert again.subscription("t", "s").backlog == 2


def test_policies_schema_and_added_partitions_are_there(log: Log, root: Path, tmp_path: Path) -> None:
    """Change a topic in all ways."""
    log.create_topic("typed", schema="id bigint not null, name string", ledger_max_entries=7)
    log.update_topic("typed", 3)
    log.set_policies("typed", retention_age="7d")
    left = without_database(root, tmp_path / "left")
    rebuild(left)
    with txn_source.connect(left) as again:
        assert again.schema("typed") == log.schema("typed")
        assert again.policies("typed") == log.policies("typed")
        assert len(again.stats("typed").partitions) == 3
        with again.producer("typed") as producer:
            producer.send({"id": 1, "name": "x"}, partition=2)
        assert again.count("typed") == 1


def test_copies_in_other_roots_are_found(log: Log, root: Path, tmp_path: Path) -> None:
    """Keep hot entries in two roots that are not the log's own."""
    for name in ("b", "c"):
        log.add_root(name, tmp_path / name)
    log.set_policies("t", hot_copies="b,c")
    send(log, b"1", b"2")
    left = without_database(root, tmp_path / "left")
    assert not segments(left)
    rebuild(left)
    assert values(left) == [b"1", b"2"]
    assert not worst(left)


def test_segments_of_older_releases_are_told(
    log: Log, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write entries without notes, and one with."""
    append = SegmentWriter.append
    with monkeypatch.context() as patch:
        patch.setattr(SegmentWriter, "append", lambda self, batch, _: append(self, batch))
        patch.setattr(SegmentWriter, "append_note", lambda *_: None)
        send(log, b"1", b"2")
    send(log, b"3")
    left = without_database(root, tmp_path / "left")
    report = rebuild(left)
    assert any("1 segments of an older release are left out" in note for note in report.notes)
    assert values(left) == [b"3"]


@pytest.mark.parametrize("cut", [1, 8, 200, 500])
def test_torn_end_costs_what_is_torn(log: Log, root: Path, tmp_path: Path, cut: int) -> None:
    """Cut bytes off a segment: what is whole is there, and what isn't is told."""
    send(log, b"1", b"2", b"3")
    left = without_database(root, tmp_path / "left")
    [path] = segments(left)
    path.write_bytes(path.read_bytes()[:-cut])
    report = rebuild(left)
    assert any("are damaged" in note for note in report.notes)
    found = values(left)
    assert found == [b"1", b"2", b"3"][: len(found)]
    assert len(found) >= 2


def test_damaged_message_is_told_and_the_others_are_there(log: Log, root: Path, tmp_path: Path) -> None:
    """Break the length of the second entry: its receipt still tells where it lies, and readers refuse it."""
    send(log, b"1", b"2", b"3")
    left = without_database(root, tmp_path / "left")
    [path] = segments(left)
    data = bytearray(path.read_bytes())
    second = [found.start() for found in re.finditer(b"\xff\xff\xff\xff", data) if found.start() % 8 == 0][2]
    data[second : second + 4] = b"\0\0\0\0"
    path.write_bytes(data)
    report = rebuild(left)
    assert any("are damaged" in note for note in report.notes)
    assert any("Not all of it can be read" in note for note in report.notes)
    with txn_source.connect(left) as again, pytest.raises(TxnLogError, match="checksum"):
        again.scan("t").read_all()


@pytest.mark.parametrize("name", ["v", "p", "w", "s", "at", "by", "r", "e", "name", "epoch"])
@pytest.mark.parametrize("value", ['"?"', "null", "-1"])
def test_broken_fields_of_notes_break_no_rebuild(
    log: Log, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Let every note have another value in one field: a rebuild comes to its end, and says what is left out."""

    def change(one: object) -> object:
        if isinstance(one, dict):
            return {key: json.loads(value) if key == name else change(each) for key, each in one.items()}
        return one

    def broken(make: Callable[..., bytes | None]) -> Callable[..., bytes | None]:
        def made(*args: Any, **more: Any) -> bytes | None:
            note = make(*args, **more)
            return None if note is None else json.dumps(change(parse_note(note))).encode()

        return made

    for maker in ("of_entry", "of_end"):
        monkeypatch.setattr(EntryNotes, maker, broken(getattr(EntryNotes, maker)))
    with log.begin_transaction() as txn, log.producer("t", batching=BY_HAND) as producer:
        producer.send(b"1", txn=txn)
        producer.flush()
    send(log, b"2", b"3")
    left = without_database(root, tmp_path / "left")
    report = rebuild(left, undecided="commit")
    found = values(left, "read_uncommitted")
    assert len(found) == 3 or sum(topic.left_out for topic in report.topics)


def test_file_with_the_bytes_of_another_one_is_left_out(log: Log, root: Path, tmp_path: Path) -> None:
    """Write a file over one of another topic's, and one of another log's."""
    log.create_topic("u")
    send(log, b"1")
    with log.producer("u") as producer:
        producer.send(b"2")
    left = without_database(root, tmp_path / "left")
    mine, other = segments(left)
    other.write_bytes(mine.read_bytes())
    report = rebuild(left)
    assert any("is left out: it has the bytes of another file" in note for note in report.notes)
    assert (values(left), values(left, topic="u")) == ([b"1"], [])
