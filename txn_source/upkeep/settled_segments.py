"""Making segments of a restored log say what its database knows, for a rebuild that may come one day.

A segment is copied after the database is, and each at another moment. So it may have entries that the backup doesn't
know, and notes of what became of them; or it was being written, and nothing says yet what became of its last entries.
No reader minds. But a rebuild would find parts of transactions of which other files had none yet, and would ask how
those ended that the restore has aborted.
"""

from __future__ import annotations

import json
import mmap
import os
from pathlib import Path

import pyarrow as pa

from txn_source.metadata.store.sqlite_backup import Needed, read_entries
from txn_source.model.kinds import ABORTED, COMMITTED
from txn_source.storage.entry_notes import NOTE_VERSION, append_note
from txn_source.storage.message_walk import Damage, walk
from txn_source.storage.segment import SegmentName
from txn_source.storage.segment_store import MAGIC, has_own_schemas


def settle_segments(root: Path, database: Path, needed: Needed) -> None:
    """Cut segments off behind the last entry that the database knows, and note there what it knows of the others.

    Segments behind whose last entry there are notes already stay as they are. Raises OSError.
    """
    for segment in needed.segments:
        file, name = root / segment.path, SegmentName.parse(segment.path)
        if name is None or not file.exists() or not 0 < segment.end <= (size := file.stat().st_size):
            continue
        if segment.end < size and not _entries(file, segment.end):
            continue  # what follows are notes
        receipts, states = read_entries(database, segment.path)
        known = {receipt[1] for receipt in receipts}
        before = _entries(file, len(MAGIC) if has_own_schemas(segment.path) else 0)
        note = {
            "v": NOTE_VERSION,
            "w": name.producer_id,
            "r": {"": receipts},
            "x": {"": [offset for offset in before if offset < segment.end and offset not in known]},
            "e": [[txn, state] for txn, state in sorted(states.items()) if state in (COMMITTED, ABORTED)],
        }
        os.truncate(file, segment.end)
        try:
            append_note(root, segment.path, json.dumps(note).encode())
        except (OSError, pa.ArrowException) as error:
            if getattr(error, "errno", None) is not None:
                raise
            # Its header is damaged, in the backup too: whoever reads it is told.


def _entries(file: Path, start: int) -> list[int]:
    """Return where the entries behind an offset begin, with schemas of their own, and what is damaged there."""
    found = []
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        try:
            schema: int | None = None  # where each entry has its own, it begins there
            for message in walk(view, start):
                if isinstance(message, Damage):
                    found.append(message.start)
                elif message.is_schema:
                    schema = message.start if start else None
                elif message.rows:
                    found.append(message.start if schema is None else schema)
        finally:
            view.release()
    return found
