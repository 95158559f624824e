"""``txnlog migrate``: a log's metadata goes from SQLite to PostgreSQL whole, or stays where it was."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import txn_source
from tests.cli.conftest import Served
from tests.cli.test_serve import address_of
from tests.metadata.postgres import server
from tests.selection import mostly_long
from txn_source.metadata.service import migration
from txn_source.metadata.store import schema_versions
from txn_source.metadata.store.database import Database
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.model.errors import DataLossError, InvalidArgumentError, UnavailableError
from txn_source.storage.root import FORMAT_VERSION, LogRoot

LEVELS = ("read_committed", "read_uncommitted")
IN_SQLITE = {"format_version": FORMAT_VERSION}

KILLED = """
import os, signal, sys
from txn_source.metadata.service.migration import migrate
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.storage.root import LogRoot

lines = []

def report(line):
    lines.append(line)
    if len(lines) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

migrate(LogRoot.at(sys.argv[1]), DatabaseUrl(os.environ["TXNLOG_METADATA"]), report)
"""
STEPS = ("held", "tables made", "copied", "compared", "scanned", "committed", "noted", "renamed")
NOTED = STEPS.index("noted") + 1


@pytest.fixture
def filled(root: Path) -> dict[str, list[bytes]]:
    """A log with transactions of all kinds, closed ledgers, a subscription, and ids that were given out and are gone;
    what each level sees of it."""
    with txn_source.connect(root) as log:
        log.create_topic("orders", partitions=2)
        with log.producer("orders") as producer:
            for number in range(20):
                producer.send(f"plain-{number}".encode(), partition=number % 2)
        for number, commit in enumerate((True, False)):
            txn = log.begin_transaction()
            with log.producer("orders") as producer:
                for partition in range(2):
                    producer.send(f"ended-{number}".encode(), partition=partition, txn=txn)
            txn.commit() if commit else txn.abort()
        log.roll_ledger("orders")
        txn = log.begin_transaction(timeout=600)
        with log.producer("orders") as producer:
            producer.send(b"open", partition=0, txn=txn)
            producer.flush()
        with log.subscribe("orders", "billing", type="shared", initial_position="earliest") as consumer:
            for _ in range(5):
                consumer.acknowledge(consumer.receive(timeout=30))
        log.create_topic("gone", partitions=3)
        log.delete_topic("gone")
        return seen(log)


def seen(log: txn_source.Log) -> dict[str, list[bytes]]:
    return {level: log.scan("orders", level).read_all()["value"].to_pylist() for level in LEVELS}


def marker(root: Path) -> Any:
    return json.loads((root / "txnlog.json").read_text())


def tables(url: DatabaseUrl) -> list[str]:
    asked = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    with server().connect(name_of(url)) as raw:
        return [row[0] for row in raw.execute(asked)]


def name_of(url: DatabaseUrl) -> str:
    return url.revealed.partition("?")[0].rpartition("/")[2]


def test_log_is_moved_and_served(
    txnlog: Any, spawn: Any, root: Path, url: DatabaseUrl, filled: dict[str, list[bytes]]
) -> None:
    """Move a log and serve it: it shows the same, its subscription goes on, and no id comes again."""
    with sqlite3.connect(root / "metadata.db") as raw:
        last = dict(raw.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    raw.close()
    done = txnlog("migrate", "--metadata", url.revealed)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(STEPS) + 1
    assert lines[-1].startswith("Moved the log ")
    assert "1 topic" in lines[-1]
    assert (root / "metadata.db-migrated").exists()
    assert [path.name for path in root.glob("metadata.db*")] == ["metadata.db-migrated"]
    refused = txnlog("topics", "list")
    assert refused.exit_code == 2
    assert "keeps its metadata in PostgreSQL" in refused.stderr

    address = address_of(spawn("serve", "--root", root, "--port", "0", "--metadata", url.revealed))
    with txn_source.connect(endpoint=address) as log:
        assert seen(log) == filled
        with log.subscribe("orders", "billing", type="shared") as consumer:
            left = [consumer.receive(timeout=30).value for _ in range(len(filled["read_committed"]) - 5)]
        assert len(set(left)) == len(set(filled["read_committed"])) - 5
        log.create_topic("new")
        with log.producer("new") as producer:
            producer.send(b"a")
        [position] = log.scan("new", columns=["__ledger_id"]).read_all()["__ledger_id"].to_pylist()
    assert position > last["ledgers"]
    with server().connect(name_of(url)) as moved:
        [(topic,)] = moved.execute("SELECT topic_id FROM topics WHERE name LIKE '%/new'").fetchall()
    assert topic > last["topics"]


def test_consumers_are_left_out(txnlog: Any, root: Path, url: DatabaseUrl, filled: dict[str, list[bytes]]) -> None:
    """Leave a consumer of a process that was killed, on another machine: what it held is handed out again."""
    with sqlite3.connect(root / "metadata.db") as raw:
        raw.execute("INSERT INTO consumers VALUES (77, 1, 'token', 'name', 'elsewhere', 0, 4000000000000, 0)")
        raw.execute("UPDATE deliveries SET consumer_id = 77")
        [(held,)] = raw.execute("SELECT count(*) FROM deliveries").fetchall()
    raw.close()
    assert held
    assert txnlog("migrate", "--metadata", url.revealed).exit_code == 0
    with server().connect(name_of(url)) as moved:
        assert moved.execute("SELECT count(*) FROM consumers").fetchone() == (0,)
        asked = "SELECT count(*) FROM deliveries WHERE consumer_id IS NULL AND redeliveries <> 0"
        assert moved.execute(asked).fetchone() == (held,)


@pytest.mark.long
def test_log_that_is_open_is_refused(txnlog: Any, root: Path, url: DatabaseUrl, filled: dict[str, list[bytes]]) -> None:
    """Move a log that a process has open, though it does nothing: it is told so, and goes on."""
    with txn_source.connect(root, create=False) as log:
        assert seen(log) == filled
        refused = txnlog("migrate", "--metadata", url.revealed)
        assert refused.exit_code == 1
        assert refused.stderr.count("\n") == 1
        assert "is open in another process" in refused.stderr
        assert seen(log) == filled
    assert marker(root) == IN_SQLITE
    assert tables(url) == []


@pytest.mark.long
def test_nobody_opens_the_log_meanwhile(root: Path, url: DatabaseUrl, filled: dict[str, list[bytes]]) -> None:
    """Look into the file at each step until the root has noted the move: it is locked."""
    locked: list[str] = []

    def report(line: str) -> None:
        if len(locked) < NOTED - 1:
            other = sqlite3.connect(root / "metadata.db", timeout=0)
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                other.execute("SELECT * FROM log_info").fetchall()
            other.close()
            locked.append(line)

    migration.migrate(LogRoot.at(root), url, report)
    assert len(locked) == NOTED - 1


def test_opening_that_was_overtaken_is_refused(
    root: Path, url: DatabaseUrl, filled: dict[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Move the log after another opening of it has looked at the root, and before it reads the database."""
    upgrade = schema_versions.upgrade

    def overtaken(database: Database) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(schema_versions, "upgrade", upgrade)
            migration.migrate(LogRoot.at(root), url, lambda _: None)

    monkeypatch.setattr(schema_versions, "upgrade", overtaken)
    with pytest.raises(InvalidArgumentError, match="keeps its metadata in PostgreSQL"):
        txn_source.connect(root, create=False)


@pytest.mark.parametrize(
    "holds",
    mostly_long(["a table", "this log", "another log"], "another log"),
)
def test_target_that_is_not_empty_is_refused(
    holds: str, txnlog: Any, bare: Any, root: Path, url: DatabaseUrl, filled: dict[str, list[bytes]], tmp_path: Path
) -> None:
    """Move a log to a database that holds something: nothing of either is changed."""
    said = "isn't empty: it holds the log"
    if holds == "a table":
        said = "isn't empty: it holds the table 'mine'"
        with server().connect(name_of(url)) as raw:
            raw.execute("CREATE TABLE mine (a integer)")
    elif holds == "this log":
        said = "isn't empty: it holds this log"
        copied = (root / "metadata.db").read_bytes()
        assert txnlog("migrate", "--metadata", url.revealed).exit_code == 0
        (root / "metadata.db").write_bytes(copied)
        (root / "txnlog.json").write_text(json.dumps(IN_SQLITE))
    else:
        other = tmp_path / "other"
        txn_source.connect(other).close()
        assert bare("migrate", "--root", other, "--metadata", url.revealed).exit_code == 0
    before = tables(url)
    refused = txnlog("migrate", "--metadata", url.revealed)
    assert refused.exit_code == 1
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert tables(url) == before
    assert marker(root) == IN_SQLITE
    with txn_source.connect(root, create=False) as log:
        assert seen(log) == filled


@pytest.mark.parametrize(
    ("found_by", "table"),
    [("checksums", "cursors"), ("scan", "entries")],
)
def test_copy_that_differs_is_refused(
    found_by: str,
    table: str,
    root: Path,
    url: DatabaseUrl,
    filled: dict[str, list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Change a row of the copy, before its checksums are compared, or after that: nothing is kept of it."""
    change = {
        "cursors": "UPDATE cursors SET mark_index = mark_index + 1",
        "entries": "UPDATE entries SET messages = messages + 1 WHERE base_sequence = 0",
    }
    read = migration.read_tables

    def tampered(connection: Any) -> Any:
        found = read(connection) if found_by == "scan" else None
        connection.execute(text(change[table]))
        return found or read(connection)

    monkeypatch.setattr(migration, "read_tables", tampered)
    with pytest.raises(DataLossError, match="The copy differs"):
        migration.migrate(LogRoot.at(root), url, lambda _: None)
    assert tables(url) == []
    assert marker(root) == IN_SQLITE
    with txn_source.connect(root, create=False) as log:
        assert seen(log) == filled


@pytest.mark.long
@pytest.mark.parametrize(
    "step",
    mostly_long([STEPS.index(step) + 1 for step in ("copied", "committed", "noted")], STEPS.index("committed") + 1),
)
def test_killed_migration_is_repeated_or_finished(
    step: int, txnlog: Any, served: Served, root: Path, url: DatabaseUrl, filled: dict[str, list[bytes]]
) -> None:
    """Kill it before and after the commit, between which both databases hold the log, and after the root has noted
    the move: until the root has noted the move the log is as it was, and is moved by another try with
    what was written meanwhile; from then on a service has it."""
    environment = {**os.environ, "TXNLOG_METADATA": url.revealed}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(root), str(step)], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    if step < NOTED:
        assert marker(root) == IN_SQLITE
        with txn_source.connect(root, create=False) as log:
            assert seen(log) == filled
            log.create_topic("meanwhile")
            with log.producer("meanwhile") as producer:
                producer.send(b"a")
        done = txnlog("migrate", "--metadata", url.revealed)
        assert (done.exit_code, done.stderr) == (0, "")
        assert ("Removed an unfinished copy" in done.stdout) == (STEPS[step - 1] == "committed")

    def read(address: str) -> None:
        with txn_source.connect(endpoint=address) as log:
            assert seen(log) == filled
            if step < NOTED:
                assert log.scan("meanwhile").read_all()["value"].to_pylist() == [b"a"]

    served("--root", root, "--metadata", url.revealed, during=read)
    assert not (root / "metadata.db").exists()
    assert (root / "metadata.db-migrated").exists()


@pytest.mark.long
def test_migration_whose_database_was_killed_goes_on(
    served: Served, root: Path, url: DatabaseUrl, filled: dict[str, list[bytes]]
) -> None:
    """Kill PostgreSQL before the commit, and start it again: what isn't committed is copied once more."""
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        if len(lines) == STEPS.index("copied") + 1:
            server().kill()
            server().start()

    migration.migrate(LogRoot.at(root), url, report)
    assert lines.count("Made the tables.") == 2
    assert marker(root) != IN_SQLITE

    def read(address: str) -> None:
        with txn_source.connect(endpoint=address) as log:
            assert seen(log) == filled

    served("--root", root, "--metadata", url.revealed, during=read)


def test_migration_whose_database_is_gone_leaves_the_log(
    txnlog: Any, root: Path, url: DatabaseUrl, filled: dict[str, list[bytes]]
) -> None:
    """Stop PostgreSQL in the middle, and don't start it again until the migration has failed."""

    def report(line: str) -> None:
        if line.startswith("Copied"):
            server().kill()

    try:
        with pytest.raises(UnavailableError, match="can't be reached"):
            migration.migrate(LogRoot.at(root), url, report)
        assert marker(root) == IN_SQLITE
        with txn_source.connect(root, create=False) as log:
            assert seen(log) == filled
    finally:
        server().start()
    assert tables(url) == []
    done = txnlog("migrate", "--metadata", url.revealed)
    assert (done.exit_code, done.stderr) == (0, "")


def test_what_cannot_be_moved_is_refused(txnlog: Any, root: Path, url: DatabaseUrl) -> None:
    """Move what is no log, name no database, and one in SQLite."""
    missing = txnlog("migrate", "--metadata", url.revealed)
    assert missing.exit_code == 1
    assert "[TXNLOG_LOG_NOT_FOUND]" in missing.stderr
    txn_source.connect(root).close()
    assert txnlog("migrate").exit_code == 2
    wrong = txnlog("migrate", "--metadata", f"sqlite:///{root}/other.db")
    assert wrong.exit_code == 1
    assert "is not PostgreSQL" in wrong.stderr
