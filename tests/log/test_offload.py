"""What a reader sees of a ledger is the same wherever its bytes lie: hot, in both tiers, tiered alone, known by its
footer alone, and after a restart; and any other tool reads the same rows from the object."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.log import tiers
from tests.log.planning import planned, read
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, send_each, values
from tests.log.sites import ManualClock, Site
from tests.log.tiers import closed_ledgers, everything, tiers_of
from tests.selection import mostly_long
from txn_source import Log, Position, SegmentUnreadableError
from txn_source.client.reading.source import resolve
from txn_source.model.copies import Tier, TieredCopy
from txn_source.model.position import PositionRange
from txn_source.reading.request import Selection
from txn_source.storage import tiered

pytestmark = pytest.mark.also("objects", "copies")

LEVELS = (COMMITTED, UNCOMMITTED)
PURGE_AFTER_S = 3600


def write(log: Log, clock: ManualClock) -> None:
    log.create_topic("orders")
    tiers.write_ledgers(log, value=lambda source: source.randbytes(30), tick=lambda: clock.advance(0.5))


def purge(log: Log, clock: ManualClock) -> None:
    """Delete hot copies and let the rows of their entries be dropped."""
    log.delete_hot("orders")
    clock.advance(PURGE_AFTER_S + 1)
    log.delete_hot("orders")
    [partition] = resolve(log.metadata, Selection.of("orders")).partitions
    bounds = partition.view.bounds
    table = log.metadata.list_ledgers(partition.view.partition_id, PositionRange(bounds.log_start, bounds.log_end))
    assert table["purged"].to_pylist() == [1] * (len(table) - 1) + [0]


@pytest.fixture
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 5)


@pytest.fixture
def purged(tmp_path: Path, clock: ManualClock, small_row_groups: None) -> Iterator[tuple[Log, dict[str, pa.Table]]]:
    """A log whose closed ledgers only their objects know, several row groups each; and what was read of it before."""
    with Site("embedded", tmp_path / "log", clock) as site:
        log = site.connect()
        write(log, clock)
        expected = {level: everything(log, "orders", level) for level in LEVELS}
        log.offload("orders")
        purge(log, clock)
        yield log, expected


# The contract


@pytest.mark.also("postgres")
def test_rows_and_bounds_stay_the_same_through_every_step(clocked_site: Site, clock: ManualClock) -> None:
    """Offload, delete hot copies, drop the rows of entries, restart: all columns at both levels are as before."""
    log = clocked_site.connect()
    write(log, clock)
    expected = {level: everything(log, "orders", level) for level in LEVELS}
    statuses = expected[UNCOMMITTED]["__txn_status"].to_pylist()
    assert set(statuses) == {None, "committed", "aborted"}
    assert expected[COMMITTED].num_rows == len(statuses) - statuses.count("aborted") > 30
    for name in ("__event_time", "__properties", "__txn_id"):
        assert 0 < expected[COMMITTED][name].null_count < expected[COMMITTED].num_rows
    stats = log.stats("orders").partitions[0]
    ids = [ledger.ledger_id for ledger in stats.ledgers[:-1]]

    def check(*where: str) -> None:
        for level in LEVELS:
            assert everything(log, "orders", level).equals(expected[level])
            for name in ("__entry_id", "__txn_id", "__properties"):  # alone, these take other ways
                assert log.scan("orders", level, [name]).read_all().equals(expected[level].select([name]))
        now = log.stats("orders").partitions[0]
        for name in ("log_start", "last_stable", "high_watermark", "log_end", "max_read_position", "messages", "bytes"):
            assert getattr(now, name) == getattr(stats, name)
        assert tiers_of(log, "orders") == [set(where)] * 3

    check("bookkeeper")
    assert log.offload("orders").ledger_ids == tuple(ids)
    check("bookkeeper", "tiered")
    assert log.delete_hot("orders") == 3
    check("tiered")
    purge(log, clock)
    check("tiered")
    if clocked_site.kind == "remote":
        clocked_site.stop_server()
        clocked_site.start_server()
    log = clocked_site.connect()
    check("tiered")
    send_each(log.producer("orders"), [b"later"])
    for level in LEVELS:
        assert everything(log, "orders", level).slice(0, expected[level].num_rows).equals(expected[level])


@pytest.mark.long
def test_reads_begin_and_end_anywhere_in_purged_ledgers(purged: tuple[Log, dict[str, pa.Table]]) -> None:
    """Read between positions of all kinds: of messages, of markers, before and behind the last entry of a ledger."""
    log, expected = purged
    source = random.Random(1)
    ledgers = log.stats("orders").ledgers
    positions = [Position(x.ledger_id, entry) for x in ledgers for entry in range(x.entries + 1)]
    for _ in range(25):
        start, end = sorted(source.sample(positions, 2))
        for level in LEVELS:
            table = expected[level]
            keys = [
                Position(a, b)
                for a, b in zip(table["__ledger_id"].to_pylist(), table["__entry_id"].to_pylist(), strict=True)
            ]
            wanted = table.filter(pa.array([start <= key < end for key in keys]))
            assert everything(log, "orders", level, start=start, end=end).equals(wanted), (start, end, level)


def test_lost_object_of_a_purged_ledger_fails_the_reads_that_need_it_and_no_others(
    purged: tuple[Log, dict[str, pa.Table]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lose the second ledger's object: its neighbours are planned and read as before, in one task and in many."""
    log, expected = purged
    ids = closed_ledgers(log, "orders")
    tiers.remove(tiers.copy_of(log.root, ids[1], Tier.TIERED))
    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())  # as in another process
    table = expected[UNCOMMITTED]
    for start, end in ((None, Position(ids[1], 0)), (Position(ids[2], 0), None)):
        inside = [
            (end is None or i < ids[1]) and (start is None or i > ids[1]) for i in table["__ledger_id"].to_pylist()
        ]
        assert everything(log, "orders", UNCOMMITTED, start=start, end=end).equals(table.filter(pa.array(inside)))
    for options in ({"min_partitions": 1}, {"max_partition_bytes": 1}):
        with pytest.raises(SegmentUnreadableError, match=f"ledger-{ids[1]}-.*it is missing"):
            read(log, planned(log, "orders", COMMITTED, **options))
    in_second = table["__publish_time"].to_pylist()[table["__ledger_id"].to_pylist().index(ids[1])]
    with pytest.raises(SegmentUnreadableError, match=f"ledger-{ids[1]}-.*it is missing"):
        log.scan("orders", start=in_second)


# Which ledgers


def test_ledger_is_offloaded_only_when_all_before_its_end_is_decided(log: Log) -> None:
    """Keep a transaction open in the second of four closed ledgers: only the first goes, the others after its end."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    transaction = log.begin_transaction()
    for number in range(4):
        send_each(producer, [b"%d" % number])
        if number in (1, 2):
            send_each(producer, [b"inside %d" % number], txn=transaction)
        log.roll_ledger("orders")
    ids = closed_ledgers(log, "orders")
    assert log.offload("orders").ledger_ids == (ids[0],)
    assert log.offload("orders").ledger_ids == ()
    transaction.commit()  # its marker goes to the open ledger
    assert log.offload("orders").ledger_ids == tuple(ids[1:])
    assert log.delete_hot("orders") == 4
    assert values(log, "orders") == [b"0", b"1", b"inside 1", b"2", b"inside 2", b"3"]


@pytest.mark.parametrize("end", mostly_long(["commit", "abort"], "commit"))
def test_ledger_of_markers_alone_is_offloaded(clocked_log: Log, clock: ManualClock, end: str) -> None:
    """End transactions in a ledger of their own, purge it, and read over it, from it, and in many tasks."""
    log = clocked_log
    log.create_topic("orders")
    transactions = [log.begin_transaction() for _ in range(2)]
    for number, transaction in enumerate(transactions):
        send_each(log.producer("orders"), [b"%d" % number], txn=transaction)
    log.roll_ledger("orders")
    for transaction in transactions:
        getattr(transaction, end)()
    log.roll_ledger("orders")
    send_each(log.producer("orders"), [b"after"])
    log.roll_ledger("orders")
    _, of_markers, _ = closed_ledgers(log, "orders")
    everything_before = {level: everything(log, "orders", level) for level in LEVELS}
    assert len(log.offload("orders").ledger_ids) == 3
    purge(log, clock)
    for level in LEVELS:
        assert everything(log, "orders", level).equals(everything_before[level])
        assert values(log, "orders", level, start=Position(of_markers, 1)) == [b"after"]
        found = read(log, planned(log, "orders", level, max_partition_bytes=1), ["value"])
        assert found["value"].to_pylist() == everything_before[level]["value"].to_pylist()


# The object


def test_footers_of_purged_ledgers_are_opened_several_at_once(
    purged: tuple[Log, dict[str, pa.Table]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plan small tasks over ledgers that only objects know, in a store where each open waits for another one."""
    log, _ = purged
    opened, others = tiered._footer_bytes, threading.Barrier(3)

    def waiting(root: Path, copy: TieredCopy) -> bytes:
        others.wait(30)
        return opened(root, copy)

    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())
    with monkeypatch.context() as patched:
        patched.setattr(tiered, "_footer_bytes", waiting)
        tasks = planned(log, "orders", COMMITTED, min_partitions=20).tasks
    assert len(tasks) > len(closed_ledgers(log, "orders")) == 3
