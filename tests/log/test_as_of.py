"""Time travel by commit time: what read_committed would have seen at a moment, however late it is asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.reading import by_partition, send_each, values
from tests.log.sites import ManualClock, Site
from tests.selection import examples
from txn_source import InvalidArgumentError, Log, OutOfRangeError, Transaction

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now(clock: ManualClock) -> datetime:
    return _EPOCH + timedelta(microseconds=clock.now_us)


def test_transaction_shows_from_its_commit_on(clocked_log: Log, clock: ManualClock) -> None:
    """Publish at one time, commit at a later one, and look as of before, between and after."""
    log = clocked_log
    log.create_topic("t")
    producer = log.producer("t")
    send_each(producer, [b"plain"])
    before = now(clock)
    clock.advance(10)
    transaction = log.begin_transaction()
    send_each(producer, [b"late"], txn=transaction)
    clock.advance(10)
    send_each(producer, [b"behind"])
    between = now(clock)
    clock.advance(10)
    transaction.commit()
    after = now(clock)
    assert values(log, "t", as_of=before) == [b"plain"]
    assert values(log, "t", as_of=between) == [b"plain"]
    assert values(log, "t", as_of=after) == [b"plain", b"late", b"behind"]
    with pytest.raises(OutOfRangeError, match="is before topic 't' was made"):
        log.scan("t", as_of=before - timedelta(days=1))
    assert values(log, "t", as_of=after.isoformat()) == values(log, "t")


def test_as_of_excludes_another_end_and_the_other_level(clocked_log: Log, clock: ManualClock) -> None:
    """Ask for a time together with an end, and at read_uncommitted."""
    clocked_log.create_topic("t")
    with pytest.raises(InvalidArgumentError):
        clocked_log.scan("t", as_of=now(clock), end="1:0")
    with pytest.raises(InvalidArgumentError):
        clocked_log.scan("t", "read_uncommitted", as_of=now(clock))


def test_time_of_which_nothing_is_left_is_refused(clocked_log: Log, clock: ManualClock) -> None:
    """Trim one of two partitions, whose ledgers are a minute apart, and look at times before and after its start."""
    log = clocked_log
    log.create_topic("t", 2)
    producer, times = log.producer("t"), []
    for number in range(3):
        for partition in range(2):
            send_each(producer, [b"%d" % number], partition=partition)
        clock.advance(60)
        times.append(now(clock) - timedelta(seconds=1))
        log.roll_ledger("t")
    second = log.stats("t").partitions[0].ledgers[1].ledger_id
    log.trim("t", before={"t": {0: f"{second}:0"}})
    clock.advance(60)
    with pytest.raises(OutOfRangeError, match=rf"had at .* was trimmed: it begins with ledger {second}, of"):
        log.scan("t", as_of=times[0])
    with pytest.raises(OutOfRangeError, match="is before topic 't' was made"):
        log.scan("t", as_of=times[0] - timedelta(seconds=90))
    assert sorted(values(log, "t", as_of=times[1])) == [b"0", b"1", b"1"]
    log.trim("t", keep_bytes=0)
    clock.advance(60)
    assert values(log, "t", as_of=now(clock)) == []
    with pytest.raises(OutOfRangeError):
        log.scan("t", as_of=times[1])


def test_as_of_finds_its_way_in_offloaded_ledgers(clocked_log: Log, clock: ManualClock) -> None:
    """Look as of a time inside a ledger whose entries only the object knows any more."""
    log = clocked_log
    log.create_topic("t", ledger_max_entries=8)
    producer, times = log.producer("t"), []
    for number in range(8):
        send_each(producer, [b"%d" % number])
        times.append(now(clock))
        clock.advance(1)
    log.offload("t")
    clock.advance(2 * 3600)
    log.delete_hot("t")
    for number, time in enumerate(times):
        assert values(log, "t", as_of=time) == [b"%d" % n for n in range(number + 1)]


_STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "commit", "abort", "plain", "roll"]), st.integers(0, 2), st.integers(0, 1)),
    max_size=14,
)


@given(_STEPS)
@settings(max_examples=examples(8), deadline=None)
def test_as_of_a_moment_is_what_was_seen_at_it(tmp_path_factory: Any, steps: list[tuple[str, int, int]]) -> None:
    """Note what read_committed sees after each step; at the end, ask again as of each of these moments."""
    clock = ManualClock()
    with Site("embedded", tmp_path_factory.mktemp("as-of") / "log", clock) as site:
        log = site.connect()
        log.create_topic("t", partitions=2, ledger_max_entries=3)
        producer = log.producer("t")
        open_ones: dict[int, Transaction] = {}
        seen = []
        for number, (step, which, partition) in enumerate(steps):
            clock.advance(1)
            if step == "send":
                transaction = open_ones.setdefault(which, log.begin_transaction())
                send_each(producer, [b"%d" % number], txn=transaction, partition=partition)
            elif step == "plain":
                send_each(producer, [b"%d" % number], partition=partition)
            elif step == "roll":
                log.roll_ledger("t")
            elif which in open_ones:
                getattr(open_ones.pop(which), step)()
            seen.append((now(clock), by_partition(log, "t")))
        clock.advance(2000)
        log.transactions()
        for time, rows in seen:
            assert by_partition(log, "t", as_of=time) == rows
