"""What each producer has open at an offset: from the newest snapshot below it, and the batches behind that."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.fs as fs

from txn_source.foreign.kafka.index_files import NONE, parse_snapshot
from txn_source.foreign.kafka.segment_ends import tail_of
from txn_source.foreign.kafka.segment_list import SegmentList
from txn_source.foreign.kafka.segments import SNAPSHOT, Segment, read_file
from txn_source.foreign.kafka.transactions import Begun, Open, replay

_LEARNT_MAX = 8
"""Of so many offsets it is kept what is open there."""


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A snapshot on a broker's disk: the state of the partition's producers below an offset."""

    offset: int
    system: fs.FileSystem
    path: str

    def producers(self) -> npt.NDArray[Any] | None:
        """Return what it says; None if it isn't sound."""
        return _sound(read_file(self.system, self.path), self.offset)


class ProducerStates:
    """The open transactions of a partition at any offset."""

    def __init__(self, segments: SegmentList, snapshots: Sequence[SnapshotFile]) -> None:
        self._segments = segments
        self._snapshots = {snapshot.offset: snapshot for snapshot in snapshots}
        self._offsets = sorted(self._snapshots)
        self._remote = [segment for segment in segments.segments if segment.remote]
        self._learnt: dict[int, Open] = {}

    def at(self, offset: int) -> Open:
        """Return what is open when everything below an offset is in the log.

        Without a snapshot the log is read from its beginning.
        """
        opened: Open = {}
        if not self._segments:
            return opened
        begin = self._segments.bases[0]
        learnt = max((at for at in self._learnt if at <= offset), default=-1)
        for below, producers in self._below(offset):
            if below <= learnt:
                break
            if producers is not None:
                begin, opened = below, _open_in(producers)
                break
        if learnt >= begin:
            begin, opened = learnt, _copied(self._learnt[learnt])
        for scanned in self._segments.headers(begin, offset, over_gaps=True):
            headers = scanned.headers
            below_offset = headers["base_offset"] >= begin
            for _ in replay(opened, headers.where(below_offset), scanned.kinds[below_offset]):
                pass
        self._learnt[offset] = _copied(opened)
        while len(self._learnt) > _LEARNT_MAX:
            del self._learnt[min(self._learnt)]
        return opened

    def resume(self, before: ProducerStates) -> None:
        """Take over what was learnt of the same partition: what is open at an offset doesn't change any more."""
        self._learnt |= before._learnt

    def has_open_data(self, producer: int, offset: int) -> bool:
        """True if a transaction of a producer is open at an offset, and the log has data of it.

        A snapshot is older than the compaction of what lies below it, which takes the data of aborted transactions.
        """
        begun = self.at(offset).get(producer)
        if begun is None:
            return False
        for scanned in self._segments.headers(begun.first, offset, over_gaps=True):
            headers = scanned.headers
            own = (headers["producer_id"] == producer) & headers.transactional & ~headers.control
            if (own & (headers["base_offset"] >= begun.first)).any():
                return True
        return False

    def exactly_at(self, offset: int) -> npt.NDArray[Any] | None:
        """Return what a snapshot at just this offset says of each producer; None if there is none."""
        local = self._snapshots.get(offset)
        if local is not None:
            return local.producers()
        before = [segment for segment in self._remote if segment.base_offset < offset]
        if before:
            return next((states for end, states in self._at_end(before[-1], offset) if end == offset), None)
        return None

    def _below(self, offset: int) -> Iterator[tuple[int, npt.NDArray[Any] | None]]:
        """Yield snapshots at or below an offset, and inside the log, the newest first."""
        first = self._segments.bases[0]
        low, high = bisect_left(self._offsets, first), bisect_right(self._offsets, offset)
        remote = [segment for segment in reversed(self._remote) if segment.base_offset < offset]
        for at in reversed(self._offsets[low:high]):
            while remote and remote[0].base_offset >= at:
                yield from self._at_end(remote.pop(0), offset)
            yield at, self._snapshots[at].producers()
        for segment in remote:
            yield from self._at_end(segment, offset)

    def _at_end(self, segment: Segment, offset: int) -> Iterator[tuple[int, npt.NDArray[Any] | None]]:
        """Yield the snapshot at the end of a remote segment, if that is at or below an offset."""
        try:
            tail = tail_of(segment, self._segments.epochs)
        except FileNotFoundError:  # retention was faster
            return
        if tail.end <= offset and not tail.other_leader:
            yield tail.end, _sound(segment.files.small(SNAPSHOT), tail.end)


def _sound(data: bytes | None, offset: int) -> npt.NDArray[Any] | None:
    """Return the producers of a snapshot; None if there is none, or if it knows more than lies below its offset."""
    producers = None if data is None else parse_snapshot(data)
    if producers is None or (producers["last_offset"] >= offset).any() or (producers["txn_first"] >= offset).any():
        return None
    return producers


def _open_in(producers: npt.NDArray[Any]) -> Open:
    return {
        int(row["producer_id"]): Begun(int(row["txn_first"]), None, int(row["epoch"]))
        for row in producers[np.asarray(producers["txn_first"] != NONE)]
    }


def _copied(opened: Open) -> Open:
    return {producer: replace(begun) for producer, begun in opened.items()}
