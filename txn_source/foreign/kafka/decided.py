"""The aborted transactions of a range: from transaction indexes where they can be believed, else from the markers.

A broker makes a transaction index only for a segment that has an abort marker. So a missing one says that nothing was
aborted there, or that somebody lost it. It is believed to say the first where the snapshot at the segment's end knows
no producer that ever got a marker. Otherwise the headers of the segment's batches are read.
"""

from __future__ import annotations

from collections.abc import Iterator

from txn_source.foreign.kafka.index_files import TransactionIndex
from txn_source.foreign.kafka.producer_states import ProducerStates
from txn_source.foreign.kafka.segment_list import MAX_OFFSET, SegmentList
from txn_source.foreign.kafka.segments import TXN_INDEX
from txn_source.foreign.kafka.transactions import NO_EPOCH, Ended, Open, replay


class DecidedTransactions:
    """Finds the aborted transactions of a partition.

    Args:
        segments: the partition's.
        states: what is open at an offset.
        trust: whether to believe transaction indexes at all.
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
        waiting = _begun_below(self._states.at(end), end) if end < high_watermark else {}
        state: tuple[int, Open] | None = None
        for base in self._segments.bases_over(start, high_watermark):
            if base >= end and not waiting:
                break
            until = min(self._segments.next_base(base) or MAX_OFFSET, high_watermark)
            index = self._index(base)
            if index is not None:
                state = None
                ended = list(_entries(index))
                waiting = {} if (index.last_stables >= end).any() else waiting
            else:
                opened = state[1] if state is not None and state[0] == base else self._states.at(base)
                ended = list(self._markers(base, until, opened))
                state = until, opened
                waiting = {
                    producer: begun
                    for producer, begun in waiting.items()
                    if begun.first >= until or _is_open(opened, producer, begun.first)
                }
            found += [
                txn
                for txn in ended
                if txn.aborted and txn.marker >= start and txn.first < end and txn.marker < high_watermark
            ]
            if index is not None and until >= end and waiting:
                known = self._states.exactly_at(until)
                if known is not None:
                    still = set(known["producer_id"][known["txn_first"] >= 0].tolist())
                    waiting = {producer: begun for producer, begun in waiting.items() if producer in still}
        return found

    def _index(self, base: int) -> TransactionIndex | None:
        """Return the index of the segment at a base offset; None if its markers must be read."""
        if not self._trust:
            return None
        for segment in self._segments.copies(base):
            if segment.base_offset != base:
                continue
            data = segment.files.small(TXN_INDEX)
            if data is not None:
                if len(data) % TransactionIndex.ENTRY_BYTES:
                    return None
                return TransactionIndex.parse(data, base, self._segments.limit(segment) or MAX_OFFSET)
        until = self._segments.next_base(base)
        producers = None if until is None else self._states.exactly_at(until)
        if producers is not None and (producers["coordinator_epoch"] < 0).all():
            return TransactionIndex.parse(b"", base, MAX_OFFSET)
        return None

    def _markers(self, start: int, end: int, opened: Open) -> Iterator[Ended]:
        for scanned in self._segments.headers(start, end):
            inside = scanned.headers["base_offset"] >= start
            yield from replay(opened, scanned.headers.where(inside), scanned.kinds[inside])


def _is_open(opened: Open, producer: int, first: int) -> bool:
    begun = opened.get(producer)
    return begun is not None and begun.first == first


def _begun_below(opened: Open, end: int) -> Open:
    return {producer: begun for producer, begun in opened.items() if begun.first < end}


def _entries(index: TransactionIndex) -> Iterator[Ended]:
    rows = zip(index.producer_ids.tolist(), index.firsts.tolist(), index.markers.tolist(), strict=True)
    for producer, first, marker in rows:
        yield Ended(producer, NO_EPOCH, first, None, marker, True)
