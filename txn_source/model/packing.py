"""Slices of partitions, and packing them into tasks by bytes."""

from __future__ import annotations

from collections.abc import Sequence

from txn_source.model.position import PositionRange
from txn_source.model.values import dataclass

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
    """Return the slices in tasks of about ``target_bytes``, in their order and each in one task.

    A task is closed when the next slice would take it more than half of itself over the target. Neighbours on one
    partition are joined into one slice.
    """
    tasks: list[list[Slice]] = []
    size = 0
    for piece in slices:
        if not tasks or size + piece.cost_bytes / 2 > target_bytes:
            tasks.append([piece])
            size = piece.cost_bytes
            continue
        size += piece.cost_bytes
        last = tasks[-1][-1]
        if last.partition_id == piece.partition_id and last.range.end == piece.range.start:
            joined = PositionRange(last.range.start, piece.range.end)
            cost = last.cost_bytes + piece.cost_bytes
            tasks[-1][-1] = Slice(last.topic, last.partition, last.partition_id, joined, cost)
        else:
            tasks[-1].append(piece)
    return tasks
