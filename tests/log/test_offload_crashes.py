"""Offloads that crash, collide, or find that the ledger is gone: a copy is registered whole or not at all, every row
stays, and what is left over is deleted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.log import tiers
from tests.log.meddling import Crash, meddling
from tests.log.reading import UNCOMMITTED
from tests.log.sites import ManualClock, Site
from tests.log.tiers import closed_ledgers, everything, objects, second_files, tiers_of
from tests.selection import mostly_long
from txn_source import (
    Log,
    SegmentUnreadableError,
    StorageWriteError,
)
from txn_source.client.tiering.offload import OffloadReport
from txn_source.model.copies import Tier

LEASE_S = 3600
BOTH, HOT = {"bookkeeper", "tiered"}, {"bookkeeper"}


def filled(log: Log, ledgers: int = 3) -> pa.Table:
    """Write a topic with closed ledgers and return all its rows."""
    log.create_topic("orders")
    tiers.write_ledgers(log, ledgers=ledgers)
    return everything(log, "orders", UNCOMMITTED)


def check_offloaded(log: Log, rows: pa.Table, ledgers: int = 3) -> None:
    """Check that each ledger has its own object and no other lies there, and that these have the rows."""
    assert tiers_of(log, "orders") == [BOTH] * ledgers
    assert [int(path.name.split("-")[1]) for path in objects(log.root)] == closed_ledgers(log, "orders")
    log.delete_hot("orders")
    assert everything(log, "orders", UNCOMMITTED).equals(rows)


# Crashes


@pytest.mark.parametrize(
    ("moment", "method", "left"),
    [("after", "ListDecisions", 0), ("before", "CompleteOffload", 1), ("after", "CompleteOffload", 1)],
)
def test_crash_leaves_nothing_behind_once_the_ledger_is_offloaded(
    clocked_site: Site, moment: str, method: str, left: int
) -> None:
    """Crash in the first offload: reads go on, the next one succeeds, and only its objects stay."""
    log = clocked_site.connect()
    rows = filled(log)
    crashing, way = meddling(clocked_site)
    getattr(way, moment)[method] = way.crash
    with pytest.raises(Crash):
        crashing.offload("orders")
    assert len(objects(log.root)) == left
    done = moment == "after" and method == "CompleteOffload"
    assert tiers_of(log, "orders") == [BOTH if done else HOT, HOT, HOT]
    assert everything(log, "orders", UNCOMMITTED).equals(rows)
    assert len(log.offload("orders").ledger_ids) == (2 if done else 3)
    check_offloaded(log, rows)


def test_offload_that_comes_back_after_its_lease_is_refused(clocked_site: Site, clock: ManualClock) -> None:
    """Let an offload sleep for longer than its lease before it completes, while others clean up after it."""
    log = clocked_site.connect()
    rows = filled(log)
    late, way = meddling(clocked_site)

    def sleep() -> None:
        clock.advance(LEASE_S + 1)
        log.maintain()

    way.before["CompleteOffload"] = sleep
    report = late.offload("orders")
    assert (len(report.ledger_ids), len(report.skipped)) == (2, 1)
    assert everything(log, "orders", UNCOMMITTED).equals(rows)
    assert len(log.offload("orders").ledger_ids) == 1
    check_offloaded(log, rows)


# Several offloads


def test_repeated_offload_does_nothing(site: Site) -> None:
    """Offload again, and once more with every call sent twice, as a retry would."""
    log = site.connect()
    rows = filled(log)
    twice, _ = meddling(site, times=2)
    assert len(twice.offload("orders").ledger_ids) == 3
    files = {path: path.stat().st_mtime_ns for path in objects(log.root)}
    assert log.offload("orders") == OffloadReport()
    assert {path: path.stat().st_mtime_ns for path in objects(log.root)} == files
    check_offloaded(log, rows)


@pytest.mark.parametrize("method", mostly_long(["BeginOffload", "ListEntries", "CompleteOffload"], "CompleteOffload"))
@pytest.mark.parametrize("hot_deleted", mostly_long([False, True], True))
def test_offload_that_is_overtaken_steps_back(site: Site, method: str, hot_deleted: bool) -> None:
    """Let another one offload everything, and delete the hot copies, in the middle of an offload: its object stays."""
    log = site.connect()
    rows = filled(log)
    slow, way = meddling(site)

    def overtake() -> None:
        assert len(log.offload("orders").ledger_ids) == 3
        if hot_deleted:
            log.delete_hot("orders")

    way.before[method] = overtake
    report = slow.offload("orders")
    assert report.ledger_ids == ()
    assert list(report.skipped) == closed_ledgers(log, "orders")
    assert (len(objects(log.root)), len(second_files(log.root))) == (3, 3)
    assert everything(log, "orders", UNCOMMITTED).equals(rows)


# What is offloaded goes away, or the target isn't there


@pytest.mark.parametrize(
    "method",
    mostly_long(["BeginOffload", "ListEntries", "ListDecisions", "ListCopies", "CompleteOffload"], "CompleteOffload"),
)
@pytest.mark.parametrize("gone", ["trim", "delete_topic"])
def test_ledger_that_goes_away_under_its_offload_leaves_no_object(
    tmp_path: Path, clock: ManualClock, method: str, gone: str
) -> None:
    """Trim the topic or delete it in the middle: nothing is registered, and after the lease no object is left."""
    with Site("embedded", tmp_path / "log", clock) as site:
        log = site.connect()
        filled(log)
        slow, way = meddling(site)
        way.before[method] = lambda: log.trim("orders", keep_bytes=0) if gone == "trim" else log.delete_topic("orders")
        report = slow.offload("orders")
        assert (report.ledger_ids, len(report.skipped)) == ((), 3)
        if gone == "trim":
            assert log.stats("orders").messages == 1
        else:
            assert log.topics() == []
        clock.advance(LEASE_S + 1)
        log.maintain()
        assert objects(log.root) == []
        assert {file.uri for file in log.metadata.list_doomed_files()} <= {"segments/1"}, "for who still writes there"


def test_target_that_cannot_be_written_registers_nothing(site: Site, tmp_path: Path) -> None:
    """Offload into what is a file, not a folder; then set another target and offload there."""
    log = site.connect()
    rows = filled(log)
    (tmp_path / "file").write_text("in the way")
    log.set_policies("orders", offload_uri=str(tmp_path / "file" / "folder"))
    with pytest.raises(StorageWriteError, match=r"^\[TXNLOG_STORAGE_WRITE_FAILED\] .*Nothing was registered"):
        log.offload("orders")
    assert tiers_of(log, "orders") == [HOT] * 3
    assert [topic for topic, _ in log.maintain().failures] == []
    log.set_policies("orders", offload_after_age=0)
    [(topic, why)] = log.maintain().failures
    assert topic == "orders"
    assert "STORAGE_WRITE_FAILED" in why
    log.set_policies("orders", offload_uri=str(tmp_path / "cold"))
    assert len(log.offload("orders").ledger_ids) == 3
    assert objects(log.root) == []
    assert len(list((tmp_path / "cold").rglob("*.parquet"))) == 3
    assert log.delete_hot("orders") == 3
    assert everything(log, "orders", UNCOMMITTED).equals(rows)


def test_damaged_ledger_is_not_offloaded_and_keeps_no_other_from_it(site: Site) -> None:
    """Damage a hot copy: the error names it, the ledgers around it are offloaded, and no half object is left."""
    log = site.connect()
    filled(log)
    tiers.flip_in_middle(tiers.copy_of(log.root, closed_ledgers(log, "orders")[1], Tier.BOOKKEEPER))
    with pytest.raises(SegmentUnreadableError, match="has checksum"):
        log.offload("orders")
    assert tiers_of(log, "orders") == [BOTH, HOT, BOTH]
    assert len(objects(log.root)) == 2
    assert log.delete_hot("orders") == 2
    assert tiers_of(log, "orders") == [{"tiered"}, HOT, {"tiered"}]
