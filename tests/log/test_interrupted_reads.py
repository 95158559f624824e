"""A read that is interrupted goes on as if nothing had happened, or says that it has ended: it never looks complete."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.log.reading import send_each
from tests.log.sites import Site
from tests.log.streaming import numbered
from txn_source import DataLossError, Log, UnavailableError
from txn_source.client import assembly, slice_reader

_FOLDER = str(Path(slice_reader.__file__).parent)


class Interrupt:
    """Raises KeyboardInterrupt at the k-th line of the reading modules."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.lines = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_FOLDER):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.k:
                raise KeyboardInterrupt
        return self


def read(log: Log, k: int) -> tuple[list[bytes], bool, int]:
    """Read to the end through an interrupt at line k; return the values, if it came to its end, and its lines."""
    scanned = log.scan("t", columns=["value"])
    values: list[bytes] = []
    trace, interrupt = sys.gettrace(), Interrupt(k)
    sys.settrace(interrupt)
    try:
        while True:
            try:
                values += scanned.read_next_batch()["value"].to_pylist()
            except KeyboardInterrupt:
                sys.settrace(None)
            except StopIteration:
                return values, True, interrupt.lines
            except UnavailableError:
                return values, False, interrupt.lines
    finally:
        sys.settrace(trace)


@pytest.mark.parametrize("tier", ["bookkeeper", "tiered"])
def test_interrupted_scan_never_looks_complete(embedded_site: Site, monkeypatch: pytest.MonkeyPatch, tier: str) -> None:
    """Interrupt a scan of several batches at lines all over the reading modules, and ask it for more: either it gives
    all rows, or it says that it was ended, with the first rows and no row twice. No file stays open."""
    monkeypatch.setattr(assembly, "TARGET_ROWS", 2)
    log = embedded_site.connect()
    log.create_topic("t", ledger_max_entries=3)
    with log.producer("t") as producer:
        send_each(producer, numbered(8))
    if tier == "tiered":
        log.roll_ledger("t")
        log.offload("t")
        log.delete_hot("t")
    whole, complete, lines = read(log, -1)
    assert (whole, complete) == (numbered(8), True)
    before = len(os.listdir("/proc/self/fd"))
    outcomes = set()
    for k in range(1, lines + 1, 5):
        values, complete, _ = read(log, k)
        assert values == whole[: len(values)]
        assert not complete or values == whole, f"line {k}"
        outcomes.add(complete)
    assert False in outcomes
    assert len(os.listdir("/proc/self/fd")) <= before


def test_failed_scan_fails_again(log: Log) -> None:
    """Trim what a scan has planned; however often it is asked then, it doesn't say that it has come to its end."""
    log.create_topic("t", ledger_max_entries=2)
    with log.producer("t") as producer:
        send_each(producer, numbered(5))
    scanned = log.scan("t")
    log.roll_ledger("t")
    log.trim("t", older_than=0)
    for _ in range(3):
        with pytest.raises(DataLossError, match=r"\[1:0, 3:1\)"):
            scanned.read_next_batch()
