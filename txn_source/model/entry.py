"""Entries on their way into the log, and who writes them."""

from __future__ import annotations

from txn_source.model.position import Position
from txn_source.model.values import dataclass


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry whose bytes are written and synced, and that has no position yet."""

    partition_id: int
    base_sequence: int
    messages: int
    segment: str
    offset: int
    length: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Appended:
    """What came of an append: the positions of its entries, in their order, and how many partitions the topic has.

    ``partitions`` 0: that isn't told.
    """

    positions: list[Position]
    partitions: int


@dataclass(frozen=True, slots=True)
class OpenedProducer:
    """A producer's identity: the epoch tells it from an older one of the same transactional id."""

    producer_id: int
    epoch: int
    name: str
