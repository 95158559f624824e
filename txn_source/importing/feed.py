"""Reads a lane: rows cut into runs of one transaction, and how far that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from txn_source.foreign.foreign_log import TransactionSpans
from txn_source.importing.course import Lane
from txn_source.importing.history import Rows
from txn_source.model.entry import NewEntry
from txn_source.model.errors import InternalError
from txn_source.model.position import Position
from txn_source.model.visibility import NO_TXN, IntArray


@dataclass(frozen=True, slots=True)
class Run:
    """Messages in a row of one transaction; ``NO_TXN``: plain ones."""

    group: int
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Written:
    """The same as entries that are written and safe, and whose sequences are still to be given."""

    group: int
    entries: tuple[NewEntry, ...]


STEP_ROWS = 65_536
"""So many messages are handed out at once, and those that share the last one's position."""


def _portions(of: Iterator[Rows]) -> Iterator[Rows]:
    for rows in of:
        for start in range(0, len(rows.keys), STEP_ROWS):
            some = slice(start, start + STEP_ROWS)
            yield Rows(rows.batch.slice(start, STEP_ROWS), rows.keys[some], rows.names[some])


class _Finder:
    """Finds the transaction of a message by what names it and its key: the one that reaches over it.

    Name and rank of the marker make one number of each span, so one search finds those of all messages.
    """

    def __init__(self, spans: TransactionSpans) -> None:
        self._names, self._markers = np.unique(spans.names), np.unique(spans.markers)
        self._step = len(self._markers) + 1
        places = self._places(spans.names, np.searchsorted(self._markers, spans.markers))
        self._order = np.argsort(places, kind="stable")
        self._sorted = places[self._order]
        self._spans = spans

    def find(self, names: IntArray, keys: IntArray) -> IntArray:
        """Return the index of each message's span, ``NO_TXN`` where there is none."""
        found = np.full(len(names), NO_TXN, np.int64)
        if not len(self._sorted):
            return found
        at = np.searchsorted(self._sorted, self._places(names, np.searchsorted(self._markers, keys, side="right")))
        spans = self._order[np.minimum(at, len(self._order) - 1)]
        right = (at < len(self._order)) & (self._spans.names[spans] == names) & (self._spans.firsts[spans] <= keys)
        found[right] = spans[right]
        return found

    def _places(self, names: IntArray, ranks: IntArray) -> IntArray:
        places: IntArray = np.searchsorted(self._names, names) * self._step + ranks
        return places


class Feed:
    """A lane that is read step by step; ``at`` is the key up to which all has been handed out, exclusive."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self._finder = _Finder(lane.spans)
        self.at = lane.of.start.key
        self._rows: Iterator[Rows] | None = None
        self._next: Rows | None = None

    @property
    def ended(self) -> bool:
        """True if there is nothing more to come."""
        return self.at >= self.lane.of.end.key

    @property
    def fraction(self) -> float:
        """How much of the lane was handed out, from 0 to 1."""
        start, end = self.lane.of.start.key, self.lane.of.end.key
        return 1.0 if self.ended else (self.at - start) / (end - start)

    def step(self) -> list[Run | Written]:
        """Return the next runs. They end at a position's end: rows of one position stay together."""
        if self._rows is None:
            self._rows = _portions(self.lane.source.rows(self.lane.of))
            self._next = next(self._rows, None)
        parts: list[Rows] = []
        while self._next is not None and (not parts or self._next.keys[0] == parts[-1].keys[-1]):
            parts.append(self._next)
            self._next = next(self._rows, None)
        runs: list[Run | Written] = [run for part in parts for run in self._runs(part)]
        if self._next is None:
            self.at, self._rows = self.lane.of.end.key, None
        else:
            self.at = int(parts[-1].keys[-1]) + 1
        return runs

    def _runs(self, rows: Rows) -> Iterator[Run]:
        groups = self._groups(rows)
        edges = np.concatenate(([0], np.flatnonzero(groups[1:] != groups[:-1]) + 1, [len(groups)])).tolist()
        for begin, end in pairwise(edges):
            yield Run(int(groups[begin]), rows.batch.slice(begin, end - begin))

    def _groups(self, rows: Rows) -> IntArray:
        groups = np.full(len(rows.keys), NO_TXN, np.int64)
        named = np.flatnonzero(rows.names != NO_TXN)
        if len(named):
            spans = self._finder.find(rows.names[named], rows.keys[named])
            if (spans == NO_TXN).any():
                at = Position.from_key(int(rows.keys[named[np.argmax(spans == NO_TXN)]]))
                raise InternalError(
                    f"The message at {at} of partition {self.lane.source.index} is of a transaction that isn't known.",
                    "Please report it.",
                )
            groups[named] = self.lane.groups[spans]
        return groups
