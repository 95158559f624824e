"""Whole transactions over several partitions and topics: read_committed never shows one half of a transfer."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.history import PARTITIONS, STEPS, History, Place
from tests.log.reading import BY_HAND, send_each
from tests.selection import examples
from txn_source import DataLossError, Position, connect
from txn_source.client.reading.source import resolve
from txn_source.model import cut
from txn_source.model.topic import PartitionView
from txn_source.reading.request import Selection


@given(
    STEPS,
    st.lists(st.integers(0, 3), min_size=PARTITIONS, max_size=PARTITIONS),
    st.lists(st.integers(0, 40), min_size=PARTITIONS, max_size=PARTITIONS),
    st.lists(st.integers(0, 40), min_size=PARTITIONS, max_size=PARTITIONS),
    st.sampled_from([0, 256]),
)
@settings(max_examples=examples(6), deadline=None)
def test_database_finds_the_cut_that_the_definition_gives(
    tmp_path_factory: Any, steps: Any, trimmed: list[int], at: list[int], begin: list[int], near: int
) -> None:
    """Let transactions overlap, trim, and ask for cuts from any bounds: compare with the definition carried out over
    what was written. ``near`` is how far is looked before counts of transactions tell which need not be looked at."""
    with pytest.MonkeyPatch.context() as patch, connect(tmp_path_factory.mktemp("cut") / "log") as log:
        patch.setattr(cut, "_NEAR", near)
        history = History(log)
        for step in steps:
            history.do(*step)
        for partition, ledgers in enumerate(trimmed):
            history.trim(partition, ledgers)
        views = [p.view for p in resolve(log.metadata, Selection.of("t")).partitions]
        spans = [
            [(v, first(transaction, v), max(places)) for v in views if (places := kept(transaction, v))]
            for transaction in history.entries.values()
        ]
        everything = [place for places in history.entries.values() for place in places]
        known = [sorted({v.bounds.log_start, v.bounds.log_end, *kept(everything, v)}) for v in views]
        bounds = {v.partition_id: known[v.index][at[v.index] % len(known[v.index])] for v in views}
        lowered = log.metadata.find_cut(bounds)
        assert lowered == naive(bounds, spans)
        starts = naive({v.partition_id: known[v.index][begin[v.index] % len(known[v.index])] for v in views}, spans)
        above = {p: max(starts[p], bounds[p]) for p in bounds}
        assert log.metadata.find_cut(above, starts) == naive(above, spans)
        raised = log.metadata.find_cut(above, starts, upward=True)
        assert naive(raised, spans) == raised
        for other in itertools.product(*known):  # no smaller cut lies above the bounds
            smaller = {v.partition_id: other[v.index] for v in views}
            if all(above[p] <= smaller[p] for p in above) and naive(smaller, spans) == smaller:
                assert all(raised[p] <= smaller[p] for p in above)


def kept(places: list[Place], view: PartitionView) -> list[Position]:
    return [x for p, x in places if p == view.index and x >= view.bounds.log_start]


def first(places: list[Place], view: PartitionView) -> Position:
    """Return where a transaction begins; one whose beginning was trimmed begins with the log."""
    return max(min(x for p, x in places if p == view.index), view.bounds.log_start)


def naive(bounds: dict[int, Position], spans: Any) -> dict[int, Position]:
    """Do what the definition says until nothing changes."""
    bounds, changed = dict(bounds), True
    while changed:
        changed = False
        for of_txn in spans:
            if any(last >= bounds[v.partition_id] for v, _, last in of_txn):
                for v, first, _ in of_txn:
                    if first < bounds[v.partition_id]:
                        bounds[v.partition_id], changed = first, True
    return bounds


def test_cut_above_which_messages_were_trimmed_is_refused(tmp_path: Path) -> None:
    """Look at bounds, trim what lies above one of them and what lies below, and ask for the cuts: one is lost."""
    with connect(tmp_path / "log") as log:
        log.create_topic("t", partitions=2, ledger_max_entries=2)
        send_each(log.producer("t", batching=BY_HAND), [b"%d" % number for number in range(6)], partition=0)
        before, other = (p.view for p in resolve(log.metadata, Selection.of("t")).partitions)
        log.trim("t", keep_bytes=0)
        bounds = {before.partition_id: before.bounds.log_end, other.partition_id: other.bounds.log_end}
        assert log.metadata.find_cut(bounds)[before.partition_id] == before.bounds.log_end
        bounds[before.partition_id] = before.bounds.log_start
        with pytest.raises(DataLossError, match=r"Partition 0 of topic 't' has lost \["):
            log.metadata.find_cut(bounds)
