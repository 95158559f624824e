"""What a topic is, as a file among its segments: for ``txnlog rebuild``, should the metadata be lost.

It is put whole, in place of the one before, and goes with the topic's folder. Nothing depends on it while there is a
database, so it isn't synced. What a rebuild has worked out stays in it, for the next one.
"""

from __future__ import annotations

import json
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from txn_source.storage.segment import topic_prefix

NAME = "topic.json"
VERSION = 1
DELETION = "deletion"
"""True where the topic's deletion was begun."""
WORKED_OUT = "worked_out"
"""What rebuilds have worked out of entries of this topic: notes as in ``entry_notes.py``, of any segments."""


def topic_file(topic_id: int) -> str:
    """Return the path of a topic's description, relative to the root."""
    return f"{topic_prefix(topic_id)}/{NAME}"


def write_topic_file(root: Path, topic_id: int, described: dict[str, Any]) -> None:
    """Put a topic's description; OSError says why it can't be."""
    file = root / topic_file(topic_id)
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = {}
    with suppress(FileNotFoundError, KeyError, ValueError, TypeError):  # of a file that is damaged nothing is kept
        kept = {WORKED_OUT: json.loads(file.read_bytes())[WORKED_OUT]}
    _put(file, {"version": VERSION, **described, **kept})


def note_deletion_of(root: Path, topic_id: int, *, going: bool) -> None:
    """Note in a topic's description, if there is one, that the topic is going to be deleted, or stays.

    OSError and ValueError say why it can't be.
    """
    file = root / topic_file(topic_id)
    if file.exists():
        _put(file, {**json.loads(file.read_bytes()), DELETION: going})


def note_worked_out(root: Path, topic_id: int, notes: list[dict[str, Any]]) -> None:
    """Note in a topic's description what a rebuild has worked out, in place of what it says of that.

    OSError and ValueError say why it can't be.
    """
    file = root / topic_file(topic_id)
    _put(file, {**json.loads(file.read_bytes()), WORKED_OUT: notes})


def remove_topic_file(root: Path, topic_id: int) -> None:
    """Remove a topic's description, if there is one; OSError says why it can't be."""
    (root / topic_file(topic_id)).unlink(missing_ok=True)


def topic_file_state(root: Path, topic_id: int) -> tuple[int, int] | None:
    """Return what changes whenever a description is put in place of another one; None: there is none."""
    try:
        found = (root / topic_file(topic_id)).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _put(file: Path, described: dict[str, Any]) -> None:
    text = json.dumps(described, sort_keys=True)
    temporary = file.with_name(f"{NAME}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
