"""The ids of messages that were registered, until ``flush`` returns them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from txn_source.client.writing.sent_ids import MessageIds

_MAX_REMEMBERED_IDS = 1_000_000
_Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@dataclass(frozen=True, slots=True, eq=False)
class Receipt:
    """What tells the ids of a group's messages; they are worked out when somebody asks for them.

    ``entries``: partition, messages and ``Position.key`` of each. ``runs``, a row each: messages that were sent in a
    row to one partition: the partition, how many of the group it had before, and the turn, by which the order of
    sending is found again. ``messages``: how many each partition has.
    """

    entries: Sequence[tuple[int, int, int]]
    runs: _Numbers
    messages: Mapping[int, int]

    def __len__(self) -> int:
        return sum(messages for _, messages, _ in self.entries)

    def ids(self) -> MessageIds:
        """Return the ids, partition after partition."""
        owners, counts, keys = np.array(self.entries, dtype=np.int64).T
        in_order = np.argsort(owners, kind="stable")
        counts = counts[in_order]
        return MessageIds(np.repeat(keys[in_order], counts), _indexes(counts))

    def turns(self) -> _Numbers:
        """Return the turn of each message, in the order of ``ids``."""
        owners, starts, turns = self.runs.T
        in_order = np.argsort(owners, kind="stable")
        owners, starts, turns = owners[in_order], starts[in_order], turns[in_order]
        partitions = sorted(self.messages)
        totals = np.array([self.messages[partition] for partition in partitions], dtype=np.int64)
        lasts = np.append(owners[1:] != owners[:-1], True)
        ends = np.append(starts[1:], 0)
        ends[lasts] = totals[np.searchsorted(partitions, owners[lasts])]
        return np.repeat(turns, ends - starts)


class Receipts:
    """Receipts in the order in which their groups were registered, of the newest million messages or so."""

    def __init__(self) -> None:
        self._receipts: deque[Receipt] = deque()
        self._messages = 0

    def add(self, receipt: Receipt) -> None:
        """Keep a receipt; the one that came last is kept once, however often it comes."""
        if self._receipts and self._receipts[-1] is receipt:
            return  # an interrupt came before its group left the queue
        self._receipts.append(receipt)
        self._messages += len(receipt)
        while self._messages > _MAX_REMEMBERED_IDS and len(self._receipts) > 1:
            self._messages -= len(self._receipts.popleft())

    def ids(self) -> MessageIds:
        """Return the ids in the order of sending."""
        receipts = list(self._receipts)
        return (
            MessageIds.join([r.ids() for r in receipts], [r.turns() for r in receipts])
            if receipts
            else MessageIds.none()
        )


def _indexes(counts: _Numbers) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return 0..count-1 for each count, one after the other."""
    total = int(counts.sum())
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    indexes: np.ndarray[Any, np.dtype[np.int32]] = (np.arange(total, dtype=np.int64) - starts).astype(np.int32)
    return indexes
