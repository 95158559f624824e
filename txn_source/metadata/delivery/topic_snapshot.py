"""What consumers of a topic are shown in one database transaction; whatever several of them need is read once.

Most consumers of a busy topic stand at its end and get the same entries. So entries are read by the page, and batches
for one consumer after the other are cut out of the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol.enums import READ_PRIORITY
from txn_source.metadata.store import copies, pages, policies, views
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.pages import Names, Page
from txn_source.model.isolation import IsolationLevel
from txn_source.model.kinds import ABORTED
from txn_source.model.position import Position, PositionRange
from txn_source.model.topic import PartitionView, Topic
from txn_source.model.visibility import visible
from txn_source.storage.arrays import numbers_in

MAX_ENTRIES = 10_000
"""So many entries are looked at in one page, at most."""
_MIN_ENTRIES = 64
"""So many are read at least: it costs little more than one, and the next consumer may want them."""


class VisibleEntries(NamedTuple):
    """Which rows of a table of entries a level shows, and up to each of them the messages and bytes of all so far."""

    rows: NDArray[np.intp]
    messages: NDArray[np.int64]
    bytes: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HotEntries:
    """The data entries of a range that is read from hot copies, and the transactions among them that are aborted.

    There may be other aborted transactions in that table, which lie around the range. Whoever asks for the same once
    more gets the same answer, at no cost: thousands may.
    """

    range: PositionRange
    table: pa.Table
    aborted: pa.Table
    _within: dict[PositionRange, HotEntries] = field(default_factory=dict, repr=False, compare=False)
    _visible: dict[IsolationLevel, VisibleEntries] = field(default_factory=dict, repr=False, compare=False)

    def within(self, of: PositionRange) -> HotEntries:
        """Return those of the range that also lie in another one, which begins in it."""
        if of.start == self.range.start and of.end >= self.range.end:
            return self
        found = self._within.get(of)
        if found is None:
            keys = numbers_in(self.table["position"])
            end = min(self.range.end, of.end)
            first, last = (int(np.searchsorted(keys, bound.key)) for bound in (of.start, end))
            found = HotEntries(PositionRange(of.start, end), self.table.slice(first, last - first), self.aborted)
            self._within[of] = found
        return found

    def visible(self, level: IsolationLevel) -> VisibleEntries:
        """Return what a level shows of them."""
        found = self._visible.get(level)
        if found is None:
            columns = ("position", "txn", "messages", "length")
            positions, txns, messages, lengths = (numbers_in(self.table[name]) for name in columns)
            hidden = numbers_in(self.aborted["txn"])[numbers_in(self.aborted["state"]) == ABORTED]
            markers = np.zeros(len(positions), np.bool_)
            rows = np.flatnonzero(visible(positions, txns, markers, self.range, level, hidden))
            found = VisibleEntries(rows, np.cumsum(messages[rows]), np.cumsum(lengths[rows]))
            self._visible[level] = found
        return found


class TopicSnapshot:
    """One moment of a topic. It lives no longer than its database transaction."""

    def __init__(self, connection: Connection, topic: Topic, configuration: Mapping[str, Any]) -> None:
        """Take the moment of a transaction; ``configuration`` are the broker's policies."""
        self.connection = connection
        self._topic = topic
        self._configuration = configuration
        self._pages: dict[tuple[int, Position], HotEntries] = {}
        self._names: dict[int, Names] = {}
        self._copies: dict[tuple[int, int, int], list[pb.LedgerCopies]] = {}

    @cached_property
    def decisions(self) -> int:
        """How many transactions have been decided."""
        return views.decisions(self.connection)

    @cached_property
    def partitions(self) -> list[PartitionView]:
        """The partitions with their bounds; none if the topic is gone."""
        return views.partition_views(self.connection, [self._topic.topic_id])[self._topic.topic_id]

    def entries(self, partition_id: int, of: PositionRange, most: int) -> HotEntries | None:
        """Return the first so many entries of a range, or more; None if its start has no hot copy any more."""
        key = (partition_id, of.end)
        known = self._pages.get(key)
        if known is not None and known.range.start <= of.start < known.range.end:
            return known.within(of)
        until = copies.hot_until(self.connection, partition_id, of)
        if until is None:
            return None
        limit = min(max(_MIN_ENTRIES, most), MAX_ENTRIES)
        page = pages.entry_page(self.connection, partition_id, PositionRange(of.start, until), limit)
        end = until if page.next_start is None else Position.from_key(page.next_start)
        read = PositionRange(of.start, end)
        aborted = pages.decision_page(
            self.connection, partition_id, read, aborted_only=True, up_to=self.decisions
        ).table
        self._pages[key] = HotEntries(read, page.table, aborted)
        return self._pages[key]

    def ledger_end(self, partition_id: int, ledger_id: int) -> tuple[Position, int]:
        """Return where a closed ledger ends, exclusive, and how many messages it has."""
        return views.ledger_end(self.connection, partition_id, ledger_id)

    def names_in(self, partition_id: int, entries: pa.Table) -> Names:
        """Return what entries refer to."""
        known = self._names.setdefault(partition_id, Names({}, {}, {}))
        wanted = [set(numbers_in(entries[name]).tolist()) for name in ("segment_id", "producer_id")]
        if not (wanted[0] <= known.segments.keys() and wanted[1] <= known.producers.keys()):
            found = pages.names_in(self.connection, Page(entries, None))
            known.segments.update(found.segments)
            known.producers.update(found.producers)
            known.roots.update(found.roots)
        return Names(
            {n: known.segments[n] for n in wanted[0] & known.segments.keys()},
            {n: known.producers[n] for n in wanted[1] & known.producers.keys()},
            {n: known.roots[n] for n in wanted[0] & known.roots.keys()},
        )

    def copies_of(self, partition_id: int, of: PositionRange) -> pb.ListCopiesResponse:
        """Return what ``ListCopies`` would answer for a range."""
        key = (partition_id, of.start.ledger_id, of.end.ledger_id)
        if key not in self._copies:
            found = copies.listing(self.connection, partition_id, of)
            self._copies[key] = [convert.copies_to_wire(c) for c in found]
        return pb.ListCopiesResponse(ledgers=self._copies[key], data_read_priority=self._read_priority)

    @cached_property
    def _read_priority(self) -> pb.ReadPriority:
        topic = self._topic
        in_force = policies.in_force(self.connection, topic.name, topic.topic_id, self._configuration)
        return READ_PRIORITY.to_wire(in_force["data_read_priority"].value)
