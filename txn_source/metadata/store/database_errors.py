"""What the database's errors mean to a caller. This is the one place that turns them into ours."""

from __future__ import annotations

import sqlite3

from txn_source.model.errors import (
    InternalError,
    InvalidArgumentError,
    StorageWriteError,
    TxnLogError,
    UnavailableError,
)

_DAMAGED = ("malformed", "not a database", "file is encrypted", "unsupported file format")


def translated(error: BaseException, place: str) -> TxnLogError | None:
    """Return our error for one of SQLite's, or of a value that it can't take; None for what isn't its own.

    ``place`` names the database.
    """
    if isinstance(error, sqlite3.Error):
        return _of_sqlite(error, str(error), place)
    if isinstance(error, OverflowError):  # the driver's, of an integer
        return InvalidArgumentError(
            "The call has a number that doesn't fit into 63 bits and a sign.", "Check its numbers."
        )
    if isinstance(error, UnicodeEncodeError):
        return InvalidArgumentError(
            f"The call has a text that is not valid Unicode ({error.reason}).", "Check its names."
        )
    return None


def locked(place: str, wait_s: float) -> UnavailableError:
    """Return the error of a write lock that wasn't to be had."""
    return UnavailableError(
        f"The metadata database {place} stayed locked for {wait_s:.0f} s.",
        "Find the process that holds it, then try again.",
    )


def read_only(place: str) -> StorageWriteError:
    """Return the error of a write where there can be none."""
    return StorageWriteError(
        f"The metadata database {place} can only be read here.",
        "Write through an account and a mount that may, or through `txnlog serve` there.",
    )


def _of_sqlite(error: sqlite3.Error, text: str, place: str) -> TxnLogError:
    if isinstance(error, sqlite3.IntegrityError):
        return InternalError(f"The metadata database {place} refused a change: {text}.", "Please report it.")
    if any(sign in text for sign in _DAMAGED):
        return UnavailableError(
            f"The metadata database {place} is damaged: {text}.",
            "Stop what writes to this log and restore the file from a backup.",
        )
    if "locked" in text or "busy" in text:
        return UnavailableError(
            f"The metadata database {place} is locked: {text}.", "Find the process that holds it, then try again."
        )
    if "readonly" in text:
        return read_only(place)
    if "full" in text or "disk I/O" in text:
        return StorageWriteError(
            f"The metadata database {place} can't be written: {text}.", "Free some space, then try again."
        )
    if isinstance(error, sqlite3.OperationalError):
        return UnavailableError(f"The metadata database {place} can't be used: {text}.", "Check path and permissions.")
    return InternalError(f"The metadata database {place} failed: {text}.", "Please report it.")
