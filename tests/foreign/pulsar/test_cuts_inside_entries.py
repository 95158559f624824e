"""Reads of several partitions that start and end anywhere, also inside entries, at a consistent cut."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.foreign.pulsar.offload_writer import Frame, Sent, batch, marker, single, write_ledger
from txn_source.model.position import MessageId

_TOPIC = "public/default/persistent/orders-partition-"
_FIRST_LEDGER = 3
Id = tuple[int, int]


class History:
    """Partitions with transactions that are all decided; ``rows`` are entry, index and transaction, 0 for none."""

    def __init__(self, chance: random.Random) -> None:
        self.parts: list[list[bytes]] = [[single(Sent(b"s"))] for _ in range(chance.choice([2, 3]))]
        self.rows = [[(0, 0, 0)] for _ in self.parts]
        self.committed: dict[int, bool] = {0: True}
        opened: dict[int, set[int]] = {}
        for _ in range(chance.choice([8, 20, 40])):
            if opened and chance.random() < 0.2:
                txn = chance.choice(list(opened))
                self._end(txn, opened.pop(txn), commit=chance.random() < 0.7)
                continue
            if chance.random() < 0.25:
                opened[len(self.committed) + len(opened)] = set()
            txn, at = chance.choice([0, *opened]), chance.randrange(len(self.parts))
            size, frame = chance.choice([0, 1, 2, 4]), Frame(txn=(0, txn) if txn else None)
            entry = batch([Sent(b"b")] * size, frame) if size else single(Sent(b"s"), frame)
            self.rows[at] += [(len(self.parts[at]), index, txn) for index in range(max(size, 1))]
            self.parts[at].append(entry)
            opened.get(txn, set()).add(at)
        for txn, parts in opened.items():
            self._end(txn, parts, commit=True)

    def _end(self, txn: int, parts: set[int], *, commit: bool) -> None:
        self.committed[txn] = commit
        for at in parts:
            self.parts[at].append(marker((0, txn), commit=commit))

    def visible(self, starts: list[Id], ends: list[Id]) -> list[tuple[int, int, int]]:
        """Lower ends until each committed transaction at or above the starts, by entry, is below or above them."""
        ends = [(start[0], 0) if end[0] < start[0] else end for start, end in zip(starts, ends, strict=True)]
        torn = True
        while torn:
            torn = False
            for txn in [txn for txn, commit in self.committed.items() if txn and commit]:
                found = {at: [row[:2] for row in rows if row[2] == txn] for at, rows in enumerate(self.rows)}
                mine = {at: ids for at, ids in found.items() if ids}
                above = any(ids[-1] >= ends[at] for at, ids in mine.items())
                for at, ids in mine.items():
                    if above and (starts[at][0], 0) <= ids[0] < ends[at]:
                        ends[at] = ids[0]
                        torn = True
        return [
            (at, entry, index)
            for at, rows in enumerate(self.rows)
            for entry, index, txn in rows
            if starts[at] <= (entry, index) < ends[at] and self.committed[txn]
        ]


@pytest.mark.parametrize("seed", [0, 1])
def test_ends_anywhere_are_a_cut(tmp_path: Path, seed: int) -> None:
    """Read from anywhere up to anywhere: what a model of the cut by messages shows, no less and no more."""
    chance = random.Random(seed)
    history = History(chance)
    for at, entries in enumerate(history.parts):
        write_ledger(tmp_path, _FIRST_LEDGER + at, entries, f"{_TOPIC}{at}")
    log = txn_source.connect(f"pulsar:{tmp_path}")
    columns = ["__partition", "__entry_id", "__batch_index"]

    def side(ids: list[Id]) -> dict[str, Any]:
        return {"orders": {at: MessageId(_FIRST_LEDGER + at, *id_) for at, id_ in enumerate(ids)}}

    for _ in range(8):
        ends = [(chance.randrange(len(entries) + 1), chance.randrange(5)) for entries in history.parts]
        starts = [
            (chance.randrange(len(entries) + 1), chance.randrange(5)) if chance.random() < 0.3 else (0, 0)
            for entries in history.parts
        ]
        found = log.scan("orders", columns=columns, start=side(starts), end=side(ends)).read_all().to_pylist()
        rows = [(row["__partition"], row["__entry_id"], max(row["__batch_index"], 0)) for row in found]
        assert sorted(rows) == history.visible(starts, ends), (starts, ends)
