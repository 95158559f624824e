"""Snapshots of the metadata, a log that is recovered from one, and a database that is older than one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import txn_source
from tests.log.objects import new_prefix, s3_surroundings
from tests.log.reading import BY_HAND, COMMITTED, send_each, values
from tests.log.roots import Roots
from tests.log.roots import log as log  # with the roots main, b and c
from tests.log.roots import roots as roots
from tests.log.sites import Site
from tests.selection import mostly_long
from tests.upkeep.doctored import look
from tests.upkeep.filled import end_at, fill, seen
from txn_source import InvalidArgumentError, Log, LogNotFoundError, ProducerFencedError, UnavailableError
from txn_source.cli.app import app
from txn_source.client.tiering import snapshot_making
from txn_source.client.tiering.snapshot_making import make_snapshot
from txn_source.storage import snapshots
from txn_source.storage.snapshots import snapshots_in
from txn_source.upkeep.after_restore import after_restore
from txn_source.upkeep.recovery import recover
from txn_source.upkeep.salvage import salvage


def snapshot(log: Log) -> str:
    made = make_snapshot(log.access, 0.0)
    assert made is not None
    return made.path


def lose_database(root: Path, to: Path | None = None) -> None:
    for file in root.glob("metadata.db*"):
        file.rename(to / file.name) if to is not None else file.unlink()


@pytest.fixture
def lost(root: Path) -> dict[str, Any]:
    """A log that has lost its database, with messages and offloads from after its newest snapshot; what was there at
    the snapshot, by isolation level."""
    with txn_source.connect(root) as log:
        fill(log)
        snapshot(log)
        then = seen(log)
        send_each(log.producer("t", batching=BY_HAND), [b"later"])
        with log.producer("t") as old:
            old.send(b"another")
        log.roll_ledger("t")
        log.offload("t")
        log.create_topic("u")
        send_each(log.producer("u"), [b"later"])
    lose_database(root)
    return then


# Recovery


def test_recovered_log_is_what_it_was_and_all_else_is_told(root: Path, lost: dict[str, Any]) -> None:
    """Recover: same log, same rows, and each file from after the snapshot is listed and left where it lies."""
    before = {path for path in root.rglob("*.*") if path.suffix in (".arrow", ".parquet")}
    report = recover(root)
    assert report.missing == ()
    with txn_source.connect(root) as log:
        assert log.metadata.log_id == report.log_id
        assert seen(log) == lost
        assert log.topics() == ["t"]
        told = {root / file.uri for file in (*report.unknown, *report.tails)}
        assert {path.parts[-3] for path in told if path.suffix == ".arrow"} >= {"2"}
        assert any(path.suffix == ".parquet" for path in told)
        assert {file.uri for file in log.unknown_files()} == {file.uri for file in report.unknown}
        send_each(log.producer("t"), [b"new"])
        assert b"new" in values(log, "t")
        with pytest.raises(InvalidArgumentError, match=r"put back to an earlier moment.*--recovered"):
            log.delete_unknown(0)
        assert {path for path in root.rglob("*.*") if path.suffix in (".arrow", ".parquet")} >= before
        gone = log.delete_unknown(0, recovered=True)
        assert set(gone.paths) == {file.uri for file in report.unknown}
        assert log.unknown_files() == []
        assert len(values(log, "t")) == len(lost[COMMITTED]) + 1
    assert [found for found in look(root).findings if found.severity.value == "error"] == []


def test_what_the_lost_database_gave_out_is_refused(root: Path, lost: dict[str, Any]) -> None:
    recover(root)
    with txn_source.connect(root) as log:
        with pytest.raises(ProducerFencedError, match="the log has lost"):
            log.metadata.append(_old_producer(log), None, [])
        assert [transaction for transaction in log.transactions() if str(transaction.state) == "open"] == []


def _old_producer(log: Log) -> Any:
    from txn_source.model.entry import OpenedProducer

    return OpenedProducer(1, 0, "old")


@pytest.mark.parametrize("at", mostly_long(range(5), 1, 3))
def test_recovery_may_be_interrupted_anywhere(
    root: Path, lost: dict[str, Any], monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """End it at each step that leaves something on the disk, and run it again."""
    steps = [*((os, name) for name in ("link", "replace")), *((snapshots, name) for name in ("unpack", "pack", "put"))]
    with monkeypatch.context() as patch:
        end_at(patch, at, *steps)
        patch.setattr("txn_source.upkeep.recovery.unpack", snapshots.unpack)
        with pytest.raises(KeyboardInterrupt):
            recover(root)
    if not (root / "metadata.db").exists():
        recover(root)
    with txn_source.connect(root) as log:
        assert seen(log) == lost
    assert not list(root.glob("*recovered*"))


def test_damaged_snapshot_is_passed_over(root: Path, lost: dict[str, Any]) -> None:
    """Flip a byte of the newest one, and tear another: the one before is taken, and both are told."""
    newest = root / snapshots_in(root)[-1].path
    data = bytearray(newest.read_bytes())
    data[100] ^= 1
    newer = newest.with_name(newest.name.replace("metadata-2", "metadata-3"))  # of a clock that was ahead
    torn = newest.with_name(f"metadata-20300101T000000Z-99999999-{0:08x}.db.zst")
    for path in (newer, torn):
        path.write_bytes(data[:200])
    report = recover(root)
    assert len(report.unsound) == 2
    assert report.snapshot == newest.relative_to(root).as_posix()
    with txn_source.connect(root) as log:
        assert seen(log) == lost


def test_missing_files_are_told(root: Path, lost: dict[str, Any]) -> None:
    """Lose a segment and an object, too: each is told by its name, and the command ends with 3."""
    oldest = min((root / "segments" / "1" / "0").glob("*.arrow"), key=lambda path: path.stat().st_mtime_ns)
    gone = [oldest, min((root / "tiered").rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)]
    for path in gone:
        path.unlink()
    done = CliRunner().invoke(app, ["recover", "--root", str(root)])
    assert done.exit_code == 3, done.output
    for path in gone:
        assert f"missing: {path.relative_to(root).as_posix()}" in done.output
    assert "unknown: segments/2/0/" in done.output


def test_recovery_is_refused_where_it_cannot_be(root: Path, tmp_path: Path) -> None:
    """Ask for it beside a database, without snapshots, and with the metadata in PostgreSQL: nothing is changed."""
    with txn_source.connect(root) as log:
        log.create_topic("t")
    before = sorted(path.name for path in root.iterdir())
    with pytest.raises(InvalidArgumentError, match=r"There is .*/metadata\.db\. If it is damaged"):
        recover(root)
    (tmp_path / "away").mkdir()
    lose_database(root, tmp_path / "away")
    with pytest.raises(LogNotFoundError, match="There are no snapshots in"):
        recover(root)
    with pytest.raises(LogNotFoundError, match="There is no log"):
        recover(tmp_path / "away")
    for file in (tmp_path / "away").iterdir():
        file.rename(root / file.name)
    assert sorted(path.name for path in root.iterdir()) == before
    with Site("postgres", tmp_path / "served"), pytest.raises(InvalidArgumentError, match="in PostgreSQL"):
        recover(tmp_path / "served")


@pytest.mark.parametrize("way", ["trim", "delete_hot"])
def test_what_is_lost_stays_until_that_is_settled(root: Path, way: str) -> None:
    """Recover a log without the last message of a segment, and delete the segment's known part: the file stays, and
    ``salvage`` reads the message, until the operator deletes it."""
    with txn_source.connect(root) as log:
        log.create_topic("t")
        producer = log.producer("t", batching=BY_HAND)
        for value in (b"known", b"lost"):
            producer.send(value)
            producer.flush()
            if value == b"known":
                snapshot(log)
    lose_database(root)
    recover(root)
    [path] = (root / "segments").rglob("*.arrow")
    with txn_source.connect(root) as log:
        if way == "trim":
            log.trim("t", keep_bytes=0)
        else:
            log.offload("t")
            log.delete_hot("t")
        for _ in range(2):
            log.maintain()
            log.collect_garbage(older_than=0)
        [found] = [file for file in salvage(log) if file.uri == path.relative_to(root).as_posix()]
        assert (found.rows, path.exists()) == (2, True)
        log.delete_unknown(0, recovered=True)
        assert not path.exists()


@pytest.mark.usefixtures("s3")
def test_log_on_an_object_store_is_recovered(tmp_path: Path) -> None:
    """Keep the metadata in a file beside a bucket, lose it, and make it of the snapshot in the bucket."""
    uri, file = new_prefix(), tmp_path / "log.db"
    with s3_surroundings():
        with txn_source.connect(uri, metadata=file) as log:
            log.create_topic("t")
            send_each(log.producer("t"), [b"1"])
            snapshot(log)
            send_each(log.producer("t"), [b"2"])
        for left in tmp_path.glob("log.db*"):
            left.unlink()
        report = recover(uri, metadata=file)
        assert (report.missing, len(report.unknown)) == ((), 1)
        with txn_source.connect(uri, metadata=file) as log:
            assert values(log, "t") == [b"1"]


def test_snapshots_lie_in_roots_for_copies_too(log: Log, roots: Roots) -> None:
    """Lose the snapshots of the main root with its database: recovery takes those of another root. It names a root that
    is away, and reports none of its files as missing."""
    send_each(log.producer("t", batching=BY_HAND), [b"1"])
    made = snapshot(log)
    assert all((roots[name] / made).is_file() for name in ("main", "b", "c"))
    log.close()
    lose_database(roots.main)
    shutil.rmtree(roots.main / "snapshots")
    for name in ("main", "b"):
        roots.segments(name)[0].unlink()
    roots.lose("c")
    report = recover(roots.main, snapshots=roots.b)
    assert (report.missing, report.unknown, report.is_whole) == ((), (), False)
    assert report.away == ("c: its txnlog-copies.json is missing",)
    roots.bring_back("c")
    with txn_source.connect(roots.main) as again:
        assert values(again, "t") == [b"1"]


# A database that is older than a snapshot


@pytest.mark.parametrize("way", ["recover", "after-restore"])
def test_older_database_is_refused(root: Path, tmp_path: Path, way: str) -> None:
    """Put an older copy of the database back: nobody opens it, until the log was recovered, or goes on behind a gap."""
    with txn_source.connect(root) as log:
        log.create_topic("t")
        send_each(log.producer("t"), [b"1"])
    shutil.copy(root / "metadata.db", tmp_path / "older.db")
    with txn_source.connect(root) as log:
        send_each(log.producer("t"), [b"2"])
        snapshot(log)
    lose_database(root)
    shutil.copy(tmp_path / "older.db", root / "metadata.db")
    with pytest.raises(UnavailableError, match=r"is older than a snapshot of it that was made at 20.*`txnlog recover`"):
        txn_source.connect(root)
    if way == "recover":
        lose_database(root)
        recover(root)
    else:
        after_restore(root)
    with txn_source.connect(root) as log:
        assert values(log, "t") == ([b"1", b"2"] if way == "recover" else [b"1"])
        assert len(log.unknown_files()) == (way == "after-restore")
    if way == "recover":
        assert snapshots_in(root)[-1].progress > 1 << 30, "the recovered log has its own"


# When snapshots are made


def test_snapshot_is_made_when_one_is_due(root: Path) -> None:
    """Ask early, in time, without a change, and after one."""
    with txn_source.connect(root) as log:
        assert make_snapshot(log.access, 0.0) is None, "it has nothing in it"
        log.create_topic("t")
        [(at,)] = Site.rows_of(root, "SELECT created_at_ms FROM topics")
        due = [make_snapshot(log.access, clock=lambda s=s: at / 1000 + s) is not None for s in (899, 901, 1000, 1900)]
        assert due == [False, True, False, False]
        send_each(log.producer("t"), [b"1"])
        due = [make_snapshot(log.access, clock=lambda s=s: at / 1000 + s) is not None for s in (1000, 1900, 3000)]
        assert due == [False, True, False]
        send_each(log.producer("t"), [b"2"])
        assert make_snapshot(log.access, clock=lambda: at / 1000) is not None, "the clock was ahead"
    assert len(snapshots_in(root)) == 3


def test_few_snapshots_are_kept(root: Path) -> None:
    """Make one an hour for ten days: three are kept, and one a day for a week."""
    with txn_source.connect(root) as log:
        log.create_topic("t")
        start = 1_800_000_000 // 86_400 * 86_400
        producer = log.producer("t", batching=BY_HAND)
        for number in range(40):
            send_each(producer, [b"x"])
            assert make_snapshot(log.access, 0.0, clock=lambda n=number: start + n * 6 * 3600.0) is not None
    kept = [(each.taken_at_s - start) / 3600 for each in snapshots_in(root)]
    assert kept == [*(24 * day + 18 for day in range(3, 9)), 222, 228, 234]


def test_files_wait_for_a_snapshot_that_has_their_doom(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete hot copies after a snapshot, of a database that is too large to be copied on the way: the files go only
    with the next snapshot, so a log that is recovered meanwhile has all its messages."""
    monkeypatch.setattr(snapshot_making, "_QUICK_BYTES", -1)
    with txn_source.connect(root) as log:
        log.create_topic("t")
        send_each(log.producer("t"), [b"1"])
        log.roll_ledger("t")
        log.offload("t")
        snapshot(log)
        hot = list((root / "segments").rglob("*.arrow"))
        assert log.delete_hot("t") == 1
        assert all(path.exists() for path in hot)
        shutil.copytree(root, root.with_name("copy"), ignore=shutil.ignore_patterns("metadata.db*"))
        assert log.maintain().files_deleted == 0
        snapshot(log)
        assert log.maintain().files_deleted == 1
        assert not any(path.exists() for path in hot)
    assert recover(root.with_name("copy")).missing == ()
    with txn_source.connect(root.with_name("copy")) as log:
        assert log.stats("t").ledgers[0].tiers == ("bookkeeper", "tiered")


def test_two_make_one_snapshot(root: Path) -> None:
    """Ask from two connections, one in the middle of the other's."""
    with txn_source.connect(root) as log, txn_source.connect(root) as other:
        log.create_topic("t")
        with snapshot_making._alone(root / "metadata.db") as mine:
            assert mine
            assert make_snapshot(other.access, 0.0) is None
        assert make_snapshot(other.access, 0.0) is not None
        assert make_snapshot(log.access, 0.0) is None


def test_trouble_with_a_snapshot_is_a_warning(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with txn_source.connect(root) as log:
        log.create_topic("t")
        (root / "snapshots").write_text("in the way")
        log.maintain()
        assert make_snapshot(log.access, 0.0) is None
    assert "no snapshot of the metadata could be made" in caplog.text
