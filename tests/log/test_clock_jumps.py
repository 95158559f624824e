"""A clock that was years ahead for a while, and is back: nothing is disturbed for ever."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.log.reading import by_partition, rows, send_each, values
from tests.log.sites import ManualClock, Site
from tests.log.test_as_of import now
from txn_source import Log, Producer, SubscriptionBusyError, TransactionTimedOutError

_TEN_YEARS_S = 10 * 365 * 86400


def ledgers(log: Log) -> int:
    return len(log.stats("t").ledgers)


def test_ledgers_close_by_age_after_a_jump(clocked_site: Site, clock: ManualClock) -> None:
    """Append while the clock is ahead, so that the open ledger was made then, and let its age pass after that."""
    log = clocked_site.connect()
    log.create_topic("t", ledger_max_age=60)
    producer = log.producer("t")
    send_each(producer, [b"before"])
    clock.advance(_TEN_YEARS_S)
    send_each(producer, [b"ahead"])
    clock.advance(-_TEN_YEARS_S + 1)
    send_each(producer, [b"after"])
    count = ledgers(log)
    clock.advance(59)
    send_each(producer, [b"young"])
    assert ledgers(log) == count
    clock.advance(2)
    send_each(producer, [b"old"])
    assert ledgers(log) == count + 1
    assert values(log, "t") == [b"before", b"ahead", b"after", b"young", b"old"]


def test_retention_and_offload_by_age_after_a_jump(clocked_log: Log, clock: ManualClock) -> None:
    """Close a ledger while the clock is ahead; its age counts from when the clock is back."""
    log = clocked_log
    log.create_topic("t")
    producer = log.producer("t")
    clock.advance(_TEN_YEARS_S)
    send_each(producer, [b"ahead"])
    log.roll_ledger("t")
    clock.advance(-_TEN_YEARS_S)
    send_each(producer, [b"after"])
    log.roll_ledger("t")
    log.set_policies("t", retention_age=100, offload_after_age=50)
    assert log.maintain().ledgers_trimmed == 0
    clock.advance(51)
    report = log.maintain()
    assert (len(report.offloaded.ledger_ids) >= 2, report.ledgers_trimmed) == (True, 0)
    clock.advance(50)
    assert log.maintain().ledgers_trimmed >= 2
    assert values(log, "t") == []


def test_ledger_ages_by_the_clock_after_a_step_back(clocked_log: Log, clock: ManualClock) -> None:
    """Set the clock back by half an hour, for which publish times wait, never going back; let a ledger's age pass."""
    log = clocked_log
    log.create_topic("t", ledger_max_age=60)
    producer = log.producer("t")
    send_each(producer, [b"x"])
    clock.advance(-1800)
    send_each(producer, [b"x"])
    clock.advance(61)
    send_each(producer, [b"x"])
    assert ledgers(log) == 2
    times = [row["__publish_time"] for row in rows(log, "t", columns=["__publish_time"])]
    assert times == sorted(times)


def test_as_of_after_a_jump(clocked_log: Log, clock: ManualClock) -> None:
    """Note what is seen before and after the clock was ahead, and ask for those moments later."""
    log = clocked_log
    log.create_topic("t", partitions=2)
    producer = log.producer("t")
    seen = []

    def step(name: bytes) -> None:
        clock.advance(5)
        with log.begin_transaction() as transaction:
            for partition in (0, 1):
                send_each(producer, [name], txn=transaction, partition=partition)
        seen.append((now(clock), by_partition(log, "t")))

    step(b"one")
    step(b"two")
    clock.advance(_TEN_YEARS_S)
    with log.begin_transaction() as transaction:
        send_each(producer, [b"ahead"], txn=transaction, partition=0)
    clock.advance(-_TEN_YEARS_S)
    step(b"three")
    step(b"four")
    for time, expected in seen:
        assert by_partition(log, "t", as_of=time) == expected, time


def found_by_time_again(log: Log, producer: Producer, clock: ManualClock) -> list[bytes]:
    """Set a clock back that was ten years ahead; send before and after a time, and return what is found from it on."""
    clock.advance(-_TEN_YEARS_S + 1)
    send_each(producer, [b"after"])
    clock.advance(5)
    since = now(clock)
    send_each(producer, [b"late"])
    return values(log, "t", start=since)


def test_jump_that_another_service_saw(clocked_site: Site, clock: ManualClock) -> None:
    """Let another connection, of an embedded log with a service of its own, write while the clock is ahead: the first
    one learns of it with its next write, though it has just looked at the clock."""
    log, other = clocked_site.connect(), clocked_site.connect()
    log.create_topic("t")
    producer, beside = log.producer("t"), other.producer("t")
    send_each(producer, [b"before"])
    clock.advance(_TEN_YEARS_S)
    send_each(beside, [b"ahead"])
    assert found_by_time_again(log, producer, clock) == [b"late"]


def test_as_of_after_a_step_back(clocked_log: Log, clock: ManualClock) -> None:
    """Set the clock back by ten minutes: what ended before that still ended later than what was seen then."""
    log = clocked_log
    log.create_topic("t")
    producer = log.producer("t")
    transaction = log.begin_transaction(timeout=900)
    send_each(producer, [b"first"], txn=transaction)
    clock.advance(300)
    open_at = now(clock)
    assert values(log, "t") == []
    clock.advance(300)
    transaction.commit()
    clock.advance(-600)
    with log.begin_transaction() as other:
        send_each(producer, [b"second"], txn=other)
    assert values(log, "t", as_of=open_at) == []
    assert values(log, "t", as_of=now(clock) + timedelta(seconds=600)) == [b"first", b"second"]


def test_transaction_that_began_during_a_jump_times_out(clocked_log: Log, clock: ManualClock) -> None:
    """Begin one while the clock is ahead: its time counts from when the clock is back."""
    log = clocked_log
    log.create_topic("t")
    producer = log.producer("t")
    clock.advance(_TEN_YEARS_S)
    transaction = log.begin_transaction(timeout=10)
    send_each(producer, [b"ahead"], txn=transaction)
    clock.advance(-_TEN_YEARS_S)
    send_each(producer, [b"after"])
    clock.advance(9.9)
    assert [t.id for t in log.transactions()] == [transaction.id]
    clock.advance(0.2)
    assert values(log, "t") == [b"after"]
    with pytest.raises(TransactionTimedOutError):
        transaction.commit()


def test_lease_from_a_jump_ends(clocked_site: Site, clock: ManualClock) -> None:
    """Store a lease of a service elsewhere while the clock is ahead: it ends soon after the clock is back."""
    log = clocked_site.connect()
    log.create_topic("t")
    log.create_subscription("t", "s")
    clock.advance(_TEN_YEARS_S)
    log.metadata.begin_transaction(1000)  # a write, which looks at the clock
    clocked_site.execute(
        "INSERT INTO consumers (consumer_id, subscription_id, token, name, host, connected_at_ms, lease_until_ms,"
        " unacknowledged) SELECT 1, subscription_id, 'x', 'other', 'elsewhere|1', :now, :until, 0 FROM subscriptions",
        now=clock.now_us // 1000,
        until=clock.now_us // 1000 + 15_000,
    )
    clock.advance(-_TEN_YEARS_S)
    with pytest.raises(SubscriptionBusyError):
        log.subscribe("t", "s")
    clock.advance(15.1)
    log.subscribe("t", "s").close()
