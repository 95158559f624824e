"""A root that can't be written can be read, and what is written there is refused in clear words."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.log.reading import UNCOMMITTED, send_each, values
from tests.log.sites import ClockedTarget, ManualClock
from txn_source import Log, StorageWriteError, UnavailableError, connect
from txn_source.metadata.store.sqlite_file import SqliteFile

_NOBODY = 65534


@contextmanager
def unwritable(root: Path) -> Iterator[None]:
    """Take all rights to write away, from the superuser too, who becomes somebody else meanwhile."""
    _allow(root, write=False)
    try:
        yield
    finally:
        _allow(root, write=True)


@contextmanager
def rights(root: Path) -> Iterator[None]:
    """Give the rights back for a moment."""
    _allow(root, write=True)
    try:
        yield
    finally:
        _allow(root, write=False)


def _allow(root: Path, *, write: bool) -> None:
    if os.getuid() == 0:
        os.seteuid(0)
    for path in (root, *root.rglob("*")):
        path.chmod((0o755 if path.is_dir() else 0o644) if write else (0o555 if path.is_dir() else 0o444))
    if os.getuid() == 0 and not write:
        os.seteuid(_NOBODY)


@pytest.fixture
def root(clock: ManualClock) -> Iterator[Path]:
    """A log with a committed, an aborted and an open transaction; its folder is where anybody may look."""
    folder = Path(tempfile.mkdtemp(prefix="txnlog-test-", dir="/tmp"))
    folder.chmod(0o755)
    root = folder / "log"
    connect(root).close()
    with Log(ClockedTarget(root, clock)) as log:
        log.create_topic("t")
        producer = log.producer("t")
        send_each(producer, [b"plain"])
        for name in (b"committed", b"aborted"):
            transaction = log.begin_transaction()
            send_each(producer, [name], txn=transaction)
            (transaction.commit if name == b"committed" else transaction.abort)()
        send_each(producer, [b"open"], txn=log.begin_transaction(timeout=60))
        send_each(producer, [b"behind"])
        producer.close()
    yield root
    shutil.rmtree(folder)


def test_root_without_rights_is_read(root: Path, clock: ManualClock) -> None:
    """Read at both levels, and look at the topic, where no file can be made beside the database."""
    with unwritable(root), Log(ClockedTarget(root, clock)) as log:
        assert values(log, "t") == [b"plain", b"committed"]
        assert values(log, "t", UNCOMMITTED) == [b"plain", b"committed", b"aborted", b"open", b"behind"]
        assert log.topics() == ["t"]
        assert len(log.transactions()) == 1
        assert [path.name for path in root.glob("metadata.db-*")] == ["metadata.db-turn"]


def test_open_transaction_past_its_deadline_is_seen_aborted(root: Path, clock: ManualClock) -> None:
    """Let the deadline pass where nobody can write that down: two connections agree about what follows from it."""
    clock.advance(61)
    with unwritable(root), Log(ClockedTarget(root, clock)) as log, Log(ClockedTarget(root, clock)) as other:
        for one in (log, other):
            assert values(one, "t") == [b"plain", b"committed", b"behind"]
            assert one.transactions() == []
            assert len(one.transactions(state="aborted")) == 2
        assert log.stats("t").partitions == other.stats("t").partitions
    with Log(ClockedTarget(root, clock)) as log:
        assert values(log, "t") == [b"plain", b"committed", b"behind"]


def test_writes_are_refused_in_clear_words(root: Path, clock: ManualClock) -> None:
    with unwritable(root), Log(ClockedTarget(root, clock)) as log:
        for write in (lambda: log.begin_transaction().id, lambda: log.create_topic("u"), lambda: log.producer("t")):
            with pytest.raises(StorageWriteError, match=r"metadata\.db can only be read here"):
                write()
        assert log.topics() == ["t"]


def test_root_is_read_while_somebody_else_writes_it(root: Path, clock: ManualClock) -> None:
    """Take the rights away from a reader only: it sees what is committed meanwhile."""
    with Log(ClockedTarget(root, clock)) as writing:
        producer = writing.producer("t")
        with unwritable(root), Log(ClockedTarget(root, clock)) as log:
            assert len(values(log, "t", UNCOMMITTED)) == 5
            with rights(root):
                send_each(producer, [b"new"])
            assert len(values(log, "t", UNCOMMITTED)) == 6


def test_file_that_changes_after_all_is_noticed(root: Path) -> None:
    """Let a file that was taken for one that doesn't change be changed under a read."""
    file = SqliteFile(str(root / "metadata.db"))
    with unwritable(root):
        with file.read() as connection:
            connection.exec_driver_sql("SELECT * FROM topics").all()
        with pytest.raises(UnavailableError, match="changed while it was read"), file.read(), rights(root):
            os.utime(root / "metadata.db", (1, 1))
        with file.read() as connection:
            assert len(connection.exec_driver_sql("SELECT * FROM topics").all()) == 1
    file.close()


def test_changes_beside_the_file_are_not_left_out(root: Path, clock: ManualClock) -> None:
    """Leave the write-ahead log of a crash beside the database: it is said, and nothing older is shown."""
    beside = root / "metadata.db-wal"
    beside.write_bytes(b"x" * 4096)
    with unwritable(root), pytest.raises(UnavailableError, match=r"metadata\.db-wal"):
        Log(ClockedTarget(root, clock)).topics()
