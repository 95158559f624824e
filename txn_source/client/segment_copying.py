"""Making copies of segments: their bytes are checked entry by entry, and only sound ones are written.

If no root has a segment that is sound as a whole, it is put together of what is sound in several: each entry has a
checksum of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from txn_source.client.hot_roots import Place
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.roots import HotSegment, SegmentRoots
from txn_source.model.errors import SegmentUnreadableError, TxnLogError
from txn_source.model.position import Position
from txn_source.model.topic_name import TopicName
from txn_source.model.values import dataclass
from txn_source.storage import root_health
from txn_source.storage.arrays import numbers_in
from txn_source.storage.segment_store import has_own_schemas
from txn_source.storage.store_errors import StoreError

COPY_S = 300.0
"""How long reading or writing a whole segment may take."""


@dataclass(frozen=True, slots=True)
class Sound:
    """The checked bytes of a segment up to its end, and the sets of the roots that had them all (``whole``), and that
    are known to lack some (``damaged``)."""

    data: bytes
    whole: int
    damaged: int


def read_sound(stub: MetadataStub, topic: TopicName, segment: HotSegment, sources: Sequence[Place]) -> Sound:
    """Return the bytes of a segment, every entry of which was checked; all sources are looked at until one is sound.

    Raises:
        SegmentUnreadableError: an entry is sound in none of them.
    """
    entries = stub.list_segment_entries(topic, segment.path)
    checks = _Checks(entries, segment)
    found: dict[int, bytes] = {}
    damaged, reasons = 0, []
    for place in sources:
        try:
            place.check()
            data = root_health.bounded(lambda at=place: at.segments.read(segment.path, 0, checks.end), COPY_S)  # type: ignore[misc]
        except OSError as error:
            reasons.append(f"{place.name}: {error}")
            if _is_there(place) and not _is_passing(error):
                damaged |= place.bit
            continue
        if checks.are_sound(data):
            return Sound(data, place.bit, damaged)
        damaged |= place.bit
        reasons.append(f"{place.name}: its checksums differ")
        found[place.bit] = data
    together = checks.put_together(list(found.values()))
    if together is None:
        raise SegmentUnreadableError(
            f"Segment {segment.path} of topic {topic.short!r} has no sound copy of all its entries"
            f" (the first that is lost is {checks.first_lost}). {'; '.join(reasons)}.",
            "Restore a copy from a backup; the other entries can still be read.",
        )
    return Sound(together, 0, damaged)


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
                root_health.bounded(lambda at=place: at.segments.put(segment.path, sound.data), COPY_S)  # type: ignore[misc]
            except (OSError, TxnLogError) as error:
                place.failed(error)
            else:
                place.works()
                added |= place.bit
    return SegmentRoots(segment.path, added, sound.damaged & ~added, len(sound.data))


class _Checks:
    """What a segment's entries must be."""

    def __init__(self, entries: pa.Table, segment: HotSegment) -> None:
        self._positions = numbers_in(entries["position"])
        self._starts = numbers_in(entries["offset"])
        self._ends = self._starts + numbers_in(entries["length"])
        self._checksums = numbers_in(entries["crc32c"])
        self._own_schemas = has_own_schemas(segment.path)
        self.end = int(self._ends.max()) if len(self._ends) else 0
        self.first_lost: Position | None = None

    def are_sound(self, data: bytes) -> bool:
        """True if all entries are what was written."""
        return bool(self._sound(data, self._seed(data)).all())

    def put_together(self, copies: Sequence[bytes]) -> bytes | None:
        """Return a segment of what is sound in several copies; None if an entry is sound in none."""
        for header in copies:
            seed = self._seed(header)
            sound = [self._sound(data, seed) for data in copies]
            made = bytearray(header)
            missing = ~np.logical_or.reduce(sound)
            if missing.any():
                self.first_lost = Position.from_key(int(self._positions[np.argmax(missing)]))
                continue
            for data, good in zip(copies, sound, strict=True):
                for at in np.flatnonzero(good).tolist():
                    made[self._starts[at] : self._ends[at]] = data[self._starts[at] : self._ends[at]]
            return bytes(made)
        return None

    def _seed(self, data: bytes) -> int:
        """Return the checksum of the schema message that a file begins with."""
        return 0 if self._own_schemas or not len(self._starts) else crc32c(data[: int(self._starts.min())])

    def _sound(self, data: bytes, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        view = memoryview(data)
        found = [crc32c(view[a:b], seed) for a, b in zip(self._starts.tolist(), self._ends.tolist(), strict=True)]
        sound: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.array(found, np.int64) == self._checksums
        return sound


def _is_there(place: Place) -> bool:
    try:
        root_health.bounded(place.check, root_health.READ_S)
    except OSError:
        return False
    return True


def _is_passing(error: OSError) -> bool:
    from txn_source.storage.object_store import is_passing

    return (isinstance(error, StoreError) and error.unreachable) or is_passing(error)
