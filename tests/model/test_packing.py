"""Packing slices into tasks by bytes."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from txn_source.model.packing import STRIPE_BYTES, Slice, pack, pack_in_step, stripes
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


@given(slices(), st.data(), st.integers(1, 300))
def test_in_step_every_entry_is_read_once_and_each_partition_in_order(
    given_slices: list[Slice], data: st.DataObject, target: int
) -> None:
    """Pack slices with any times, some unknown, some going back: each partition is read as it was given, at the same
    cost, and there are as many tasks as were asked for, or one less or more."""
    times = [data.draw(st.integers(0, 5)) for _ in given_slices]
    tasks = pack_in_step(given_slices, times, target)
    assert all(tasks)
    read = entries_of([p for task in tasks for p in task])
    for partition_id in {p.partition_id for p in given_slices}:
        mine = [entry for entry in entries_of(given_slices) if entry[0] == partition_id]
        assert [entry for entry in read if entry[0] == partition_id] == mine
    assert len(read) == len(entries_of(given_slices))
    total = sum(p.cost_bytes for p in given_slices)
    assert sum(p.cost_bytes for task in tasks for p in task) == total
    assert len(tasks) <= -(-total // target)


@given(st.integers(1, 6), st.integers(1, 40), st.integers(1, 8))
def test_in_step_what_was_written_together_is_read_together(lanes: int, flushes: int, wanted: int) -> None:
    """Write to all partitions at once, again and again: if a task has two flushes or more, none is in two tasks, and a
    task has one slice of each partition for each stripe."""
    each = 1 << 20
    given_slices = [piece(lane, flush, flush + 1, each) for lane in range(lanes) for flush in range(flushes)]
    total = each * lanes * flushes
    target = -(-total // wanted)
    tasks = pack_in_step(given_slices, list(range(1, flushes + 1)) * lanes, target)
    if target >= 2 * each * lanes:
        assert len(tasks) == wanted
        read = [{entry for _, entry in entries_of(task)} for task in tasks]
        assert sum(map(len, read)) == flushes
        assert all(len(task) <= lanes * (1 + round(target / STRIPE_BYTES)) for task in tasks)
        assert target > STRIPE_BYTES or all(len(task) == lanes for task in tasks)
    assert len(tasks) <= wanted


@given(st.integers(2, 20), st.integers(1, 16), st.integers(1, 12))
def test_stripes_are_told_apart_whose_flushes_are_of_some_partitions(lanes: int, together: int, wanted: int) -> None:
    """Write to one partition after the other, so many entries with each flush: who reads the tasks' slices, one task's
    after the other's, finds each flush in one stripe."""
    each, entries = 2 << 20, 240
    by_lane = sorted(range(entries), key=lambda number: number % lanes)
    given_slices = [piece(number % lanes, number // lanes, number // lanes + 1, each) for number in by_lane]
    times = [number // together + 1 for number in by_lane]
    flush_of = dict(zip(entries_of(given_slices), times, strict=True))
    target = max(-(-each * entries // wanted), 2 * each * together)
    tasks = pack_in_step(given_slices, times, target)
    read = list(stripes(p for task in tasks for p in task))
    assert [p for stripe in read for p in stripe] == [p for task in tasks for p in task]
    assert sum(len({flush_of[entry] for entry in entries_of(stripe)}) for stripe in read) == max(times)


def test_in_step_what_one_task_cannot_take_is_cut_by_partition() -> None:
    """Have one flush for many tasks, and slices of which nobody knows the time."""
    given_slices = [piece(lane, 0, 1, 100) for lane in range(8)]
    for times in ([7] * 8, [0] * 8):
        assert pack_in_step(given_slices, times, 200) == [given_slices[at : at + 2] for at in range(0, 8, 2)]
    assert pack_in_step([], [], 200) == []
