"""What a topic's segments say: their entries, and the receipts, endings and refusals in their notes.

A receipt is kept as a row of integers, however many there are; as a value only what has none.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from txn_source.model.errors import UnavailableError
from txn_source.model.kinds import ABORTED, COMMITTED
from txn_source.model.roots import ONLY_MAIN
from txn_source.storage.apart_notes import read_apart
from txn_source.storage.batch_notes import parts_of
from txn_source.storage.entry_notes import parse_note
from txn_source.storage.message_walk import Damage, Data, FoundMessage, walk
from txn_source.storage.object_root import Root
from txn_source.storage.object_store import reason
from txn_source.storage.segment import SegmentName
from txn_source.storage.segment_store import MAGIC, has_own_schemas, segments_at
from txn_source.upkeep.reading_ahead import read_ahead

NO_TXN = -1
NO_SEGMENT = -1
IntArray = npt.NDArray[np.int64]
COLUMNS = (
    "partition_id", "offset", "length", "crc32c", "base_sequence", "messages", "position", "time_us", "txn",
    "segment", "producer_id",
)  # fmt: skip
"""Of a receipt, those of its note first. ``segment`` is its number among the scanned ones, or ``NO_SEGMENT``."""


@dataclass(frozen=True)
class SegmentCopy:
    """A segment, in one of the roots that have it; ``roots`` is the set of all that have as much of it."""

    path: str
    size: int
    root: Root
    roots: int = ONLY_MAIN


@dataclass(slots=True)
class LeftEntry:
    """An entry without receipt. ``partition_id`` 0: it says nothing of itself."""

    segment: int
    offset: int
    length: int
    messages: int
    producer_id: int
    partition_id: int = 0
    base_sequence: int = 0
    txn: int = NO_TXN
    in_txn: bool = False
    of_job: bool = False
    at_us: int = 0
    crc32c: int = 0


@dataclass(slots=True)
class ScannedProducer:
    """Who wrote: as its own notes say, if there are any that do."""

    name: str
    epoch: int = 0
    transactional_id: str | None = None


@dataclass(slots=True)
class ScannedSegments:
    """All that was found in the segments of one topic."""

    paths: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    """The sets of roots that have each of them."""
    left: dict[tuple[int, int], LeftEntry] = field(default_factory=dict)
    """By segment and offset."""
    endings: dict[int, int] = field(default_factory=dict)
    """COMMITTED or ABORTED by transaction."""
    producers: dict[int, ScannedProducer] = field(default_factory=dict)
    partitions: dict[int, int] = field(default_factory=dict)
    """Indexes by id, as far as paths tell."""
    damaged: list[tuple[str, int, int]] = field(default_factory=list)
    """Path, and the bytes that are no message."""
    unnoted: list[str] = field(default_factory=list)
    """Segments of older releases, whose entries say nothing of themselves."""
    misplaced: list[str] = field(default_factory=list)
    """Segments whose first note is of another producer than their name: each has the bytes of another file."""
    entries: int = 0
    batches: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """What notes say of whole batches of jobs and imports: parts, each with its topic."""
    told: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Parts of this topic, each with its producer, that say which batch it was."""
    _numbers: dict[str, int] = field(default_factory=dict)
    _rows: array[int] = field(default_factory=lambda: array("q"))
    _elsewhere: list[tuple[str, int]] = field(default_factory=list)

    def receipts(self) -> IntArray:
        """Return the receipts, a row each with ``COLUMNS``; ``segment`` ``NO_SEGMENT``: it isn't there any more."""
        return np.frombuffer(self._rows, np.int64).reshape(-1, len(COLUMNS)) if self._rows else _NONE

    def release(self) -> None:
        """Let go of the receipts: they have their places."""
        self._rows = array("q")

    def begin(self, path: str, size: int) -> int:
        """Number a segment that is there."""
        self.paths.append(path)
        self.sizes.append(size)
        self._numbers[path] = len(self.paths) - 1
        return len(self.paths) - 1

    def take(self, path: str, number: int, producer_id: int, note: dict[str, Any], seen: dict[int, LeftEntry]) -> None:
        """Take what a note says of other entries; ``seen`` are those of the same segment that have no receipt yet."""
        if "by" in note:
            by = note["by"]
            of = ScannedProducer(str(by["name"]), int(by["epoch"]), by.get("transactional_id"))
            self.producers[producer_id] = of
        for other, rows in note.get("r", {}).items():
            mine = not other or other == path
            for row in rows:
                offset, length = row[_OFFSET], row[_OFFSET + 1]
                if mine:
                    if seen.pop(offset, None) is None and offset + length > self.sizes[number]:
                        continue  # a row that tells of bytes that aren't there
                    self._rows.extend((*row, number, producer_id))
                else:
                    self._elsewhere.append((other, len(self._rows)))
                    self._rows.extend((*row, NO_SEGMENT, producer_id))
        for other, offsets in note.get("x", {}).items():
            for offset in offsets:
                if not other or other == path:
                    seen.pop(offset, None)
                else:
                    self._elsewhere.append((other, -1 - offset))
        for txn, state in note.get("e", ()):
            if state in (COMMITTED, ABORTED):
                self.endings[int(txn)] = int(state)

    def take_part(self, part: dict[str, Any]) -> None:
        """Take what a note says of this topic's part of a batch."""
        self._take_elsewhere(part)
        if any(name in part for name in "qai"):
            self.told.append((part["w"], {name: part[name] for name in "qai" if name in part}))

    def take_apart(self, note: dict[str, Any]) -> None:
        """Take what a note says that lies apart from what it tells of."""
        if "b" in note:
            self.batches += parts_of(note)
        elif "w" in note:
            self._take_elsewhere(note)

    def settle(self) -> None:
        """Bring together what a segment says of another one, once all are read."""
        for path, at in self._elsewhere:
            number = self._numbers.get(path)
            if number is None:
                continue
            if at < 0:
                self.left.pop((number, -1 - at), None)
                continue
            if self._rows[at + _OFFSET] + self._rows[at + _OFFSET + 1] > self.sizes[number]:
                continue
            self._rows[at + _SEGMENT] = number
            self.left.pop((number, self._rows[at + _OFFSET]), None)
        self._elsewhere = []

    def _take_elsewhere(self, note: dict[str, Any]) -> None:
        """Take what a note says that lies in none of the segments that it tells of."""
        named = {name: {path: of for path, of in note.get(name, {}).items() if path} for name in "rx"}
        self.take("", NO_SEGMENT, note["w"], {**note, **named}, {})


_SEGMENT, _OFFSET = COLUMNS.index("segment"), COLUMNS.index("offset")
_NONE: IntArray = np.zeros((0, len(COLUMNS)), np.int64)


def scan_segments(
    segments: Iterable[SegmentCopy], root: Root, notes: Iterable[str], told: Callable[[str], object]
) -> ScannedSegments:
    """Read segments of a topic, and the notes of it that lie apart in the log's own root; ``settle`` completes it.

    Raises:
        UnavailableError: one can't be read.
    """
    found = ScannedSegments()
    copies = sorted(segments, key=lambda each: each.path)
    is_remote = any(not isinstance(copy.root, Path) for copy in copies)
    opened = read_ahead(copies, _fetched, is_remote=is_remote, size=lambda copy: copy.size)
    with _readable():
        for copy, fetched in opened:
            name = SegmentName.parse(copy.path)
            assert name is not None
            with fetched as data:
                _scan(found, copy.path, name, data)
            found.roots.append(copy.roots)
        is_remote = not isinstance(root, Path)
        for path, note in read_ahead(sorted(notes), partial(_note_at, root), is_remote=is_remote):
            if note is None:
                told(f"{path} is left out: it isn't a note.")
            else:
                found.take_apart(note)
    return found


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"The log's files can't be read: {reason(error)}.", "Mend that, and rebuild again; nothing was changed."
        ) from error


def _note_at(root: Root, path: str) -> dict[str, Any] | None:
    try:
        return read_apart(root, path).note
    except ValueError:
        return None


def _fetched(copy: SegmentCopy) -> AbstractContextManager[Data]:
    """Return a segment's bytes: of a store they are read now, of a folder when they are looked at."""
    if isinstance(copy.root, Path):
        return _mapped(copy.root / copy.path, copy.size)
    return nullcontext(segments_at(copy.root).read(copy.path, 0, copy.size) if copy.size else b"")


@contextmanager
def _mapped(file_path: Path, size: int) -> Iterator[Data]:
    if not size:
        yield b""
        return
    with open(file_path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield view
        finally:
            view.release()


def _scan(found: ScannedSegments, path: str, name: SegmentName, data: Data) -> None:
    number = found.begin(path, len(data))
    shared = has_own_schemas(path)
    header: FoundMessage | None = None
    seed = 0
    seen: dict[int, LeftEntry] = {}
    noted = False
    for message in walk(data, len(MAGIC) if shared else 0):
        if isinstance(message, Damage):
            found.damaged.append((path, message.start, message.end))
            continue
        if message.is_schema:
            header = message
            seed = 0 if shared else crc32c(data[message.start : message.end])
            continue
        note = None if message.note is None else parse_note(message.note)
        if message.rows and note is not None and note.get("w", name.producer_id) != name.producer_id:
            found.misplaced.append(path)
            return
        noted = noted or note is not None
        start = header.start if shared and header is not None else message.start
        if message.rows:
            found.entries += 1
            entry = LeftEntry(number, start, message.end - start, message.rows, name.producer_id)
            seen[start] = entry
            if note is not None and "p" in note:
                entry.partition_id, entry.base_sequence = note["p"], note["s"]
                entry.in_txn, entry.txn, entry.at_us = "t" in note, note.get("t", NO_TXN), note["at"]
                entry.of_job = "j" in note
                if name.partition is not None:
                    found.partitions[note["p"]] = name.partition
        if note is not None and "b" in note:
            found.batches += parts_of(note)
        if note is not None:
            found.take(path, number, note.get("w", name.producer_id), note, seen)
    if seen and not noted:
        found.unnoted.append(path)
    for start, entry in seen.items():
        entry.crc32c = crc32c(data[start : start + entry.length], seed)
        found.left[number, start] = entry
