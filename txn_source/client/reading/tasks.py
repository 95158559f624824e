"""Dividing ranges of partitions into tasks: by ledger, large ledgers at entries, packed by bytes.

The ranges were found a moment ago. What was trimmed since then, or deleted with its topic, is noticed here, where the
ledgers are listed: a range whose first ledger is gone has lost messages, unless it begins behind all of them. Trimming
takes ledgers from the start, so what goes later is noticed by whoever reads the first ledger that is gone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa

from txn_source.client.reading.footers import TieredPlanning
from txn_source.client.reading.skipping import is_stored, of_ledgers, of_partition
from txn_source.client.reading.source import ReadPartition
from txn_source.client.reading.window import each
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.ranges import Piece
from txn_source.model.errors import DataLossError, TopicNotFoundError
from txn_source.model.packing import OPENING_COST_BYTES, STRIPE_BYTES, Slice, pack, pack_in_step
from txn_source.model.position import MAX_ENTRY_ID, MessageId, Position, PositionRange
from txn_source.model.visibility import BoolArray, IntArray
from txn_source.reading.filters import Columns
from txn_source.reading.places import Name
from txn_source.reading.request import ReadRequest
from txn_source.storage.arrays import numbers_in

_log = logging.getLogger(__name__)
_SMALLEST_TASK_BYTES = 8 << 20
"""A task costs 25-50 ms of a core whatever it reads; less than this isn't worth one."""
_SMALLEST_SHARE_BYTES = 512 << 10
"""Of a partition in a task that reads several in step: each slice costs a few calls."""
_CUTS = 8
"""In so many pieces such a share is looked at, to find those that were written together."""

_LOOKED_AT = 64
"""So many objects are looked at for filters of stored columns, a few ms each."""
_MAX = (1 << 63) - 1
_COUNTED_SLICES = 64
"""A limit that takes more than so many slices is large; then all are read as far as they are asked for."""


@dataclass(frozen=True, slots=True)
class _Ledgers:
    """The range of each ledger of a read, the bytes of the part of it that is read, and 1 where the database doesn't
    know its entries any more."""

    partition: ReadPartition
    ranges: list[PositionRange]
    sizes: IntArray
    purged: IntArray
    offloaded: IntArray
    """1 where there is an object."""
    begins_us: IntArray
    """When the first message was published; 0: it isn't known."""

    @property
    def each(self) -> Iterator[tuple[PositionRange, int, int]]:
        """Range, bytes and whether it is purged, of each ledger."""
        return zip(self.ranges, self.sizes.tolist(), self.purged.tolist(), strict=True)

    def only(self, kept: BoolArray) -> _Ledgers:
        """Return some of them."""
        ranges = [of for of, keep in zip(self.ranges, kept, strict=True) if keep]
        columns = (column[kept] for column in (self.sizes, self.purged, self.offloaded, self.begins_us))
        return _Ledgers(self.partition, ranges, *columns)


def tasks_of(
    stub: MetadataStub,
    objects: TieredPlanning,
    wanted: Sequence[tuple[ReadPartition, PositionRange]],
    request: ReadRequest,
    firsts: Mapping[Name, MessageId] | None = None,
    *,
    in_step: bool = False,
) -> list[list[Slice]]:
    """Return the tasks that read ranges of partitions, each a list of slices in order.

    ``firsts``: where ranges begin inside an entry, the first message. ``in_step``: what the partitions have was written
    together, and lies together; so a task gets a part of each.

    Raises:
        DataLossError: a part of a range is gone. ``fail_on_data_loss=False`` leaves it out, with a warning.
    """
    tables = stub.list_ledgers_of(
        [(p.view.partition_id, reach) for p, reach in wanted], times=in_step or bool(request.filters)
    )
    ledgers = [
        _ledgers(stub, partition, reach, table, request)
        for (partition, reach), table in zip(wanted, tables, strict=True)
    ]
    ledgers = _that_objects_keep(objects, ledgers, request)
    # Who asks for a number of tasks gets it, however small the data; else opening a file has its price.
    opening = 0 if request.min_partitions else OPENING_COST_BYTES
    total = sum(int(found.sizes.sum()) + opening * len(found.sizes) for found in ledgers)
    tasks = request.min_partitions or (os.cpu_count() or 1)
    smallest = 1 if request.min_partitions else _SMALLEST_TASK_BYTES
    target = max(1, min(request.max_partition_bytes, max(smallest, -(-total // tasks))))
    large = target * 3 // 2 - opening
    lanes = sum(1 for found in ledgers if not found.offloaded.all()) if in_step else 1
    stripe = min(target, STRIPE_BYTES)
    share = target if lanes < 2 or total <= stripe else max(_SMALLEST_SHARE_BYTES, stripe // lanes)
    unsplit = share // 2 if share > _SMALLEST_SHARE_BYTES else 2 * share  # each split is a call: not of thousands
    in_objects = [
        (found.partition.view.partition_id, piece)
        for found in ledgers
        for (piece, size, purged), offloaded in zip(found.each, found.offloaded.tolist(), strict=True)
        if (purged or offloaded) and size > large
    ]
    of_objects = each(lambda of: objects.split_range(*of, target), in_objects)
    slices: list[Slice] = []
    begins_us: list[int] = []
    for found in ledgers:
        topic, view = found.partition.topic.short, found.partition.view
        columns = zip(found.each, found.offloaded.tolist(), found.begins_us.tolist(), strict=True)
        for (piece, size, purged), offloaded, begins in columns:
            parts = [Piece(piece, size, None)]
            is_shared = share < target and not offloaded
            if size > large or (is_shared and size > unsplit):
                least = max(1, share // _CUTS) if is_shared else target
                in_object = (purged or offloaded) and size > large
                split = next(of_objects) if in_object else stub.split_range(view.partition_id, piece, least)
                parts = [part for part in split if _wanted(found, part, request)]
            cost = opening // max(1, len(parts)) if is_shared else opening
            slices.extend(Slice(topic, view.index, view.partition_id, p.range, p.bytes + cost) for p in parts)
            begins_us.extend(begins if part.times_us is None else part.times_us[0] for part in parts)
    if share >= target:
        return _skipping(pack(_enough(stub, slices, request), target), wanted, firsts or {})
    packed = pack_in_step(slices, begins_us, target)
    left = len(_enough(stub, [piece for task in packed for piece in task], request))
    starts = accumulate(map(len, packed), initial=0)
    tasks_left = [task[: left - start] for task, start in zip(packed, starts, strict=False) if start < left]
    return _skipping(tasks_left, wanted, firsts or {})


def _skipping(
    tasks: list[list[Slice]], wanted: Sequence[tuple[ReadPartition, PositionRange]], firsts: Mapping[Name, MessageId]
) -> list[list[Slice]]:
    """Return tasks whose slices leave out what lies before the first messages of their entries."""
    inside = {p.view.partition_id: firsts[p.name] for p, _ in wanted if p.name in firsts}

    def skip(piece: Slice) -> Slice:
        first = inside.get(piece.partition_id)
        return piece if first is None or first.position != piece.range.start else replace(piece, skip=first.batch_index)

    return [list(map(skip, task)) for task in tasks] if inside else tasks


def _enough(stub: MetadataStub, slices: Sequence[Slice], request: ReadRequest) -> Sequence[Slice]:
    """Return the first slices that have as many messages as a request wants, as far as that is worth asking."""
    if request.limit is None or request.filters:
        return slices
    limit = request.limit
    for number, piece in enumerate(slices):
        if limit <= 0:
            return slices[:number]
        if number == _COUNTED_SLICES:
            break
        counted = stub.count_range(piece.partition_id, piece.range, request.isolation_level)
        limit -= 0 if counted is None else counted.messages
    return slices


def _that_objects_keep(objects: TieredPlanning, ledgers: list[_Ledgers], request: ReadRequest) -> list[_Ledgers]:
    """Leave out ledgers whose objects have nothing that filters of stored columns want: a task costs more than a look.

    Where there are many objects none is looked at; whoever reads them does.
    """
    looked_at = [(of, number) for of in ledgers for number in np.flatnonzero(of.offloaded).tolist()]
    if not 0 < len(looked_at) <= _LOOKED_AT or not any(map(is_stored, request.filters.columns)):
        return ledgers

    def may_have(which: tuple[_Ledgers, int]) -> bool:
        of, piece = which[0], which[0].ranges[which[1]]
        last = piece.end.entry_id - 1 if piece.end.ledger_id == piece.start.ledger_id else MAX_ENTRY_ID
        known = of_ledgers(_known(of.partition), piece.start.ledger_id, piece.start.entry_id, last)
        return objects.may_have(of.partition.view.partition_id, piece, known, request)

    kept = {id(of): np.ones(len(of.ranges), np.bool_) for of in ledgers}
    for (of, number), keep in zip(looked_at, each(may_have, looked_at), strict=True):
        kept[id(of)][number] = keep
    return [of.only(kept[id(of)]) for of in ledgers]


def _ledgers(
    stub: MetadataStub, partition: ReadPartition, reach: PositionRange, table: pa.Table, request: ReadRequest
) -> _Ledgers:
    reach = what_is_left(stub, partition, reach, table, request)
    ids, entries, sizes = (numbers_in(table[name]) for name in ("ledger_id", "entries", "bytes"))
    first = np.where(ids == reach.start.ledger_id, reach.start.entry_id, 0)
    last = np.where(ids == reach.end.ledger_id, np.minimum(reach.end.entry_id, entries), entries)
    part = np.maximum(last - first, 0)
    costs = (sizes * (part / np.maximum(entries, 1))).astype(np.int64)
    edges = [reach.start, *(Position(int(i), 0) for i in ids[1:]), reach.end][: len(ids) + 1]
    kept = part > 0
    times = _times(table)
    if request.filters:
        known = of_ledgers(_known(partition), ids, first, first + part - 1, times)
        kept &= request.filters.keep(known)
    ranges = [PositionRange(a, b) for a, b in pairwise(edges)]
    offloaded = (numbers_in(table["offloaded_at_ms"]) >= 0).astype(np.int64)
    begins = np.zeros_like(ids) if times is None else np.maximum(numbers_in(table["first_publish_time_us"]), 0)
    return _Ledgers(partition, ranges, costs, numbers_in(table["purged"]), offloaded, begins).only(kept)


def _wanted(of: _Ledgers, piece: Piece, request: ReadRequest) -> bool:
    """Tell whether a piece of a ledger may have rows that the filters want."""
    start, end = piece.range.start, piece.range.end
    last = end.entry_id - 1 if end.ledger_id == start.ledger_id else MAX_ENTRY_ID
    known = of_ledgers(_known(of.partition), start.ledger_id, start.entry_id, last, piece.times_us)
    return bool(request.filters.keep(known))


def _times(ledgers: pa.Table) -> tuple[IntArray, IntArray] | None:
    """Return bounds of the publish times in ledgers; None from a service that doesn't tell."""
    if "first_publish_time_us" not in ledgers.column_names:
        return None
    first, last = (numbers_in(ledgers[f"{which}_publish_time_us"]) for which in ("first", "last"))
    return np.where(first < 0, -_MAX, first), np.where(last < 0, _MAX, last)


def _known(partition: ReadPartition) -> Columns:
    return of_partition(partition.topic.short, partition.view.index)


def what_is_left(
    stub: MetadataStub, partition: ReadPartition, reach: PositionRange, ledgers: pa.Table, request: ReadRequest
) -> PositionRange:
    """Return what is there of a range, by the ledgers that it touches.

    Raises:
        DataLossError: a part of the range is gone. ``fail_on_data_loss=False`` leaves it out, with a warning.
    """
    _check_end(partition, reach, ledgers, request)
    first = ledgers["ledger_id"][0].as_py() if len(ledgers) else None
    if first == reach.start.ledger_id:
        return reach
    until = reach.end if first is None else min(reach.end, Position(first, 0))
    lost, why = PositionRange(reach.start, until), _why_lost(stub, partition, reach.start)
    if why is not None:
        what = f"Partition {partition.view.index} of topic {partition.topic.short!r} has lost {lost}"
        if request.fail_on_data_loss:
            raise DataLossError(
                f"{what}, which was to be read: {why} while the read was planned.",
                "Plan the read again with a new load() or scan(); failOnDataLoss=false leaves out what is gone.",
            )
        _log.warning("%s: %s while the read was planned (failOnDataLoss=false)", what, why)
    return PositionRange(until, reach.end)


def _check_end(partition: ReadPartition, reach: PositionRange, ledgers: pa.Table, request: ReadRequest) -> None:
    """Raise DATA_LOSS if a range ends behind the end of its last ledger, or in none: it was planned over a log that was
    put back since."""
    if not len(ledgers) or not reach.end.entry_id:
        return
    last, entries = (ledgers[name][-1].as_py() for name in ("ledger_id", "entries"))
    if last == reach.end.ledger_id and entries >= reach.end.entry_id:
        return
    lost = PositionRange(max(reach.start, Position(last, entries)), reach.end)
    what = f"Partition {partition.view.index} of topic {partition.topic.short!r} has lost {lost}"
    if request.fail_on_data_loss:
        raise DataLossError(
            f"{what}, which was to be read: its ledger {last} ends there, so the log was put back.",
            "Begin a new query with a new checkpoint; failOnDataLoss=false leaves out what is gone.",
        )
    _log.warning("%s: its ledger %d ends there, so the log was put back (failOnDataLoss=false)", what, last)


def _why_lost(stub: MetadataStub, partition: ReadPartition, start: Position) -> str | None:
    """Return what happened to the messages from a position on; None if what was trimmed lies before it."""
    try:
        [topic] = stub.get_view([partition.topic]).topics
    except TopicNotFoundError:
        return "the topic was deleted"
    for view in topic.partitions:
        if view.partition_id == partition.view.partition_id:
            return None if view.lost_nothing(start) else "it was trimmed"
    return "the topic was deleted and made anew"
