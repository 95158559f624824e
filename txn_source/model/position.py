"""Where an entry or a message lies inside one partition, and half-open ranges of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from txn_source.model.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

EARLIEST, LATEST = "earliest", "latest"
"""Where each partition begins, and where it ends now: places that need no position."""
MAX_LEDGER_ID = (1 << 31) - 1
MAX_ENTRY_ID = (1 << 32) - 1
_ENTRY_BITS = 32
_NUMBER = r"(0|[1-9][0-9]{0,9})"  # no 20:00, which may be meant as a time of day
_POSITION = re.compile(rf"{_NUMBER}:(-1|0|[1-9][0-9]{{0,9}})")
_MESSAGE_ID = re.compile(rf"{_NUMBER}:{_NUMBER}:{_NUMBER}")


IntOrArray = TypeVar("IntOrArray", int, "npt.NDArray[np.int64]")
"""numpy itself isn't loaded here: the command line answers without it."""


def key_of(ledger_id: IntOrArray, entry_id: IntOrArray) -> IntOrArray:
    """Return a position as one sortable 64-bit integer (``Position.key``), or those of two arrays."""
    return (ledger_id << _ENTRY_BITS) + entry_id


def ledger_of(key: IntOrArray) -> IntOrArray:
    """Return the ledger id in ``Position.key``, or those in an array of them."""
    return key >> _ENTRY_BITS


def entry_of(key: IntOrArray) -> IntOrArray:
    """Return the entry id in ``Position.key``, or those in an array of them."""
    return key & MAX_ENTRY_ID


def text_of(key: int) -> str:
    """Return the text of the position in ``Position.key``, such as ``12:40``, without making the position."""
    return f"{ledger_of(key)}:{entry_of(key)}"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """An entry's place, ``(ledger_id, entry_id)``; text ``12:40``. Totally ordered inside a partition.

    As a bound it is exclusive at the end of a range and inclusive at its start. ``entry_id`` is -1 only in the
    inclusive "last readable position" shown to people when nothing is readable yet (Pulsar's ``12:-1``).
    """

    ledger_id: int
    entry_id: int

    def __post_init__(self) -> None:
        if not (0 <= self.ledger_id <= MAX_LEDGER_ID and -1 <= self.entry_id <= MAX_ENTRY_ID):
            raise InvalidArgumentError(
                f"Position ({self.ledger_id}, {self.entry_id}) is out of bounds.",
                f"A ledger id lies in [0, {MAX_LEDGER_ID}], an entry id in [0, {MAX_ENTRY_ID}].",
            )

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"

    __repr__ = __str__

    @classmethod
    def parse(cls, value: Position | str) -> Position:
        """Return the position that the text ``ledger:entry`` names; a position is returned as it is."""
        if isinstance(value, Position):
            return value
        found = _POSITION.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            raise InvalidArgumentError(f"{value!r} is not a position.", 'Write it as "ledger:entry", such as "12:40".')
        return cls(int(found[1]), int(found[2]))

    @property
    def key(self) -> int:
        """The position as one sortable 64-bit integer: databases and arrays compare it in one step."""
        return key_of(self.ledger_id, self.entry_id)

    @classmethod
    def from_key(cls, key: int) -> Position:
        """Return the position whose ``key`` this is."""
        return cls(ledger_of(key), entry_of(key))

    def plus(self, entries: int) -> Position:
        """Return the position so many entries further on in the same ledger."""
        return Position(self.ledger_id, self.entry_id + entries)


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """A message's place: its entry's position and its index in the entry; text ``12:40:3``.

    Ledger ids are unique in a log, so a message id names one message without naming topic or partition.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = 0

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.batch_index}"

    __repr__ = __str__

    @classmethod
    def parse(cls, value: MessageId | str) -> MessageId:
        """Return the message id that the text ``ledger:entry:index`` names."""
        if isinstance(value, MessageId):
            return value
        found = _MESSAGE_ID.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            raise InvalidArgumentError(
                f"{value!r} is not a message id.", 'Write it as "ledger:entry:index", such as "12:40:3".'
            )
        position = Position(int(found[1]), int(found[2]))
        return cls(position.ledger_id, position.entry_id, int(found[3]))

    @property
    def position(self) -> Position:
        """The position of the entry that holds the message."""
        return Position(self.ledger_id, self.entry_id)


@dataclass(frozen=True, slots=True)
class PositionRange:
    """The entries of one partition in ``[start, end)``: start inclusive, end exclusive. It may span ledgers."""

    start: Position
    end: Position

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"

    __repr__ = __str__

    def __contains__(self, position: Position) -> bool:
        return self.start <= position < self.end

    @property
    def empty(self) -> bool:
        """True if no position lies in the range."""
        return self.start >= self.end


def lost_nothing(trimmed_end: Position, at: Position) -> bool:
    """True if all that was trimmed lies before a position: it is at the end of the last ledger that was.

    ``trimmed_end`` is the end of the last ledger that was trimmed, exclusive; 0:0 if none was.
    """
    return 0 < at.ledger_id == trimmed_end.ledger_id and at >= trimmed_end
