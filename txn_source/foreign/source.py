"""Others' logs as a ``LogSource``: one class for Kafka's and Pulsar's, over the calls of their formats.

Each look lists the log anew: its writers roll, trim, clean and move its files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from txn_source.foreign.foreign_log import ForeignLog, ForeignPartition, PartitionName
from txn_source.foreign.reading.cut import lowered, raised
from txn_source.foreign.reading.pieces import Piece, pieces_of
from txn_source.foreign.reading.topics import ForeignLook, SeenPartition, label, names_of
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import (
    DataLossError,
    InvalidArgumentError,
    OutOfRangeError,
    SegmentUnreadableError,
    TopicNotFoundError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import LATEST, MessageId, Position, PositionRange
from txn_source.reading.log_source import Cutting, Description, FoundCut, Resolved, lost
from txn_source.reading.places import AsOf, AtTime, Inside, Kept, Name
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream_offset import OthersOffsets

if TYPE_CHECKING:
    from txn_source.foreign.reading.reader import PieceReader

_ALL = 1 << 62
_LOOKS_MAX = 5
"""Listings at most, if files are moved meanwhile."""


class ForeignSource:
    """The ``LogSource`` of a log of Kafka's or Pulsar's. It keeps what its last looks learnt of partitions."""

    def __init__(self, target: ForeignTarget) -> None:
        self._target = target
        self._log: ForeignLog | None = None
        self._before: dict[PartitionName, ForeignPartition] = {}

    def describe(self) -> Description:
        """Return the names that the log uses."""
        rules = self._target.rules
        offsets = OthersOffsets(rules.name, rules.shown, lambda value: rules.parse_side(value, LATEST).points)
        return Description(rules.name, label, rules.shown, offsets)

    def look(self, of: Selection | ForeignLook) -> ForeignLook:
        """Return partitions with their present bounds; list the files again if they are moved meanwhile."""
        for _ in range(_LOOKS_MAX - 1):
            with suppress(DataLossError, SegmentUnreadableError):  # moved between listing and reading
                return self._look(of)
        return self._look(of)

    def _look(self, of: Selection | ForeignLook) -> ForeignLook:
        log = self._target.open()
        if isinstance(of, ForeignLook):
            there = set(log.partitions())
            names = [seen.name for seen in of.partitions]
            for name in names:
                if name not in there:
                    raise TopicNotFoundError(f"There is no partition {name} any more.", "Plan the read anew.")
        else:
            names = names_of(log, self._target.rules, of)
        return self.look_at(log, names)

    def look_at(self, log: ForeignLog, names: Sequence[PartitionName]) -> ForeignLook:
        """Return partitions of a log that was just opened."""
        found = []
        for name in names:
            partition = log.partition(name)
            if (known := self._before.get(name)) is not None:
                partition.resume(known)
            found.append(SeenPartition(name, partition.bounds(), partition, self._target.rules.shown))
        self._log = log
        self._before |= {of.name: of.partition for of in found}
        return ForeignLook(self._target, log, tuple(found))

    def resolve(
        self, look: ForeignLook, places: Mapping[Name, Position | AtTime | AsOf | Kept], level: IsolationLevel
    ) -> Mapping[Name, Resolved | None]:
        """Return positions. A position below the log's start is lost."""
        return {of.name: self._resolved(of, places[of.name]) for of in look.partitions if of.name in places}

    def cut(self, look: ForeignLook, ranges: Sequence[PositionRange], how: Cutting) -> FoundCut:
        """Return a cut, as far as the format names a transaction alike on each partition."""
        partitions = look.partitions
        inside = [how.inside.get(of.name) for of in partitions]
        several = how.whole and len(partitions) > 1
        if several:
            ranges = [_without_rest(*each) for each in zip(partitions, ranges, inside, strict=True)]
        if how.upward:
            return FoundCut(raised(partitions, ranges))
        ends, untold = [reach.end for reach in ranges], None
        if how.whole:
            ends, untold = lowered(partitions, ranges, from_cut=how.from_cut)
        closed = [_with_last(of, end, at, whole=several) for of, end, at in zip(partitions, ends, inside, strict=True)]
        return FoundCut(closed, untold)

    def split(
        self,
        look: ForeignLook,
        wanted: Sequence[tuple[SeenPartition, PositionRange]],
        request: ReadRequest,
        *,
        inside: Mapping[Name, Inside] | None = None,
        as_of_ends: bool = False,
    ) -> Sequence[Sequence[Piece]]:
        """Return tasks of pieces; each piece has the decisions that it needs."""
        return pieces_of(wanted, request, inside or {}, as_of_ends=as_of_ends)

    def read(self, columns: pa.Schema, request: ReadRequest, decisions: int) -> PieceReader:
        """Return a reader of pieces, over the files of the last look."""
        from txn_source.foreign.reading.reader import PieceReader  # a process that only plans doesn't load it

        return PieceReader(self._target, columns, request, self._log)

    def _resolved(self, of: SeenPartition, place: Position | AtTime | AsOf | Kept) -> Resolved | None:
        if isinstance(place, AsOf):
            raise InvalidArgumentError(
                f"{self._target} can't be read as of a time: its files don't say when a transaction was committed.",
                "Read up to offsets, or up to a time of the messages.",
            )
        if isinstance(place, Position):
            return self._there(of, place)
        if isinstance(place, Kept):
            at, gone = of.gone_on(place)
            return Resolved(at, lost(of.label, "; it ".join(gone)) if gone else None)
        found = of.partition.position_at(place.ms)
        if found is None and place.must_match:
            raise InvalidArgumentError(
                f"No record of {of.label} has the time {place.ms} ms or a later one.",
                "Use an earlier time, or let what isn't there stand for the latest offset.",
            )
        return None if found is None else Resolved(max(found, of.bounds.log_start))

    def _there(self, of: SeenPartition, at: Position) -> Resolved:
        """Return a position that the partition has, or the log's start for a lost one below it."""
        start, end, asked = map(self._target.rules.shown, (of.bounds.log_start, of.bounds.log_end, at))
        if at > of.bounds.log_end or at.entry_id < 0:
            raise OutOfRangeError(
                f"Offset {asked} lies outside {of.label}, which has [{start}, {end}).",
                "Use an offset in that range, earliest or latest.",
            )
        if at >= of.bounds.log_start:
            return Resolved(at)
        gone = DataLossError(
            f"Offset {asked} of {of.label} is gone: it begins at {start}.",
            "Use a later offset or earliest; failOnDataLoss=false begins where the log does.",
        )
        return Resolved(of.bounds.log_start, gone)


def _without_rest(of: SeenPartition, reach: PositionRange, end: MessageId | None) -> PositionRange:
    """Return a range that includes its last entry, if no message of this entry lies at or behind the end inside it."""
    if end is None:
        return reach
    entry = PositionRange(end.position, end.position.plus(1))
    try:
        messages = of.partition.take(entry, _ALL, _ALL).rows
    except (DataLossError, SegmentUnreadableError):  # the reader of the entry reports that
        return reach
    return reach if end.batch_index < messages else PositionRange(reach.start, entry.end)


def _with_last(of: SeenPartition, at: Position, end: MessageId | None, *, whole: bool) -> Position:
    """Return the end behind an entry inside which a range ends, unless the range was lowered further.

    With ``whole`` a reader sees a transaction whole or not at all. A transaction that begins before the entry and
    reaches into it has lowered the range already, or begins before its start; one that begins with the entry is left
    out here.
    """
    if end is None or at != end.position:
        return at
    entry = PositionRange(end.position, end.position.plus(1))
    if whole and any(txn.first == entry.start for txn in of.partition.transactions(entry)):
        return at
    return entry.end
