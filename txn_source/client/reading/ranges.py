"""The range of each partition of a read: from the offsets that were asked for to positions, and to a cut."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from txn_source.client.access import Access
from txn_source.client.places import Cut, Offsets
from txn_source.client.reading.as_of import bounds_as_of, check_made
from txn_source.client.reading.footers import TieredPlanning
from txn_source.client.reading.request import ReadRequest
from txn_source.client.reading.source import ReadPartition, Source, resolve
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.bounds import Bounds
from txn_source.model.errors import DataLossError, InvalidArgumentError, OutOfRangeError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.moments import shown_time
from txn_source.model.position import EARLIEST, Position, PositionRange

_log = logging.getLogger(__name__)
_LOOKS_MAX = 5
"""How often a cut looks again if something is trimmed while it is made."""


def check_offsets(source: Source, request: ReadRequest) -> None:
    """Raise INVALID_ARGUMENT if the offsets of a request name what the source doesn't have, or are no cut of it."""
    for side in (request.start, request.end):
        _check_named(side, source)
        _check_cut(side, source, request.isolation_level)


def ranges_of(access: Access, source: Source, request: ReadRequest) -> list[PositionRange]:
    """Return the range of each partition that a request reads, cut off at the level's bound or at a cut.

    Raises:
        OutOfRangeError: an offset that no reader can ever stand at, or a time of which nothing is left.
        DataLossError: what lies above a bound was trimmed while the cut was made, or something below it since it was.
    """
    _check_began(source, request)
    stub, objects = access.metadata, TieredPlanning(access)
    starts = _side(stub, objects, source, request.start, request)
    if request.as_of_us is None:
        ends = _side(stub, objects, source, request.end, request)
    else:
        for topic in source.named:
            check_made(topic, request.as_of_us)
        ends = bounds_as_of(stub, objects, [p.view for p in source.partitions], request.as_of_us)
        if request.fail_on_data_loss:
            _check_kept(stub, source, ends, request.as_of_us)
    ranges = [
        partition.view.bounds.clip(start, max(start, end), request.isolation_level)
        for partition, start, end in zip(source.partitions, starts, ends, strict=True)
    ]
    if request.consistent_cut and request.isolation_level is IsolationLevel.READ_COMMITTED:
        ranges = _cut(stub, source, ranges)
    return ranges


def _check_began(source: Source, request: ReadRequest) -> None:
    """Raise DATA_LOSS if a partition that is read from its start has lost something since the read's cut was made."""
    if request.began is None or not request.fail_on_data_loss or request.start != Offsets(EARLIEST):
        return
    for partition in source.partitions:
        began = request.began.positions.get((partition.topic, partition.view.index))
        start = partition.view.bounds.log_start
        if isinstance(began, Position) and began < start and not partition.view.lost_nothing(began):
            raise DataLossError(
                f"{partition.label} has lost [{began}, {start}), which was to be read: it was trimmed after the query's"
                " cut was made.",
                "Run the query again, or give it failOnDataLoss=false to see what is left.",
            )


def _check_kept(stub: MetadataStub, source: Source, ends: Sequence[Position], time_us: int) -> None:
    """Raise OUT_OF_RANGE if a partition begins behind a time, because what was visible then was trimmed."""
    for partition, end in zip(source.partitions, ends, strict=True):
        start = partition.view.bounds.log_start
        if end > start or not partition.view.trimmed_end.ledger_id:
            continue
        first = stub.list_ledgers(partition.view.partition_id, PositionRange(start, start))
        if len(first) and first["created_at_ms"][0].as_py() * 1000 > time_us:
            raise OutOfRangeError(
                f"What {partition.label} had at {shown_time(time_us)} was trimmed: it begins with ledger"
                f" {start.ledger_id}, of {shown_time(first['created_at_ms'][0].as_py() * 1000)}.",
                "Use a later time.",
            )


def wanted_of(access: Access, source: Source, request: ReadRequest) -> list[tuple[ReadPartition, PositionRange]]:
    """Return what a request reads: the range of each partition, or those that it gives itself.

    Raises:
        OutOfRangeError, DataLossError: as ``ranges_of``.
        InvalidArgumentError: it gives a range of what the source doesn't have.
    """
    if request.ranges is None:
        found = list(zip(source.partitions, ranges_of(access, source, request), strict=True))
    else:
        known = {(p.topic, p.view.index): p for p in source.partitions}
        for topic, index in request.ranges.keys() - known.keys():
            raise InvalidArgumentError(
                f"A range is of partition {index} of topic {topic.short!r}, which this read doesn't take.",
                "Leave the ranges to txn_source.spark.read.",
            )
        found = [
            (known[place], PositionRange(reach.start, min(reach.end, _upper(known[place], request))))
            for place, reaches in request.ranges.items()
            for reach in reaches
        ]
    return [(partition, reach) for partition, reach in found if not reach.empty]


def _upper(partition: ReadPartition, request: ReadRequest) -> Position:
    return partition.view.bounds.upper(request.isolation_level)


def start_positions(access: Access, source: Source, request: ReadRequest) -> list[Position]:
    """Return where a read of the source begins on each partition."""
    _check_named(request.start, source)
    _check_cut(request.start, source, request.isolation_level)
    return _side(access.metadata, TieredPlanning(access), source, request.start, request)


def cut_of(stub: MetadataStub, topics: str | Sequence[str], level: IsolationLevel) -> Cut:
    """Return up to where topics could be read now at a level, at one moment."""
    return cuts_of(stub, [topics] if isinstance(topics, str) else topics, [level])[level]


def cuts_of(stub: MetadataStub, topics: Sequence[str], levels: Sequence[IsolationLevel]) -> dict[IsolationLevel, Cut]:
    """Return up to where topics could be read now at each level, at one moment for all of them."""
    for left in range(_LOOKS_MAX, 0, -1):
        source = resolve(stub, topics, columns=())
        ends = {
            level: [PositionRange(p.view.bounds.log_start, p.view.bounds.upper(level)) for p in source.partitions]
            for level in levels
        }
        committed = ends.get(IsolationLevel.READ_COMMITTED)
        with suppress(*((DataLossError,) if left > 1 else ())):  # trimmed meanwhile: look again
            if committed is not None:
                ends[IsolationLevel.READ_COMMITTED] = _cut(stub, source, committed)
            break
    places = [(p.topic, p.view.index) for p in source.partitions]
    return {
        level: Cut(
            {place: reach.end for place, reach in zip(places, found, strict=True)},
            level,
            {place: reach.start for place, reach in zip(places, found, strict=True)},
        )
        for level, found in ends.items()
    }


def _check_named(offsets: Offsets, source: Source) -> None:
    known = {(p.topic, p.view.index) for p in source.partitions}
    for topic, index in offsets.positions if offsets.cut is None else ():
        if (topic, index) not in known:
            raise InvalidArgumentError(
                f"The offsets name partition {index} of topic {topic.short!r}, which this read doesn't take.",
                f"It takes {', '.join(p.label for p in source.partitions[:8])}.",
            )
    if offsets.bare is not None and len(source.partitions) != 1:
        raise InvalidArgumentError(
            f"Position {offsets.bare} doesn't say which of the {len(source.partitions)} partitions it belongs to.",
            'Use JSON such as {"orders": {"0": "12:40"}}.',
        )


def _check_cut(offsets: Offsets, source: Source, level: IsolationLevel) -> None:
    """Refuse a cut that doesn't have what is read, or that isn't one at the level of the read."""
    if offsets.cut is None:
        return
    missing = [p.label for p in source.partitions if (p.topic, p.view.index) not in offsets.positions]
    if missing:
        raise InvalidArgumentError(
            f"The cut has no position of {missing[0]}, which is read.", "Take a cut of all topics: log.cut([...])."
        )
    if offsets.cut is IsolationLevel.READ_UNCOMMITTED and level is not offsets.cut:
        raise InvalidArgumentError(
            f"The cut was taken at {offsets.cut}, and the read is {level}.", f"Take the cut at {level}."
        )


def _cut(stub: MetadataStub, source: Source, reaches: Sequence[PositionRange]) -> list[PositionRange]:
    """Lower the ends of a read to a consistent cut, never below where it starts.

    Starts are as they were asked for, also where that is in the middle of a transaction: then its rest is seen. Every
    transaction that lies wholly at or above the starts is seen whole, or not at all.
    """
    bounds = {p.view.partition_id: reach.end for p, reach in zip(source.partitions, reaches, strict=True)}
    whole = all(p.view.bounds.log_end == bounds[p.view.partition_id] for p in source.partitions)
    if len(bounds) < 2 or whole:
        return list(reaches)
    cut = stub.find_cut(bounds)
    return [
        PositionRange(reach.start, max(reach.start, cut[p.view.partition_id]))
        for p, reach in zip(source.partitions, reaches, strict=True)
    ]


def _side(
    stub: MetadataStub, objects: TieredPlanning, source: Source, offsets: Offsets, request: ReadRequest
) -> list[Position]:
    by_time: dict[int, Position | None] = {}
    if offsets.publish_time_us is not None:
        by_time = objects.find_positions([p.view.partition_id for p in source.partitions], offsets.publish_time_us)
    found = []
    for partition in source.partitions:
        bounds, level = partition.view.bounds, request.isolation_level
        if offsets.publish_time_us is not None:
            # A first message at or above the bound is no answer yet: nothing is read, or everything up to the bound.
            at: Position | str = min(
                by_time.get(partition.view.partition_id) or bounds.upper(level), bounds.upper(level)
            )
        elif offsets.bare is not None:
            at = offsets.bare
        else:
            at = offsets.positions.get((partition.topic, partition.view.index), offsets.default)
        if isinstance(at, str):
            found.append(bounds.log_start if at == EARLIEST else bounds.upper(level))
        elif offsets.publish_time_us is not None:
            found.append(at)
        else:
            found.append(_checked(stub, partition, at, bounds, request))
    return found


def _checked(
    stub: MetadataStub, partition: ReadPartition, at: Position, bounds: Bounds, request: ReadRequest
) -> Position:
    """Return a position that somebody gave, or raise OUT_OF_RANGE if no reader can ever stand there."""
    if partition.view.lost_nothing(at):
        return bounds.log_start
    if at < bounds.log_start and not request.fail_on_data_loss:
        _log.warning(
            "%s: position %s was trimmed; reading from %s on (failOnDataLoss=false)",
            partition.label, at, bounds.log_start,
        )  # fmt: skip
        return bounds.log_start
    check_position(stub, partition, at)
    return at


def check_position(stub: MetadataStub, partition: ReadPartition, at: Position) -> None:
    """Raise OUT_OF_RANGE if a position is none of the partition's, where no reader can ever stand."""
    bounds = partition.view.bounds
    if not bounds.log_start <= at <= bounds.log_end or at.entry_id < 0:
        raise OutOfRangeError(
            f"Position {at} lies outside {partition.label}, which has [{bounds.log_start}, {bounds.log_end}).",
            "Use a position in that range, earliest or latest.",
        )
    ledger = stub.list_ledgers(partition.view.partition_id, PositionRange(at, at))
    if not len(ledger) or at.entry_id > ledger["entries"][0].as_py():
        why = (
            f"its ledger {at.ledger_id} has {ledger['entries'][0]} entries" if len(ledger) else "that is not its ledger"
        )
        raise OutOfRangeError(
            f"Position {at} is in no ledger of {partition.label}: {why}.",
            "Use positions of this partition, as `txnlog topics stats` or the __ledger_id and __entry_id columns show.",
        )
