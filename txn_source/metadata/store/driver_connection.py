"""A connection to a SQLite file that SQLAlchemy is loaded for only where it is needed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from txn_source.metadata.store.prepared import ERRORS
from txn_source.model.errors import TxnLogError

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


class DriverConnection:
    """The driver's connection as the store's functions take it (``connection.Connection``).

    Statements in texts (``prepared.py``) need its cursor alone. Anything else SQLAlchemy's connection answers, which is
    made around the driver's when it is first asked for. It begins and ends no transaction.
    """

    dialect = SimpleNamespace(name="sqlite")

    def __init__(self, raw: sqlite3.Connection, errors: Callable[[BaseException], TxnLogError | None]) -> None:
        self.connection = raw
        self.info: dict[str, Any] = {ERRORS: errors}
        self._around: Connection | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._around is None:
            from txn_source.metadata.store.sqlite_engine import around  # with SQLAlchemy, which a reader does without

            self._around = around(self.connection, self.info)
        return getattr(self._around, name)
