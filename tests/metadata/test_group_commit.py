"""Writes of several threads share a transaction: each counts once, and each caller is told what became of its own."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from txn_source import TxnLogError
from txn_source.metadata.store import group_commit, sqlite_file
from txn_source.metadata.store.log import create_log
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.tables import requests
from txn_source.model.errors import InternalError, InvalidArgumentError, StorageWriteError

Action = Callable[[Connection], str]


class Store:
    """A database with threads that write names into it, and another connection to see them."""

    def __init__(self, path: Path) -> None:
        self.database = open_database(f"sqlite:///{path}")
        create_log(self.database)
        self.other = sqlite3.connect(path, timeout=0, isolation_level=None)
        self.results: dict[str, Any] = {}

    def names(self) -> list[str]:
        return [row[0] for row in self.other.execute("SELECT request_id FROM requests ORDER BY 1")]

    def commits(self) -> Any:
        return self.other.execute("PRAGMA data_version").fetchone()[0]

    def waiting(self) -> int:
        return len(self.database._here()[1]._queue)

    def start(self, name: str, action: Action) -> threading.Thread:
        """Write in a thread; keep what comes of it, an error with its traceback."""

        def run() -> None:
            try:
                self.results[name] = self.database.write(action)
            except BaseException as error:
                self.results[name] = error

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def together(self, first: Action, others: dict[str, Action]) -> None:
        """Let ``first`` lead, and the others wait when it is carried out; return when all are through."""
        entered = threading.Event()

        def lead(connection: Connection) -> str:
            entered.set()
            until = time.monotonic() + 60
            while self.waiting() < len(others) and "first" not in self.results and time.monotonic() < until:
                time.sleep(0.001)
            return first(connection)

        threads = [self.start("first", lead)]
        assert entered.wait(60)
        for name, action in others.items():
            threads.append(self.start(name, action))
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()


def store_name(name: str) -> Action:
    def action(connection: Connection) -> str:
        connection.execute(insert(requests), {"request_id": name, "answer": b"", "stored_at_ms": 0, "fingerprint": b""})
        return f"stored {name}"

    return action


def refused(connection: Connection) -> str:
    store_name("refused")(connection)
    raise InvalidArgumentError("It is refused.", "Leave it.")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "metadata.db")
    yield store
    store.other.close()
    store.database.close()


def test_writes_that_wait_are_one_commit(store: Store) -> None:
    """Let five wait while one is carried out, and count the changes of the database that another connection sees."""
    before = store.commits()
    store.together(store_name("first"), {name: store_name(name) for name in "abcde"})
    assert store.results == {name: f"stored {name}" for name in ("first", *"abcde")}
    assert store.names() == [*"abcde", "first"]
    assert store.commits() == before + 1


def test_urgent_write_is_carried_out_before_all_that_wait(store: Store) -> None:
    """Let some wait, and one that is urgent: it comes first of them, in the same commit."""
    order: list[str] = []

    def noted(name: str) -> Action:
        def action(connection: Connection) -> str:
            order.append(name)
            return store_name(name)(connection)

        return action

    store.together(store_name("first"), {**{n: noted(n) for n in "abcde"}, "u": group_commit.Urgent(noted("u"))})
    assert store.names() == [*"abcde", "first", "u"]
    assert order[0] == "u"
    assert sorted(order) == [*"abcde", "u"]


def test_refused_write_takes_no_other_with_it(store: Store) -> None:
    """Let one of three that wait be refused after it has written something."""
    store.together(store_name("first"), {"a": store_name("a"), "bad": refused, "b": store_name("b")})
    assert isinstance(store.results.pop("bad"), InvalidArgumentError)
    assert store.results == {name: f"stored {name}" for name in ("first", "a", "b")}
    assert store.names() == ["a", "b", "first"]


def test_refused_leader_takes_no_other_with_it(store: Store) -> None:
    store.together(refused, {"a": store_name("a"), "b": store_name("b")})
    assert isinstance(store.results.pop("first"), InvalidArgumentError)
    assert store.results == {"a": "stored a", "b": "stored b"}
    assert store.names() == ["a", "b"]


def test_unexpected_error_is_its_own_callers(store: Store) -> None:
    def broken(_: Connection) -> str:
        raise ZeroDivisionError

    store.together(store_name("first"), {"a": broken, "b": store_name("b")})
    assert isinstance(store.results["a"], ZeroDivisionError)
    assert store.names() == ["b", "first"]


def test_failed_commit_is_told_to_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk be full when the group is committed: also the one that was refused isn't told why it was."""

    def full(*_: object) -> None:
        raise StorageWriteError("The disk is full.", "Free some space.")

    monkeypatch.setattr(sqlite_file.SqliteFile, "_commit", full)
    store.together(store_name("first"), {"a": store_name("a"), "bad": refused})
    assert {type(found) for found in store.results.values()} == {StorageWriteError}
    assert len({id(found) for found in store.results.values()}) == 3
    assert store.names() == []
    monkeypatch.undo()
    assert store.database.write(store_name("later")) == "stored later"


def test_transaction_that_is_gone_is_told_to_all(store: Store) -> None:
    """Let SQLite roll all back in the middle of the second action, as it does when the disk is full."""

    def full(connection: Connection) -> str:
        connection.exec_driver_sql("ROLLBACK")
        raise StorageWriteError("The disk is full.", "Free some space.")

    store.together(store_name("first"), {"a": full})
    assert {type(found) for found in store.results.values()} == {StorageWriteError}
    assert store.names() == []


def test_duplicate_is_an_error_of_ours(store: Store) -> None:
    """Violate a constraint, alone and in a group."""
    store.database.write(store_name("a"))
    with pytest.raises(InternalError, match="UNIQUE"):
        store.database.write(store_name("a"))
    store.together(store_name("first"), {"again": store_name("a"), "b": store_name("b")})
    assert isinstance(store.results["again"], InternalError)
    assert store.names() == ["a", "b", "first"]


def test_many_threads_write_each_once(store: Store) -> None:
    """Let 16 threads write 25 names each, and refuse every fifth."""

    def run(number: int) -> None:
        for index in range(25):
            name = f"{number} {index}"
            if index % 5 == 0:
                with pytest.raises(TxnLogError):
                    store.database.write(refused)
            else:
                assert store.database.write(store_name(name)) == f"stored {name}"

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(store.names()) == 16 * 20
