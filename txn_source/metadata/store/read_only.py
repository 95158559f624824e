"""Reading a database that can't be written, as it would be if it could: with what time asks for done in a copy."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

from txn_source.metadata.store.database_errors import translated
from txn_source.metadata.store.driver_connection import DriverConnection
from txn_source.metadata.store.sqlite_file import SqliteFile, with_new_tables

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


@contextmanager
def read_brought_up_to_date(
    file: SqliteFile, is_due: Callable[[Connection], bool], bring: Callable[[Connection], bool]
) -> Iterator[Connection]:
    """A read of the file, or, if something is due, of a copy in memory in which that was done.

    What is done follows from the file and the time alone, so that processes that read the same file agree: an open
    transaction past its deadline is aborted, and its markers come where the log ends, in the order of the deadlines.
    """
    with file.read() as connection:
        if not is_due(connection):
            yield connection
            return
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        source: Any = connection.connection
        source.backup(copy)
    with closing(copy):
        with_new_tables(copy)
        of_copy = cast("Connection", DriverConnection(copy, lambda error: translated(error, "a copy in memory")))
        bring(of_copy)
        yield of_copy
