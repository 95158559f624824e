"""The checksums of entries in hot segments: all of them, or of each segment its first, its last and one between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
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
from txn_source.storage.arrays import numbers_in
from txn_source.storage.object_root import located
from txn_source.storage.object_store import is_passing, is_refused, reason
from txn_source.storage.segment_store import has_own_schemas
from txn_source.upkeep.doctor.codes import Severity
from txn_source.upkeep.doctor.extent import Ledgers, extent, extent_of
from txn_source.upkeep.doctor.findings import Finding, finding
from txn_source.upkeep.doctor.subject import Checksums, Subject

_WINDOW_BYTES = 4 << 20
_MAX_HEADER_BYTES = 16 << 20
_GAP_BYTES = 64 << 10
IntArray = npt.NDArray[np.int64]


def check_bytes(subject: Subject) -> Iterator[Finding]:
    """Read entries of all ledgers with a hot copy, from every root that has them, and compare their checksums."""
    if subject.checksums is Checksums.NONE:
        return
    stub = subject.access.metadata
    names = subject.topics or stub.list_topics()
    for name in names:
        with suppress(TopicNotFoundError):  # deleted since it was listed
            yield from _Topic(subject, name).check()


def is_hot_sound(subject: Subject, topic: TopicName, partition_id: int, ledger_id: int) -> bool:
    """True if each segment of a ledger's hot copy has a root in which every byte is what was written."""
    return _Topic(replace(subject, checksums=Checksums.ALL), topic).is_sound(partition_id, ledger_id)


@dataclass
class _Damage:
    """Entries of a segment in a root that aren't what was written, and why the first one isn't."""

    why: str
    positions: list[int] = field(default_factory=list)
    end: int = 0
    """Where the last of them ends in the file."""
    refused: OSError | None = None
    """Why this user may not read them, so that nothing is known of them."""


class _Topic:
    def __init__(self, subject: Subject, topic: TopicName) -> None:
        self._subject = subject
        self._topic = topic
        self._stub = subject.access.metadata
        self._places = {place.bit: place for place in subject.places}
        self._damage: dict[tuple[str, int], _Damage] = {}
        self._roots: dict[str, int] = {}
        self._seeds: dict[tuple[str, int], int] = {}
        self._buffer = bytearray(_WINDOW_BYTES)

    def check(self) -> Iterator[Finding]:
        ranges = [
            (view, ledger) for view in self._partitions() for ledger in ledgers_of(self._stub, view) if ledger.hot
        ]
        of_all = self._subject.checksums is Checksums.ALL
        total = sum(ledger.bytes for _, ledger in ranges) * max(1, len(self._places)) if of_all else None
        self._subject.watch.begin(f"bytes of {self._topic.short}", "bytes", total)
        for view, ledger in ranges:
            self._ledger(view, ledger)
        yield from self._findings()

    def is_sound(self, partition_id: int, ledger_id: int) -> bool:
        """See ``is_hot_sound``."""
        for view in self._partitions():
            for ledger in ledgers_of(self._stub, view) if view.partition_id == partition_id else ():
                if ledger.ledger_id != ledger_id or not ledger.hot:
                    continue
                if self._ledger(view, ledger) != ledger.messages:
                    return False
                damaged: dict[str, int] = defaultdict(int)
                for path, bit in self._damage:
                    damaged[path] |= bit
                near = sum(self._places)
                return all(roots & near & ~damaged[path] for path, roots in self._roots.items())
        return False

    def _partitions(self) -> Sequence[PartitionView]:
        [view] = self._stub.get_view([self._topic]).topics
        return view.partitions

    def _ledger(self, view: PartitionView, ledger: Ledger) -> int:
        """Check a ledger's entries; return how many messages they have."""
        messages = 0
        end = min(ledger.end, view.bounds.log_end)
        for page in self._stub.list_entries(view.partition_id, PositionRange(Position(ledger.ledger_id, 0), end)):
            columns = {name: numbers_in(page.entries[name]) for name in page.entries.column_names}
            self._page(page, columns)
            messages += int(columns["messages"].sum())
        return messages

    def _page(self, page: EntryPage, columns: Mapping[str, IntArray]) -> None:
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
                    self._entries(place, path, *entries)

    def _entries(
        self, place: Place, path: str, positions: list[int], starts: list[int], ends: list[int], wanted: list[int]
    ) -> None:
        """Check entries of a segment, ascending, in windows."""
        try:
            seed = self._seed(place, path)
        except OSError as error:
            self._note(place, path, positions, ends, error)
            return
        at = 0
        while at < len(starts):
            stop = at + 1
            while (
                stop < len(starts)
                and ends[stop] - starts[at] <= _WINDOW_BYTES
                and starts[stop] - ends[stop - 1] <= _GAP_BYTES
            ):
                stop += 1
            self._window(place, path, seed, positions[at:stop], starts[at:stop], ends[at:stop], wanted[at:stop])
            at = stop

    def _window(
        self,
        place: Place,
        path: str,
        seed: int,
        positions: list[int],
        starts: list[int],
        ends: list[int],
        wanted: list[int],
    ) -> None:
        base, size = starts[0], ends[-1] - starts[0]
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        self._subject.pace.take(size)
        try:
            place.segments.fill(path, base, view)
        except OSError as error:
            if len(positions) == 1:
                self._note(place, path, positions, ends, error)
                return
            for at in range(len(positions)):  # those before the end of a short file are there
                self._window(place, path, seed, *([x[at]] for x in (positions, starts, ends, wanted)))
            return
        self._subject.watch.advance(size)
        for position, start, end, checksum in zip(positions, starts, ends, wanted, strict=True):
            found = crc32c(view[start - base : end - base], seed)
            if found != checksum:
                why = f"entry {Position.from_key(position)} has checksum {found:08x} where {checksum:08x} was written"
                self._note(place, path, [position], [end], why)

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

    def _note(self, place: Place, path: str, positions: list[int], ends: list[int], why: str | OSError) -> None:
        error = why if isinstance(why, OSError) else None
        if error is not None and is_passing(error):
            raise error  # of a store that may answer later nothing is known
        damage = self._damage.setdefault((path, place.bit), _Damage(why if isinstance(why, str) else reason(why)))
        damage.refused = error if is_refused(error) else None
        damage.positions += positions
        damage.end = max(damage.end, *ends)

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
        )
