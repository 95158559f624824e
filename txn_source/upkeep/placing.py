"""Where entries lie, worked out from what segments and tiered objects say: pure, for one partition.

Receipts and objects give exact positions. Positions are dense, so what they leave out below the end is a marker, or an
entry whose writer had no chance to note its receipt. Such an entry gets the first position that is left for it:
behind those that its producer wrote before, before those that it wrote later, and not before a message that was
published before it was written. Without any it lies at the end. Markers get what is left then; nobody sees them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from txn_source.model.kinds import ABORT_MARKER, ABORTED, COMMIT_MARKER, DATA
from txn_source.model.position import entry_of, key_of, ledger_of
from txn_source.upkeep.segment_scan import NO_SEGMENT, NO_TXN, IntArray, LeftEntry

ROWS = (
    "position", "kind", "messages", "length", "txn", "producer_id", "base_sequence", "time_us", "segment", "offset",
    "crc32c",
)  # fmt: skip
_LATEST = np.iinfo(np.int64).max


@dataclass(slots=True)
class PlacedPartition:
    """The entries of a partition by position, markers among them; ``segment`` -1: they have no hot copy."""

    rows: dict[str, IntArray]
    taken: IntArray
    """Positions that are known to be of entries that are lost: nothing else lies there."""
    last_ledger: int
    last_ledger_entries: int
    """As many as it is known to have had."""
    told_markers: Mapping[int, int] = field(default_factory=dict)
    """Positions of markers that a description tells, by transaction."""
    moved: int = 0
    """Entries without receipt that were placed before the end."""
    appended: int = 0
    """Entries without receipt that were put at the end."""
    dropped: list[LeftEntry] = field(default_factory=list)
    """Entries without receipt for which there was no position."""
    told_firsts: dict[int, int] = field(default_factory=dict)
    """The first position of each transaction that is told, and not worked out."""
    _reserved: set[int] = field(default_factory=set)
    """Positions of such markers that nothing else tells of."""
    _free: list[int] = field(default_factory=list)
    _end: int = 0
    _of_producer: dict[int, tuple[IntArray, IntArray]] = field(default_factory=dict)

    @property
    def traces(self) -> dict[int, tuple[int, int, int, int]]:
        """Return first and last position, messages and bytes of each transaction."""
        of = self.rows["txn"]
        mine = np.flatnonzero((of != NO_TXN) & (self.rows["kind"] == DATA))
        if not len(mine):
            return {}
        mine = mine[np.argsort(of[mine], kind="stable")]
        txns = of[mine]
        starts = np.flatnonzero(np.append(True, txns[1:] != txns[:-1]))
        ends = np.append(starts[1:], len(mine)) - 1
        positions = self.rows["position"][mine]
        sums = [np.add.reduceat(self.rows[name][mine], starts).tolist() for name in ("messages", "length")]
        columns = (txns[starts].tolist(), positions[starts].tolist(), positions[ends].tolist(), *sums)
        return {txn: (first, last, messages, size) for txn, first, last, messages, size in zip(*columns, strict=True)}

    @property
    def markers(self) -> dict[int, tuple[int, int]]:
        """Return position and kind of the known markers, by transaction."""
        at = np.flatnonzero((self.rows["kind"] != DATA) & (self.rows["txn"] != NO_TXN))
        columns = (self.rows[name][at].tolist() for name in ("txn", "position", "kind"))
        return {txn: (position, kind) for txn, position, kind in zip(*columns, strict=True)}

    def add_markers(self, decided: Mapping[int, int]) -> None:
        """Give markers to transactions that have none: where they are told to be, or in what is free."""
        traces, there = self.traces, self.markers
        missing = sorted(
            (traces[txn][1], txn, state) for txn, state in decided.items() if txn in traces and txn not in there
        )
        free = self._free
        rows = []
        at = 0
        for last, txn, state in missing:
            position = self.told_markers.get(txn)
            if position not in self._reserved or position < last:
                while at < len(free) and free[at] < last:
                    at += 1
                position = free[at] if at < len(free) else self._end
                at += 1
            self._end = max(self._end, position + 1)
            rows.append((position, ABORT_MARKER if state == ABORTED else COMMIT_MARKER, txn))
        gone = {row[0] for row in rows}
        self._free = [position for position in self._free if position not in gone]
        self._reserved -= gone
        self._add([_row(position=position, kind=kind, txn=txn) for position, kind, txn in rows])

    def place(self, left: Sequence[LeftEntry], whole: Collection[int] = ()) -> None:
        """Find places for entries without receipt; of ledgers that are ``whole`` all entries are known."""
        self.told_firsts = {txn: first for txn, (first, _, _, _) in self.traces.items()}
        self._reserved = set(self.told_markers.values()) - set(self.rows["position"].tolist())
        self._free = [at for at in self._gaps() if at not in self._reserved]
        positions = self._known_positions()
        self._end = self._first_behind(positions)
        if not left:
            return
        times = self._times(positions)
        following = np.append(times, _LATEST)[np.searchsorted(positions, np.array(self._free, np.int64))]
        queues: dict[int, list[LeftEntry]] = {}
        for entry in sorted(left, key=lambda e: (e.base_sequence, e.at_us, e.segment, e.offset)):
            queues.setdefault(entry.producer_id, []).append(entry)
        between = {id(entry): self._between(entry) for entry in left}
        rows = []
        late = []
        used: set[int] = set()
        for at, until in zip(self._free, following.tolist(), strict=True):
            # The one of those that may lie here with the nearest end: so as many as can be are placed.
            heads = [queue[0] for queue in queues.values() if queue]
            fit = [e for e in heads if between[id(e)][0] < at < between[id(e)][1] and e.at_us <= until]
            if fit:
                entry = min(fit, key=lambda e: (between[id(e)][1], e.at_us))
                queues[entry.producer_id].pop(0)
                used.add(at)
                rows.append(_row_of(entry, at))
            for queue in queues.values():
                while queue and between[id(queue[0])][1] <= at:
                    late.append(queue.pop(0))
        for entry in sorted((e for queue in queues.values() for e in queue), key=lambda e: (e.at_us, e.base_sequence)):
            if between[id(entry)][1] < _LATEST:
                late.append(entry)
                continue
            rows.append(_row_of(entry, self._end))
            self._end += 1
            self.appended += 1
        ends = {ledger_of(key): key + 1 for key in positions.tolist() if ledger_of(key) not in whole}
        for entry in late:  # a ledger may have had more entries than are known
            low, high = between[id(entry)]
            behind = [ledger for ledger in ends if ledger_of(max(low, 0)) <= ledger < ledger_of(high)]
            if not behind:
                self.dropped.append(entry)
                continue
            rows.append(_row_of(entry, ends[max(behind)]))
            ends[max(behind)] += 1
        self.moved = len(rows) - self.appended
        self._free = [at for at in self._free if at not in used]
        self._add(rows)

    def holes(self) -> list[int]:
        """Return the positions below the end of which nothing is known."""
        return self._free

    def settle(self) -> None:
        """Put markers of nothing where nothing is known, and of transactions whose entries were trimmed; let publish
        times never go back, and markers have those of what is before them."""
        nobodys = (self.rows["kind"] != DATA) & ~np.isin(self.rows["txn"], list(self.traces))
        self.rows["txn"][nobodys] = NO_TXN
        lost = np.setdiff1d(self.taken, self.rows["position"]).tolist()
        nothing = {*self._free, *self._reserved, *lost}
        self._add([_row(position=position, kind=COMMIT_MARKER) for position in nothing])
        if len(self.rows["time_us"]):
            self.rows["time_us"] = np.maximum.accumulate(self.rows["time_us"])

    def _between(self, entry: LeftEntry) -> tuple[int, int]:
        """Return what an entry lies between, by its producer's sequences; both exclusive."""
        if not entry.producer_id:
            return -1, int(_LATEST)
        if entry.producer_id not in self._of_producer:
            mine = (self.rows["producer_id"] == entry.producer_id) & (self.rows["kind"] == DATA)
            self._of_producer[entry.producer_id] = self.rows["base_sequence"][mine], self.rows["position"][mine]
        sequences, positions = self._of_producer[entry.producer_id]
        before, after = positions[sequences < entry.base_sequence], positions[sequences > entry.base_sequence]
        return (int(before.max()) if len(before) else -1), (int(after.min()) if len(after) else int(_LATEST))

    def _times(self, positions: IntArray) -> IntArray:
        """Return the publish times of positions; those that are taken have that of what follows."""
        at = np.searchsorted(self.rows["position"], positions)
        times: IntArray = np.append(self.rows["time_us"], _LATEST)[at]
        return times

    def _known_positions(self) -> IntArray:
        reserved = np.array(sorted(self._reserved), np.int64)
        return np.union1d(np.union1d(self.rows["position"], self.taken), reserved)

    def _gaps(self) -> list[int]:
        positions = self._known_positions()
        ledgers = ledger_of(positions)
        gaps: list[int] = []
        for ledger in np.unique(ledgers).tolist():
            mine = entry_of(positions[ledgers == ledger])
            end = int(mine.max()) + 1
            if ledger == self.last_ledger:
                end = max(end, self.last_ledger_entries)
            if end > len(mine):
                missing = np.setdiff1d(np.arange(end, dtype=np.int64), mine)
                gaps += (missing + key_of(ledger, 0)).tolist()
        if self.last_ledger_entries and self.last_ledger not in ledgers:
            base = key_of(self.last_ledger, 0)
            gaps += range(base, base + self.last_ledger_entries)
        return gaps

    def _first_behind(self, positions: IntArray) -> int:
        last = int(positions.max()) + 1 if len(positions) else 0
        return max(last, key_of(self.last_ledger, self.last_ledger_entries))

    def _add(self, rows: Sequence[Mapping[str, int]]) -> None:
        if not rows:
            return
        more = {name: np.array([row[name] for row in rows], np.int64) for name in ROWS}
        whole = {name: np.concatenate((self.rows[name], more[name])) for name in ROWS}
        order = np.argsort(whole["position"], kind="stable")
        self.rows = {name: column[order] for name, column in whole.items()}


def _row_of(entry: LeftEntry, position: int) -> dict[str, int]:
    names = ("messages", "length", "txn", "producer_id", "base_sequence", "segment", "offset", "crc32c")
    given = {name: getattr(entry, name) for name in names}
    return _row(position=position, time_us=entry.at_us, **given)


def _row(**given: int) -> dict[str, int]:
    row = dict.fromkeys(ROWS, 0)
    row |= {"txn": NO_TXN, "segment": NO_SEGMENT} | given
    return row
