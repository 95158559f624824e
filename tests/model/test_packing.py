"""Packing slices into tasks by bytes."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from txn_source.model.packing import Slice, pack
from txn_source.model.position import Position, PositionRange


def piece(partition_id: int, start: int, end: int, cost: int) -> Slice:
    return Slice("orders", partition_id, partition_id, PositionRange(Position(1, start), Position(1, end)), cost)


@st.composite
def slices(draw: st.DrawFn) -> list[Slice]:
    """Slices as a plan makes them: partition after partition, ascending, with gaps here and there."""
    found = []
    for partition_id in range(draw(st.integers(0, 3))):
        at = 0
        for entries, gap, cost in draw(
            st.lists(st.tuples(st.integers(1, 5), st.sampled_from([0, 0, 0, 2]), st.integers(1, 150)), max_size=8)
        ):
            at += gap
            found.append(piece(partition_id, at, at + entries, cost))
            at += entries
    return found


def entries_of(pieces: list[Slice]) -> list[tuple[int, int]]:
    """Return partition and entry id of all that the slices read, in order."""
    return [(p.partition_id, e) for p in pieces for e in range(p.range.start.entry_id, p.range.end.entry_id)]


@given(slices(), st.integers(1, 300))
def test_every_entry_is_read_once_and_in_order(given_slices: list[Slice], target: int) -> None:
    """Pack any slices: the tasks one after the other read what the slices did, at the same cost, and none is empty."""
    tasks = pack(given_slices, target)
    assert all(tasks)
    assert entries_of([p for task in tasks for p in task]) == entries_of(given_slices)
    assert sum(p.cost_bytes for task in tasks for p in task) == sum(p.cost_bytes for p in given_slices)


@given(slices(), st.integers(1, 300))
def test_neighbours_in_a_task_are_joined(given_slices: list[Slice], target: int) -> None:
    """Pack any slices: no slice of a task continues the one before it, and the joined keep topic and partition."""
    for task in pack(given_slices, target):
        for before, after in pairwise(task):
            assert (before.partition_id, before.range.end) != (after.partition_id, after.range.start)
        assert all((p.topic, p.partition) == ("orders", p.partition_id) for p in task)


@given(slices(), st.integers(1, 300))
def test_tasks_are_near_their_target(given_slices: list[Slice], target: int) -> None:
    """Pack any slices: a task is over the target by half of its last slice at most, or is one slice; and it was
    closed because the next one would have taken it further over."""
    costs = iter([p.cost_bytes for p in given_slices])
    groups: list[list[int]] = []
    for task in pack(given_slices, target):
        groups.append([])
        while sum(groups[-1]) < sum(p.cost_bytes for p in task):
            groups[-1].append(next(costs))
    assert all(len(group) == 1 or sum(group) <= target + group[-1] / 2 for group in groups)
    assert all(sum(group) + following[0] / 2 > target for group, following in pairwise(groups))


def test_slices_are_put_together_up_to_the_target() -> None:
    """Pack slices of 40 bytes for tasks of 100: two make 80, and a third one would be less than half over."""
    pieces = [piece(0, i * 10, i * 10 + 5, 40) for i in range(7)]
    assert [len(task) for task in pack(pieces, 100)] == [3, 3, 1]


def test_joined_slice_costs_what_its_parts_did() -> None:
    """Pack two neighbours, and a neighbour in positions that lies on another partition."""
    tasks = pack([piece(0, 0, 5, 30), piece(0, 5, 9, 20), piece(1, 9, 12, 10)], 1000)
    assert tasks == [[piece(0, 0, 9, 50), piece(1, 9, 12, 10)]]


def test_slice_above_the_target_is_a_task_of_its_own() -> None:
    """Pack a huge slice between small ones."""
    tasks = pack([piece(0, 0, 1, 10), piece(1, 0, 1, 1000), piece(2, 0, 1, 10)], 100)
    assert [[p.partition_id for p in task] for task in tasks] == [[0], [1], [2]]


def test_nothing_makes_no_task() -> None:
    """Pack no slices."""
    assert pack([], 100) == []
