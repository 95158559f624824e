"""The ids of many messages, kept in arrays instead of a million objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from txn_source.model.position import MessageId, Position
from txn_source.model.units import format_count


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
