"""Which leader wrote each offset: what tells a copy's sound part from what a leader wrote that had lost its office.

Each leader has a larger epoch than the one before it, and stamps its batches with it. A replica that didn't follow, or
a remote segment that such a leader copied, has batches whose epoch isn't that of their offset. No consumer sees them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from txn_source.foreign.kafka.batch_headers import BatchHeaders
from txn_source.foreign.kafka.checkpoints import parse_leader_epochs
from txn_source.foreign.kafka.segments import LEADER_EPOCHS, Segment
from txn_source.foreign.kafka.varints import Ints

_UNKNOWN = -1


@dataclass(frozen=True)
class LeaderEpochs:
    """Epochs of a partition and the offset at which each begins; both ascend. What lies before the first is unknown."""

    entries: tuple[tuple[int, int], ...]

    @cached_property
    def _columns(self) -> tuple[Ints, Ints]:
        columns = np.array(self.entries, np.int64).reshape(-1, 2)
        return columns[:, 0], columns[:, 1]

    def of(self, offsets: Ints) -> Ints:
        """Return the epoch of each offset, -1 where it isn't known."""
        epochs, starts = self._columns
        at = np.searchsorted(starts, offsets, side="right") - 1
        return np.where(at < 0, _UNKNOWN, epochs[at]) if len(epochs) else np.full(len(offsets), _UNKNOWN)

    def sound(self, headers: BatchHeaders) -> int:
        """Return how many of some batches come before the first one of another leader."""
        epochs, expected = headers["leader_epoch"], self.of(headers["base_offset"])
        wrong = np.flatnonzero((epochs != expected) & (epochs >= 0) & (expected >= 0))
        return int(wrong[0]) if len(wrong) else len(headers)

    def divergence(self, other: LeaderEpochs) -> int | None:
        """Return the first offset that both know, and know otherwise; None if there is none."""
        offsets = np.unique(np.concatenate([self._columns[1], other._columns[1]]))
        mine, others = self.of(offsets), other.of(offsets)
        wrong = np.flatnonzero((mine != others) & (mine >= 0) & (others >= 0))
        return int(offsets[wrong[0]]) if len(wrong) else None


def newest(candidates: Iterable[list[tuple[int, int]] | None]) -> LeaderEpochs | None:
    """Return the one that knows the last leader, of these one that reaches back furthest; None if none knows any."""
    known = [tuple(entries) for entries in candidates if entries]
    if not known:
        return None
    return LeaderEpochs(max(known, key=lambda entries: (entries[-1], -entries[0][1])))


def segment_epochs(segment: Segment) -> list[tuple[int, int]] | None:
    """Return the epochs up to the end of a remote segment, and where each begins; None if they aren't known."""
    data = segment.files.small(LEADER_EPOCHS)
    return None if data is None else parse_leader_epochs(data.decode(errors="replace"))
