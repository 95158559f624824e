"""What became of entries that somebody else registered than who wrote them, a job's or an import's: for a rebuild.

All of a batch is registered in one step, so it is noted in one note, as far as that isn't too large: what is lost of it
is lost as a whole. Each file's own entries are noted behind them once more, since files are removed one by one. It is
a note as an entry has one (``entry_notes.py``) with these fields:

* ``b``, a list with a part for each topic: ``t``, the topic's id, and as in other notes ``w``, ``by``, ``r`` (paths are
  never left out) and ``e``;
* in a part, of a streaming query ``q``: its id, batch, rows, their sum, run, and the next sequence; of a job that
  numbers its writes ``a``: application, version, rows and sum; of an import ``i``: the number of its batch, and how far
  it had come with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from txn_source.model.values import dataclass
from txn_source.storage.entry_notes import NOTE_VERSION, parse_note

_MOST_ROWS = 100_000
"""Of a note that has all of a batch."""
_KINDS = {"q": (str, int, int, int, str, int), "a": (str, int, int, int), "i": (int, str)}


@dataclass(frozen=True, slots=True)
class BatchPart:
    """What is noted of a batch's entries in one topic."""

    topic_id: int
    producer_id: int
    by: Mapping[str, Any]
    receipts: Mapping[str, Sequence[Sequence[int]]]
    """By path, see ``entry_notes.RECEIPT``."""
    endings: Sequence[tuple[int, int]] = ()
    told: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """``q``, ``a`` or ``i``."""

    @property
    def note(self) -> dict[str, Any]:
        """What a note has of it."""
        receipts = {path: [list(row) for row in rows] for path, rows in self.receipts.items()}
        fields = {"w": self.producer_id, "by": dict(self.by), "r": receipts, "e": [list(end) for end in self.endings]}
        return {"t": self.topic_id, **fields, **{name: list(told) for name, told in self.told.items()}}


def note_batch(
    parts: Sequence[BatchPart],
    put: Callable[[str, bytes], bool],
    apart: Callable[[Sequence[str], bytes], object],
    others: Sequence[str] = (),
) -> None:
    """Note a batch that was registered: all of it behind the first file that takes it, and then each file's own. If
    none takes it, as on an object store, all of it lies apart, once.

    Args:
        parts: what was registered.
        put: writes a note behind a file, and returns True if that takes one.
        apart: puts a note that tells of files, and that none of them takes.
        others: files that may take the note of a batch without entries.
    """
    files = [(path, part) for part in parts for path in part.receipts]
    if not files:
        whole = _encoded(parts)
        if parts and others and not any(put(path, whole) for path in others):
            apart(others, whole)
        return
    taken = -1
    if sum(len(of) for part in parts for of in part.receipts.values()) <= _MOST_ROWS:
        whole = _encoded(parts)
        taken = next((at for at, (path, _) in enumerate(files) if put(path, whole)), -1)
        if taken < 0:
            apart([path for path, _ in files], whole)
            return
    for at, (path, part) in enumerate(files):
        own = _encoded([replace(part, receipts={path: part.receipts[path]})])
        if at != taken and (at < taken or not put(path, own)):
            apart([path], own)


def parts_of(note: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the sound parts of a note, each with its topic."""
    parts = note.get("b")
    for part in parts if isinstance(parts, list) else ():
        if not isinstance(part, dict) or type(part.get("t")) is not int:
            continue
        found = parse_note(json.dumps({**part, "v": NOTE_VERSION, "t": -1}).encode())
        if (
            found is not None
            and {"w", "by"} <= found.keys()
            and all(_is_told(found[name], kinds) for name, kinds in _KINDS.items() if name in found)
        ):
            yield part["t"], found


def _is_told(values: Any, kinds: tuple[type, ...]) -> bool:
    return (
        isinstance(values, list)
        and len(values) == len(kinds)
        and all(type(value) is kind for value, kind in zip(values, kinds, strict=True))
        and all(0 <= value < 1 << 63 for value in values if isinstance(value, int))
    )


def _encoded(parts: Sequence[BatchPart]) -> bytes:
    note = {"v": NOTE_VERSION, "w": 0, "b": [part.note for part in parts]}
    return json.dumps(note, separators=(",", ":")).encode()
