"""A stream's level is in its offsets: a batch keeps the one it was planned at, and another one is taken only where no
transaction is torn or shown before it is decided."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.history import PARTITIONS, STEPS, History
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, send_each
from tests.log.streaming import Follower, rows_between, stream_of, transfer
from tests.log.subscribed import Streams
from tests.selection import examples
from txn_source import InvalidArgumentError, IsolationLevel, Log, connect
from txn_source.reading.limits import StreamLimits
from txn_source.reading.stream import Stream

LEVELS = (COMMITTED, UNCOMMITTED)


@pytest.fixture
def half(log: Log) -> tuple[Follower, Any]:
    """A read_uncommitted query that has seen the first half of an open transaction, and that transaction with its
    producer."""
    log.create_topic("t", partitions=2)
    producer = log.producer("t", batching=BY_HAND)
    query = Follower(log, stream_of(log, level=UNCOMMITTED))
    transaction = log.begin_transaction()
    send_each(producer, ["debit"], partition=0, txn=transaction)
    assert query.values() == [b"debit"]
    return query, (transaction, producer)


def test_half_of_a_transaction_is_not_followed_by_the_other_half(log: Log, half: tuple[Follower, Any]) -> None:
    """See one half uncommitted, commit the other, and go on at read_committed: refused, before and after the commit,
    with the start of a new query that sees both halves."""
    query, (transaction, producer) = half
    with pytest.raises(InvalidArgumentError, match="a transaction is open") as refused:
        stream_of(log).latest(query.at)
    send_each(producer, ["credit"], partition=1, txn=transaction)
    transaction.commit()
    with pytest.raises(InvalidArgumentError, match="others would come now") as refused:
        stream_of(log).latest(query.at)
    start = refused.value.remedy.split('"startingOffsets", \'')[1].split("'")[0]
    assert sorted(Follower(log, stream_of(log, start=start)).all_values()) == [b"credit", b"debit"]
    assert query.values() == [b"credit"]
    query.stream = stream_of(log)
    transfer(log, producer, "next")
    assert query.values() == [b"next", b"next"]


def test_offset_without_a_level_is_taken_for_uncommitted(log: Log, half: tuple[Follower, Any]) -> None:
    """Go on from offsets that don't tell their level: what isn't decided isn't replayed as if it were."""
    query, (transaction, producer) = half
    start, end, rows = query.batches[0]
    unknown = replace(end, level=None)
    assert rows_between(log, stream_of(log, level=UNCOMMITTED), start, unknown) == rows
    with pytest.raises(InvalidArgumentError, match="planned at read_uncommitted"):
        stream_of(log).plan(start, unknown)
    with pytest.raises(InvalidArgumentError, match="an unknown level"):
        stream_of(log).latest(unknown)
    transaction.abort()
    assert rows_between(log, stream_of(log), start, unknown) == []
    transfer(log, producer, "next")
    assert stream_of(log).latest(unknown).level is IsolationLevel.READ_COMMITTED


def test_transaction_that_was_trimmed_on_one_side_is_not_forgotten(log: Log) -> None:
    """See one leg of a committed transfer in a limited batch, trim it, and ask for read_committed: the other leg would
    come alone, so that is refused; it comes at read_uncommitted."""
    log.create_topic("t", partitions=2)
    producer = log.producer("t", batching=BY_HAND)
    transfer(log, producer, "leg")
    query = Follower(log, stream_of(log, level=UNCOMMITTED, limits=StreamLimits(max_messages=1)))
    assert query.values() == [b"leg"]
    log.roll_ledger("t", 0)
    log.trim("t", before={"t": {0: str(log.stats("t").partitions[0].ledgers[1].ledger_id) + ":0"}})
    with pytest.raises(InvalidArgumentError, match="may have been trimmed"):
        stream_of(log).latest(query.at)
    assert query.values() == [b"leg"]
    query.stream = stream_of(log)
    transfer(log, producer, "next")
    assert query.values() == [b"next", b"next"]


def test_level_of_a_subscription_is_changed_by_the_same_rule(log: Log) -> None:
    """Change a subscription's level under a stream's checkpoint that has half of a transaction."""
    log.create_topic("t", partitions=2)
    log.create_subscription("t", "s", isolation_level=UNCOMMITTED)
    producer = log.producer("t", batching=BY_HAND)
    streams = Streams([])
    query = Follower(log, streams.open(log))
    transaction = log.begin_transaction()
    send_each(producer, ["debit"], partition=0, txn=transaction)
    assert query.values() == [b"debit"]
    streams.close()
    send_each(producer, ["credit"], partition=1, txn=transaction)
    transaction.commit()
    log.set_subscription_isolation_level("t", "s", COMMITTED)
    query.stream = streams.open(log)
    with pytest.raises(InvalidArgumentError, match="others would come now"):
        query.next()
    streams.close()


@given(
    STEPS,
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(LEVELS)), min_size=12, max_size=40),
    st.sampled_from([None, 1, 3]),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
)
@settings(max_examples=examples(5), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_change_of_levels_tears_a_transaction(
    tmp_path_factory: Any, steps: Any, changes: list[tuple[int, str]], most: int | None, trimmed: list[int]
) -> None:
    """Write overlapping transactions, trim what was read, and follow with a query whose level changes at any time.

    What it sees at read_committed in one batch is all of a committed transaction, or the rest of one that was asked for
    at read_uncommitted never; nothing comes twice, and at read_uncommitted nothing that is there is left out.
    """
    with connect(tmp_path_factory.mktemp("levels") / "log") as log:
        history = History(log)
        query = Follower(log, stream_of(log))
        levels_of: dict[bytes, set[str]] = defaultdict(set)
        seen: list[tuple[int, int, int]] = []
        committed_in: dict[bytes, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        trims = iter(trimmed)

        def follow(level: str) -> None:
            stream: Stream[Any] = stream_of(log, level=level, limits=StreamLimits(max_messages=most))
            query.stream = stream
            try:
                rows = query.next()
            except InvalidArgumentError:
                assert level == COMMITTED
                assert query.at.level is IsolationLevel.READ_UNCOMMITTED
                return
            start, end = query.batches[-1][:2] if rows is not None else (query.at, query.at)
            if rows is None:
                return
            assert end.level is IsolationLevel.parse(level)
            other = LEVELS[level == COMMITTED]
            assert rows_between(log, stream_of(log, level=other), start, end) == rows, "replayed at another level"
            for row in rows:
                seen.append((row["__partition"], row["__ledger_id"], row["__entry_id"]))
                levels_of[row["value"]].add(level)
                if level == COMMITTED:
                    assert row["value"] in history.entries, "shown before it was committed"
                    committed_in[row["value"]][len(query.batches)] += 1

        for (step, writer, partition), (often, level) in zip(steps, changes * 4, strict=False):
            history.do(step, writer, partition)
            for _ in range(often):
                follow(level)
            if often == 3 and (n := next(trims, None)) is not None:
                read = {p[1]: at for p, at in query.at.positions.items()}
                history.trim(n % PARTITIONS, sum(
                    1 for x in log.stats("t").partitions[n % PARTITIONS].ledgers
                    if x.ledger_id < read[n % PARTITIONS].ledger_id
                ))  # fmt: skip
        assert len(seen) == len(set(seen)), "a row came twice"
        for name, batches in committed_in.items():
            assert len(batches) == 1, "in two batches"
            if levels_of[name] == {COMMITTED}:
                assert sum(batches.values()) == len(history.entries[name]), "a part of it"
            else:
                raise AssertionError("one part at each level")
