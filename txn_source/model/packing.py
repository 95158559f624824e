"""Slices of partitions, and packing them into tasks by bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from txn_source.model.position import PositionRange

OPENING_COST_BYTES = 1 << 20
"""What opening one more ledger costs, in bytes that could have been read meanwhile (a few milliseconds)."""
STRIPE_BYTES = 48 << 20
"""Where partitions share objects: about so much of them is read together, and kept for that long."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of one partition that one task reads, at ``cost_bytes`` (bytes stored plus opening cost).

    ``skip``: of the entry at the start of the range so many messages are left out.
    """

    topic: str
    partition: int
    partition_id: int
    range: PositionRange
    cost_bytes: int
    skip: int = 0


def pack(slices: Sequence[Slice], target_bytes: int) -> list[list[Slice]]:
    """Return the slices in tasks of about ``target_bytes``, as ``packed``; neighbours on one partition are joined."""
    return [joined(slices[run.start : run.stop]) for run in packed([each.cost_bytes for each in slices], target_bytes)]


def packed(costs: Sequence[int], target_bytes: int) -> Iterator[range]:
    """Yield the indexes of each task's parts, by the parts' costs in bytes, in their order.

    A task is closed when the next part would take it more than half of the part over the target.
    """
    first = size = 0
    for index, cost in enumerate(costs):
        if index > first and size + cost / 2 > target_bytes:
            yield range(first, index)
            first, size = index, 0
        size += cost
    if costs:
        yield range(first, len(costs))


def pack_in_step(slices: Sequence[Slice], times_us: Sequence[int], target_bytes: int) -> list[list[Slice]]:
    """Return slices of partitions that share objects in tasks of about ``target_bytes``, each with a part of each
    partition.

    What was written together was published together, so tasks are cut between two times, unless what has one time is
    more than half a task. Large tasks are cut into stripes in the same way, in each of which slices are in the order of
    topics and partitions, which ``stripes`` tells them apart by. Slices of a partition stay in their order.

    Args:
        slices: partition after partition; several of a partition for each stripe, so that cuts come close to objects.
        times_us: when the first message of each was published; 0: it isn't known.
        target_bytes: what a task is to have.
    """
    latest: dict[int, int] = {}
    begun: list[tuple[int, int]] = []
    for number, (piece, time_us) in enumerate(zip(slices, times_us, strict=True)):
        latest[piece.partition_id] = max(time_us, latest.get(piece.partition_id, 0))  # clocks may have gone back
        begun.append((latest[piece.partition_id], number))
    tasks: list[list[list[int]]] = []
    in_each = round(target_bytes / STRIPE_BYTES)
    task, before, filled = -1, 0, 0
    for part, cost in _undivided(slices, sorted(begun), target_bytes // 2):
        if (before + cost // 2) // target_bytes != task:
            task, filled = (before + cost // 2) // target_bytes, 0
            tasks.append([[]])
        elif in_each > 1 and filled + cost // 2 > target_bytes // in_each:
            filled = 0
            tasks[-1].append([])
        tasks[-1][-1] += part
        before += cost
        filled += cost
    return [joined(piece for stripe in of_task for piece in _sorted(slices, stripe)) for of_task in tasks]


def stripes(slices: Iterable[Slice]) -> Iterator[list[Slice]]:
    """Yield slices in their order, as many at once as are to be read together and fit in memory: up to where the order
    of topics and partitions goes back. It may be the slices of several tasks, one task's after the other's."""
    stripe: list[Slice] = []
    size = 0
    for piece in slices:
        size += piece.cost_bytes
        if stripe and (size > 2 * STRIPE_BYTES or _order(piece) < _order(stripe[-1])):
            yield stripe
            stripe, size = [], piece.cost_bytes
        stripe.append(piece)
    if stripe:
        yield stripe


def _order(piece: Slice) -> tuple[str, int]:
    return piece.topic, piece.partition


def _sorted(slices: Sequence[Slice], numbers: Sequence[int]) -> list[Slice]:
    """Return a stripe's slices; ``sorted`` leaves those of one partition in their order."""
    return sorted((slices[number] for number in sorted(numbers)), key=_order)


def _undivided(
    slices: Sequence[Slice], begun: Sequence[tuple[int, int]], most_bytes: int
) -> Iterator[tuple[list[int], int]]:
    """Yield the numbers of slices that are to stay together, and their cost: those that begin at one time, unless that
    is too much."""
    for _, together in groupby(begun, key=itemgetter(0)):
        group = [number for _, number in together]
        cost = sum(slices[number].cost_bytes for number in group)
        if cost <= most_bytes:
            yield group, cost
        else:
            yield from (([number], slices[number].cost_bytes) for number in group)


def joined(slices: Iterable[Slice]) -> list[Slice]:
    """Return slices, neighbours on one partition as one."""
    task: list[Slice] = []
    for piece in slices:
        _add(task, piece)
    return task


def _add(task: list[Slice], piece: Slice) -> None:
    """Put a slice behind the last one of a task, joined with it if it goes on there."""
    last = task[-1] if task else None
    follows = last is not None and (last.partition_id, last.range.end) == (piece.partition_id, piece.range.start)
    if last is not None and follows and not piece.skip:
        reach = PositionRange(last.range.start, piece.range.end)
        task[-1] = replace(last, range=reach, cost_bytes=last.cost_bytes + piece.cost_bytes)
    else:
        task.append(piece)
