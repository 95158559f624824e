"""What PostgreSQL's errors mean to a caller. This is the one place that turns them into ours.

Errors of a connection, and those of an account or a database that isn't there, are UNAVAILABLE: a client did nothing
wrong, and its call may be repeated once somebody has mended what the error says.
"""

from __future__ import annotations

from collections.abc import Mapping

import psycopg

from txn_source.metadata.store.conflicts import ConflictError, LockedError, LostConnectionError, RefusedRowError
from txn_source.metadata.store.database_url import DatabaseUrl
from txn_source.model.errors import (
    InternalError,
    InvalidArgumentError,
    StorageWriteError,
    TxnLogError,
    UnavailableError,
)

_LOCKED = "55P03"  # lock_not_available
_CONFLICTS = {
    "40001": "was changed by another writer meanwhile",  # serialization_failure
    "40P01": "had two writers waiting for each other",  # deadlock_detected
    _LOCKED: "stayed locked by another writer",
}
_LOST = ("57P01", "57P02", "57P05", "25P03", "25P04", "08003", "08006", "08007")
"""Sessions that the server ended, at a shutdown or because they took too long."""
ENDED_BEFORE = ("25P03",)
"""Of these, those that say for sure that the commit which they answer was not begun: it came too late."""
_FULL = ("53100", "58030", "53200", "53400")
_NUMBERS = ("22003",)
_TEXTS = ("22021", "22P05")
_MAX_TEXT = 300

_UNTRUSTED = (
    "shows a certificate that is not trusted here",
    "Name its authority's certificate with sslrootcert=<file>, and the host as the certificate does.",
)
_CONNECTING: Mapping[str, tuple[str, str]] = {
    "certificate verify failed": _UNTRUSTED,
    "root certificate file": _UNTRUSTED,
    "does not match host name": _UNTRUSTED,
    "requires a valid client certificate": ("wants a certificate of the client", "Give one with sslcert and sslkey."),
    "server does not support SSL": ("takes no TLS connections", "Turn TLS on there, or use another sslmode."),
    "does not exist": (
        "doesn't exist, or its account doesn't",
        "Create it (CREATE DATABASE ... ENCODING 'UTF8'), or correct the URL.",
    ),
    "authentication": ("refuses the account or its password", "Check user and password of the URL, and pg_hba.conf."),
    "no password supplied": ("wants a password", "Give one in TXNLOG_METADATA, or in a password file (~/.pgpass)."),
    "pg_hba.conf": ("takes no such connections from here", "Allow this host and account in pg_hba.conf."),
    "hot standby": (
        "is a standby, which has what the primary had a while ago",
        "Name the primary, or all of its hosts with commas between them.",
    ),
    "too many": ("has no connection left", "Raise max_connections, or run fewer services over it."),
    "starting up": ("is starting", "Try again in a moment."),
    "shutting down": ("is stopping", "Try again when it is back."),
}
"""Pieces of what libpq says of a connection that wasn't made, for which it has no codes; the first one found counts."""


def translated(error: BaseException, url: DatabaseUrl) -> TxnLogError | None:
    """Return our error for one of psycopg's; None for what isn't its own.

    A ``ConflictError`` says that the transaction may be carried out again from its beginning.
    """
    if not isinstance(error, psycopg.Error):
        return None
    state, place = error.sqlstate or "", f"The metadata database {url}"
    text = _text_of(error, url)
    if state in _CONFLICTS:
        kind = LockedError if state == _LOCKED else ConflictError
        return kind(f"{place} {_CONFLICTS[state]}: {text}.", "Try again.")
    if state in _LOST or _is_lost(error):
        return LostConnectionError(f"{place} closed the connection: {text}.", "Try again when it is back.")
    if state.startswith("23"):
        return RefusedRowError(f"{place} refused a change: {text}.", "Try again.")
    if state in _FULL:
        return StorageWriteError(f"{place} can't be written: {text}.", "Free some space there, then try again.")
    if state == "25006":
        return read_only(url)
    if state == "42501":
        return StorageWriteError(
            f"{place} doesn't let this account do that: {text}.",
            "Let the account own the log's tables, and grant it CREATE on their schema to make them.",
        )
    if state in _NUMBERS:
        return InvalidArgumentError(
            "The call has a number that doesn't fit into 63 bits and a sign.", "Check its numbers."
        )
    if state in _TEXTS or (isinstance(error, psycopg.DataError) and not state):
        return InvalidArgumentError(f"The call has a text that can't be stored ({text}).", "Check its names.")
    if state == "42P07":
        return InvalidArgumentError(
            f"{place} has tables of something else: {text}.",
            "Give the log a database of its own, or a schema (?options=-csearch_path%3D<schema>).",
        )
    if state == "42P01":
        return UnavailableError(f"{place} has no log in it: {text}.", "Check the database and the search_path.")
    if state == "57014":
        return UnavailableError(f"{place} took too long: {text}.", "Try again, when it has less to do.")
    if state[:2] in ("53", "57", "58", "08"):
        return UnavailableError(f"{place} can't be used: {text}.", "Try again when it is back.")
    return InternalError(f"{place} failed: {text} ({type(error).__name__}).", "Please report it.")


def not_connected(error: psycopg.Error, url: DatabaseUrl) -> UnavailableError:
    """Return the error of a connection that wasn't made."""
    text = _text_of(error, url)
    for piece, (fact, remedy) in _CONNECTING.items():
        if piece in text:
            return UnavailableError(f"The metadata database {url} {fact}: {text}.", remedy)
    return UnavailableError(
        f"The metadata database {url} can't be reached: {text}.",
        "See whether PostgreSQL runs there, and check host and port of the URL.",
    )


def read_only(url: DatabaseUrl) -> StorageWriteError:
    """Return the error of a write where there can be none."""
    return StorageWriteError(
        f"The metadata database {url} can only be read.",
        "Name the primary server, and an account that may write (default_transaction_read_only is off).",
    )


def unsure(url: DatabaseUrl, warned: str = "") -> UnavailableError:
    """Return the error of a commit that nobody has confirmed, or that the server has ``warned`` of."""
    what = (
        f"The metadata database {url} gave up a commit ({warned})"
        if warned
        else (f"The connection to the metadata database {url} was lost during a commit")
    )
    return UnavailableError(
        f"{what}: the change may have happened.",
        "Repeat the call as it was: it counts once.",
    )


def _is_lost(error: psycopg.Error) -> bool:
    """True for what the driver says of a connection that is gone, for which the server gave no code."""
    return not error.sqlstate and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def _text_of(error: psycopg.Error, url: DatabaseUrl) -> str:
    primary = error.diag.message_primary if error.sqlstate else None
    text = " ".join(str(primary or error).split())
    return url.scrubbed(text)[:_MAX_TEXT].rstrip(".? ")
