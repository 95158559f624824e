"""What a topic is, as a file among its segments: for ``txnlog rebuild``, should the metadata be lost.

It is put whole, in place of the one before, and goes with the topic's segments. Nothing depends on it while there is a
database.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from txn_source.storage.object_root import Root
from txn_source.storage.root_files import delete_file, put_file, read_file
from txn_source.storage.segment import topic_prefix

NAME = "topic.json"
VERSION = 1
DELETION = "deletion"
"""True where the topic's deletion was begun."""


def topic_file(topic_id: int) -> str:
    """Return the path of a topic's description, relative to the root."""
    return f"{topic_prefix(topic_id)}/{NAME}"


def is_topic_file(path: str) -> bool:
    """True for the path of a description."""
    return path.startswith("segments/") and path.endswith(f"/{NAME}") and path.count("/") == 2


def write_topic_file(root: Root, log_id: str, topic_id: int, described: dict[str, Any]) -> None:
    """Put a topic's description; OSError says why it can't be, and TxnLogError that the root isn't the log's."""
    _put(root, log_id, topic_id, {"version": VERSION, **described})


def note_deletion_of(root: Root, log_id: str, topic_id: int, *, going: bool) -> None:
    """Note in a topic's description, if there is one, that the topic is going to be deleted, or stays.

    OSError, ValueError and TxnLogError say why it can't be.
    """
    try:
        described = json.loads(read_file(root, topic_file(topic_id)))
    except FileNotFoundError:
        return
    _put(root, log_id, topic_id, {**described, DELETION: going})


def remove_topic_file(root: Root, topic_id: int) -> None:
    """Remove a topic's description, if there is one; OSError says why it can't be."""
    delete_file(root, topic_file(topic_id))


def topic_file_state(root: Root, topic_id: int) -> tuple[int, int] | None:
    """Return what changes whenever a description is put in place of another one; None: there is none.

    A store isn't asked: each look would take long and cost money.
    """
    if not isinstance(root, Path):
        return 0, 0
    try:
        found = (root / topic_file(topic_id)).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _put(root: Root, log_id: str, topic_id: int, described: dict[str, Any]) -> None:
    put_file(root, log_id, topic_file(topic_id), json.dumps(described, sort_keys=True).encode())
