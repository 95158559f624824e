"""Connections of SQLite in a process that was forked: its locks may be held there by threads that are gone."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from sqlalchemy import Connection

from tests.log.consuming import WAIT_S
from txn_source.metadata.store import sqlite_file
from txn_source.metadata.store.log import create_log
from txn_source.metadata.store.opening import open_database

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def succeeds_in_child(work: Callable[[], object]) -> bool:
    """Fork, do the work in the child, and tell if it returned something true there, in time."""
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(WAIT_S))  # a child that hangs is killed
        os._exit(0 if work() else 1)
    return os.waitpid(pid, 0)[1] == 0


def test_connection_that_was_busy_at_a_fork_can_be_closed(tmp_path: Path) -> None:
    """Fork while a thread's statement runs, and close its connection in the child: that waits for nothing."""
    database = open_database(f"sqlite:///{tmp_path / 'metadata.db'}")
    create_log(database)
    running, over = threading.Event(), threading.Event()
    busy: list[Connection] = []

    def tell() -> bool:
        running.set()
        return over.is_set()

    def work() -> None:
        with suppress(Exception), database.read() as connection:
            busy.append(connection)
            raw: Any = connection.connection
            raw.set_progress_handler(tell, 1000)
            raw.execute(ENDLESS)

    def close() -> bool:
        busy.pop().connection.close()
        return True

    thread = threading.Thread(target=work)
    thread.start()
    assert running.wait(WAIT_S)
    try:
        assert succeeds_in_child(close)
    finally:
        over.set()
        thread.join()


def test_inherited_connection_is_never_destroyed(tmp_path: Path) -> None:
    """Forget a connection in a child: it is kept, since destroying it would take locks of SQLite."""
    held = [sqlite3.connect(tmp_path / "metadata.db", factory=sqlite_file._Raw)]

    def forget() -> list[object]:
        kept: list[object] = []
        with patch.object(sqlite_file, "keep_for_ever", kept.append):
            held.clear()
            gc.collect()
        return kept

    assert succeeds_in_child(forget)
    held.pop().close()
