"""Entries on their way into the log, and who writes them."""

from __future__ import annotations

from dataclasses import dataclass

from txn_source.model.position import Position
from txn_source.model.roots import ONLY_MAIN


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry whose bytes are written and synced, and that has no position yet.

    ``roots`` is the set of hot roots that have its segment up to its end: no part of what it is.
    """

    partition_id: int
    base_sequence: int
    messages: int
    segment: str
    offset: int
    length: int
    crc32c: int
    roots: int = ONLY_MAIN


@dataclass(frozen=True, slots=True)
class Appended:
    """What came of an append: the positions of its entries, in their order, and how many partitions the topic has.

    ``partitions`` 0: that isn't told. ``needs_copies``: one of the entries has too few copies to be acknowledged.
    """

    positions: list[Position]
    partitions: int
    needs_copies: bool = False


@dataclass(frozen=True, slots=True)
class OpenedProducer:
    """A producer's identity: the epoch tells it from an older one of the same transactional id."""

    producer_id: int
    epoch: int
    name: str
