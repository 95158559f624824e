"""Our own log as a ``LogSource``: the service answers, and footers of objects where it no longer has the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.reading.as_of import as_of
from txn_source.client.reading.footers import TieredPlanning
from txn_source.client.reading.skipping import of_partition
from txn_source.client.reading.source import ReadPartition, Source, label, look_again, resolve
from txn_source.client.reading.tasks import tasks_of
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import OutOfRangeError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.packing import Slice
from txn_source.model.position import Position, PositionRange
from txn_source.reading.log_source import Cutting, Description, FoundCut, Resolved, lost
from txn_source.reading.places import AsOf, AtTime, Inside, Kept, Name
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream_offset import OwnOffsets
from txn_source.storage.object_root import ObjectRoot

if TYPE_CHECKING:
    from txn_source.client.reading.slice_reader import SliceReader

DESCRIPTION = Description("txnlog", label, str, OwnOffsets())


class OwnLog:
    """The ``LogSource`` of our own log."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._stub = access.metadata
        self._objects = TieredPlanning(access)
        self._checked: dict[Name, int] = {}
        """The partition id for which a stream's position was checked, by partition."""

    def describe(self) -> Description:
        """Return the names that the log uses."""
        return DESCRIPTION

    def look(self, of: Selection | Source) -> Source:
        """Return partitions with their bounds, all of one moment."""
        if isinstance(of, Source):
            return look_again(self._stub, of)
        return resolve(self._stub, of)

    def resolve(
        self, look: Source, places: Mapping[Name, Position | AtTime | AsOf | Kept], level: IsolationLevel
    ) -> Mapping[Name, Resolved | None]:
        """Return positions. One call of the service resolves a time on all partitions; a first message at or above the
        level's bound doesn't count yet."""
        partitions = [p for p in look.partitions if p.name in places]
        times = {place.us for place in places.values() if isinstance(place, AtTime)}
        moments = {place.us for place in places.values() if isinstance(place, AsOf)}
        ids = [p.view.partition_id for p in partitions]
        first = {us: self._objects.find_positions(ids, us) for us in times}
        found: dict[Name, Resolved | None] = {}
        for us in moments:
            found |= as_of(self._stub, self._objects, look, us)
        for partition in partitions:
            place = places[partition.name]
            if isinstance(place, Position):
                found[partition.name] = self._there(partition, place)
            elif isinstance(place, Kept):
                found[partition.name] = self._gone_on(partition, place.position)
            elif isinstance(place, AtTime):
                at = first[place.us][partition.view.partition_id]
                found[partition.name] = None if at is None or at >= partition.bounds.upper(level) else Resolved(at)
        return found

    def cut(self, look: Source, ranges: Sequence[PositionRange], how: Cutting) -> FoundCut:
        """Return the cut that the service finds. Ranges of our own log never end inside an entry."""
        ids = [p.view.partition_id for p in look.partitions]
        ends = [reach.end for reach in ranges]
        at_log_end = all(p.bounds.log_end == end for p, end in zip(look.partitions, ends, strict=True))
        if not how.whole or (not how.from_cut and not how.upward and (len(ends) < 2 or at_log_end)):
            return FoundCut(ends)
        starts = dict(zip(ids, (reach.start for reach in ranges), strict=True)) if how.from_cut or how.upward else None
        found = self._stub.find_cut(dict(zip(ids, ends, strict=True)), starts, upward=how.upward)
        return FoundCut([max(reach.start, found[id_]) for id_, reach in zip(ids, ranges, strict=True)])

    def split(
        self,
        look: Source,
        wanted: Sequence[tuple[ReadPartition, PositionRange]],
        request: ReadRequest,
        *,
        inside: Mapping[Name, Inside] | None = None,
        as_of_ends: bool = False,
    ) -> Sequence[Sequence[Slice]]:
        """Return tasks of ledgers, large ones cut at entries; ledgers that the filters rule out are left out."""
        kept = [(p, reach) for p, reach in wanted if request.filters.keep(of_partition(p.topic.short, p.view.index))]
        firsts = {name: at.start for name, at in (inside or {}).items() if at.start is not None}
        in_step = isinstance(self._access.root, ObjectRoot)
        return tasks_of(self._stub, self._objects, kept, request, firsts, in_step=in_step)

    def read(self, columns: pa.Schema, request: ReadRequest, decisions: int) -> SliceReader:
        """Return a reader of slices, from whichever copy is there."""
        from txn_source.client.reading.slice_reader import SliceReader  # a process that only plans doesn't load it

        return SliceReader.of(self._access, columns, request, decisions)

    def _there(self, partition: ReadPartition, at: Position) -> Resolved:
        if partition.view.lost_nothing(at):
            return Resolved(partition.bounds.log_start)
        if at < partition.bounds.log_start:
            return Resolved(partition.bounds.log_start, _outside(partition, at))
        check_position(self._stub, partition, at)
        return Resolved(at)

    def _gone_on(self, partition: ReadPartition, at: Position | None) -> Resolved:
        """Return the position from which a stream goes on."""
        start = partition.bounds.log_start
        if at is None or at < start:
            reach, gone = partition.kept(at or start, None)
            return Resolved(reach, lost(partition.label, gone[0]) if gone else None)
        known = self._checked.get(partition.name) == partition.view.partition_id
        if not known or at > partition.bounds.log_end:  # the log can be restored under a running stream
            try:
                check_position(self._stub, partition, at)
            except OutOfRangeError as error:
                happened = f"was made anew, or the checkpoint is another query's: {error.fact.removesuffix('.')}"
                return Resolved(start, lost(partition.label, happened))
            self._checked[partition.name] = partition.view.partition_id
        return Resolved(at)


def check_position(stub: MetadataStub, partition: ReadPartition, at: Position) -> None:
    """Raise OUT_OF_RANGE if a partition never had a position."""
    if not partition.bounds.log_start <= at <= partition.bounds.log_end or at.entry_id < 0:
        raise _outside(partition, at)
    ledger = stub.list_ledgers(partition.view.partition_id, PositionRange(at, at))
    if not len(ledger) or at.entry_id > ledger["entries"][0].as_py():
        why = (
            f"its ledger {at.ledger_id} has {ledger['entries'][0]} entries" if len(ledger) else "that is not its ledger"
        )
        raise OutOfRangeError(
            f"Position {at} is in no ledger of {partition.label}: {why}.",
            "Use positions of this partition, as `txnlog topics stats` or the __ledger_id and __entry_id columns show.",
        )


def _outside(partition: ReadPartition, at: Position) -> OutOfRangeError:
    bounds = partition.bounds
    return OutOfRangeError(
        f"Position {at} lies outside {partition.label}, which has [{bounds.log_start}, {bounds.log_end}).",
        "Use a position in that range, earliest or latest.",
    )
