"""SQLAlchemy's connections around those of SQLite's driver.

There is one engine for all files, so that a process compiles each statement once.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import Any

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.pool import NullPool

from txn_source.metadata.store.prepared import ERRORS
from txn_source.model.errors import TxnLogError


def around(raw: sqlite3.Connection, info: dict[str, Any]) -> Connection:
    """Return SQLAlchemy's connection around one of the driver's, which may be in a transaction; it goes on.

    Its ``info`` is what is given.
    """
    _given.raw = raw
    try:
        connection = _ENGINE.connect()
    finally:
        del _given.raw
    connection.info.update(info)
    return connection


_given = threading.local()
_ENGINE = create_engine("sqlite://", creator=lambda: _given.raw, poolclass=NullPool, pool_reset_on_return=None)


@event.listens_for(_ENGINE, "handle_error", retval=True)
def _on_error(context: ExceptionContext) -> BaseException | None:
    context.is_disconnect = False  # else SQLAlchemy would close the connection in the middle of its transaction
    assert context.connection is not None
    ours: TxnLogError | None = context.connection.info[ERRORS](context.original_exception)
    return ours


# An engine asks its first connection for what it is to know, and then rolls it back.
around(sqlite3.connect(":memory:"), {}).close()
