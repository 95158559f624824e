"""The database is lost, and made again from what lies in the root: readers see what they saw, and writers go on."""

from __future__ import annotations

from pathlib import Path

import pytest

import txn_source
from tests.upkeep.histories import TOPICS, History, check_goes_on, make, seen, values, without_database, worst
from txn_source.upkeep.rebuild import rebuild


def seeds(quick: int, long: int) -> list[object]:
    """Return seeds, most of them for ``--long``."""
    return [seed if seed < quick else pytest.param(seed, marks=pytest.mark.long) for seed in range(long)]


@pytest.mark.parametrize("seed", seeds(6, 200))
def test_readers_see_what_they_saw(tmp_path: Path, seed: int) -> None:
    """Write, commit, abort, offload, trim at random; lose the database: all is the same at both levels."""
    root = tmp_path / "log"
    log = make(root)
    History(log, seed, kills=False).run(60)
    before = {topic: seen(log, topic) for topic in TOPICS}
    log.close()
    root = without_database(root, tmp_path / "left")
    report = rebuild(root, undecided="abort")
    assert [(t.without_receipt, t.left_out, t.lost) for t in report.topics] == [(0, 0, ())] * 2
    assert not [note for note in report.notes if "can be read" in note]
    assert not worst(root)
    with txn_source.connect(root) as log:
        check_goes_on(log, before, seed)


@pytest.mark.parametrize("seed", seeds(6, 200))
def test_what_killed_writers_have_stored_is_there(tmp_path: Path, seed: int) -> None:
    """Let writers end without noting their last receipts: all messages are there, as many as there were."""
    root = tmp_path / "log"
    log = make(root)
    history = History(log, seed, kills=True)
    history.run(60)
    before = {topic: seen(log, topic) for topic in TOPICS}
    root = without_database(root, tmp_path / "left")
    rebuild(root, undecided="commit")
    assert not worst(root)
    with txn_source.connect(root) as log:
        for topic in TOPICS:
            assert values(seen(log, topic)) == values(before[topic]), topic
