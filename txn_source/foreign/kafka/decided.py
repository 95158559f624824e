"""The aborted transactions of a range: from transaction indexes where they can be believed, else from the markers.

A broker makes a transaction index only for a segment that has an abort marker. So a missing one says that nothing was
aborted there, or that somebody lost it. It is believed to say the first where the snapshot at the segment's end knows
no producer that ever got a marker. Otherwise, and where there is little to read, the headers of the segment's batches
are read.
"""

from __future__ import annotations

from collections.abc import Iterator

from txn_source.foreign.kafka.index_files import TransactionIndex
from txn_source.foreign.kafka.producer_states import ProducerStates
from txn_source.foreign.kafka.segment_list import MAX_OFFSET, SegmentList
from txn_source.foreign.kafka.segments import TXN_INDEX
from txn_source.foreign.kafka.transactions import NO_EPOCH, Ended, Open, replay
from txn_source.model.errors import SegmentUnreadableError

_CHEAP_SEGMENTS = 256
_CHEAP, _CHEAP_REMOTE = 64 << 20, 1 << 20
"""Bytes of segments whose headers are read rather than believing an index: on a local disk, and elsewhere."""


class DecidedTransactions:
    """Finds the aborted transactions of a partition.

    Args:
        segments: the partition's.
        states: what is open at an offset.
        trust: whether to believe the transaction indexes of large segments.
    """

    def __init__(self, segments: SegmentList, states: ProducerStates, trust: bool) -> None:
        self._segments = segments
        self._states = states
        self._trust = trust

    def aborted(self, start: int, end: int, high_watermark: int) -> list[Ended]:
        """Return the aborted transactions with an offset in ``[start, end)``, by their markers.

        Only markers below the high watermark count. Behind the range the search goes on until all that is open at its
        end has been decided.
        """
        if start >= end or not self._segments:
            return []
        found: list[Ended] = []
        trust = self._trust and not self._cheap(start, end)
        state: tuple[int, Open] | None = None
        for base in self._segments.bases_over(start, end):
            until = min(self._segments.next_base(base) or MAX_OFFSET, end)
            index = self._index(base, high_watermark) if trust else None
            if index is None:
                try:
                    opened = state[1] if state is not None and state[0] == base else self._states.at(base)
                    ended = list(self._markers(base, until, opened))
                    state = until, opened
                except SegmentUnreadableError:
                    index = self._index(base, high_watermark) if self._trust else None
                    if index is None:
                        raise
            if index is not None:
                state = None
                ended = list(_entries(index))
            found += [txn for txn in ended if txn.aborted and start <= txn.marker < end]
        if end < high_watermark:
            found += self._behind(end, high_watermark)
        return found

    def _behind(self, end: int, high_watermark: int) -> Iterator[Ended]:
        """Yield of the transactions that are open at an offset those that are aborted behind it."""
        waiting = self._states.at(end)
        opened = dict(waiting)
        if not waiting:
            return
        for scanned in self._segments.headers(end, high_watermark):
            inside = scanned.headers["base_offset"] >= end
            for ended in replay(opened, scanned.headers.where(inside), scanned.kinds[inside]):
                if ended.first < end:
                    waiting.pop(ended.producer_id, None)
                    if ended.aborted:
                        yield ended
            if not waiting:
                return

    def _cheap(self, start: int, end: int) -> bool:
        """True if reading the markers of a range costs next to nothing: an index could be wrong."""
        bases = self._segments.bases_over(start, end)
        if len(bases) > _CHEAP_SEGMENTS:
            return False
        segments = [self._segments.copies(base)[0] for base in bases]
        sparse = all(segment.files.sparse for segment in segments)
        return sum(segment.size for segment in segments) <= (_CHEAP if sparse else _CHEAP_REMOTE)

    def _index(self, base: int, high_watermark: int) -> TransactionIndex | None:
        """Return the index of the segment at a base offset; None if its markers must be read."""
        until = self._segments.next_base(base) or high_watermark
        for segment in self._segments.copies(base):
            if segment.base_offset != base:
                continue
            data = segment.files.small(TXN_INDEX)
            if data is not None:
                whole = self._segments.of_its_leaders(segment) and self._segments.reaches(segment, until)
                if len(data) % TransactionIndex.ENTRY_BYTES or not whole:
                    return None
                return TransactionIndex.parse(data, base, self._segments.limit(segment) or MAX_OFFSET)
        producers = self._states.exactly_at(until)
        if producers is not None and (producers["coordinator_epoch"] < 0).all():
            return TransactionIndex.parse(b"", base, MAX_OFFSET)
        return None

    def _markers(self, start: int, end: int, opened: Open) -> Iterator[Ended]:
        for scanned in self._segments.headers(start, end, over_gaps=True):
            inside = scanned.headers["base_offset"] >= start
            yield from replay(opened, scanned.headers.where(inside), scanned.kinds[inside])


def _entries(index: TransactionIndex) -> Iterator[Ended]:
    rows = zip(index.producer_ids.tolist(), index.firsts.tolist(), index.markers.tolist(), strict=True)
    for producer, first, marker in rows:
        yield Ended(producer, NO_EPOCH, first, None, marker, True)
