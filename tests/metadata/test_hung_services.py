"""A service that is stopped, or killed, in the middle of a write on PostgreSQL: others go on, and it repeats its write.

It has the log's lock then. What ends its session is shortened here, so that nobody waits for long.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from tests.log.reading import BY_HAND, eventually, values
from tests.log.sites import Site
from tests.metadata.postgres import server
from txn_source import connect
from txn_source.metadata.store import postgres_connections, postgres_database
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.log import create_log
from txn_source.metadata.store.opening import open_database

STOPPED = """
import os, sys
from pathlib import Path
from tests.log.sites import service_over
from txn_source.metadata.service.server import Server
from txn_source.metadata.store import appends, postgres_connections

postgres_connections.SETTINGS["idle_in_transaction_session_timeout"] = "200ms"
inner, stopped = appends.write_all, []

def write_all(*arguments):
    written = inner(*arguments)
    if not stopped:
        stopped.append(True)
        print("writing", flush=True)
        sys.stdin.readline()
    return written

appends.write_all = write_all
with Server(service_over(Path(sys.argv[1]), None, os.environ["TXNLOG_METADATA"]), "127.0.0.1", 0) as server:
    print(server.address, flush=True)
    server.wait()
"""
SLEEPING = """
import os
from sqlalchemy import text
from txn_source.metadata.store.opening import open_database
open_database(os.environ["TXNLOG_METADATA"]).write(lambda c: c.execute(text("SELECT pg_sleep(600)")))
"""


@pytest.fixture
def url() -> Iterator[DatabaseUrl]:
    """The database of a log."""
    url = server().new_database()
    with closing(open_database(url)) as database:
        create_log(database)
    yield url
    server().drop_database(url)


@contextmanager
def running(code: str, url: DatabaseUrl, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process with the log's database; it is killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "TXNLOG_METADATA": url.revealed},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def state_of(process: subprocess.Popen[str]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def sessions(url: DatabaseUrl, condition: str) -> int:
    """Count the other sessions in the database for which something holds."""
    name = url.revealed.partition("?")[0].rpartition("/")[2]
    asked = (
        f"SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = '{name}' AND {condition}"
    )
    with server().connect() as raw:
        [count] = raw.execute(asked.encode()).fetchone() or [0]
    return int(count)


def change(connection: Connection) -> None:
    connection.execute(text("UPDATE log_info SET decisions = decisions + 1"))


@pytest.mark.long
def test_stopped_service_loses_the_lock_and_repeats_its_write(tmp_path: Path) -> None:
    """Stop a service when it has registered messages and hasn't committed them: another one writes meanwhile, and
    those messages are registered once when the first one goes on."""
    with Site("postgres", tmp_path / "log") as site:
        assert site.url is not None
        log = site.connect()
        log.create_topic("t")
        with (
            running(STOPPED, site.url, site.root) as process,
            connect(endpoint=str(process.stdout and process.stdout.readline().strip()), timeout=120) as beside,
        ):
            held, other = beside.producer("t", batching=BY_HAND), log.producer("t", batching=BY_HAND)
            held.send(b"held")
            flushing = threading.Thread(target=held.flush)
            flushing.start()
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "writing\n"
            process.send_signal(signal.SIGSTOP)
            eventually(lambda: state_of(process) == "T")
            other.send(b"other")
            assert len(other.flush()) == 1
            assert values(log, "t") == [b"other"]
            process.send_signal(signal.SIGCONT)
            process.stdin.write("\n")
            process.stdin.flush()
            flushing.join()
            assert values(log, "t") == [b"other", b"held"]
            held.send(b"next")
            held.flush()
            assert values(log, "t") == [b"other", b"held", b"next"]


@pytest.mark.parametrize(
    ("statement", "waits_for"),
    [
        ("SELECT repeat('x', 100000) FROM generate_series(1, 1000)", "ClientWrite"),
        ("COPY sinks FROM STDIN", "ClientRead"),
    ],
)
def test_service_that_stops_inside_a_statement_loses_the_lock(
    statement: str, waits_for: str, url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a write ask for more than fits on the way, and take nothing of it, or begin to send rows, and
    send none: another writer ends that session, and the write is made anew."""
    monkeypatch.setitem(postgres_connections.SETTINGS, "lock_timeout", "100ms")
    monkeypatch.setattr(postgres_database, "HUNG_S", 0.05)
    with closing(open_database(url)) as hanging, closing(open_database(url)) as other:
        tries: list[int] = []

        def hang(connection: Connection) -> None:
            change(connection)
            tries.append(1)
            if len(tries) == 1:
                raw = connection.connection.dbapi_connection
                raw.pgconn.send_query(statement.encode())  # type: ignore[union-attr]
                eventually(lambda: sessions(url, f"state = 'active' AND wait_event = '{waits_for}'") == 1)
                other.write(change)
                raw.close()  # type: ignore[union-attr]
                connection.execute(text("SELECT 1"))

        hanging.write(hang)
        assert len(tries) == 2
        with other.read() as read:
            assert read.execute(text("SELECT decisions FROM log_info")).scalar() == 2


@pytest.mark.long
def test_killed_service_leaves_no_statement_behind(url: DatabaseUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill a service in the middle of a long statement: its session ends, and another writer gets the lock."""
    monkeypatch.setitem(postgres_connections.SETTINGS, "lock_timeout", "5s")
    with running(SLEEPING, url) as process, closing(open_database(url)) as other:
        eventually(lambda: sessions(url, "wait_event = 'PgSleep'") == 1)
        process.kill()
        other.write(change)
        assert sessions(url, "wait_event = 'PgSleep'") == 0
