"""Streams and scans that begin anywhere, also in the middle of transactions: what lies above the start stays whole.

Transactions overlap and write to the same partition more than once; their first ledgers may be trimmed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.log.history import PARTITIONS, STEPS, History, Place
from tests.log.reading import BY_HAND, rows, send_each, trim_closed
from tests.log.streaming import Follower, stream_of
from tests.selection import examples
from txn_source import Log, Position, connect
from txn_source.model import cut
from txn_source.reading.limits import StreamLimits


def is_whole(places: list[Place], starts: dict[int, Position], trimmed: dict[int, Position]) -> bool:
    """True if a start takes all of a transaction that is there, so that all of that must be seen together."""
    return all(at >= starts[p] or at < trimmed[p] for p, at in places)


@given(
    STEPS,
    STEPS,
    st.lists(st.integers(0, 4), min_size=PARTITIONS, max_size=PARTITIONS),
    st.lists(st.none() | st.integers(0, 12), min_size=PARTITIONS, max_size=PARTITIONS),
    st.sampled_from([None, 1, 2, 5]),
    st.sampled_from([0, 256]),
)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_lies_above_any_start_is_whole_in_one_batch(
    tmp_path_factory: Any,
    before: Any,
    after: Any,
    trimmed: list[int],
    begin: list[int | None],
    most: int | None,
    near: int,
) -> None:
    """Write, trim, begin anywhere (None: at the log's start) and follow while more is written: nothing is read twice or
    left out, offsets never go back, and what is above the start comes in one batch; a scan never shows a part of it."""
    with pytest.MonkeyPatch.context() as patch, connect(tmp_path_factory.mktemp("starts") / "log") as log:
        patch.setattr(cut, "_NEAR", near)
        history = History(log)
        for step in before:
            history.do(*step)
        for partition, ledgers in enumerate(trimmed):
            history.trim(partition, ledgers)
        found = log.stats("t").partitions
        log_starts = {p: found[p].log_start for p in range(PARTITIONS)}
        starts = dict(log_starts)
        for p, at in enumerate(begin):
            known = sorted(x for places in history.entries.values() for q, x in places if q == p and x >= log_starts[p])
            if at is not None and known:
                starts[p] = known[at % len(known)]
        given_start = {"t": {p: str(at) for p, at in starts.items()}}
        query = Follower(log, stream_of(log, start=given_start, limits=StreamLimits(max_messages=most)))
        batch_of: dict[bytes, set[int]] = defaultdict(set)
        seen: list[tuple[bytes, int, int, int]] = []

        def follow() -> bool:
            came = query.next()
            if came is None:
                return False
            was, now = query.batches[-1][:2]
            assert all(now.positions[place] >= at for place, at in was.positions.items())
            for row in came:
                batch_of[row["value"]].add(len(query.batches))
                seen.append((row["value"], row["__partition"], row["__ledger_id"], row["__entry_id"]))
            return True

        for step in after:
            history.do(*step)
            follow()
            scanned: dict[bytes, int] = defaultdict(int)
            for row in rows(log, "t", start=given_start):
                scanned[row["value"]] += 1
            for name, count in scanned.items():
                if is_whole(history.entries[name], starts, log_starts):
                    assert count == sum(at >= starts[p] for p, at in history.entries[name])
        history.end()
        for _ in range(500):
            if not follow():
                break
        else:
            raise AssertionError("the stream comes to no end")
        assert sorted(seen) == sorted(
            (name, p, at.ledger_id, at.entry_id)
            for name, places in history.entries.items() for p, at in places if at >= starts[p]
        )  # fmt: skip
        for name, batches in batch_of.items():
            if is_whole(history.entries[name], starts, log_starts):
                assert len(batches) == 1, name


@pytest.mark.parametrize("near", [0, 256])
def test_rest_of_a_transaction_that_was_trimmed_in_part_stays_whole(
    log: Log, monkeypatch: pytest.MonkeyPatch, near: int
) -> None:
    """Trim the first of a transaction's two entries on one partition, and limit batches so that the second would come
    without the one on the other partition; it is found by what lies near the bound, and by what lies in the batch."""
    monkeypatch.setattr(cut, "_NEAR", near)
    log.create_topic("t", partitions=2, ledger_max_entries=2)
    producer = log.producer("t", batching=BY_HAND)
    with log.begin_transaction() as transaction:
        send_each(producer, ["first"], partition=0, txn=transaction)
        send_each(producer, ["plain"], partition=0)
        send_each(producer, ["rest"], partition=0, txn=transaction)
        send_each(producer, ["plain 1"], partition=1)
        send_each(producer, ["rest"], partition=1, txn=transaction)
    log.trim("t", before={"t": {0: f"{log.stats('t').partitions[0].ledgers[1].ledger_id}:0"}})
    query = Follower(log, stream_of(log, limits=StreamLimits(max_messages=2)))
    batches = [[row["value"] for row in came] for came in query.drain() if came]
    assert batches == [[b"plain 1"], [b"rest", b"rest"]]


def test_batch_of_markers_alone_has_no_rows_and_comes_once(log: Log) -> None:
    """Abort and commit transactions without messages to see: the stream passes them by, and what was passed may be
    trimmed."""
    log.create_topic("t", partitions=2, ledger_max_entries=2)
    producer = log.producer("t", batching=BY_HAND)
    query = Follower(log, stream_of(log, limits=StreamLimits(max_messages=1)))
    for _ in range(3):
        aborted = log.begin_transaction()
        for partition in (0, 1):
            send_each(producer, ["aborted"], partition=partition, txn=aborted)
        aborted.abort()
    assert query.next() == []
    assert query.next() is None
    query.replay(stream_of(log))
    log.roll_ledger("t")
    trim_closed(log, "t")
    send_each(producer, ["seen"], partition=0)
    assert query.values() == [b"seen"]
