"""Ids of messages in the order of sending, in arrays instead of a million objects, until ``flush`` returns them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from txn_source.model.position import MessageId, Position
from txn_source.model.units import format_count

_MAX_REMEMBERED_IDS = 1_000_000
_Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


class MessageIds(Sequence[MessageId]):
    """Message ids in the order in which the messages were sent; items are made when asked for."""

    __slots__ = ("_indexes", "_positions")

    def __init__(self, positions: npt.NDArray[np.int64], indexes: npt.NDArray[np.int32]) -> None:
        """Take ``Position.key`` of the entry, and the index in the entry, of each message."""
        self._positions = positions
        self._indexes = indexes

    @classmethod
    def none(cls) -> MessageIds:
        """Return no ids."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int32))

    @classmethod
    def join(cls, parts: Sequence[MessageIds], turns: Sequence[npt.NDArray[np.int64]]) -> MessageIds:
        """Return the ids of several parts in one, ordered by turn; a turn may count for several messages in a row."""
        positions = np.concatenate([p._positions for p in parts])
        indexes = np.concatenate([p._indexes for p in parts])
        turn = np.concatenate(turns)
        if np.any(np.diff(turn) < 0):
            order = np.argsort(turn, kind="stable")
            positions, indexes = positions[order], indexes[order]
        return cls(positions, indexes)

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> MessageId: ...
    @overload
    def __getitem__(self, index: slice) -> MessageIds: ...
    def __getitem__(self, index: int | slice) -> MessageId | MessageIds:
        if isinstance(index, slice):
            return MessageIds(self._positions[index], self._indexes[index])
        position = Position.from_key(int(self._positions[index]))
        return MessageId(position.ledger_id, position.entry_id, int(self._indexes[index]))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence):
            return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(str(i) for i in self[:3]) + (", ..." if len(self) > 3 else "")
        return f"<{format_count(len(self), 'message id')}{': ' if shown else ''}{shown}>"


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
        """Keep a receipt."""
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
