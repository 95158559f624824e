"""What a writer notes in its entries (``storage/entry_notes.py``): whose they are, and what became of earlier ones."""

from __future__ import annotations

import json
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from txn_source.model.entry import NewEntry
from txn_source.model.kinds import ABORTED, COMMITTED
from txn_source.model.position import Position
from txn_source.storage.entry_notes import NOTE_VERSION

NO_TXN = -1
_MOST_OPEN = 4096
"""So many transactions are kept in mind whose end nobody has told."""
_KEPT_RECEIPTS = 20_000
"""So many receipts wait for an entry to carry them."""


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
        self._by: dict[str, Any] = {"name": name, "epoch": epoch}
        if transactional_id is not None:
            self._by["transactional_id"] = transactional_id
        self._clock = clock
        self._known: set[str] = set()
        """Open files, which take their receipts themselves."""
        self._receipts: dict[str, list[list[int]]] = {}
        self._refused: dict[str, list[int]] = {}
        self._open: OrderedDict[int, set[str]] = OrderedDict()
        """Transactions, with the segments that have entries of them."""
        self._endings: dict[str, list[list[int]]] = {}
        """By segment that has entries of the transaction."""
        self._just_ended: deque[list[int]] = deque()

    def opened(self, segment: str) -> None:
        """Take notice of a file that will have more than one write."""
        self._known.add(segment)

    def of_entry(self, segment: str, partition_id: int, sequence: int, txn: int | None, *, first: bool) -> bytes:
        """Return the note of an entry that is going to be written."""
        of_txn = "" if txn is None else f',"t":{txn}'
        by = f',"by":{json.dumps(self._by)}' if first else ""
        at = int(self._clock() * 1e6)
        told = self._waiting_for(segment)
        return f'{self._start},"p":{partition_id},"s":{sequence}{of_txn},"at":{at}{by}{told}}}'.encode()

    def of_end(self, segment: str) -> bytes | None:
        """Return what is to be noted behind a file's last entry; None if nothing is."""
        told = self._waiting_for(segment)
        return f"{self._start}{told}}}".encode() if told else None

    def told(self, segment: str) -> None:
        """Drop what the last note of a segment had: it is written."""
        of_segments: tuple[dict[str, Any], ...] = (self._receipts, self._refused, self._endings)
        for waiting in of_segments:
            for other in [of for of in waiting if of == segment or of not in self._known]:
                del waiting[other]

    def closed(self, segment: str) -> None:
        """Take notice that a file takes no more entries; what is left to be told goes elsewhere."""
        self._known.discard(segment)

    def registered(
        self, entries: Iterable[NewEntry], positions: Sequence[Position], time_us: int, txn: int | None
    ) -> None:
        """Take notice of what the service has answered."""
        for entry, position in zip(entries, positions, strict=False):
            row = [entry.partition_id, entry.offset, entry.length, entry.crc32c, entry.base_sequence, entry.messages]
            row += position.key, time_us, NO_TXN if txn is None else txn
            self._receipts.setdefault(entry.segment, []).append(row)
            if txn is not None:
                self._open.setdefault(txn, set()).add(entry.segment)
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        if len(self._receipts) > _KEPT_RECEIPTS:
            del self._receipts[next(iter(self._receipts))]

    def refused(self, entries: Iterable[NewEntry]) -> None:
        """Take notice of entries that were written, and never will be registered."""
        for entry in entries:
            self._refused.setdefault(entry.segment, []).append(entry.offset)

    def ended(self, txn: int, *, committed: bool) -> None:
        """Take notice of the end of a transaction. Thread-safe."""
        self._just_ended.append([txn, COMMITTED if committed else ABORTED])

    def waiting(self) -> list[str]:
        """Return closed segments of which something is to be told."""
        self._sort_endings()
        of = {*self._receipts, *self._refused, *self._endings}
        return sorted(segment for segment in of if segment not in self._known)

    def _waiting_for(self, segment: str) -> str:
        """Return the fields of a note with what waits for its segment, and what has no open one."""
        self._sort_endings()
        told = ""
        for name, waiting in (("r", self._receipts), ("x", self._refused)):
            # Paths are plain, and lists of numbers print as JSON.
            rows = [
                f'"{"" if of == segment else of}":{some}' for of, some in waiting.items() if self._is_for(of, segment)
            ]
            if rows:
                told += f',"{name}":{{{",".join(rows)}}}'
        if ends := [end for of, some in self._endings.items() if self._is_for(of, segment) for end in some]:
            told += f',"e":{ends}'
        return told

    def _is_for(self, of: str, segment: str) -> bool:
        return of == segment or of not in self._known

    def _sort_endings(self) -> None:
        """Put what has ended to the segments that have entries of it."""
        while self._just_ended:
            end = self._just_ended.popleft()
            for segment in self._open.pop(end[0], ()):
                self._endings.setdefault(segment, []).append(end)
