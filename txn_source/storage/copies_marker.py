"""The marker of a root that holds copies: which log they are of.

<root>/txnlog-copies.json   the log's id and the root's name
<root>/segments/...         as in the log's own root

It is not the marker of a log, so nobody opens such a root as one. A folder without it is not written to: it may be the
place of a disk that isn't mounted.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from txn_source.model.errors import InvalidArgumentError, StorageWriteError
from txn_source.storage.object_root import Root
from txn_source.storage.root_files import files_of

_MARKER = "txnlog-copies.json"
_LOG_MARKER = "txnlog.json"
_OURS = (".", "lost+found", "segments", "snapshots")
"""Beginnings of the names of files and folders that a new root may have."""
_SEEN: dict[tuple[str, str], tuple[int, int] | None] = {}
"""Roots whose marker was seen to be a log's, by place and log; of a folder, the file that it is."""


def claim(root: Root, log_id: str, name: str) -> None:
    """Make a place a root for copies of a log, unless it is already.

    Raises:
        InvalidArgumentError: it is another log's, or a log's own root, or has something else in it.
        StorageWriteError: it can't be written.
    """
    text = json.dumps({"log_id": log_id, "name": name})
    try:
        found = files_of(root).read(_MARKER)
        if found is None:
            if files_of(root).read(_LOG_MARKER) is not None:
                raise InvalidArgumentError(
                    f"{files_of(root).shown} is the own root of a log.", "Name a folder, or a prefix, of its own."
                )
            _check_empty(root)
            files_of(root).put(_MARKER, text.encode(), if_absent=True)
            found = files_of(root).read(_MARKER)
    except OSError as error:
        raise StorageWriteError(
            f"The root {name!r} can't be made at {files_of(root).shown}: {_reason(error)}.",
            "Check the place, the permissions and the credentials.",
        ) from error
    if _log_id(found) != log_id:
        raise InvalidArgumentError(
            f"{files_of(root).shown} holds copies of the log {_log_id(found)}.",
            "Name a folder, or a prefix, of its own.",
        )


def owner_of(root: Root) -> tuple[str, str] | None:
    """Return the log that a root for copies is of, and its name there; None if it is none. OSError says why it can't be
    told."""
    marker = files_of(root).read(_MARKER)
    if marker is None:
        return None
    try:
        found = json.loads(marker)
        return str(found["log_id"]), str(found["name"])
    except (ValueError, KeyError, TypeError):
        return None


def hand_over(root: Root, log_id: str, new_id: str, name: str) -> None:
    """Make a root for copies of a log one of another log, which it has become. It may be that one's already.

    Raises:
        OSError: it is neither's, or can't be written.
    """
    found = _log_id(files_of(root).read(_MARKER))
    if found not in (log_id, new_id):
        raise OSError(f"its {_MARKER} is {'missing' if found is None else 'that of another log'}")
    if found != new_id:
        files_of(root).put(_MARKER, json.dumps({"log_id": new_id, "name": name}).encode())


def retire(root: Root) -> None:
    """Make a place no root for copies any more; OSError says why it stays one."""
    files_of(root).remove(_MARKER)


def check(root: Root, log_id: str) -> None:
    """Raise OSError unless a place is a root for copies of a log; of an object store it is asked once."""
    key = (str(root), log_id)
    if isinstance(root, Path):
        try:
            state = os.stat(root / _MARKER)
        except FileNotFoundError:
            raise OSError(f"its {_MARKER} is missing") from None
        seen: tuple[int, int] | None = (state.st_ino, state.st_mtime_ns)
        if _SEEN.get(key) == seen:
            return
    else:
        seen = None
        if key in _SEEN:
            return
    found = _log_id(files_of(root).read(_MARKER))
    if found != log_id:
        raise OSError(f"its {_MARKER} is {'missing' if found is None else 'that of another log'}")
    _SEEN[key] = seen


def forget(root: Root, log_id: str) -> None:
    """Look at a root's marker once more before the next write."""
    _SEEN.pop((str(root), log_id), None)


def _check_empty(root: Root) -> None:
    """Raise INVALID_ARGUMENT for a folder that has something else in it."""
    names = (each.name for each in root.iterdir()) if isinstance(root, Path) and root.exists() else ()
    strange = next((name for name in names if not name.startswith(_OURS)), None)
    if strange is not None:
        raise InvalidArgumentError(f"The folder {root} has {strange!r} in it.", "Name an empty or a new folder.")


def _log_id(marker: bytes | None) -> str | None:
    if marker is None:
        return None
    try:
        return str(json.loads(marker)["log_id"])
    except (ValueError, KeyError, TypeError):
        return "?"


def _reason(error: OSError) -> str:
    from txn_source.storage.object_store import reason

    return reason(error)
