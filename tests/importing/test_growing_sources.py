"""A source that grows between runs of an import, each of which may be stopped: both logs show the same after each."""

from __future__ import annotations

import random
from itertools import takewhile
from pathlib import Path

import pytest

import txn_source
from tests.foreign.pulsar.offload_writer import write_ledger
from tests.foreign.pulsar.sample_cases import only_topic
from tests.foreign.pulsar.test_histories import random_history
from tests.importing.imported_topics import source_rows, target_rows
from tests.importing.test_stopped_imports import StoppedError, stop_at_random
from txn_source import IsolationLevel
from txn_source.importing import batch_writer, feed, import_topics
from txn_source.model.position import PositionRange


def check(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ledgers be offloaded one after the other, and import after some of them."""
    chance = random.Random(seed)
    history = random_history(chance)
    objects, root = folder / "pulsar", folder / "log"
    objects.mkdir(parents=True)
    undecided = chance.choice(["keep", "leave"])
    ledgers = sorted(history.ledgers)
    for ledger in ledgers:
        write_ledger(objects, ledger, history.ledgers[ledger])
        if ledger != ledgers[-1] and chance.random() < 0.4:
            continue
        end = import_until_done(objects, root, undecided, chance, monkeypatch)
        partition = only_topic(objects)
        bounds = partition.bounds()
        assert end == (bounds.high_watermark if undecided == "keep" else bounds.last_stable), seed
        with txn_source.connect(root) as log:
            of = PositionRange(bounds.log_start, end)
            rows = source_rows(partition, of, IsolationLevel.READ_UNCOMMITTED, ("value", "__txn_status"))
            # A transaction's chunks that lack the last one are no rows, so the target doesn't know of them.
            decided = list(takewhile(lambda row: row[1] != "open", rows))
            committed = [value for value, status in decided if status != "aborted"]
            with txn_source.connect(root) as log:
                assert values(log, IsolationLevel.READ_UNCOMMITTED) == [value for value, _ in rows], (seed, ledger)
                assert values(log, IsolationLevel.READ_COMMITTED) == committed, (seed, ledger)


def values(log: txn_source.Log, level: IsolationLevel) -> list[bytes | None]:
    return [row[1] for row in target_rows(log, "orders", 0, level)]


def import_until_done(
    objects: Path, root: Path, undecided: str, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> object:
    while True:
        with txn_source.connect(root) as log, monkeypatch.context() as patched:
            stop_at_random(log, chance, patched)
            try:
                return import_topics(f"pulsar:{objects}", "orders", log, undecided=undecided).parts[0].end
            except StoppedError:
                continue


@pytest.mark.parametrize("seed", range(2))
def test_ledgers_that_come_later_are_imported(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undecided transactions are left or kept open, and end as the source says."""
    monkeypatch.setattr(batch_writer, "BATCH_ROWS", 5)
    monkeypatch.setattr(feed, "STEP_ROWS", 3)
    check(seed, tmp_path, monkeypatch)
