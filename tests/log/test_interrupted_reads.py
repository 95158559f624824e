"""A read that is interrupted goes on as if nothing had happened, or says that it has ended: it never looks complete."""

from __future__ import annotations

import os
import sys

import pytest

from tests.interrupts.injection import at_signal_point
from tests.log.reading import send_each, trim_closed
from tests.log.sites import Site
from tests.log.streaming import numbered
from txn_source import DataLossError, Log, UnavailableError, client
from txn_source.client.reading import batch_assembly


def read(log: Log, k: int) -> tuple[list[bytes], bool, int]:
    """Read to the end through an interrupt at point k; return the values, if it came to its end, and its points."""
    scanned = log.scan("t", columns=["value"])
    values: list[bytes] = []
    points = 0
    while True:
        try:
            with at_signal_point(k - points, (client,), KeyboardInterrupt) as injection:
                values += scanned.read_next_batch()["value"].to_pylist()
        except KeyboardInterrupt:
            pass
        except StopIteration:
            return values, True, points + injection.seen
        except UnavailableError:
            return values, False, points + injection.seen
        points += injection.seen if injection.place is None else sys.maxsize


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file that closed itself
@pytest.mark.parametrize("tier", ["bookkeeper", "tiered"])
def test_interrupted_scan_never_looks_complete(embedded_site: Site, monkeypatch: pytest.MonkeyPatch, tier: str) -> None:
    """Interrupt a scan of several batches at points all over the reading modules, and ask it for more: either it gives
    all rows, or it says that it was ended, with the first rows and no row twice. No file stays open."""
    monkeypatch.setattr(batch_assembly, "TARGET_ROWS", 2)
    log = embedded_site.connect()
    log.create_topic("t", ledger_max_entries=3)
    with log.producer("t") as producer:
        send_each(producer, numbered(8))
    if tier == "tiered":
        log.roll_ledger("t")
        log.offload("t")
        log.delete_hot("t")
    whole, complete, points = read(log, sys.maxsize)
    assert (whole, complete) == (numbered(8), True)
    before = len(os.listdir("/proc/self/fd"))
    outcomes = set()
    for k in range(0, points, 5):
        values, complete, _ = read(log, k)
        assert values == whole[: len(values)]
        assert not complete or values == whole, f"point {k}"
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
    trim_closed(log, "t")
    for _ in range(3):
        with pytest.raises(DataLossError, match=r"\[1:0, 3:[01]\)"):
            scanned.read_next_batch()
