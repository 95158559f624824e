"""What a read would find, from the metadata alone: for people, and for plans that need sizes before they read."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import Source
from txn_source.model.packing import OPENING_COST_BYTES
from txn_source.model.position import PositionRange
from txn_source.model.units import format_count
from txn_source.reading.ranges import ranges_of
from txn_source.reading.request import ReadRequest
from txn_source.storage.arrays import numbers_in

_SHOWN_MAX = 4


@dataclass(frozen=True, slots=True)
class Outlook:
    """What lies in the range of a read.

    ``messages`` and ``bytes`` (as they are stored) are estimates: aborted messages count, and of ledgers that are read
    in part their share by entries.
    """

    ranges: tuple[tuple[int, PositionRange], ...]
    """The range of each partition, by its index."""
    messages: int
    bytes: int
    ledgers: int
    hot: int
    """Ledgers with a hot copy."""
    tiered: int
    """Ledgers with a tiered copy; some have both."""
    tasks: int
    """About how many tasks it will be."""

    @property
    def bounds_text(self) -> str:
        """The ranges as text for people."""
        shown = [f"{index}: {reach}" for index, reach in self.ranges[:_SHOWN_MAX]]
        more = len(self.ranges) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "")

    @property
    def ledgers_text(self) -> str:
        """The ledgers and their copies as text for people."""
        return f"{format_count(self.ledgers, 'ledger')}: {self.hot} hot, {self.tiered} tiered"


def outlook(access: Access, source: Source, request: ReadRequest) -> Outlook:
    """Return what a read would find now; the log's metadata is asked once for all partitions.

    Raises:
        InvalidArgumentError, OutOfRangeError, DataLossError: as planning the read would.
    """
    reaches = ranges_of(OwnLog(access), source, request)
    messages = size = ledgers = hot = tiered = 0
    read_of = [
        (p.view.partition_id, reach) for p, reach in zip(source.partitions, reaches, strict=True) if not reach.empty
    ]
    for (_, reach), table in zip(read_of, access.metadata.list_ledgers_of(read_of), strict=True):
        share = share_of(table, reach)
        read = share > 0
        messages += int((numbers_in(table["messages"]) * share).sum())
        size += int((numbers_in(table["bytes"]) * share).sum())
        ledgers += int(read.sum())
        hot += int((numbers_in(table["hot_deleted_at_ms"])[read] < 0).sum())
        tiered += int((numbers_in(table["offloaded_at_ms"])[read] >= 0).sum())
    ranges = tuple((p.view.index, reach) for p, reach in zip(source.partitions, reaches, strict=True))
    wanted = request.min_partitions or min(os.cpu_count() or 1, -(-size // OPENING_COST_BYTES))
    tasks = max(wanted, -(-size // request.max_partition_bytes)) if ledgers else 0
    return Outlook(ranges, messages, size, ledgers, hot, tiered, tasks)


def share_of(ledgers: pa.Table, reach: PositionRange) -> npt.NDArray[np.float64]:
    """Return which part of each ledger lies in a range, from 0 to 1."""
    ids, entries = numbers_in(ledgers["ledger_id"]), numbers_in(ledgers["entries"])
    first = np.where(ids == reach.start.ledger_id, reach.start.entry_id, 0)
    last = np.where(ids == reach.end.ledger_id, np.minimum(reach.end.entry_id, entries), entries)
    return np.asarray(np.maximum(last - first, 0) / np.maximum(entries, 1), np.float64)
