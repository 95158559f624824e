"""Holding a SQLite file for oneself: nobody else has it open, and nobody can open it.

A connection to a file in WAL mode has a shared lock on it from its first statement until it is closed. The exclusive
lock that is taken here is therefore refused as long as any process has the file open, whether it is writing or not, and
keeps all out until it is given back. It goes with the process, and leaves the file as it was.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from txn_source.metadata.store.database_errors import translated
from txn_source.metadata.store.prepared import ERRORS
from txn_source.model.errors import UnavailableError

_WAIT_S = 2.0
_PAUSE_S = 0.02


@contextmanager
def held(path: Path) -> Iterator[Connection]:
    """A read of one moment of a file that nobody else has open until the end of the block.

    Raises:
        UnavailableError: somebody has it open.
    """
    with closing(_exclusive(path)) as raw:
        engine = create_engine("sqlite://", creator=lambda: raw, poolclass=StaticPool)
        with engine.connect() as connection:
            connection.info[ERRORS] = lambda error: translated(error, str(path))
            yield connection


def _exclusive(path: Path) -> sqlite3.Connection:
    until = time.monotonic() + _WAIT_S
    while True:
        raw = None
        try:
            raw = sqlite3.connect(
                f"file:{quote(str(path))}?mode=rw", timeout=0, isolation_level=None, check_same_thread=False, uri=True
            )
            raw.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            raw.execute("BEGIN EXCLUSIVE")
            raw.execute("COMMIT")  # the lock stays
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # the file alone has all of it
            raw.execute("BEGIN")
        except sqlite3.Error as error:
            if raw is not None:
                raw.close()
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy:
                raise translated(error, str(path)) or error from error
            if time.monotonic() >= until:
                raise UnavailableError(
                    f"The metadata database {path} is open in another process, or elsewhere in this one.",
                    "Stop what uses the log (programs, queries, txnlog serve), then try again.",
                ) from error
            time.sleep(_PAUSE_S)
        except BaseException:
            if raw is not None:
                raw.close()
            raise
        else:
            return raw
