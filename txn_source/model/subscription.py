"""Subscriptions: their types, and the cursor that says what has been acknowledged of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.message_ranges import MessageRange, MessageRanges, key_of
from txn_source.model.position import MessageId

MAX_RANGES = 10_000
"""So many separate ranges above the mark are kept; acknowledgements that would make more are not."""


class SubscriptionType(StrEnum):
    """How many consumers a subscription takes, and which of them get messages."""

    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    SHARED = "shared"

    @classmethod
    def parse(cls, value: SubscriptionType | str) -> SubscriptionType:
        """Return the type that a text names, in any case."""
        if isinstance(value, str) and (text := value.strip().lower()) in list(cls):
            return cls(text)
        raise InvalidArgumentError(f"{value!r} is not a type of subscription.", f"Use one of {', '.join(cls)}.")

    @property
    def in_order(self) -> bool:
        """True if one consumer at a time gets all messages, each partition's in order."""
        return self is not SubscriptionType.SHARED


GivenType = SubscriptionType | Literal["exclusive", "failover", "shared"]
"""A type as callers write it; other text goes through ``parse`` first."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a subscription is to stand: at ``messages`` of partitions, by their ids.

    The other partitions are at ``where`` (``earliest`` or ``latest``) or, if that is empty, stay where they are.
    """

    where: str = ""
    messages: Mapping[int, MessageId] = field(default_factory=dict)

    @property
    def keys(self) -> dict[int, int]:
        """The messages as their places, ``message_key`` by partition id."""
        return {partition_id: key_of(at) for partition_id, at in self.messages.items()}


class Cursor:
    """What a subscription has acknowledged of one partition.

    All messages below the mark are acknowledged; above it there are ranges that are. The mark only goes up, but for a
    seek, which makes a new cursor.
    """

    __slots__ = ("mark", "ranges")

    def __init__(self, mark: int, ranges: MessageRanges | None = None) -> None:
        """Begin with a mark (``message_key``, exclusive) and the ranges above it."""
        self.mark = mark
        self.ranges = MessageRanges() if ranges is None else ranges

    def acknowledge(self, items: Iterable[MessageRange]) -> int:
        """Take acknowledged ranges; return how many of their messages were not acknowledged before."""
        new = 0
        for item in items:
            if item.end <= self.mark:
                continue
            if len(self.ranges) >= MAX_RANGES and item.start > self.mark and not self.ranges.joins(item):
                continue  # it is delivered once more after a reconnect: at least once
            new += self.ranges.add(MessageRange(max(item.start, self.mark), item.end, item.messages))
        self._settle()
        return new

    def acknowledge_up_to(self, end: int) -> None:
        """Acknowledge everything below a place."""
        self.mark = max(self.mark, end)
        self._settle()

    def has(self, item: MessageRange) -> bool:
        """True if some message of a range is acknowledged."""
        return item.start < self.mark or self.ranges.touches(item)

    def wanted(self, start: int, end: int) -> list[MessageRange]:
        """Return what is not acknowledged of ``[start, end)``, ascending."""
        return self.ranges.missing(max(start, self.mark), end)

    def _settle(self) -> None:
        self.ranges.drop_below(self.mark)
        first = next(iter(self.ranges), None)
        if first is not None and first.start <= self.mark:
            self.mark = first.end
            self.ranges.drop_below(self.mark)
