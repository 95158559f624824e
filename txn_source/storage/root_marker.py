"""The marker of a root on an object store: which log is there."""

from __future__ import annotations

import hashlib
import json
import secrets

from txn_source.model.errors import (
    InvalidArgumentError,
    LogNotFoundError,
    LogVersionError,
    StorageWriteError,
    UnavailableError,
)
from txn_source.storage.object_root import ObjectRoot
from txn_source.storage.object_store import reason
from txn_source.storage.root import FORMAT_VERSION
from txn_source.storage.root_files import files_of
from txn_source.storage.store_errors import StoreError

_MARKER = "txnlog.json"
_RANDOM = 16
"""So many characters of an id are random; the others tell which prefix it was made for."""


def new_log_id(root: ObjectRoot) -> str:
    """Return an id for a new log here."""
    random = secrets.token_hex(_RANDOM // 2)
    return random + _told(root, random)


def is_made_for(root: ObjectRoot, log_id: str) -> bool:
    """True if a log's id was made for this prefix, so that its making may go on here."""
    return log_id[_RANDOM:] == _told(root, log_id[:_RANDOM])


def _told(root: ObjectRoot, random: str) -> str:
    place = root.uri.partition("?")[0].rstrip("/")
    return hashlib.sha256(f"{random} {place}".encode()).hexdigest()[: 32 - _RANDOM]


def log_id_at(root: ObjectRoot) -> str | None:
    """Return the id of the log that is here; None if there is none.

    Raises:
        LogNotFoundError: the store can't be asked, or the marker is not one of ours.
        UnavailableError: the store doesn't answer, or is too busy, for now: whether there is one is not known.
        LogVersionError: it is of a newer release.
    """
    try:
        return _read(root)
    except OSError as error:
        if isinstance(error, StoreError) and error.passing:
            raise UnavailableError(
                f"The log at {root.shown} can't be read for now: {reason(error)}.",
                "See whether the store runs, and can be reached from here; then try again.",
            ) from error
        raise LogNotFoundError(
            f"The log at {root.shown} can't be read: {reason(error)}.",
            "Check the URI, the store and the credentials.",
        ) from error


def _read(root: ObjectRoot) -> str | None:
    """The same, but for OSError if the store can't be asked."""
    marker = files_of(root).read(_MARKER)
    if marker is None:
        return None
    try:
        found = json.loads(marker)
        version, log_id = int(found["format_version"]), str(found["log_id"])
    except (ValueError, KeyError, TypeError):
        raise LogNotFoundError(
            f"There is no log at {root.shown}: its {_MARKER} is not one of txnlog's.", "Check the URI."
        ) from None
    if version > FORMAT_VERSION:
        raise LogVersionError(
            f"The log at {root.shown} has format version {version}; this release reads up to {FORMAT_VERSION}.",
            "Upgrade txn-source.",
        )
    return log_id


def claim(root: ObjectRoot, log_id: str) -> None:
    """Make the prefix that of a log, unless it is already.

    Raises:
        InvalidArgumentError: it is another log's.
        StorageWriteError: the store refuses.
    """
    try:
        if log_id_at(root) is None:
            text = json.dumps({"format_version": FORMAT_VERSION, "log_id": log_id})
            files_of(root).put(_MARKER, text.encode(), if_absent=True)
    except OSError as error:
        raise StorageWriteError(
            f"A log can't be made at {root.shown}: {reason(error)}.",
            "Check the URI, the permissions and the credentials.",
        ) from error
    check_marker(root, log_id)


def check_marker(root: ObjectRoot, log_id: str) -> None:
    """Raise unless the log of this id is here."""
    _check(root, log_id, log_id_at(root))


def confirm(root: ObjectRoot, log_id: str) -> None:
    """Raise unless the log of this id is here, or was when this process last looked; OSError if the store can't be
    asked. A client's store may be another than its service's: by its own name servers, region or credentials."""
    if (root, log_id) not in _confirmed:
        _check(root, log_id, _read(root))


_confirmed: set[tuple[ObjectRoot, str]] = set()


def _check(root: ObjectRoot, log_id: str, found: str | None) -> None:
    if found is None:
        raise _missing(root)
    if found != log_id:
        raise InvalidArgumentError(
            f"{root.shown} is the root of the log {found}, and the metadata is that of the log {log_id}.",
            "Give each log a prefix and metadata of its own; check the URI and metadata.",
        )
    _confirmed.add((root, log_id))


def _missing(root: ObjectRoot) -> LogNotFoundError:
    return LogNotFoundError(
        f"There is no log at {root.shown}: it has no {_MARKER}.",
        "Check the URI, or make a log there with connect(..., metadata=...) or `txnlog serve --metadata`.",
    )
