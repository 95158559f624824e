"""What a rebuild has worked out is noted for the next one, which finds no more than it did and may work out otherwise.

Where an entry without receipt lies follows from what lies around it, and how an undecided transaction ended from what
was asked for. Readers have seen both since. So the topic's description says them, as an entry's note would.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from txn_source.model.errors import TxnLogError
from txn_source.storage.apart_notes import put_apart
from txn_source.storage.entry_notes import NOTE_VERSION, RECEIPT
from txn_source.storage.object_root import Root
from txn_source.upkeep.rebuild_decisions import Decisions
from txn_source.upkeep.rebuild_sources import FoundTopic
from txn_source.upkeep.segment_scan import NO_SEGMENT


def note_all(root: Root, log_id: str, topics: Sequence[FoundTopic], decisions: Decisions) -> list[str]:
    """Note what was worked out of topics; return of which that can't be, and why."""
    failed = []
    for topic in topics:
        try:
            for producer_id in _producers(topic, decisions):
                paths, note = _note(producer_id, topic, decisions)
                if paths:
                    put_apart(root, log_id, paths, json.dumps(note).encode())
        except (OSError, TxnLogError) as error:
            failed.append(
                f"Topic {topic.described.name.short}: where entries without receipts lie can't be noted, so another"
                f" rebuild may find other places: {error}."
            )
    return failed


def _producers(topic: FoundTopic, decisions: Decisions) -> list[int]:
    """Return whose entries something was worked out of."""
    found = {entry.producer_id for entry in topic.segments.left.values() if not entry.of_job}
    for placed in topic.placed.values():
        mine = np.isin(placed.rows["txn"], list(decisions.undecided)) & (placed.rows["segment"] != NO_SEGMENT)
        found |= set(placed.rows["producer_id"][mine].tolist())
    return sorted(found)


def _note(producer_id: int, topic: FoundTopic, decisions: Decisions) -> tuple[list[str], dict[str, Any]]:
    """Return the note of what was worked out of one producer's entries, and the segments that it tells of."""
    paths = topic.segments.paths
    left = {key for key, entry in topic.segments.left.items() if entry.producer_id == producer_id}
    receipts: dict[str, list[list[int]]] = {}
    refused: dict[str, list[int]] = {}
    txns: set[int] = set()
    segments: set[int] = set()
    for partition_id, placed in topic.placed.items():
        rows = placed.rows
        mine = np.flatnonzero((rows["producer_id"] == producer_id) & (rows["segment"] != NO_SEGMENT))
        ended = mine[np.isin(rows["txn"][mine], list(decisions.undecided))]
        txns |= set(rows["txn"][ended].tolist())
        segments |= set(rows["segment"][ended].tolist())
        for at in mine.tolist():
            segment = int(rows["segment"][at])
            if (segment, int(rows["offset"][at])) in left:
                receipt = [partition_id, *(int(rows[name][at]) for name in RECEIPT[1:])]
                receipts.setdefault(paths[segment], []).append(receipt)
        for entry in placed.dropped:
            if entry.producer_id == producer_id:
                refused.setdefault(paths[entry.segment], []).append(entry.offset)
    ends = [[txn, decisions.states[txn]] for txn in sorted(txns)]
    of = {*receipts, *refused, *(paths[segment] for segment in segments)}
    return sorted(of), {"v": NOTE_VERSION, "w": producer_id, "r": receipts, "x": refused, "e": ends}
