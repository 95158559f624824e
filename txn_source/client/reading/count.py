"""How many messages a read would have: the metadata knows, so none is read."""

from __future__ import annotations

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.slice_reader import SliceReader
from txn_source.client.reading.source import ReadPartition, Source
from txn_source.client.reading.tasks import what_is_left
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.packing import Slice
from txn_source.model.position import MAX_ENTRY_ID, Position, PositionRange
from txn_source.reading.plan import looked_at
from txn_source.reading.ranges import ranges_of
from txn_source.reading.request import ReadRequest


def count(access: Access, source: Source, request: ReadRequest) -> int:
    """Return how many messages a read of the source would have, as requested; its limit isn't looked at.

    Ledgers that are read in part, and whose entries only their objects know, are counted by the objects' footers.

    Raises:
        InvalidArgumentError: the request has filters: what they leave isn't known without reading.
        DataLossError, OutOfRangeError, TopicNotFoundError: as planning the read would.
        SegmentUnreadableError: a footer that is needed can't be read.
    """
    if request.filters:
        raise InvalidArgumentError("Messages can't be counted by filters.", "Read them, or leave the filters out.")
    log = OwnLog(access)

    def make(source: Source) -> int:
        of_each = zip(source.partitions, ranges_of(log, source, request), strict=True)
        return sum(_count_range(access, source, partition, reach, request) for partition, reach in of_each)

    return looked_at(log, source, request, make)


def _count_range(
    access: Access, source: Source, partition: ReadPartition, reach: PositionRange, request: ReadRequest
) -> int:
    while not reach.empty:
        found = access.metadata.count_range(partition.view.partition_id, reach, request.isolation_level)
        if found is None:
            ledgers = access.metadata.list_ledgers(partition.view.partition_id, reach)
            reach = what_is_left(access.metadata, partition, reach, ledgers, request)
            continue
        reader = SliceReader.of(access, pa.schema([]), request, source.decisions)
        return found.messages + sum(_in_objects(reader, partition, reach, each) for each in found.ledger_ids)
    return 0


def _in_objects(reader: SliceReader, partition: ReadPartition, reach: PositionRange, ledger_id: int) -> int:
    """Return how many messages a reader sees of the part of a range in a ledger that only its object knows."""
    inside = PositionRange(max(reach.start, Position(ledger_id, 0)), min(reach.end, Position(ledger_id, MAX_ENTRY_ID)))
    piece = Slice(partition.topic.short, partition.view.index, partition.view.partition_id, inside, 0)
    return sum(int(part.columns["messages"].sum()) for part in reader.visible_entries(piece) if part.entries)
