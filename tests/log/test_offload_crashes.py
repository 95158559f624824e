"""Offloads that crash, collide, or find that the ledger is gone: a copy is registered whole or not at all, every row
stays, and what is left over is deleted."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from tests.log import tiers
from tests.log.meddling import Crash, meddling
from tests.log.reading import UNCOMMITTED
from tests.log.sites import ManualClock, Site
from tests.log.test_processes import outcome, start, target
from tests.log.tiers import closed_ledgers, everything, objects, tiers_of
from tests.selection import mostly_long
from txn_source import (
    Log,
    SegmentUnreadableError,
    StorageWriteError,
    UnavailableError,
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
    mostly_long(
        [
            ("before", "BeginOffload", 0),
            ("after", "BeginOffload", 0),
            ("after", "ListDecisions", 0),
            ("before", "CompleteOffload", 1),
            ("after", "CompleteOffload", 1),
        ],
        ("after", "ListDecisions", 0),
        ("before", "CompleteOffload", 1),
        ("after", "CompleteOffload", 1),
    ),
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


def test_object_of_a_crashed_offload_is_deleted_when_its_lease_is_over(clocked_site: Site, clock: ManualClock) -> None:
    """Crash before an offload is complete, and look after it with nothing else than maintenance."""
    log = clocked_site.connect()
    filled(log)
    crashing, way = meddling(clocked_site)
    way.before["CompleteOffload"] = way.crash
    with pytest.raises(Crash):
        crashing.offload("orders")
    clock.advance(LEASE_S - 1)
    log.maintain()
    assert len(objects(log.root)) == 1
    clock.advance(2)
    assert log.maintain().files_deleted == 1
    assert objects(log.root) == []
    assert tiers_of(log, "orders") == [HOT] * 3


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


def test_killed_processes_leave_nothing_half(embedded_site: Site) -> None:
    """Kill processes that offload at random points; then offload what is left."""
    log = embedded_site.connect()
    rows = filled(log, 8)
    source = random.Random(1)
    for _ in range(2):
        with subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("child.py")),
                "offload",
                embedded_site.kind,
                target(embedded_site),
            ],
            stdout=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            for _ in range(1 + source.randrange(3)):
                child.stdout.readline()
            threading.Event().wait(source.uniform(0, 0.02))
            child.kill()
        assert everything(log, "orders", UNCOMMITTED).equals(rows)
    log.offload("orders")
    check_offloaded(log, rows, 8)


def test_lost_answer_of_the_last_step_does_not_undo_it(site: Site) -> None:
    """Lose the answer to CompleteOffload: the caller is told, the copy is there, and the next offload goes on."""
    log = site.connect()
    rows = filled(log)
    unlucky, way = meddling(site)

    def lose() -> None:
        raise UnavailableError("The answer was lost.", "Try again.")

    way.after["CompleteOffload"] = lose
    with pytest.raises(UnavailableError):
        unlucky.offload("orders")
    assert tiers_of(log, "orders") == [BOTH, HOT, HOT]
    assert len(unlucky.offload("orders").ledger_ids) == 2
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
@pytest.mark.parametrize("hot_deleted", [False, True])
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
    assert len(objects(log.root)) == 3
    assert everything(log, "orders", UNCOMMITTED).equals(rows)


def test_threads_that_offload_at_once_make_one_object_of_a_ledger(site: Site) -> None:
    """Start three threads with connections of their own: each ledger is offloaded by just one of them."""
    log = site.connect()
    rows = filled(log, 6)
    barrier = threading.Barrier(3)
    reports: list[OffloadReport] = []

    def offload(mine: Log) -> None:
        barrier.wait()
        reports.append(mine.offload("orders"))

    threads = [threading.Thread(target=offload, args=(site.connect(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(i for report in reports for i in report.ledger_ids) == closed_ledgers(log, "orders")
    check_offloaded(log, rows, 6)


@pytest.mark.long
def test_processes_that_offload_at_once_make_one_object_of_a_ledger(embedded_site: Site) -> None:
    """Start two processes that offload the same topic."""
    log = embedded_site.connect()
    rows = filled(log, 8)
    children = [start("offload", embedded_site.kind, target(embedded_site)) for _ in range(2)]
    found: list[int] = []
    for child in children:
        output, _ = child.communicate(timeout=60)
        assert child.returncode == 0
        found += json.loads(output.splitlines()[-1])["offloaded"]
    assert sorted(found) == closed_ledgers(log, "orders")
    check_offloaded(log, rows, 8)


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


def test_full_disk_under_an_offload_is_told_and_registers_nothing(embedded_site: Site) -> None:
    """Let a process run into a limit of file sizes in the middle of an object; then offload without one."""
    log = embedded_site.connect()
    log.create_topic("orders")
    tiers.write_ledgers(log, ledgers=1, value=lambda source: source.randbytes(300_000))
    rows = everything(log, "orders", UNCOMMITTED)
    said = outcome(start("offload_to_a_full_disk", embedded_site.kind, target(embedded_site), "1500000"))
    assert re.match(r"\[TXNLOG_STORAGE_WRITE_FAILED\] tiered/.*File too large.*Nothing was registered", said)
    assert (tiers_of(log, "orders"), objects(log.root)) == ([HOT], [])
    log.offload("orders")
    check_offloaded(log, rows, 1)


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
