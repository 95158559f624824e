"""Objects that have entries of several partitions that one read takes: each is asked for once, for all of them.

The partitions are read in step (``slice_reader.py``), so what one of them brings along is soon wanted by the others,
and is let go of when the last has it. What comes too late, or is too much to keep, is asked for by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.model.errors import SegmentUnreadableError
from txn_source.process.calls import begun
from txn_source.storage.segment_store import ObjectSegments, Rows, WholeReader

_MOST_BYTES = 96 << 20
"""So much is kept for other partitions at most."""
_MOST_AT_ONCE = 16 << 20
IntArray = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Wanted:
    """What is known to be wanted of an object: the first byte, the end, and how many bytes of these are left."""

    first: int
    end: int
    left: int
    window: Callable[[], pa.Buffer] | None = None
    """What waits for them, once they were asked for."""


class SharedObjects:
    """The objects of one read. Used by one thread."""

    def __init__(self, segments: ObjectSegments) -> None:
        self._segments = segments
        self._wanted: dict[str, _Wanted] = {}
        self._kept = 0

    def announce(self, columns: Mapping[str, IntArray], paths: Mapping[int, str]) -> None:
        """Take notice of entries that will be read soon."""
        ids, lengths = columns["segment_id"], columns["length"]
        ends = columns["offset"] + lengths
        order = np.argsort(ids, kind="stable")
        starts = np.flatnonzero(np.diff(ids[order], prepend=-1))
        if not len(starts):
            return
        of_each = zip(
            ids[order][starts].tolist(),
            np.minimum.reduceat(columns["offset"][order], starts).tolist(),
            np.maximum.reduceat(ends[order], starts).tolist(),
            np.add.reduceat(lengths[order], starts).tolist(),
            strict=True,
        )
        for segment_id, first, end, size in of_each:
            known = self._wanted.get(paths[segment_id])
            if known is None:
                self._wanted[paths[segment_id]] = _Wanted(first, end, size)
            elif known.window is None:  # or it was asked for already, without these
                known.first, known.end, known.left = min(known.first, first), max(known.end, end), known.left + size

    def begin(self, path: str, starts: Sequence[int], ends: Sequence[int], *of: Sequence[int]) -> Callable[[], Rows]:
        """Begin to read entries that lie close together; ``of`` are checksums and positions."""
        reader, size = self._segments.open(path), sum(ends) - sum(starts)
        wanted = self._wanted.get(path)
        window = None if wanted is None else self._window(reader, wanted)
        if wanted is None or window is None or starts[0] < wanted.first or ends[-1] > wanted.end:
            self._used(path, wanted, size)
            return begun(lambda: reader.read(starts, ends, *of))
        first = wanted.first

        def rows() -> Rows:
            try:
                found = reader.decode(window(), first, starts, ends, *of)
            except SegmentUnreadableError:
                raise  # it is this entry that is damaged
            except OSError as error:
                found = _by_itself(reader, error, starts, ends, *of)
            finally:
                self._used(path, wanted, size)
            return found

        return rows

    def _window(self, reader: WholeReader, wanted: _Wanted) -> Callable[[], pa.Buffer] | None:
        size = wanted.end - wanted.first
        if wanted.window is None:
            if 2 * wanted.left < size or size > _MOST_AT_ONCE or self._kept + size > _MOST_BYTES:
                return None
            self._kept += size
            first, end = wanted.first, wanted.end
            wanted.window = begun(lambda: reader.fetch(first, end))
        return wanted.window

    def _used(self, path: str, wanted: _Wanted | None, size: int) -> None:
        if wanted is None:
            return
        wanted.left -= size
        if wanted.left <= 0 and self._wanted.get(path) is wanted:
            del self._wanted[path]
            self._kept -= wanted.end - wanted.first if wanted.window is not None else 0


def _by_itself(
    reader: WholeReader, error: OSError, starts: Sequence[int], ends: Sequence[int], *of: Sequence[int]
) -> Rows:
    """Read entries by a request of their own where one for more has failed: only theirs may be there."""
    from txn_source.storage.object_store import is_unreachable

    if is_unreachable(error):
        raise reader.failed(error, of[1][0]) from error
    return reader.read(starts, ends, *of)
