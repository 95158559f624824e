"""What a writer notes in its entries (``storage/entry_notes.py``): whose they are, and what became of earlier ones."""

from __future__ import annotations

import json
import struct
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from txn_source.model.entry import NewEntry
from txn_source.model.kinds import ABORTED, COMMITTED
from txn_source.model.position import Position
from txn_source.storage.entry_notes import NO_TXN, NOTE_VERSION, Answered, packed

_MOST_OPEN = 4096
"""So many transactions are kept in mind whose end nobody has told."""
_MOST_LATE = 20_000
"""Of so many segments that take no more entries something waits for another one's to carry it."""


class _Untold:
    """What is to be told of one segment's entries."""

    __slots__ = ("answered", "ends", "refused")

    def __init__(self) -> None:
        self.answered: list[Answered] = []
        self.refused: list[int] = []
        self.ends: list[list[int]] = []


_NOTHING = _Untold()


class EntryNotes:
    """The notes of one writer. A receipt goes into the segment of its entry, if that takes another one, else anywhere.

    What was put into a note is dropped when the note is written (``told``), so an interrupt may repeat it. Its owner
    holds a lock; only ``ended`` may be called without.
    """

    def __init__(
        self,
        producer_id: int,
        name: str = "",
        epoch: int = 0,
        transactional_id: str | None = None,
        clock: Callable[[], float] = time.time,
        *,
        of_job: bool = False,
    ) -> None:
        """Prepare the notes of a producer; ``clock`` returns seconds since the epoch.

        ``of_job``: another call than this writer's registers the entries, and may never come.
        """
        self._start = f'{{"v":{NOTE_VERSION},"w":{producer_id}' + (',"j":1' if of_job else "")
        self._of_job = of_job
        self._by: dict[str, Any] = {"name": name, "epoch": epoch}
        if transactional_id is not None:
            self._by["transactional_id"] = transactional_id
        self._clock = clock
        self._known: dict[str, _Untold] = {}
        """Open files, which take what is to be told themselves."""
        self._late: OrderedDict[str, _Untold] = OrderedDict()
        """What is to be told of other segments."""
        self._open: OrderedDict[int, set[str]] = OrderedDict()
        """Transactions, with the segments that have entries of them."""
        self._just_ended: deque[list[int]] = deque()

    def opened(self, segment: str) -> None:
        """Take notice of a file that will have more than one write."""
        self._known[segment] = _Untold()

    def of_entry(self, segment: str, partition_id: int, sequence: int, txn: int | None, *, first: bool) -> bytes:
        """Return the note of an entry that is going to be written."""
        at = int(self._clock() * 1e6)
        if self._just_ended:
            self._sort_endings()
        mine = self._known.get(segment, _NOTHING)
        if not (first or self._late or mine.refused):
            try:
                return packed(partition_id, sequence, txn, at, mine.answered, mine.ends, of_job=self._of_job)
            except struct.error:  # a number is too large
                pass
        of_txn = "" if txn is None else f',"t":{txn}'
        by = f',"by":{json.dumps(self._by)}' if first else ""
        told = self._waiting_for(segment)
        return f'{self._start},"p":{partition_id},"s":{sequence}{of_txn},"at":{at}{by}{told}}}'.encode()

    def of_end(self, segment: str) -> bytes | None:
        """Return what is to be noted behind a file's last entry; None if nothing is."""
        self._sort_endings()
        told = self._waiting_for(segment)
        return f"{self._start}{told}}}".encode() if told else None

    def told(self, segment: str) -> None:
        """Drop what the last note of a segment had: it is written."""
        if segment in self._known:
            self._known[segment] = _Untold()
        if self._late:
            self._late.clear()

    def closed(self, segment: str) -> None:
        """Take notice that a file takes no more entries; what is left to be told goes elsewhere."""
        left = self._known.get(segment)
        if left is not None and (left.answered or left.refused or left.ends):
            self._late[segment] = left
        self._known.pop(segment, None)

    def registered(
        self, entries: Iterable[NewEntry], positions: Sequence[Position], time_us: int, txn: int | None
    ) -> None:
        """Take notice of what the service has answered."""
        for entry, position in zip(entries, positions, strict=False):
            segment = entry.segment
            untold = self._known.get(segment) or self._untold(segment)
            untold.answered.append((entry, position.key, time_us, NO_TXN if txn is None else txn))
            if txn is not None:
                self._open.setdefault(txn, set()).add(segment)
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        while len(self._late) > _MOST_LATE:
            self._late.popitem(last=False)

    def refused(self, entries: Iterable[NewEntry]) -> None:
        """Take notice of entries that were written, and never will be registered."""
        for entry in entries:
            self._untold(entry.segment).refused.append(entry.offset)

    def ended(self, txn: int, *, committed: bool) -> None:
        """Take notice of the end of a transaction. Thread-safe."""
        self._just_ended.append([txn, COMMITTED if committed else ABORTED])

    def waiting(self) -> list[str]:
        """Return closed segments of which something is to be told."""
        self._sort_endings()
        return sorted(self._late)

    def _untold(self, segment: str) -> _Untold:
        return self._known.get(segment) or self._late.setdefault(segment, _Untold())

    def _waiting_for(self, segment: str) -> str:
        """Return the fields of a note with what waits for its segment, and what has no open one."""
        of = {segment: self._known.get(segment, _NOTHING), **self._late}
        # Paths are plain, and lists of numbers print as JSON.
        receipts = [_of_segment(path, segment, _rows(each.answered)) for path, each in of.items() if each.answered]
        refused = [_of_segment(path, segment, each.refused) for path, each in of.items() if each.refused]
        ends = [end for each in of.values() for end in each.ends]
        told = f',"r":{{{",".join(receipts)}}}' if receipts else ""
        told += f',"x":{{{",".join(refused)}}}' if refused else ""
        return told + (f',"e":{ends}' if ends else "")

    def _sort_endings(self) -> None:
        """Put what has ended to the segments that have entries of it."""
        while self._just_ended:
            end = self._just_ended.popleft()
            for segment in self._open.pop(end[0], ()):
                self._untold(segment).ends.append(end)


def _rows(answered: Sequence[Answered]) -> list[list[int]]:
    """Return receipts as ``RECEIPT`` has them."""
    return [
        [e.partition_id, e.offset, e.length, e.crc32c, e.base_sequence, e.messages, position, time_us, txn]
        for e, position, time_us, txn in answered
    ]


def _of_segment(path: str, segment: str, rows: object) -> str:
    return f'"{"" if path == segment else path}":{rows}'
