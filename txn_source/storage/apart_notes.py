"""Notes that lie apart from the entries that they tell of (``entry_notes.py``): nothing is written behind an object.

<root>/segments/<topic>/<producer>-<random>.notes   JSON: ``of``, the segments of the topic that it tells of, and
                                                    ``note``

One tells of nothing any more once its segments are gone; ``txnlog gc`` removes it then.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from typing import Any

from txn_source.model.values import dataclass
from txn_source.storage.entry_notes import parse_note
from txn_source.storage.object_root import Root
from txn_source.storage.root_files import put_file, read_file
from txn_source.storage.segment import SegmentName, topic_prefix

_PATH = re.compile(r"segments/(0|[1-9][0-9]{0,18})/[0-9]{1,19}-[0-9a-f]{12}\.notes")


@dataclass(frozen=True, slots=True)
class ApartNote:
    """A note, and the segments that it tells of; ``note`` is None if it is none that this release has written."""

    of: tuple[str, ...]
    note: dict[str, Any] | None


def topic_of_note(path: str) -> int | None:
    """Return the topic among whose segments a note lies, by its path; None if that is no note's."""
    found = _PATH.fullmatch(path)
    return None if found is None else int(found[1])


def put_apart(root: Root, log_id: str, paths: Sequence[str], note: bytes) -> None:
    """Put a note that tells of segments, once among those of each topic.

    It is JSON, and names all segments in full.

    Raises:
        OSError: the store refuses.
        TxnLogError: the root isn't the log's.
    """
    of_topic: dict[int, list[tuple[int, str]]] = {}
    for path in paths:
        name = SegmentName.parse(path)
        assert name is not None
        of_topic.setdefault(name.topic_id, []).append((name.producer_id, path))
    for topic_id, found in of_topic.items():
        path = f"{topic_prefix(topic_id)}/{found[0][0]}-{uuid.uuid4().hex[:12]}.notes"
        of = json.dumps([of for _, of in found], separators=(",", ":"))
        put_file(root, log_id, path, f'{{"of":{of},"note":'.encode() + note + b"}")


def read_apart(root: Root, path: str) -> ApartNote:
    """Return what lies at a note's path; OSError says why it can't be read, ValueError that it is none of ours."""
    found = json.loads(read_file(root, path))
    if not isinstance(found, dict) or not isinstance(found.get("of"), list):
        raise ValueError("it isn't a note")
    return ApartNote(tuple(str(of) for of in found["of"]), parse_note(json.dumps(found.get("note")).encode()))
