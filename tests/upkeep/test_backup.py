"""A backup of a log that is used: one moment, whole or nothing; and a log that is made of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import txn_source
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, eventually, send_each, values
from tests.log.sites import Site, log_on_postgres, service_over
from tests.log.streaming import Follower, reread, rows_between, stream_of
from tests.metadata.test_schema_versions import COMMITTED as COMMITTED_THEN
from tests.metadata.test_schema_versions import contents_of, old_log
from tests.upkeep.filled import files, fill, positions_of, seen
from txn_source import DataLossError, InvalidArgumentError, LogNotFoundError, OutOfRangeError, UnavailableError
from txn_source.cli.app import app
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.store import sqlite_backup
from txn_source.metadata.store.lost_future import GAP
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.topic_name import TopicName
from txn_source.storage.root import LogRoot
from txn_source.upkeep import backup as making
from txn_source.upkeep.after_restore import after_restore
from txn_source.upkeep.manifest import MANIFEST, Manifest


def test_restored_log_shows_what_the_log_showed(root: Path, tmp_path: Path) -> None:
    """Back up between two writes, and restore: rows, places, policies and subscriptions are those of the moment."""
    with txn_source.connect(root) as log:
        fill(log)
        log.set_policies("t", retention_age="7d")
        (root / "broker.conf").write_text("managedLedgerOffloadDeletionLagMs=60000\n")
        before, positions = seen(log), log.cut("t", UNCOMMITTED).positions
        done = txn_source.backup(root, tmp_path / "backup")
        send_each(log.producer("t"), [b"later"])
        assert done.messages == {COMMITTED: 6, UNCOMMITTED: 13}
    again = txn_source.restore(tmp_path / "backup", tmp_path / "restored")
    assert again.messages == done.messages
    assert again.backup_of == done.log_id != again.log_id
    with txn_source.connect(tmp_path / "restored", create=False) as log:
        assert seen(log) == before
        assert log.policies("t")["retention_age"].value == 7 * 86400
        assert log.policies("t")["offload_deletion_lag"].value == 60
        assert [s.name for s in log.subscriptions("t")] == ["s"]
        after = log.scan("t", UNCOMMITTED, ["value"], start=positions_of(positions)).read_all()
        assert after.num_rows == 0
        send_each(log.producer("t"), [b"new"])
        assert values(log, "t", start=positions_of(positions)) == [b"new"]
        assert log.maintain().failures == ()
    assert not list((tmp_path / "restored").glob("metadata.db-restored*"))


def test_what_hasnt_changed_is_linked_to_an_earlier_backup(root: Path, tmp_path: Path) -> None:
    """Back up twice: closed files are one file, the one that grew is copied; each backup is whole without the other."""
    with txn_source.connect(root) as log:
        fill(log)
        txn_source.backup(root, tmp_path / "one")
        with log.producer("t") as producer:
            send_each(producer, [b"more"])
        later = seen(log)
        done = txn_source.backup(root, tmp_path / "two", base=tmp_path / "one")
    assert done.reused == done.files - 2  # the database, and the new producer's file
    shared = [path for path in files(tmp_path / "two") if os.stat(tmp_path / "two" / path).st_nlink == 2]
    assert len(shared) == done.reused
    shutil.rmtree(tmp_path / "one")
    txn_source.restore(tmp_path / "two", tmp_path / "restored")
    with txn_source.connect(tmp_path / "restored") as log:
        assert seen(log) == later
    other = tmp_path / "other"
    txn_source.connect(other).close()
    with pytest.raises(InvalidArgumentError, match="is a backup of the log"):
        txn_source.backup(other, tmp_path / "three", base=tmp_path / "two")
    with pytest.raises(LogNotFoundError):
        txn_source.backup(root, tmp_path / "three", base=tmp_path / "one")
    assert not (tmp_path / "three").exists()


def test_files_that_go_meanwhile_lead_to_a_later_moment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offload, delete and trim right after the database was copied: the backup shows the moment after that."""
    copied = 0

    def copy(source: Path, target: Path, progress: Any) -> None:
        nonlocal copied
        sqlite_backup.copy_moment(source, target, progress)
        copied += 1
        if copied == 1:
            log.roll_ledger("t")
            log.abort_transaction(log.transactions("open")[0].id)
            log.offload("t")
            log.delete_hot("t")
        if copied == 2:
            log.delete_subscription("t", "s")
            log.trim("t", older_than=0)
            send_each(log.producer("t"), [b"last"])

    monkeypatch.setattr(making, "copy_moment", copy)
    with txn_source.connect(root) as log:
        fill(log)
        txn_source.backup(root, tmp_path / "backup")
        expected = seen(log)
    assert copied == 3
    manifest = Manifest.read(tmp_path / "backup")
    assert sorted([*manifest.files, MANIFEST]) == files(tmp_path / "backup")
    txn_source.restore(tmp_path / "backup", tmp_path / "restored")
    with txn_source.connect(tmp_path / "restored") as log:
        assert seen(log) == expected
        assert values(log, "t") == [b"last"]


def test_streams_of_the_lost_future_are_told(root: Path, tmp_path: Path) -> None:
    """Go on from checkpoints of before the backup, at it, and after it: rows once, or an error; never other rows."""
    with txn_source.connect(root) as log:
        log.create_topic("t")
        producer = log.producer("t", batching=BY_HAND)
        follower = Follower(log, stream_of(log))
        send_each(producer, [b"a"])
        follower.next()
        early = follower.at
        send_each(producer, [b"b", b"c"])
        follower.next()
        at_backup = follower.at
        txn_source.backup(root, tmp_path / "backup")
        send_each(producer, [b"lost"])
        follower.next()
        lost = follower.at
        log.roll_ledger("t")
        send_each(producer, [b"lost too"])
        follower.next()
        later = follower.at
    txn_source.restore(tmp_path / "backup", tmp_path / "restored")
    with txn_source.connect(tmp_path / "restored") as log:
        send_each(log.producer("t"), [b"new", b"newer"])
        stream = stream_of(log)
        end = stream.latest(reread(at_backup))
        assert [row["value"] for row in rows_between(log, stream, early, at_backup)] == [b"b", b"c"]
        assert [row["value"] for row in rows_between(log, stream, at_backup, end)] == [b"new", b"newer"]
        for checkpoint in (lost, later):
            with pytest.raises(DataLossError):
                stream_of(log).latest(reread(checkpoint))
            with pytest.raises(DataLossError):  # the last batch that was planned is read again
                rows_between(log, stream_of(log), at_backup, checkpoint)
        with pytest.raises(OutOfRangeError):
            log.scan("t", COMMITTED, start=positions_of(lost.positions))


@pytest.mark.usefixtures("impatient")
def test_clients_of_the_lost_log_are_refused(root: Path, tmp_path: Path) -> None:
    """Serve the restored log where the lost one was: a producer that tries again registers nothing in it."""
    with Site("remote", root) as site, txn_source.connect(endpoint=site.endpoint) as log:
        log.create_topic("t")
        producer = log.producer("t", batching=BY_HAND)
        send_each(producer, [b"x"])
        txn_source.backup(root, tmp_path / "backup")
        producer.send(b"lost")
        port = int(site.endpoint.rpartition(":")[2])
        site.stop_server()
        shutil.rmtree(root)
        txn_source.restore(tmp_path / "backup", root)
        site.start_server(port)
        with pytest.raises(UnavailableError, match="another log"):
            producer.flush()
        with txn_source.connect(endpoint=site.endpoint) as anew:
            assert values(anew, "t") == [b"x"]
            send_each(anew.producer("t"), [b"new"])
            assert values(anew, "t") == [b"x", b"new"]
        producer._closed = True
        producer._linger.stop()


def test_copies_are_taken_from_the_root_that_has_them(tmp_path: Path) -> None:
    """Lose the segments of the log's own root: those of another one are backed up, and restored to the own root."""
    root = tmp_path / "log"
    with txn_source.connect(root) as log:
        log.add_root("b", tmp_path / "b")
        log.create_topic("t", hot_copies="main,b", acknowledge_copies=1)
        (root / "broker.conf").write_text("# ours\nmanagedLedgerAcknowledgeCopies=1\nmanagedLedgerHotCopies = main,b\n")
        send_each(log.producer("t"), [b"x", b"y"])
        shutil.rmtree(root / "segments")
        done = txn_source.backup(root, tmp_path / "backup")
        assert [note for note in done.notes if "own root" in note]
    restored = txn_source.restore(tmp_path / "backup", tmp_path / "restored")
    assert [note for note in restored.notes if "broker.conf" in note]
    with txn_source.connect(tmp_path / "restored") as log:
        assert values(log, "t") == [b"x", b"y"]
        assert [found.name for found in log.roots()] == ["main"]
        assert log.policies("t")["hot_copies"].source == "default"
        send_each(log.producer("t"), [b"z"])
        log.collect_garbage(older_than=0)
    with txn_source.connect(tmp_path / "restored") as log:
        assert values(log, "t") == [b"x", b"y", b"z"]
    assert len(list((tmp_path / "b" / "segments").rglob("*.arrows"))) == 2


def test_objects_outside_are_named_and_looked_at(root: Path, tmp_path: Path) -> None:
    """Offload to a folder beside the root: it isn't in the backup, and a restore says so, or that it is gone."""
    with txn_source.connect(root) as log:
        log.create_topic("t", offload_uri=str(tmp_path / "cold"))
        send_each(log.producer("t"), [b"x"])
        log.roll_ledger("t")
        log.offload("t")
        log.delete_hot("t")
        send_each(log.producer("t"), [b"y"])
    [cold] = (path for path in (tmp_path / "cold").rglob("*.parquet"))
    done = txn_source.backup(root, tmp_path / "backup")
    assert done.outside == (str(cold),)
    assert done.messages[COMMITTED] == 2
    restored = txn_source.restore(tmp_path / "backup", tmp_path / "restored")
    assert [note for note in restored.notes if str(cold) in note]
    with txn_source.connect(tmp_path / "restored") as log:
        assert values(log, "t") == [b"x", b"y"]
    cold.rename(tmp_path / "away")
    with pytest.raises(SegmentUnreadableError, match="1 of 1 tiered objects"):
        txn_source.restore(tmp_path / "backup", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_objects_in_the_root_by_an_absolute_path_go_along(root: Path, tmp_path: Path) -> None:
    """Offload to a folder in the root that a policy names from the top: the restored log has it in its own root."""
    with txn_source.connect(root) as log:
        log.create_topic("t", offload_uri=(root / "cold").as_uri())
        send_each(log.producer("t"), [b"x"])
        log.roll_ledger("t")
        log.offload("t")
        log.delete_hot("t")
    done = txn_source.backup(root, tmp_path / "backup")
    assert done.outside == ()
    shutil.rmtree(root)
    txn_source.restore(tmp_path / "backup", tmp_path / "restored")
    with txn_source.connect(tmp_path / "restored") as log:
        assert values(log, "t") == [b"x"]


def test_offloads_under_way_and_doomed_files_stay_the_other_logs(root: Path, tmp_path: Path) -> None:
    """Restore a log of which an offload to a shared folder was under way, and let it clean up: the object is there."""
    with txn_source.connect(root) as log:
        log.create_topic("t", offload_uri=str(tmp_path / "cold"))
        send_each(log.producer("t"), [b"x"])
        log.roll_ledger("t")

        def backed_up(*_: object) -> None:
            txn_source.backup(root, tmp_path / "backup")

        real = log.metadata.complete_offload
        try:
            log.metadata.complete_offload = lambda *of: (backed_up(), real(*of))[1]  # type: ignore[method-assign]
            log.offload("t")
        finally:
            log.metadata.complete_offload = real  # type: ignore[method-assign]
        txn_source.restore(tmp_path / "backup", tmp_path / "restored")
        with txn_source.connect(tmp_path / "restored") as other:
            other.offload("t")
            other.maintain()
            other.delete_offloaded("t")
        assert log.scan("t", COMMITTED, read_priority="tiered-first").read_all().num_rows == 1
        assert len(list((tmp_path / "cold").rglob("*.parquet"))) == 1


def test_older_tables_are_left_in_the_log_and_upgraded_in_the_restored_one(root: Path, tmp_path: Path) -> None:
    """Back up a log of an older release before its upgrade, with this one."""
    database = old_log(root)
    LogRoot.at(root).finish()
    before = contents_of(database)
    done = txn_source.backup(root, tmp_path / "backup")
    assert Manifest.read(tmp_path / "backup").schema_version == 1
    assert contents_of(database) == before
    restored = txn_source.restore(tmp_path / "backup", tmp_path / "restored")
    assert restored.messages == done.messages
    with txn_source.connect(tmp_path / "restored") as log:
        assert values(log, "orders") == COMMITTED_THEN


def test_backup_waits_for_nobody_and_nobody_for_it(root: Path, tmp_path: Path) -> None:
    """Write while the database is copied, in steps: what is written then is not in it, and none of it waits."""
    with txn_source.connect(root) as log:
        fill(log)
        producer = log.producer("t", batching=BY_HAND)
        before = seen(log)

        def progress(*_: int) -> None:
            send_each(producer, [b"meanwhile"])

        txn_source.backup(root, tmp_path / "backup", progress=progress)
        eventually(lambda: values(log, "t", UNCOMMITTED).count(b"meanwhile") >= 1)
    txn_source.restore(tmp_path / "backup", tmp_path / "restored")
    with txn_source.connect(tmp_path / "restored") as log:
        assert seen(log) == before


def test_log_whose_database_was_put_back_goes_on_behind_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On PostgreSQL, after its own restore: the command, once; then ids lie behind what may have been given out."""
    root = tmp_path / "log"
    with log_on_postgres(root) as url:
        untold = CliRunner().invoke(app, ["after-restore", "--root", str(root)])
        assert (untold.exit_code, "--metadata, or TXNLOG_METADATA" in untold.output) == (2, True)
        monkeypatch.setenv("TXNLOG_METADATA", url.revealed)
        done = CliRunner().invoke(app, ["after-restore", "--root", str(root)])
        assert done.exit_code == 0, done.output
        assert "goes on behind a gap" in done.output
        stub = MetadataStub(InProcessTransport(service_over(root, url=url)))
        stub.create_topic(TopicName.parse("t"), 1, None, LedgerLimits(), {})
        [view] = stub.get_view([TopicName.parse("t")]).topics
        assert view.partitions[0].bounds.log_start.ledger_id > GAP
        stub.close()
    with pytest.raises(LogNotFoundError):
        after_restore(tmp_path / "nothing")
