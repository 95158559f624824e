"""What was learnt of ledgers is known in the next plan, and what is kept of it is bounded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.foreign.pulsar.offload_writer import write_ledger
from tests.foreign.pulsar.test_objects import _A, entries_of, values
from txn_source.foreign.pulsar import partition, summary_cache
from txn_source.foreign.pulsar.summary import LedgerSummary, Transactions
from txn_source.foreign.pulsar.summary_cache import size_of_summary


def test_a_ledger_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan a topic twice with logs of their own: its ledgers are read once, and again when an object was replaced."""
    looks: list[int] = []
    summarize = partition.summarize

    def counted(source: Any, ledger_id: int) -> Any:
        looks.append(ledger_id)
        return summarize(source, ledger_id)

    monkeypatch.setattr(partition, "summarize", counted)
    path = write_ledger(tmp_path, 3, entries_of(b"a"), name=_A)
    write_ledger(tmp_path, 4, entries_of(b"b"), name=_A)
    assert values(tmp_path) == values(tmp_path) == [b"a", b"b"]
    assert sorted(looks) == [3, 4]
    write_ledger(tmp_path, 3, entries_of(b"c"), name=_A)
    os.utime(path, ns=(1, 1))
    assert values(tmp_path) == [b"c", b"b"]
    assert sorted(looks) == [3, 3, 4]


def test_what_is_known_of_ledgers_is_bounded() -> None:
    """Keep more than there is room for: what was used longest ago is forgotten."""
    none = np.zeros(0, np.int64)
    looks: list[int] = []

    def look(at: int) -> LedgerSummary:
        looks.append(at)
        return LedgerSummary(at, 0, Transactions(*[none] * 5, none != 0), (), none, none, none, none, none)

    kept = summary_cache.Kept[LedgerSummary](2 * size_of_summary(look(0)), size_of_summary)
    for at in (1, 2, 1, 3, 1, 2):
        assert kept.get((f"o{at}", 1, 1), lambda at=at: look(at)).ledger_id == at  # type: ignore[misc]
    assert looks == [0, 1, 2, 3, 2]
