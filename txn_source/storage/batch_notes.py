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


def note_batch(parts: Sequence[BatchPart], put: Callable[[str, bytes], bool], others: Sequence[str] = ()) -> None:
    """Note a batch that was registered: all of it behind the first file that takes it, and then each file's own.

    ``put`` writes a note behind a file, and returns True if that takes one; ``others`` are files that may take that of
    a batch without entries.
    """
    rows = sum(len(of) for part in parts for of in part.receipts.values())
    whole = _encoded(parts) if rows <= _MOST_ROWS else None
    for part in parts:
        for path, of_path in part.receipts.items():
            if whole is None:
                put(path, _encoded([replace(part, receipts={path: of_path})]))
            elif put(path, whole):
                whole = None
    if whole is not None and not rows:
        any(put(path, whole) for path in others)


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
