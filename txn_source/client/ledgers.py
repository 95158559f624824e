"""The ledgers of a partition as values."""

from __future__ import annotations

from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.ledger import Ledger
from txn_source.model.position import PositionRange
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
