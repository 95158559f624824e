"""What a rebuild has worked out is noted for the next one, which finds no more than it did and may work out otherwise.

Where an entry without receipt lies follows from what lies around it, and how an undecided transaction ended from what
was asked for. Readers have seen both since. So the topic's description says them, as an entry's note would.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from txn_source.storage.entry_notes import NOTE_VERSION, RECEIPT, parse_note
from txn_source.storage.topic_file import WORKED_OUT, note_worked_out
from txn_source.upkeep.rebuild_decisions import Decisions
from txn_source.upkeep.rebuild_sources import DescribedTopic, FoundTopic
from txn_source.upkeep.segment_scan import NO_SEGMENT, ScannedSegments


def take_worked_out(of: DescribedTopic, scanned: ScannedSegments) -> None:
    """Take what earlier rebuilds have worked out of a topic."""
    notes = of.text.get(WORKED_OUT)
    for each in notes if isinstance(notes, list) else ():
        note = parse_note(json.dumps(each).encode())
        if note is not None and "w" in note:
            named = {path: rows for path, rows in note.get("r", {}).items() if path}
            scanned.take("", NO_SEGMENT, note["w"], {**note, "r": named}, {})


def note_all(root: Path, topics: Sequence[FoundTopic], decisions: Decisions) -> list[str]:
    """Note what was worked out of topics; return which descriptions can't be written, and why."""
    failed = []
    for topic in topics:
        of = topic.described
        new = [_note(producer_id, topic, decisions) for producer_id in _producers(topic, decisions)]
        before = of.text.get(WORKED_OUT)
        if new:
            try:
                note_worked_out(root, of.topic_id, [*(before if isinstance(before, list) else ()), *new])
            except (OSError, ValueError) as error:
                failed.append(
                    f"Topic {of.name.short}: where entries without receipts lie can't be noted, so another rebuild may"
                    f" find other places: {error}."
                )
    return failed


def _producers(topic: FoundTopic, decisions: Decisions) -> list[int]:
    """Return whose entries something was worked out of."""
    found = {entry.producer_id for entry in topic.segments.left.values() if not entry.of_job}
    for placed in topic.placed.values():
        mine = np.isin(placed.rows["txn"], list(decisions.undecided)) & (placed.rows["segment"] != NO_SEGMENT)
        found |= set(placed.rows["producer_id"][mine].tolist())
    return sorted(found)


def _note(producer_id: int, topic: FoundTopic, decisions: Decisions) -> dict[str, Any]:
    """Return the note of what was worked out of one producer's entries."""
    paths = topic.segments.paths
    left = {key for key, entry in topic.segments.left.items() if entry.producer_id == producer_id}
    receipts: dict[str, list[list[int]]] = {}
    refused: dict[str, list[int]] = {}
    txns: set[int] = set()
    for partition_id, placed in topic.placed.items():
        rows = placed.rows
        mine = np.flatnonzero((rows["producer_id"] == producer_id) & (rows["segment"] != NO_SEGMENT))
        txns |= set(rows["txn"][mine].tolist())
        for at in mine.tolist():
            segment = int(rows["segment"][at])
            if (segment, int(rows["offset"][at])) in left:
                receipt = [partition_id, *(int(rows[name][at]) for name in RECEIPT[1:])]
                receipts.setdefault(paths[segment], []).append(receipt)
        for entry in placed.dropped:
            if entry.producer_id == producer_id:
                refused.setdefault(paths[entry.segment], []).append(entry.offset)
    ends = [[txn, decisions.states[txn]] for txn in sorted(txns & decisions.undecided.keys())]
    return {"v": NOTE_VERSION, "w": producer_id, "r": receipts, "x": refused, "e": ends}
