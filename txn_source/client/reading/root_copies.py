"""Reading segments that lie in several roots: from the nearest one that works, and from the next where that fails.

All of a window comes from one root, so nothing is read twice and nothing is left out. A root that hangs is given up
after a while, and asked last from then on (``storage/root_health.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from txn_source.client.access import Access
from txn_source.client.hot_roots import Place, in_order, places_in, places_of
from txn_source.model.errors import SegmentUnreadableError
from txn_source.storage import root_health
from txn_source.storage.segment_store import Rows
from txn_source.storage.store_errors import StoreError

_log = logging.getLogger(__name__)
_MOST_TOLD = 10
_told: dict[str, set[str]] = {}
"""By the place of a root, the segments of which a copy has failed there and this process has said so."""


class RootCopies:
    """Reads entries of segments from any root that has them. Thread-safe."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._places = places_of(access)

    @property
    def is_remote(self) -> bool:
        """True if one of the roots is on an object store."""
        return any(place.segments.is_remote for place in self._places)

    def read(self, path: str, roots: int, of: Sequence[list[int]]) -> Rows:
        """Read entries of a segment that a set of roots has; ``of`` are the arguments of ``EntryReader.read``.

        Raises:
            SegmentUnreadableError: no root has them; it tells of each why.
        """
        places = in_order(places_in(self._access, roots, self._places))
        failures: list[tuple[str, SegmentUnreadableError]] = []
        for place in places:
            try:
                rows = self._read(place, path, of, alone=len(places) == 1)
            except SegmentUnreadableError as error:
                failures.append((place.name, error))
                self._tell(place, path, error, last=len(failures) == len(places))
            else:
                return rows
        if len(failures) == 1:
            raise failures[0][1]
        reasons = " ".join(f"{name}: {error.fact}" for name, error in failures)
        raise SegmentUnreadableError(
            f"Segment {path} can't be read: all its copies failed. {reasons or 'No root of it is known here.'}",
            "Restore one of them; the other entries of the topic can still be read by position.",
        )

    def _read(self, place: Place, path: str, of: Sequence[list[int]], *, alone: bool) -> Rows:
        def read() -> Rows:
            reader = place.segments.open(path)
            try:
                return reader.read(*of)
            finally:
                reader.close()

        if alone:
            return read()
        try:
            rows = root_health.bounded(read, root_health.READ_S)
        except StoreError as error:
            place.failed(error)
            raise SegmentUnreadableError(
                f"Segment {path} in the root {place.name} can't be read: {error}.", "Check the root."
            ) from error
        except SegmentUnreadableError as error:
            if _is_gone(place):
                place.failed(error)
            raise
        place.works()
        return rows

    def _tell(self, place: Place, path: str, error: SegmentUnreadableError, *, last: bool) -> None:
        told = _told.setdefault(place.key, set())
        if last or path in told or len(told) >= _MOST_TOLD:
            return
        told.add(path)
        _log.warning("the copy in the root %s failed, going on with the next one: %s", place.name, error.fact)
        if len(told) == _MOST_TOLD:
            _log.warning("other copies that fail in the root %s are not told; `txnlog maintain` mends them", place.name)


def _is_gone(place: Place) -> bool:
    """True if it is not one segment that can't be read but the whole root."""
    try:
        root_health.bounded(place.check, root_health.READ_S)
    except OSError:
        return True
    return False
