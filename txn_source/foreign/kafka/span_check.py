"""Holds aborted transactions against the batches that a task reads.

They may come from transaction indexes, which carry no checksum. A task that reads a marker, or the place where one of
them is said to begin, sees whether that is so. So whatever is wrong with an index, the task that reads the batches
concerned says so, and no read of a whole transaction succeeds with wrong rows.
"""

from __future__ import annotations

import numpy as np

from txn_source.foreign.foreign_log import TransactionSpans
from txn_source.foreign.kafka.batch_headers import BatchHeaders
from txn_source.foreign.kafka.producer_states import ProducerStates
from txn_source.foreign.kafka.transactions import ABORT, UNKNOWN
from txn_source.foreign.kafka.varints import Ints
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.visibility import NO_TXN


class SpanCheck:
    """Checks batches in the order of the log.

    Args:
        spans: the aborted transactions that a read goes by.
        states: tells, where a marker has no span, whether its transaction has data.
        start: the first offset that is read.
    """

    def __init__(self, spans: TransactionSpans, states: ProducerStates, start: int) -> None:
        self._spans = spans
        self._states = states
        self._start = start
        self._firsts = np.sort(spans.firsts)

    def check(self, headers: BatchHeaders, kinds: Ints, place: str) -> None:
        """Raise SEGMENT_UNREADABLE if a batch says otherwise than the spans; ``kinds``: as of ``marker_kinds``."""
        if len(headers):
            self._check_firsts(headers, place)
            self._check_markers(headers, kinds, place)

    def _check_firsts(self, headers: BatchHeaders, place: str) -> None:
        """Where a span begins, a batch of its transaction does; after compaction there may be none any more."""
        bases, lasts = headers["base_offset"], headers.last_offsets
        low, high = np.searchsorted(self._firsts, [max(int(bases[0]), self._start), int(lasts[-1]) + 1])
        if low >= high:
            return
        spans = np.flatnonzero(
            (self._spans.firsts >= self._firsts[low]) & (self._spans.firsts <= self._firsts[high - 1])
        )
        firsts = self._spans.firsts[spans]
        at = np.searchsorted(bases, firsts, side="right") - 1
        inside = lasts[at] >= firsts
        right = (bases[at] == firsts) & (headers["producer_id"][at] == self._spans.names[spans])
        right &= headers.transactional[at] & ~headers.control[at]
        wrong = np.flatnonzero(inside & ~right)
        if len(wrong):
            producer = self._spans.names[spans[wrong[0]]]
            raise _wrong(headers, int(at[wrong[0]]), place, f"no transaction of producer {producer} begins")

    def _check_markers(self, headers: BatchHeaders, kinds: Ints, place: str) -> None:
        which = np.flatnonzero(kinds != UNKNOWN)
        if not len(which):
            return
        markers = headers.where(which)
        offsets, producers = markers["base_offset"], markers["producer_id"]
        around = covering(producers, offsets, self._spans, reaches_marker=True)
        aborts = kinds[which] == ABORT
        ends_there = around != NO_TXN
        ends_there[ends_there] = self._spans.markers[around[ends_there]] == offsets[ends_there]
        alone = around == NO_TXN
        wrong = np.where(aborts, ~ends_there & ~alone, ~alone)
        for index in np.flatnonzero(aborts & alone).tolist():
            wrong[index] = self._states.has_open_data(int(producers[index]), int(offsets[index]))
        if wrong.any():
            index = int(np.argmax(wrong))
            ended = "aborted" if aborts[index] else "committed"
            raise _wrong(markers, index, place, f"producer {producers[index]} {ended} a transaction")


def covering(producers: Ints, offsets: Ints, spans: TransactionSpans, *, reaches_marker: bool = False) -> Ints:
    """Return of each offset of a producer which of some transactions reaches over it, by index, or ``NO_TXN``.

    A transaction reaches from its first offset to its marker; to that itself only with ``reaches_marker``.
    """
    found = np.full(len(producers), NO_TXN, np.int64)
    if not len(spans) or not len(producers):
        return found
    order = np.lexsort((spans.markers, spans.names))
    names, ends = spans.names[order], spans.markers[order]
    low, high = np.searchsorted(names, producers), np.searchsorted(names, producers, side="right")
    for producer in np.unique(producers[low < high]).tolist():
        rows = np.flatnonzero(producers == producer)
        begin, end = int(low[rows[0]]), int(high[rows[0]])
        at = begin + np.searchsorted(ends[begin:end], offsets[rows], side="left" if reaches_marker else "right")
        rows, at = rows[at < end], at[at < end]
        begun = spans.firsts[order[at]] <= offsets[rows]
        found[rows[begun]] = order[at[begun]]
    return found


def _wrong(headers: BatchHeaders, index: int, place: str, fact: str) -> SegmentUnreadableError:
    offset = int(headers["base_offset"][index])
    return SegmentUnreadableError(
        f"At offset {offset}, position {headers.positions[index]} of {place}, {fact}; a transaction index denies it.",
        "Set trustTransactionIndexes to false: then the markers are read.",
    )
