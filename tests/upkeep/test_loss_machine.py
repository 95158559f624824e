"""Random histories of a log, snapshots and backups at any moment, and losses: what is made of one is as the log was,
all else is told and can be read, and no file goes that anybody may need."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import txn_source
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, eventually, rows
from tests.selection import examples
from txn_source import Log, Transaction, recover, salvage
from txn_source.client.tiering.snapshot_making import make_snapshot
from txn_source.metadata.store import sqlite_backup
from txn_source.metadata.store.sqlite_database import SqliteDatabase
from txn_source.storage.snapshots import snapshots_in
from txn_source.upkeep import backup as making

LEVELS = (COMMITTED, UNCOMMITTED)
PLACES = ["__partition", "__ledger_id", "__entry_id", "__batch_index", "value"]
Seen = dict[str, list[tuple[Any, ...]]]


def seen(log: Log) -> Seen:
    """Return all rows at each level with their places, sorted."""
    return {level: sorted(tuple(row.values()) for row in rows(log, "t", level, PLACES)) for level in LEVELS}


def settled(log: Log) -> Seen:
    """Return what is seen once all transactions that are open now are aborted."""
    of_all = [tuple(row.values()) for row in rows(log, "t", UNCOMMITTED, [*PLACES, "__txn_status"])]
    counting = (row[:-1] for row in of_all if row[-1] not in ("aborted", "open"))
    return {COMMITTED: sorted(counting), UNCOMMITTED: sorted(row[:-1] for row in of_all)}


class LossMachine(RuleBasedStateMachine):
    """One topic of two partitions, half of the time with copies in another root. Between a backup's copies of the
    database and of files anything may come."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.root = self.folder / "log-0"
        self.logs = 0
        self.sent = 0
        self.backups: list[tuple[Path, Seen]] = []
        self.given_out: dict[tuple[Any, ...], bytes] = {}
        self.newest = ""
        """The newest snapshot, and what the log was then."""
        self.then: Seen = {}
        self.older: Path | None = None
        """The database from before that."""
        self.losses = 0
        self.lost: set[bytes] = set()
        """What was acknowledged, and is in no snapshot."""
        self._open()
        self.log.create_topic("t", partitions=2, ledger_max_entries=6)

    @initialize(copies=st.booleans())
    def begin_with(self, copies: bool) -> None:
        if copies:
            self.log.add_root("b", self.folder / "b")
            self.log.set_policies("t", hot_copies="main,b", acknowledge_copies=1)

    def _open(self) -> None:
        self.log: Log = txn_source.connect(self.root)
        self.producer: Any = None
        self.txns: list[Transaction] = []

    def teardown(self) -> None:
        self.log.close()
        self.stack.close()

    # What a log goes through

    @rule(partition=st.integers(0, 1), number=st.none() | st.integers(0, 3))
    def send(self, partition: int, number: int | None) -> None:
        if self.producer is None:
            self.producer = self.log.producer("t", batching=BY_HAND)
        txn = self.txns[number % len(self.txns)] if self.txns and number is not None else None
        self.producer.send(b"%d" % self.sent, partition=partition, txn=txn)
        self.sent += 1
        self.producer.flush()

    @rule()
    def begin(self) -> None:
        if len(self.txns) < 4:
            self.txns.append(self.log.begin_transaction(timeout=900))
            assert self.txns[-1].id

    @rule(number=st.integers(0, 3), commit=st.booleans())
    def end(self, number: int, commit: bool) -> None:
        if self.txns:
            txn = self.txns.pop(number % len(self.txns))
            txn.commit() if commit else txn.abort()

    @rule(what=st.sampled_from(["roll", "offload", "delete_hot", "trim", "gc", "seek", "delete_offloaded"]))
    def tend(self, what: str) -> None:
        match what:
            case "roll":
                self.log.roll_ledger("t")
            case "offload":
                self.log.offload("t")
            case "delete_hot":
                self.log.delete_hot("t")
            case "delete_offloaded":
                with suppress(txn_source.OnlyCopyError):
                    self.log.delete_offloaded("t")
            case "trim":
                self.log.trim("t", keep_bytes=300)
            case "gc":
                self.log.collect_garbage(older_than=0)
            case "seek":
                if not self.log.subscriptions("t"):
                    self.log.create_subscription("t", "s", initial_position="earliest")
                self.log.seek("t", "s", "earliest")

    # Snapshots

    @rule()
    def snapshot(self) -> None:
        before, older = self.folder / "before.db", self.folder / "older.db"
        sqlite_backup.copy_moment(self.root / "metadata.db", before)
        if make_snapshot(self.log.access, 0.0) is not None:
            self.older = before.rename(older)

    @precondition(lambda self: self.newest)
    @rule(how=st.sampled_from(["database", "snapshots", "older"]), salvaging=st.booleans())
    def lose(self, how: str, salvaging: bool) -> None:
        """Lose the database, or the snapshots of the own root with it, or find an older database: what the newest
        snapshot knew is there, exactly, and all else that was acknowledged is salvaged; no file has gone."""
        before, now, roots = self._files(), seen(self.log), self.log.roots()
        self.log.close()
        if how == "older" and self.older is not None:
            self._lose_database()
            shutil.copy(self.older, self.root / "metadata.db")
            with pytest.raises(txn_source.UnavailableError, match="is older than a snapshot"):
                txn_source.connect(self.root)
        self._lose_database()
        source = None
        if how == "snapshots" and len(roots) > 1:
            shutil.rmtree(self.root / "snapshots")
            source = self.folder / "b"
        report = recover(self.root, snapshots=source)
        assert report.missing == ()
        self._open()
        assert seen(self.log) == self.then
        values = {row[-1] for row in self.then[UNCOMMITTED]}
        self.lost = (self.lost | {row[-1] for row in now[UNCOMMITTED]}) - values
        self.log.collect_garbage(older_than=0)
        assert self._files() >= before
        self.losses += 1
        target = self.folder / f"salvaged-{self.losses}"
        salvage(self.log, to=target)
        there = {value for file in target.iterdir() for value in pq.read_table(file)["value"].to_pylist()}
        assert there >= self.lost
        if salvaging:
            self.log.delete_unknown(0, recovered=True)
            self.lost = set()

    def _lose_database(self) -> None:
        for file in self.root.glob("metadata.db*"):
            file.unlink()

    def _files(self) -> set[Path]:
        return {path for path in self.folder.rglob("*.*") if path.suffix in (".arrow", ".arrows", ".parquet")}

    # Backups

    @rule(data=st.data(), based=st.booleans())
    def back_up(self, data: st.DataObject, based: bool) -> None:
        moments: list[Seen] = []
        meanwhile = data.draw(st.lists(st.sampled_from(["roll", "offload", "delete_hot", "trim"]), max_size=4))

        def copy(source: Path, target: Path, progress: Any) -> None:
            moments.append(settled(self.log))
            sqlite_backup.copy_moment(source, target, progress)
            while meanwhile:
                self.tend(meanwhile.pop(0))

        target = self.folder / f"backup-{len(self.backups)}"
        base = self.backups[-1][0] if based and self.backups and self.backups[-1][0].name[-1] != "x" else None
        with patch.object(making, "copy_moment", copy):
            try:
                done = txn_source.backup(self.root, target, base=base)
            except txn_source.InvalidArgumentError:
                assert base is not None  # of the log before it was put back
                done = txn_source.backup(self.root, target)
        assert list(done.messages.values()) == [len(moments[-1][level]) for level in LEVELS]
        self.backups.append((target, moments[-1]))

    @rule(number=st.integers(0, 5), in_place=st.booleans())
    def restore(self, number: int, in_place: bool) -> None:
        """Look at a log that is made of a backup, or go on with it."""
        if not self.backups or self.logs == 10:
            return
        source, expected = self.backups[number % len(self.backups)]
        self.logs += 1
        root = self.folder / f"log-{self.logs}"
        later_us = 2**self.logs * 3600 * 1_000_000  # so that no two ways to a log take the same time
        with patch.object(SqliteDatabase, "clock", lambda _: time.time_ns() // 1000 + later_us):
            txn_source.restore(source, root)
        with txn_source.connect(root, create=False) as restored:
            assert seen(restored) == expected
            with restored.producer("t") as producer:
                for partition in range(2):
                    producer.send(b"new-%d" % self.logs, partition=partition)
            self._note(seen(restored))
        if in_place:
            self.log.close()
            shutil.rmtree(self.root)
            self.root, self.newest, self.older, self.lost = root, "", None, set()
            self._open()

    @invariant()
    def counts_are_scans(self) -> None:
        found = seen(self.log)
        for level in LEVELS:
            assert self.log.count("t", level) == len(found[level])
        self._note(found)
        newest = snapshots_in(self.root, self.log.metadata.log_id)
        if newest and newest[-1].path != self.newest:
            self.newest, self.then = newest[-1].path, settled(self.log)

    def _note(self, found: Seen) -> None:
        """No place means another message in any of the logs that were made of backups."""
        for *place, value in found[UNCOMMITTED]:
            assert self.given_out.setdefault(tuple(place), value) == value


@pytest.mark.timeout(3000)
def test_what_is_made_of_a_snapshot_or_a_backup_is_as_the_log_was() -> None:
    """Run random histories."""
    run_state_machine_as_test(
        LossMachine,
        settings=settings(
            max_examples=examples(8),
            derandomize=True,  # the same histories at every change
            stateful_step_count=20,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        ),
    )


@pytest.mark.long
def test_backups_under_load_are_consistent(tmp_path: Path) -> None:
    """Move money between accounts on two partitions while others offload, delete, trim and collect; each backup has
    whole transfers only, and rows of the log."""
    root, stop, failures = tmp_path / "log", threading.Event(), []

    def guarded(work: Callable[[Log], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                with txn_source.connect(root) as mine:
                    while not stop.is_set():
                        work(mine)
            except BaseException as error:
                failures.append(error)
                raise

        return run

    def transfer(mine: Log) -> None:
        with mine.producer("t", batching=BY_HAND) as producer:
            for number in range(20):
                txn = mine.begin_transaction()
                producer.send(b"-1", partition=0, txn=txn)
                producer.send(b"1", partition=1, txn=txn)
                try:
                    producer.flush()
                except txn_source.StaleSegmentError:  # garbage of any age is collected, again and again
                    txn.abort()
                else:
                    txn.commit() if number % 3 else txn.abort()

    def tend(mine: Log) -> None:
        mine.roll_ledger("t")
        mine.offload("t")
        mine.delete_hot("t")
        mine.collect_garbage(older_than=0)

    with txn_source.connect(root) as log:
        log.create_topic("t", partitions=2, ledger_max_entries=50)
        threads = [threading.Thread(target=guarded(work)) for work in (transfer, transfer, tend)]
        for thread in threads:
            thread.start()
        try:
            eventually(lambda: log.count("t", COMMITTED) > 0 or bool(failures))
            for number in range(2):
                base = tmp_path / f"backup-{number - 1}" if number else None
                txn_source.backup(root, tmp_path / f"backup-{number}", base=base)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failures
        all_rows = set(seen(log)[UNCOMMITTED])
    for number in range(2):
        txn_source.restore(tmp_path / f"backup-{number}", tmp_path / f"restored-{number}")
        with txn_source.connect(tmp_path / f"restored-{number}") as restored:
            found = seen(restored)
            assert sum(int(row[-1]) for row in found[COMMITTED]) == 0
            assert set(found[UNCOMMITTED]) <= all_rows
            assert found[COMMITTED]
