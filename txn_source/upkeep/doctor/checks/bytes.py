"""The checksums of entries in hot segments: all of them, or of each segment its first, its last and one between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import pairwise

import numpy as np
from crc32c import crc32c

from txn_source.client.hot_roots import Place
from txn_source.client.ledgers import ledgers_of
from txn_source.metadata.stub.metadata_stub import EntryPage
from txn_source.model.errors import TopicNotFoundError
from txn_source.model.ledger import Ledger
from txn_source.model.position import Position, PositionRange
from txn_source.model.roots import ONLY_MAIN
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName
from txn_source.model.values import dataclass
from txn_source.storage.arrays import numbers_in
from txn_source.storage.object_root import located
from txn_source.storage.object_store import is_passing, is_refused, reason
from txn_source.storage.segment_store import has_own_schemas
from txn_source.upkeep.doctor.codes import Severity
from txn_source.upkeep.doctor.extent import Ledgers, extent, extent_of
from txn_source.upkeep.doctor.findings import Finding, finding
from txn_source.upkeep.doctor.subject import Checksums, Subject
from txn_source.upkeep.reading_ahead import read_ahead

_WINDOW_BYTES = 4 << 20
_MAX_HEADER_BYTES = 16 << 20
_GAP_BYTES = 64 << 10


def check_bytes(subject: Subject) -> Iterator[Finding]:
    """Read entries of all ledgers with a hot copy, from every root that has them, and compare their checksums."""
    if subject.checksums is Checksums.NONE:
        return
    stub = subject.access.metadata
    names = subject.topics or stub.list_topics()
    for name in names:
        with suppress(TopicNotFoundError):  # deleted since it was listed
            yield from _Topic(subject, name).check()


@dataclass
class _Damage:
    """Entries of a segment in a root that aren't what was written, and why the first one isn't."""

    why: str
    positions: list[int] = field(default_factory=list)
    end: int = 0
    """Where the last of them ends in the file."""
    refused: OSError | None = None
    """Why this user may not read them, so that nothing is known of them."""


@dataclass(frozen=True, slots=True)
class _Window:
    """Entries of a segment in a root, by ascending offset: their positions, first and last (exclusive) bytes, and
    checksums."""

    place: Place
    path: str
    positions: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]
    wanted: Sequence[int]

    @property
    def size(self) -> int:
        """How many bytes lie between the first entry's beginning and the last one's end."""
        return self.ends[-1] - self.starts[0]

    def parted(self) -> Iterator[_Window]:
        """Yield them as windows that are read at once: of those that lie close together, and aren't too large."""
        starts, ends, first = self.starts, self.ends, 0
        for at in range(1, len(starts)):
            if ends[at] - starts[first] > _WINDOW_BYTES or starts[at] - ends[at - 1] > _GAP_BYTES:
                yield self._some(first, at)
                first = at
        yield self._some(first, len(starts))

    def entries(self) -> list[_Window]:
        """Return each entry by itself."""
        return [self._some(at, at + 1) for at in range(len(self.starts))]

    def _some(self, first: int, end: int) -> _Window:
        of = slice(first, end)
        return _Window(self.place, self.path, self.positions[of], self.starts[of], self.ends[of], self.wanted[of])


class _Topic:
    def __init__(self, subject: Subject, topic: TopicName) -> None:
        self._subject = subject
        self._topic = topic
        self._stub = subject.access.metadata
        self._places = {place.bit: place for place in subject.places}
        self._damage: dict[tuple[str, int], _Damage] = {}
        self._roots: dict[str, int] = {}
        self._seeds: dict[tuple[str, int], int] = {}
        self._is_remote = any(place.segments.is_remote for place in subject.places)
        self._buffer = bytearray(_WINDOW_BYTES)

    def check(self) -> Iterator[Finding]:
        ranges = [
            (view, ledger) for view in self._partitions() for ledger in ledgers_of(self._stub, view) if ledger.hot
        ]
        of_all = self._subject.checksums is Checksums.ALL
        total = sum(ledger.bytes for _, ledger in ranges) * max(1, len(self._places)) if of_all else None
        self._subject.watch.begin(f"bytes of {self._topic.short}", "bytes", total)
        self._read(page for view, ledger in ranges for page in self._pages(view, ledger))
        yield from self._findings()

    def _partitions(self) -> Sequence[PartitionView]:
        [view] = self._stub.get_view([self._topic]).topics
        return view.partitions

    def _pages(self, view: PartitionView, ledger: Ledger) -> Iterator[EntryPage]:
        end = min(ledger.end, view.bounds.log_end)
        return self._stub.list_entries(view.partition_id, PositionRange(Position(ledger.ledger_id, 0), end))

    def _read(self, pages: Iterable[EntryPage]) -> None:
        """Read and check the entries of pages."""
        windows = (window for page in pages for window in self._windows(page))
        read = read_ahead(windows, self._bytes_of, is_remote=self._is_remote, size=lambda window: window.size)
        for window, found in read:
            self._check(window, found)

    def _windows(self, page: EntryPage) -> Iterator[_Window]:
        """Yield what is to be read of a page's entries, each as soon as the pace allows it."""
        columns = {name: numbers_in(page.entries[name]) for name in page.entries.column_names}
        ids, offsets = columns["segment_id"], columns["offset"]
        order = np.lexsort((offsets, ids))
        edges = [0, *(np.flatnonzero(np.diff(ids[order])) + 1).tolist(), len(order)]
        for first, last in pairwise(edges):
            mine = order[first:last]
            if not len(mine):
                continue
            segment_id = int(ids[mine[0]])
            if self._subject.checksums is Checksums.SAMPLE:
                mine = mine[sorted({0, len(mine) - 1, self._subject.chance.randrange(len(mine))})]
            path, roots = page.segments[segment_id], page.roots.get(segment_id, ONLY_MAIN)
            self._roots[path] = roots
            entries = (
                columns["position"][mine].tolist(),
                offsets[mine].tolist(),
                (offsets[mine] + columns["length"][mine]).tolist(),
                columns["crc32c"][mine].tolist(),
            )
            for bit, place in self._places.items():
                if bit & roots:
                    for window in _Window(place, path, *entries).parted():
                        self._subject.pace.take(window.size)
                        yield window

    def _bytes_of(self, window: _Window) -> tuple[int, memoryview] | OSError:
        """Return the checksum that those of a window's entries begin with, and the window's bytes, until the next one
        is read; or why they can't be read. Windows of stores are read by several threads."""
        if not self._is_remote and window.size > len(self._buffer):
            self._buffer = bytearray(window.size)
        view = memoryview(bytearray(window.size) if self._is_remote else self._buffer)[: window.size]
        try:
            seed = self._seed(window.place, window.path)
            window.place.segments.fill(window.path, window.starts[0], view)
        except OSError as error:
            return error
        return seed, view

    def _check(self, window: _Window, found: tuple[int, memoryview] | OSError) -> None:
        if isinstance(found, OSError):
            parts = window.entries()
            if len(parts) == 1 or is_passing(found) or isinstance(found, FileNotFoundError):
                self._note(window, found)
                return
            for part in parts:  # those before the end of a short file are there
                self._check(part, self._bytes_of(part))
            return
        seed, view = found
        self._subject.watch.advance(window.size)
        base = window.starts[0]
        for at, (start, end, wanted) in enumerate(zip(window.starts, window.ends, window.wanted, strict=True)):
            checksum = crc32c(view[start - base : end - base], seed)
            if checksum != wanted:
                where = Position.from_key(window.positions[at])
                why = f"entry {where} has checksum {checksum:08x} where {wanted:08x} was written"
                self._note(window.entries()[at], why)

    def _seed(self, place: Place, path: str) -> int:
        """Return the checksum of the schema message that a file begins with."""
        if has_own_schemas(path):
            return 0
        key = path, place.bit
        if key not in self._seeds:
            head = bytearray(8)
            place.segments.fill(path, 0, memoryview(head))
            length = min(int.from_bytes(head[4:8], "little") + 8, _MAX_HEADER_BYTES)
            header = bytearray(length)
            place.segments.fill(path, 0, memoryview(header))
            if len(self._seeds) > 1000:
                self._seeds.clear()
            self._seeds[key] = crc32c(header)
        return self._seeds[key]

    def _note(self, window: _Window, why: str | OSError) -> None:
        error = why if isinstance(why, OSError) else None
        if error is not None and is_passing(error):
            raise error  # of a store that may answer later nothing is known
        key = window.path, window.place.bit
        damage = self._damage.setdefault(key, _Damage(why if isinstance(why, str) else reason(why)))
        damage.refused = error if is_refused(error) else None
        damage.positions += window.positions
        damage.end = max(damage.end, *window.ends)

    def _findings(self) -> Iterator[Finding]:
        by_path: dict[str, list[int]] = defaultdict(list)
        for path, bit in self._damage:
            by_path[path].append(bit)
        ledgers: Ledgers | None = None
        for path, bits in sorted(by_path.items()):
            if not extent(self._stub, self._topic, path).entries:
                continue  # deleted meanwhile
            bits = [bit for bit in bits if self._again(path, bit)]
            if not bits:
                continue
            if self._roots[path] & ~sum(bits):
                for bit in bits:
                    yield self._copy_damaged(path, bit)
                continue
            ledgers = ledgers or Ledgers(self._stub, self._topic)
            yield self._damaged(path, bits[0], ledgers)

    def _again(self, path: str, bit: int) -> bool:
        """Look once more at a damaged entry: a file that is gone or short, or that this user may not read, is another
        finding."""
        place, refused = self._places[bit], self._damage[path, bit].refused
        if refused is not None:
            self._subject.may_not_read("segments", located(place.root, path), refused)
            return False
        try:
            size = place.segments.size(path)
        except OSError:
            return True
        return size is not None and size >= self._damage[path, bit].end

    def _copy_damaged(self, path: str, bit: int) -> Finding:
        damage, place = self._damage[path, bit], self._places[bit]
        fact = f"The copy of {path} in the root {place.name}: {damage.why}; {len(damage.positions):,} entries of it."
        return finding(
            "copy-damaged", f"topic {self._topic.short}", fact, topic=self._topic.short, path=path, root=place.name
        )

    def _damaged(self, path: str, bit: int, ledgers: Ledgers) -> Finding:
        damage = self._damage[path, bit]
        lost = extent_of(damage.positions)
        with_object = ledgers.with_object(lost)
        elsewhere = " An object has them, too." if with_object else ""
        fact = f"Segment {path}: {damage.why} (CRC-32C), of {lost} that were found.{elsewhere}"
        return finding(
            "segment-damaged",
            f"topic {self._topic.short}",
            fact,
            Severity.WARNING if with_object else None,
            topic=self._topic.short,
            path=path,
            entries=lost.entries,
            ledgers=lost.ledgers,
            ledger=lost.ledgers[0],
        )
