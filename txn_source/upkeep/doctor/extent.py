"""What a damaged file takes along: which entries, of which ledgers, and whether another copy has them."""

from __future__ import annotations

from dataclasses import dataclass

from txn_source.client.ledgers import ledgers_of
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.copies import LedgerCopies
from txn_source.model.ledger import Ledger
from txn_source.model.position import Position, PositionRange, ledger_of
from txn_source.model.topic_name import TopicName
from txn_source.storage.arrays import numbers_in


@dataclass(frozen=True, slots=True)
class Extent:
    """Some entries: how many, the first and the last one, and their ledgers."""

    entries: int
    first: Position | None
    last: Position | None
    ledgers: tuple[int, ...]

    def __str__(self) -> str:
        if self.entries == 1:
            return f"the entry {self.first}"
        return f"{self.entries:,} entries from {self.first} to {self.last}"


def extent(stub: MetadataStub, topic: TopicName, path: str) -> Extent:
    """Return the entries of a segment; none if it was deleted."""
    return extent_of(numbers_in(stub.list_segment_entries(topic, path)["position"]).tolist())


def extent_of(positions: list[int]) -> Extent:
    """Return the entries at some positions (``Position.key``)."""
    if not positions:
        return Extent(0, None, None, ())
    low, high = min(positions), max(positions)
    ids = sorted({ledger_of(key) for key in positions})
    return Extent(len(positions), Position.from_key(low), Position.from_key(high), tuple(ids))


class Ledgers:
    """The ledgers of a topic with their copies, as of now."""

    def __init__(self, stub: MetadataStub, topic: TopicName) -> None:
        self._ledgers: dict[int, Ledger] = {}
        self.partition_of: dict[int, int] = {}
        """Partition ids by ledger."""
        [view] = stub.get_view([topic]).topics
        for partition in view.partitions:
            for ledger in ledgers_of(stub, partition):
                self._ledgers[ledger.ledger_id] = ledger
                self.partition_of[ledger.ledger_id] = partition.partition_id

    def with_object(self, lost: Extent) -> bool:
        """True if all ledgers of some entries have an object."""
        return all(id_ in self._ledgers and self._ledgers[id_].tiered for id_ in lost.ledgers)


def copies_now(stub: MetadataStub, partition_id: int, ledger_id: int) -> LedgerCopies | None:
    """Return the copies that a ledger has now; None if it is gone."""
    of = PositionRange(Position(ledger_id, 0), Position(ledger_id + 1, 0))
    found = stub.list_copies(partition_id, of).ledgers
    return next((one for one in found if one.ledger_id == ledger_id), None)
