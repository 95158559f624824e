"""What goes wrong in the database is told in an error of ours that names the file and says what to do."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from txn_source import connect
from txn_source.metadata.store import sqlite_file
from txn_source.metadata.store.log import create_log
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.tables import log_info, requests
from txn_source.model.errors import InternalError, InvalidArgumentError, UnavailableError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with connect(tmp_path / "log") as log:
        log.create_topic("orders", partitions=20)
    return tmp_path / "log"


def test_file_that_is_no_database(root: Path) -> None:
    for file in root.glob("metadata.db-*"):
        file.unlink()
    (root / "metadata.db").write_bytes(b"nothing of the kind" * 1000)
    with pytest.raises(UnavailableError, match=r"metadata\.db is damaged.*restore"):
        connect(root, create=False)


def test_damaged_file(root: Path) -> None:
    """Overwrite all pages but the first: reads and writes name the file, and the way out."""
    path = root / "metadata.db"
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    path.write_bytes(data)
    for file in root.glob("metadata.db-*"):
        file.unlink()
    with pytest.raises(UnavailableError, match=r"metadata\.db is damaged: .*malformed.*backup"):
        connect(root, create=False)


def test_number_and_text_that_no_database_takes(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path}/metadata.db")
    create_log(database)
    row = {"request_id": "x", "answer": b"", "stored_at_ms": 0, "fingerprint": b""}
    for wrong in ({"stored_at_ms": 1 << 64}, {"request_id": "\ud800"}):
        with pytest.raises(InvalidArgumentError):
            database.write(lambda connection, wrong=wrong: connection.execute(insert(requests), row | wrong))
    with pytest.raises(InternalError, match="NOT NULL"):
        database.write(lambda connection: connection.execute(insert(requests), row | {"answer": None}))
    database.close()


def test_more_readers_than_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let more threads read than there are connections, and then let one wait in vain."""
    monkeypatch.setattr(sqlite_file, "MAX_READERS", 3)
    database = open_database(f"sqlite:///{tmp_path}/metadata.db")
    create_log(database)
    answers = []

    def read() -> None:
        for _ in range(20):
            with database.read() as connection:
                answers.append(connection.execute(select(log_info.c.decisions)).scalar_one())

    threads = [threading.Thread(target=read) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == [0] * 240
    monkeypatch.setattr(sqlite_file, "_READER_WAIT_S", 0.05)
    busy = pytest.raises(UnavailableError, match="All 3 connections")
    with database.read(), database.read(), database.read(), busy:
        database.read().__enter__()
    with database.read() as connection:
        assert connection.execute(select(log_info.c.decisions)).scalar_one() == 0
    database.close()


def test_reader_that_failed_sees_the_present_afterwards(tmp_path: Path) -> None:
    """Leave a statement half read by an error that is kept, change the database, and read again."""
    database = open_database(f"sqlite:///{tmp_path}/metadata.db")
    create_log(database)
    for number in range(3):
        row = {"request_id": str(number), "answer": b"", "stored_at_ms": 0, "fingerprint": b""}
        database.write(lambda connection, row=row: connection.execute(insert(requests), row))
    kept = []
    for _ in range(3):
        try:
            with database.read() as connection:
                half_read = connection.execute(select(requests.c.request_id))
                half_read.fetchone()
                raise ZeroDivisionError
        except ZeroDivisionError as error:
            kept.append(error)
    with sqlite3.connect(tmp_path / "metadata.db") as other:
        other.execute("UPDATE log_info SET decisions = 7")
    other.close()
    with database.read() as connection:
        assert connection.execute(select(log_info.c.decisions)).scalar_one() == 7
    database.close()
