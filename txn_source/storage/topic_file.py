"""What a topic is, as a file among its segments: for ``txnlog rebuild``, should the metadata be lost.

It is put whole, in place of the one before, and goes with the topic's folder. Nothing depends on it while there is a
database, so it isn't synced.
"""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

from txn_source.storage.segment import topic_prefix

NAME = "topic.json"
VERSION = 1


def topic_file(topic_id: int) -> str:
    """Return the path of a topic's description, relative to the root."""
    return f"{topic_prefix(topic_id)}/{NAME}"


def write_topic_file(root: Path, topic_id: int, described: dict[str, Any]) -> None:
    """Put a topic's description; OSError says why it can't be."""
    text = json.dumps({"version": VERSION, **described}, sort_keys=True)
    file = root / topic_file(topic_id)
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{NAME}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
