"""Making copies of segments: their bytes are checked entry by entry, and only sound ones are written.

If no root has a segment that is sound as a whole, it is put together of what is sound in several: each entry has a
checksum of its own. Segments are read and written in windows, since one may be as long as a ledger: once to see what is
sound, and once more for each copy that is written, with the checksums compared again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from txn_source.client.hot_roots import Place
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.roots import HotSegment, SegmentRoots
from txn_source.model.errors import SegmentUnreadableError, TxnLogError
from txn_source.model.position import Position
from txn_source.model.topic_name import TopicName
from txn_source.storage import root_health
from txn_source.storage.arrays import numbers_in
from txn_source.storage.segment_store import has_own_schemas
from txn_source.storage.store_errors import StoreError

COPY_S = 300.0
"""How long reading or writing a whole segment may take."""
_WINDOW_BYTES = 16 << 20
"""So much of a segment is in memory at once, or one entry if that is longer."""
_LENGTH_START, _LENGTH_END = 4, 8
"""The bytes of an Arrow message that hold the length of its metadata, which follows them."""
_GAP_BYTES = 64 << 10
"""Two entries are read in one request if the gap between them isn't longer."""
_BoolArray = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class Sound:
    """A segment of which every entry is sound somewhere: its length, and the sets of the roots that have it all
    (``whole``), and that are known to lack some (``damaged``).

    ``windows`` yields its bytes, which are read and checked then; SegmentUnreadableError if they have changed.
    """

    end: int
    whole: int
    damaged: int
    windows: Callable[[], Iterator[bytes]]


def read_sound(stub: MetadataStub, topic: TopicName, segment: HotSegment, sources: Sequence[Place]) -> Sound:
    """Find the bytes of a segment, every entry of which was checked; all sources are looked at until one is sound.

    Raises:
        SegmentUnreadableError: an entry is sound in none of them.
    """
    entries = stub.list_segment_entries(topic, segment.path)
    checks = _Checks(entries, segment)
    copies: list[_Copy] = []
    damaged, reasons = 0, []
    for place in sources:
        copy = _Copy(place, segment.path, checks)
        try:
            place.check()
            copy.look()
        except OSError as error:
            reasons.append(f"{place.name}: {error}")
            if _is_there(place) and not _is_passing(error):
                damaged |= place.bit
            continue
        if copy.sound.all():
            return Sound(checks.end, place.bit, damaged, partial(checks.windows_of, [copy], copy.header))
        damaged |= place.bit
        reasons.append(f"{place.name}: its checksums differ")
        copies.append(copy)
    header = checks.header_for_all(copies)
    if header is None:
        raise SegmentUnreadableError(
            f"Segment {segment.path} of topic {topic.short!r} has no sound copy of all its entries"
            f" (the first that is lost is {checks.first_lost}). {'; '.join(reasons)}.",
            "Restore a copy from a backup; the other entries can still be read.",
        )
    return Sound(checks.end, 0, damaged, partial(checks.windows_of, copies, header))


def unsound(
    stub: MetadataStub,
    topic: TopicName,
    segment: HotSegment,
    place: Place,
    chosen: Callable[[int], Sequence[int]] | None = None,
    read: Callable[[int], object] = lambda _: None,
) -> list[int]:
    """Return the positions (``Position.key``) of those of a segment's entries that aren't in a root as they were
    written.

    Args:
        stub: the service.
        topic: the segment's.
        segment: which.
        place: the root.
        chosen: picks the entries that are read, by their numbers from 0 in the order of their bytes, the first one
            among them; it is told how many there are. None: all.
        read: is told of each read, before it, how many bytes it is.

    Raises:
        OSError: it can't be read.
    """
    entries = stub.list_segment_entries(topic, segment.path)
    if chosen is not None and entries.num_rows:
        entries = entries.take(pa.array(chosen(entries.num_rows)))
    checks = _Checks(entries, segment)
    copy = _Copy(place, segment.path, checks, read)
    copy.look()
    return list(checks.positions[~copy.sound].tolist())


def copy_segment(stub: MetadataStub, topic: TopicName, segment: HotSegment, places: Sequence[Place]) -> SegmentRoots:
    """Write a segment into those of the wanted roots that lack it, and return what changed.

    ``places`` are the roots that can be reached; of the others nothing is said.

    Raises:
        SegmentUnreadableError: an entry is sound nowhere.
    """
    sound = read_sound(stub, topic, segment, [place for place in places if place.bit & segment.roots])
    lacking = (segment.wanted & ~segment.roots) | sound.damaged
    added = sound.whole & ~segment.roots
    for place in places:
        if place.bit & lacking and place.bit & (segment.wanted | sound.damaged):
            try:
                place.check()
                put = partial(place.segments.put_all, segment.path, sound.end, sound.windows())
                root_health.bounded(put, COPY_S)
            except (OSError, TxnLogError) as error:
                place.failed(error)
            else:
                place.works()
                added |= place.bit
    return SegmentRoots(segment.path, added, sound.damaged & ~added, sound.end)


class _Checks:
    """What a segment's entries must be. Entries are those from one index to another, in the order of their bytes."""

    def __init__(self, entries: pa.Table, segment: HotSegment) -> None:
        self.path = segment.path
        self.positions = numbers_in(entries["position"])
        self.starts = numbers_in(entries["offset"])
        self.ends = self.starts + numbers_in(entries["length"])
        self._checksums = numbers_in(entries["crc32c"])
        self.end = int(self.ends.max()) if len(self.ends) else 0
        self._own_schemas = has_own_schemas(segment.path)
        self.first_byte = int(self.starts.min()) if len(self.starts) else 0
        """The offset of the first registered entry, at or behind the end of the schema message."""
        self.first_lost: Position | None = None

    @property
    def windows(self) -> Iterator[tuple[int, int, int, int]]:
        """The segment in windows: the first and the last byte (exclusive), the first and the last entry (exclusive)."""
        first, at, count = 0, 0, len(self.starts)
        gaps = [*(np.flatnonzero(self.starts[1:] - self.ends[:-1] > _GAP_BYTES) + 1).tolist(), count]
        while first < count:
            fit = int(np.searchsorted(self.ends, at + _WINDOW_BYTES, "right"))
            gap = next(at for at in gaps if at > first)
            last = min(max(fit, first + 1), gap)
            until = int(self.starts[last]) if last < count else self.end
            yield at, until, first, last
            first, at = last, until

    def seed(self, header: bytes) -> int:
        """Return the checksum that those of all entries go on from."""
        return 0 if self._own_schemas else crc32c(header)

    def sound(self, data: bytes, at: int, first: int, last: int, seed: int) -> _BoolArray:
        """Tell which entries are what was written, of bytes that begin at an offset."""
        view, checksums = memoryview(data), self._checksums[first:last]
        of = zip((self.starts[first:last] - at).tolist(), (self.ends[first:last] - at).tolist(), strict=True)
        found: _BoolArray = np.array([crc32c(view[a:b], seed) for a, b in of], np.int64) == checksums
        return found

    def header_for_all(self, copies: Sequence[_Copy]) -> bytes | None:
        """Return the header with which each entry is sound in one of some copies; None if there is none."""
        for header in dict.fromkeys(copy.header for copy in copies):
            for copy in copies:
                copy.look_with(header)
            missing = ~np.logical_or.reduce([copy.sound for copy in copies])
            if not missing.any():
                return header
            self.first_lost = Position.from_key(int(self.positions[np.argmax(missing)]))
        return None

    def windows_of(self, copies: Sequence[_Copy], header: bytes) -> Iterator[bytes]:
        """Yield a segment's bytes, each entry from the first copy in which it is sound; bytes of none are zero."""
        seed = self.seed(header)
        choice = np.argmax(np.array([copy.sound for copy in copies]), axis=0)
        for at, until, first, last in self.windows:
            made = bytearray(until - at)
            made[: max(0, len(header) - at)] = header[at:]
            runs = np.flatnonzero(np.diff(choice[first:last])) + first + 1
            edges = [first, *runs.tolist(), last]
            for a, b in pairwise(edges):
                low, high = int(self.starts[a]), int(self.ends[b - 1])
                data = copies[int(choice[a])].read(low, high)
                if not self.sound(data, low, a, b, seed).all():
                    raise SegmentUnreadableError(
                        f"Segment {self.path} has changed while it was copied.", "Let the repair run again."
                    )
                made[low - at : high - at] = data
            yield bytes(made)


class _Copy:
    """The segment in one root: the header that it has there, and which entries are sound with it."""

    def __init__(
        self, place: Place, path: str, checks: _Checks, told: Callable[[int], object] = lambda _: None
    ) -> None:
        self._place, self._path, self._checks, self._told = place, path, checks, told
        self.header = self._looked_with = b""
        self.sound: _BoolArray = np.zeros(0, np.bool_)

    def read(self, start: int, end: int) -> bytes:
        """Return a run of its bytes, unchecked. Raises OSError."""
        return root_health.bounded(lambda: self._place.segments.read(self._path, start, end), COPY_S)

    def look(self) -> None:
        """Find out which entries are sound with its own header. Raises OSError."""
        if (first := self._checks.first_byte) >= _LENGTH_END:
            length = int.from_bytes(self.read(_LENGTH_START, _LENGTH_END), "little") + _LENGTH_END
            self.header = self.read(0, min(length, first))
        self._look(self.header)

    def look_with(self, header: bytes) -> None:
        """Find out which entries are sound with a header; none if it can't be read any more."""
        try:
            if header != self._looked_with:
                self._look(header)
        except OSError:
            self.sound = np.zeros_like(self.sound)

    def _look(self, header: bytes) -> None:
        seed, parts = self._checks.seed(header), [np.zeros(0, np.bool_)]
        for _, _, first, last in self._checks.windows:
            start, end = int(self._checks.starts[first]), int(self._checks.ends[last - 1])
            self._told(end - start)
            parts.append(self._checks.sound(self.read(start, end), start, first, last, seed))
        self.sound, self._looked_with = np.concatenate(parts), header


def _is_there(place: Place) -> bool:
    try:
        root_health.bounded(place.check, root_health.READ_S)
    except OSError:
        return False
    return True


def _is_passing(error: OSError) -> bool:
    from txn_source.storage.object_store import is_passing

    return (isinstance(error, StoreError) and error.unreachable) or is_passing(error)
