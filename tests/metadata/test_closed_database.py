"""A database that one thread closes while another one writes: what is written counts wholly, or not at all."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

from sqlalchemy import Connection, insert

from tests.log.consuming import WAIT_S, meanwhile
from txn_source.metadata.store import sqlite_file
from txn_source.metadata.store.group_commit import GroupCommit
from txn_source.metadata.store.log import create_log
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.tables import requests


def test_write_during_a_close_counts_wholly_or_not_at_all(tmp_path: Path) -> None:
    """Close in the midst of a write, which goes on as soon as the connection has been rolled back."""
    database = open_database(f"sqlite:///{tmp_path / 'metadata.db'}")
    create_log(database)
    begun, closing, over = threading.Event(), threading.Event(), threading.Event()
    closer: list[int] = []
    inner, wait = sqlite_file._Raw.rollback, GroupCommit.while_nobody_writes

    def rollback(raw: sqlite3.Connection) -> None:
        inner(raw)
        if threading.get_ident() in closer:
            closing.set()
            assert over.wait(WAIT_S)

    def while_nobody_writes(commits: GroupCommit, *arguments: Any) -> None:
        closing.set()
        wait(commits, *arguments)

    def write(connection: Connection) -> None:
        for name in ("debit", "credit"):
            connection.execute(insert(requests).values(request_id=name, answer=b"", stored_at_ms=0, fingerprint=b""))
            if name == "debit":
                begun.set()
                assert closing.wait(WAIT_S)

    def close() -> None:
        closer.append(threading.get_ident())
        assert begun.wait(WAIT_S)
        database.close()

    with (
        patch.object(sqlite_file._Raw, "rollback", rollback),
        patch.object(GroupCommit, "while_nobody_writes", while_nobody_writes),
        meanwhile(close),
    ):
        try:
            database.write(write)
        finally:
            over.set()
    other = sqlite3.connect(tmp_path / "metadata.db")
    assert [row[0] for row in other.execute("SELECT request_id FROM requests ORDER BY 1")] == ["credit", "debit"]
    other.close()
