"""The ledgers of a partition as values."""

from __future__ import annotations

from collections.abc import Iterator

from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.copies import LedgerCopies
from txn_source.model.ledger import Ledger
from txn_source.model.position import Position, PositionRange
from txn_source.model.topic import PartitionView

_TIMES = ("closed_at_ms", "offloaded_at_ms", "hot_deleted_at_ms")
_NEVER = -1


def ledgers_of(stub: MetadataStub, partition: PartitionView) -> list[Ledger]:
    """Return a partition's ledgers, ascending, the open one last."""
    whole = PositionRange(partition.bounds.log_start, partition.bounds.log_end)
    found = []
    for row in stub.list_ledgers(partition.partition_id, whole).to_pylist():
        del row["purged"]
        times = {name: None if row[name] == _NEVER else row[name] for name in _TIMES}
        found.append(Ledger(**{**row, **times}))
    return found


def copies_of(stub: MetadataStub, partition: PartitionView) -> Iterator[LedgerCopies]:
    """Yield the copies of a partition's ledgers, ascending."""
    at, end = partition.bounds.log_start, partition.bounds.log_end
    while at < end:
        listed = stub.list_copies(partition.partition_id, PositionRange(at, end)).ledgers
        if not listed:
            return
        yield from listed
        at = Position(listed[-1].ledger_id + 1, 0)
