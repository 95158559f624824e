"""Copies that are deleted and ledgers that are trimmed: when to the letter, never too much, and what readers and
producers notice of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.log import tiers
from tests.log.meddling import meddling
from tests.log.planning import planned, read
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, send_each, told_by, values
from tests.log.sites import ManualClock, Site
from tests.log.tiers import closed_ledgers, objects, segments, tiers_of
from tests.selection import mostly_long
from txn_source import (
    DataLossError,
    InvalidArgumentError,
    Log,
    OnlyCopyError,
    OutOfRangeError,
    Position,
    UnavailableError,
)
from txn_source.client.tiering.maintenance import MaintenanceReport
from txn_source.client.tiering.offload import Offloader
from txn_source.model.copies import Tier
from txn_source.model.topic_name import TopicName

pytestmark = pytest.mark.also("objects", "copies")

BOTH, HOT, COLD = {"bookkeeper", "tiered"}, {"bookkeeper"}, {"tiered"}
PURGE_AFTER_S = 3600


def fill(log: Log, ledgers: int = 4, topic: str = "orders", **policies: object) -> list[int]:
    """Create a topic with closed ledgers of two messages, ``b"0"`` and so on; return the ledgers' ids."""
    log.create_topic(topic, ledger_max_entries=2, **policies)
    send_each(log.producer(topic), [b"%d" % i for i in range(2 * ledgers)])
    return closed_ledgers(log, topic)


# Deleting copies


@pytest.mark.parametrize(
    "scope", mostly_long([{"topic": "orders"}, {"namespace": "public/default"}, {}], {"topic": "orders"}), ids=str
)
@pytest.mark.files
def test_hot_copies_are_deleted_after_more_than_the_lag(
    clocked_log: Log, clock: ManualClock, scope: dict[str, str]
) -> None:
    """Wait just the lag since the offload, not since the ledger was closed, and then a millisecond more."""
    fill(clocked_log)
    clocked_log.set_policies(**scope, offload_deletion_lag=60)
    clock.advance(1000)
    clocked_log.offload("orders")
    clock.advance(60)
    assert clocked_log.delete_hot("orders", after_lag=True) == 0
    assert clocked_log.maintain().idle
    assert tiers_of(clocked_log, "orders") == [BOTH] * 4
    clock.advance(0.001)
    assert clocked_log.maintain().hot_copies_deleted == 4
    assert tiers_of(clocked_log, "orders") == [COLD] * 4
    assert len(segments(clocked_log.root)) == 0
    assert values(clocked_log, "orders") == [b"%d" % i for i in range(8)]


def test_without_a_lag_hot_copies_are_never_deleted(clocked_log: Log, clock: ManualClock) -> None:
    """Wait for ten years; then set the lag of another topic, and unset that of this one."""
    fill(clocked_log)
    fill(clocked_log, topic="bills", offload_deletion_lag=1)
    clocked_log.offload("orders")
    clock.advance(10 * 365 * 86400)
    clocked_log.set_policies("orders", offload_deletion_lag=1)
    clocked_log.set_policies("orders", offload_deletion_lag=None)
    assert clocked_log.delete_hot("orders", after_lag=True) == 0
    assert clocked_log.maintain().idle
    assert tiers_of(clocked_log, "orders") == [BOTH] * 4


@pytest.mark.files
def test_only_copy_is_not_deleted(log: Log) -> None:
    """Leave one ledger without its hot copy and ask to delete the tiered copies of all: none is deleted."""
    ids = fill(log, 1)
    log.offload("orders")
    assert log.delete_hot("orders") == 1
    send_each(log.producer("orders"), [b"2", b"3"])
    log.offload("orders")
    with pytest.raises(OnlyCopyError, match=rf"^\[TXNLOG_ONLY_COPY\] .*1 of the 2 .*ledger {ids[0]}\b.*lose messages"):
        log.delete_offloaded("orders")
    assert tiers_of(log, "orders") == [COLD, BOTH]
    assert len(objects(log.root)) == 2
    assert values(log, "orders") == [b"0", b"1", b"2", b"3"]


def test_service_itself_deletes_no_last_copy(log: Log) -> None:
    """Ask the service, past the client's own look, for copies of ledgers that have one, or none in that tier."""
    orders = TopicName.parse("orders")
    ids = fill(log)
    assert log.metadata.delete_copies(orders, Tier.BOOKKEEPER, ids) == 0
    assert log.metadata.delete_copies(orders, Tier.TIERED, ids) == 0
    log.offload("orders")
    assert log.metadata.delete_copies(orders, Tier.BOOKKEEPER, ids[:2]) == 2
    assert log.metadata.delete_copies(orders, Tier.TIERED, ids) == len(ids) - 2
    assert tiers_of(log, "orders") == [COLD] * 2 + [HOT] * (len(ids) - 2)


@pytest.mark.parametrize(
    "damage", mostly_long([tiers.remove, tiers.cut_last_byte, tiers.overwrite, tiers.flip_in_middle], tiers.overwrite)
)
@pytest.mark.files
def test_hot_copy_stays_if_the_object_cannot_be_read(
    clocked_log: Log, clock: ManualClock, damage: tiers.Damage
) -> None:
    """Damage one object: deleting by hand deletes nothing, deleting after the lag the other hot copies only."""
    ids = fill(clocked_log, offload_deletion_lag=60)
    clocked_log.offload("orders")
    damage(tiers.copy_of(clocked_log.root, ids[1], Tier.TIERED))
    with pytest.raises(OnlyCopyError, match=f"ledger {ids[1]}"):
        clocked_log.delete_hot("orders")
    assert tiers_of(clocked_log, "orders") == [BOTH] * 4
    clock.advance(61)
    report = clocked_log.maintain()
    assert report.hot_copies_deleted == 3
    assert [topic for topic, _ in report.failures] == ["orders"]
    assert tiers_of(clocked_log, "orders") == [COLD, BOTH, COLD, COLD]
    assert values(clocked_log, "orders") == [b"%d" % i for i in range(8)]


@pytest.mark.files
def test_object_stays_if_a_byte_of_the_hot_copy_has_changed(log: Log) -> None:
    """Flip a byte of one ledger's segment: its object stays, those of others that are named go, and the damaged copy
    can be given up by its ledger's id."""
    ids = fill(log)
    log.offload("orders")
    tiers.flip_near_end(tiers.copy_of(log.root, ids[1], Tier.BOOKKEEPER))
    for named in (None, [ids[1]]):
        with pytest.raises(OnlyCopyError, match=f"ledger {ids[1]}"):
            log.delete_offloaded("orders", named)
    assert tiers_of(log, "orders") == [BOTH] * 4
    assert log.delete_offloaded("orders", [ids[0]]) == 1
    with pytest.raises(InvalidArgumentError, match=f"Ledger {ids[0]} isn't an offloaded ledger"):
        log.delete_offloaded("orders", ids[:2])
    assert log.delete_hot("orders", ledgers=[ids[1]]) == 1
    assert tiers_of(log, "orders") == [HOT, COLD, BOTH, BOTH]
    assert values(log, "orders") == [b"%d" % i for i in range(8)]


# Trimming


@pytest.mark.files
def test_ledgers_wholly_before_a_position_are_trimmed(log: Log) -> None:
    """Trim before positions at the start, inside and at the end of ledgers: stats, reads and files follow."""
    ids = fill(log)
    log.offload("orders")
    before = log.stats("orders").partitions[0]
    assert [t.ledgers for t in log.trim("orders", before=Position(ids[0], 1))] == [0]
    [done] = log.trim("orders", before=Position(ids[1], 1))
    assert (done.partition, done.ledgers, done.messages, done.log_start) == (0, 1, 2, Position(ids[1], 0))
    assert done.bytes == before.ledgers[0].bytes
    [done] = log.trim("orders", before={"orders": {0: f"{ids[1]}:2"}})
    assert (done.ledgers, done.log_start) == (1, Position(ids[2], 0))
    stats = log.stats("orders").partitions[0]
    assert [ledger.ledger_id for ledger in stats.ledgers] == [*ids[2:], ids[-1] + 1]
    assert (stats.messages, stats.bytes) == (4, sum(ledger.bytes for ledger in stats.ledgers))
    for name in ("last_stable", "high_watermark", "log_end", "max_read_position"):
        assert getattr(stats, name) == getattr(before, name)
    for level in (COMMITTED, UNCOMMITTED):
        assert values(log, "orders", level) == [b"4", b"5", b"6", b"7"]
    assert [int(path.name.split("-")[1]) for path in objects(log.root)] == ids[2:]
    for gone in (Position(ids[0], 0), Position(ids[1], 1)):
        with pytest.raises(OutOfRangeError, match=rf"{gone} lies outside orders-partition-0, which has \[{ids[2]}:0"):
            log.scan("orders", start=gone)


@pytest.mark.files
def test_latest_stays_when_everything_is_trimmed(log: Log) -> None:
    """Trim all closed ledgers, twice: the bounds stay, and positions go on where they were."""
    ids = fill(log)
    end = log.stats("orders").partitions[0].log_end
    assert log.trim("orders", keep_bytes=0)[0].ledgers == 4
    assert log.trim("orders", keep_bytes=0)[0].ledgers == 0
    stats = log.stats("orders").partitions[0]
    assert stats.log_start == stats.last_stable == stats.log_end == end
    assert (stats.messages, values(log, "orders", UNCOMMITTED), segments(log.root)) == (0, [], [])
    [message] = send_each(log.producer("orders"), [b"new"])
    assert message.ledger_id == ids[-1] + 1
    assert values(log, "orders") == [b"new"]


def test_old_ledgers_are_trimmed(clocked_log: Log, clock: ManualClock) -> None:
    """Close ledgers a minute apart; an age counts from the close, and must be exceeded."""
    clocked_log.create_topic("orders")
    for value in (b"0", b"1", b"2"):
        send_each(clocked_log.producer("orders"), [value])
        clock.advance(60)
        clocked_log.roll_ledger("orders")
    assert clocked_log.trim("orders", older_than=120)[0].ledgers == 0
    assert clocked_log.trim("orders", older_than=119.999)[0].ledgers == 1
    assert clocked_log.trim("orders", before=datetime.fromtimestamp(clock.now_us / 1e6, UTC))[0].ledgers == 2
    assert values(clocked_log, "orders") == []


def test_oldest_ledgers_are_trimmed_down_to_a_size(log: Log) -> None:
    """Keep what more than three of four ledgers have, then what two have: so much or more is left, never less."""
    fill(log)
    sizes = [ledger.bytes for ledger in log.stats("orders").ledgers]
    assert log.trim("orders", keep_bytes=sum(sizes[1:]) + 1)[0].ledgers == 0
    assert log.trim("orders", keep_bytes=sum(sizes[2:]))[0].ledgers == 2
    log.set_policies("orders", retention_bytes=sizes[3] + 1)
    assert log.maintain().ledgers_trimmed == 0
    log.set_policies("orders", retention_bytes=sizes[3])
    assert log.maintain().ledgers_trimmed == 1
    assert values(log, "orders") == [b"6", b"7"]


@pytest.mark.parametrize("reason", ["retention", "older_than", "offload"])
def test_topic_that_nobody_writes_to_any_more_is_looked_after(
    clocked_log: Log, clock: ManualClock, reason: str
) -> None:
    """Send a few messages and be silent: they are trimmed, or offloaded, when they are old enough, and not before."""
    policies = {"retention": {"retention_age": 60}, "offload": {"offload_after_age": 60}}.get(reason, {})
    clocked_log.create_topic("orders", ledger_max_age=3600 if reason != "offload" else 30, **policies)
    send_each(clocked_log.producer("orders"), [b"0", b"1"])

    def look() -> int:
        if reason == "older_than":
            return clocked_log.trim("orders", older_than=60)[0].ledgers
        done = clocked_log.maintain()
        return done.ledgers_trimmed + len(done.offloaded.ledger_ids)

    clock.advance(60)
    assert look() == 0
    clock.advance(0.001)
    assert look() == 1
    assert clocked_log.stats("orders").messages == (2 if reason == "offload" else 0)
    assert look() == 0


def test_nothing_is_trimmed_under_an_open_transaction(log: Log) -> None:
    """Begin one in the second of four ledgers: that one and all behind it stay, whatever the reason, until it ends."""
    log.create_topic("orders", ledger_max_entries=2)
    producer = log.producer("orders")
    transaction = log.begin_transaction()
    send_each(producer, [b"0", b"1", b"2"])
    send_each(producer, [b"inside"], txn=transaction)
    send_each(producer, [b"3", b"4"])
    ids = closed_ledgers(log, "orders")
    reasons: list[dict[str, object]] = [{"keep_bytes": 0}, {"older_than": 0}, {"before": Position(ids[-1], 2)}]
    assert [log.trim("orders", **reason)[0].ledgers for reason in reasons] == [1, 0, 0]  # type: ignore[arg-type]
    assert values(log, "orders") == [b"2"]
    transaction.commit()
    assert values(log, "orders") == [b"2", b"inside", b"3", b"4"]
    assert log.trim("orders", keep_bytes=0)[0].ledgers == 2


def test_what_a_durable_subscription_has_not_acknowledged_is_not_trimmed(log: Log) -> None:
    """Trim for each reason, by hand and by policy, while it has acknowledged one ledger; then all but one message; then
    without it. Nobody but the durable one holds anything back."""
    ids = fill(log)
    log.create_subscription("orders", "idle", initial_position="latest")
    with log.reader("orders", start="earliest"), log.subscribe("orders", "slow", initial_position="earliest") as slow:
        messages = [slow.receive(30) for _ in range(8)]
        slow.acknowledge_cumulative(messages[1])
        slow.flush()
        log.set_policies("orders", retention_bytes=0)
        assert log.maintain().ledgers_trimmed == 1
        for reason in ({"keep_bytes": 0}, {"older_than": 0}, {"before": Position(ids[3], 2)}):
            [done] = log.trim("orders", **reason)
            assert (done.ledgers, done.held_by) == (0, "slow")
        for message in (messages[2], messages[3], messages[4], messages[6], messages[7]):
            slow.acknowledge(message)
        slow.flush()
        assert log.trim("orders", keep_bytes=0)[0].ledgers == 1
    assert values(log, "orders") == [b"4", b"5", b"6", b"7"]
    log.delete_subscription("orders", "slow")
    assert log.trim("orders", keep_bytes=0)[0].ledgers == 2


def test_hot_copies_stay_where_a_subscription_still_reads_them_first(clocked_log: Log, clock: ManualClock) -> None:
    """Let the lag pass while two of four ledgers are acknowledged, and once the others are."""
    fill(clocked_log, data_read_priority="bookkeeper-first", offload_deletion_lag=60)
    with clocked_log.subscribe("orders", "slow", initial_position="earliest") as slow:
        messages = [slow.receive(30) for _ in range(8)]
        clocked_log.offload("orders")
        clock.advance(61)
        for message, tiers in ((messages[3], [COLD] * 2 + [BOTH] * 2), (messages[7], [COLD] * 4)):
            slow.acknowledge_cumulative(message)
            slow.flush()
            clocked_log.maintain()
            assert tiers_of(clocked_log, "orders") == tiers


def test_plan_over_what_was_trimmed_is_data_loss(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """Plan, trim two ledgers, read: the error has the exact range; a read that may lose skips it with a warning."""
    ids = fill(log)
    strict, lenient = (planned(log, "orders", COMMITTED, fail_on_data_loss=fails) for fails in (True, False))
    log.trim("orders", before=Position(ids[2], 0))
    lost = rf"Partition 0 of topic 'orders' has lost \[{ids[0]}:0, {ids[2]}:0\), which was to be read"
    with pytest.raises(DataLossError, match=rf"^\[TXNLOG_DATA_LOSS\] {lost}"):
        read(log, strict)
    assert read(log, lenient)["value"].to_pylist() == [b"4", b"5", b"6", b"7"]
    [warning] = told_by("client.reading", caplog)
    assert warning.startswith(f"Partition 0 of topic 'orders' has lost [{ids[0]}:0, {ids[2]}:0)")


# Producers


def offload_and_delete(log: Log) -> None:
    log.offload("orders")
    assert log.delete_hot("orders") > 0


def trim_all(log: Log) -> None:
    assert log.trim("orders", keep_bytes=0)[0].ledgers > 0


@pytest.mark.parametrize("happens", [offload_and_delete, trim_all])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.files
def test_producer_goes_on_when_its_segments_are_deleted(log: Log, happens: Callable[[Log], None], inside: bool) -> None:
    """Let a producer hold segments of two partitions open whose ledgers go away, again and again: nothing is lost."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders", batching=BY_HAND)
    kept: list[bytes] = []
    for turn in range(4):
        transaction = log.begin_transaction() if inside else None
        for partition in (0, 1):
            producer.send(b"%d %d" % (turn, partition), partition=partition, txn=transaction)
        ids = producer.flush()
        assert len(ids) == 2
        if transaction is not None:
            transaction.commit()
        kept = [] if happens is trim_all else kept
        kept += [b"%d %d" % (turn, partition) for partition in (0, 1)]
        assert sorted(values(log, "orders")) == sorted(kept)
        log.roll_ledger("orders")
        if turn < 3:
            happens(log)
    assert len(segments(log.root)) == 2


@pytest.mark.parametrize("happens", [offload_and_delete, trim_all])
def test_retried_append_is_not_stored_twice_when_its_rows_are_gone(
    clocked_site: Site, clock: ManualClock, happens: Callable[[Log], None]
) -> None:
    """Lose the answer to an append, let all traces of it go, and flush again: the log knows it was stored."""
    log = clocked_site.connect()
    log.create_topic("orders")
    other, way = meddling(clocked_site)
    producer = other.producer("orders", batching=BY_HAND)

    def lose() -> None:
        raise UnavailableError("The answer was lost.", "Try again.")

    way.after["Append"] = lose
    producer.send(b"once")
    with pytest.raises(UnavailableError):
        producer.flush()
    log.roll_ledger("orders")
    happens(log)
    clock.advance(PURGE_AFTER_S + 1)
    log.delete_hot("orders")
    with pytest.raises(InvalidArgumentError, match=r"stored so long ago.*nothing is lost"):
        producer.flush()
    producer.send(b"next")
    assert len(producer.flush()) == 1
    assert values(log, "orders") == ([b"once"] if happens is offload_and_delete else []) + [b"next"]


def test_retried_append_is_answered_for_an_hour_after_its_hot_copy_is_gone(
    clocked_site: Site, clock: ManualClock
) -> None:
    """Lose the answer to an append, offload, delete the hot copy, and flush again within the hour."""
    log = clocked_site.connect()
    log.create_topic("orders")
    other, way = meddling(clocked_site, times=2)
    producer = other.producer("orders", batching=BY_HAND)

    def move_and_lose() -> None:
        log.roll_ledger("orders")
        offload_and_delete(log)
        clock.advance(PURGE_AFTER_S)
        log.delete_hot("orders")
        raise UnavailableError("The answer was lost.", "Try again.")

    way.after["Append"] = move_and_lose
    producer.send(b"once")
    with pytest.raises(UnavailableError):
        producer.flush()
    [message] = producer.flush()
    assert (message.ledger_id, message.entry_id) == (closed_ledgers(log, "orders")[0], 0)
    assert values(log, "orders") == [b"once"]


# Maintenance and garbage


@pytest.mark.also("postgres")
def test_maintenance_does_what_the_policies_say(clocked_log: Log, clock: ManualClock) -> None:
    """Offload by age, then by size; delete after the lag; trim by age and size, each topic by its own policies."""
    log = clocked_log
    assert log.maintain() == MaintenanceReport()
    by_age = fill(log, topic="by-age", offload_after_age=100, offload_deletion_lag=50, retention_age=1000)
    by_size = fill(log, topic="by-size")
    sizes = [ledger.bytes for ledger in log.stats("by-size").ledgers]
    log.set_policies("by-size", offload_after_bytes=sum(sizes[2:]), retention_bytes=sum(sizes[1:]))
    fill(log, topic="left-alone")
    report = log.maintain()
    assert (report.offloaded.ledger_ids, report.ledgers_trimmed) == (tuple(by_size[:2]), 1)
    assert log.maintain().idle
    clock.advance(100)
    assert log.maintain().idle
    clock.advance(1)
    assert log.maintain().offloaded.ledger_ids == tuple(by_age)
    clock.advance(51)
    assert log.maintain().hot_copies_deleted == 4
    clock.advance(1000)
    report = log.maintain()
    assert (report.ledgers_trimmed, report.files_deleted) == (4, 4)
    assert log.maintain().idle
    assert [len(values(log, topic)) for topic in ("by-age", "by-size", "left-alone")] == [0, 6, 8]
    assert tiers_of(log, "by-size") == [BOTH, HOT, HOT]
    assert tiers_of(log, "left-alone") == [HOT] * 4


def test_topic_that_fails_with_any_error_keeps_no_other_from_its_turn(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the offload of one of two topics fail in a way that isn't ours: that is told, and the other has its turn."""
    offload_one = Offloader.offload_one

    def failing(self: Any, ledger: Any) -> Any:
        if self._topic.name.short == "a":
            raise ValueError("odd")
        return offload_one(self, ledger)

    monkeypatch.setattr(Offloader, "offload_one", failing)
    fill(log, topic="a", offload_after_bytes=0)
    fill(log, topic="b", offload_after_bytes=0)
    assert log.maintain().failures == (("a", "ValueError: odd"),)
    assert tiers_of(log, "b") == [BOTH] * 4


@pytest.mark.files
def test_garbage_collection_leaves_what_tiers_need(log: Log) -> None:
    """Offload, delete and trim some ledgers, age all files, and collect: only what was never registered goes."""
    ids = fill(log)
    log.offload("orders")
    log.delete_hot("orders")
    log.trim("orders", before=Position(ids[1], 0))
    producer = log.producer("orders", batching=BY_HAND)
    send_each(producer, [b"8", b"9", b"open"])
    closed, _ = log.metadata.open_producer(TopicName.parse("orders"), None, None)
    log.metadata.close_producer(closed)
    left = log.root / "segments" / "1" / "0" / f"1-{closed.producer_id}-0123456789ab.arrow"
    left.write_bytes(b"x")
    for path in [*segments(log.root), *objects(log.root)]:
        os.utime(path, (0, 0))
    assert log.collect_garbage().paths == (left.relative_to(log.root).as_posix(),)
    expected = [b"%d" % i for i in range(2, 10)] + [b"open"]
    assert values(log, "orders") == expected
    send_each(producer, [b"later"])
    assert pa.table({"value": values(log, "orders")}).num_rows == len(expected) + 1
