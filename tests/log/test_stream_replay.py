"""A batch that is read again gives the same rows whatever happened since; what is no longer there is told as lost.

Offsets go through their JSON text, and a batch is read again by a stream, and mostly a connection, of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.log.reading import COMMITTED, UNCOMMITTED, send_each, told_by
from tests.log.sites import Site
from tests.log.streaming import Follower, numbered, rows_between, stream_of, transfer
from txn_source import DataLossError, Log
from txn_source.reading.limits import StreamLimits


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [said for part in ("client.reading", "client.streaming", "reading") for said in told_by(part, caplog)]


def restart(site: Site) -> Log:
    """Restart the service, if it is one, and return a new connection."""
    if site.kind == "remote":
        site.stop_server()
        site.start_server()
    return site.connect()


@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED])
@pytest.mark.kinds("remote")
def test_batches_are_the_same_whenever_they_are_read_again(site: Site, level: str) -> None:
    """Read small batches while transactions are open; end these, append, roll, offload, delete the hot copies and
    restart: after each step every batch is read again, with each transaction's status as it was at first."""
    log = site.connect()
    log.create_topic("t", partitions=2, ledger_max_entries=6)
    producer = log.producer("t")
    query = Follower(log, stream_of(log, level=level, limits=StreamLimits(max_messages=4)))
    later = [log.begin_transaction(600), log.begin_transaction(600)]
    for number in range(5):
        transfer(log, producer, f"committed {number}")
        send_each(producer, [f"plain {number}"], partition=number % 2)
        aborted = log.begin_transaction()
        send_each(producer, [f"aborted {number}"], partition=number % 2, txn=aborted)
        aborted.abort()
        if number == 2:
            assert list(query.drain())
            for partition, transaction in enumerate(later):
                send_each(producer, ["later"], partition=partition, txn=transaction)
    list(query.drain())
    statuses = {row["__txn_status"] for _, _, rows in query.batches for row in rows}
    assert statuses == {None, "committed"} | ({"aborted", "open"} if level == UNCOMMITTED else set())

    def append() -> None:
        later[0].commit()
        later[1].abort()
        send_each(producer, numbered(5), partition=0)
        transfer(log, producer, "new")
        assert log.begin_transaction().id is not None

    steps: list[Callable[[], object]] = [
        append,
        lambda: log.roll_ledger("t"),
        lambda: log.offload("t"),
        lambda: log.delete_hot("t"),
    ]
    for step in steps:
        step()
        query.replay(stream_of(log, level=level))
    producer.close()
    query.log = restart(site)
    query.replay(stream_of(query.log, level=level))
    query.stream = stream_of(query.log, level=level)
    seen = len(query.batches)
    assert {row["value"] for rows in query.drain() for row in rows} >= {b"m0", b"new"}
    assert len(query.batches) > seen


# What is lost


@pytest.fixture
def trimmed(log: Log) -> Follower:
    """A query that has read the first of ten entries, of which the first six were trimmed then."""
    log.create_topic("t", partitions=2, ledger_max_entries=2)
    with log.producer("t") as producer:
        send_each(producer, numbered(10), partition=1)
    query = Follower(log, stream_of(log, limits=StreamLimits(max_messages=1)))
    assert query.values() == [b"m0"]
    log.trim("t", before={"t": {1: str(log.stats("t").partitions[1].ledgers[3].ledger_id) + ":0"}})
    return query


def test_what_was_trimmed_before_it_was_read_is_lost(log: Log, trimmed: Follower) -> None:
    """Trim the five entries that come next: the error names topic, partition and range, and the ways out."""
    with pytest.raises(DataLossError, match=r"t-partition-1 has lost \[2:1, 5:0\)") as lost:
        trimmed.next()
    assert "failOnDataLoss" in lost.value.remedy
    with pytest.raises(DataLossError, match=r"t-partition-1 has lost \[2:0, 2:1\)"):
        trimmed.replay()


def test_what_was_trimmed_is_skipped_if_that_is_asked_for(
    log: Log, trimmed: Follower, caplog: pytest.LogCaptureFixture
) -> None:
    """Go on with ``failOnDataLoss=false``: from the first entry left, with one warning that names the range."""
    caplog.set_level(logging.WARNING)
    trimmed.stream = stream_of(log, fail_on_data_loss=False)
    assert trimmed.all_values() == numbered(10)[6:]
    assert [w for w in warnings(caplog) if "t-partition-1 has lost [2:1, 5:0)" in w] == warnings(caplog)
    assert len(warnings(caplog)) == 1
    start, end, _ = trimmed.batches[0]
    assert rows_between(log, trimmed.stream, start, end) == []


def test_trimmed_start_of_a_new_topic_is_lost_when_its_first_batch_is_read_again(log: Log) -> None:
    """Read a topic's first batch, trim it, and read it again: the batch knows where the topic began."""
    log.create_topic("a-1")
    query = Follower(log, stream_of(log, pattern="a-.*"))
    log.create_topic("a-2", ledger_max_entries=2)
    with log.producer("a-2") as producer:
        send_each(producer, numbered(5))
    assert query.values() == numbered(5)
    log.trim("a-2", before=f"{log.stats('a-2').ledgers[2].ledger_id}:0")
    with pytest.raises(DataLossError, match=r"a-2-partition-0 has lost \[2:0, 4:0\)"):
        query.replay()


def test_deleted_topic_is_lost(log: Log) -> None:
    """Delete the topic of a query, and one of two that match a pattern: each time the error names what was read."""
    for topic in ("a-1", "a-2", "t"):
        log.create_topic(topic)
        with log.producer(topic) as producer:
            send_each(producer, numbered(2))
    single = Follower(log, stream_of(log))
    several = Follower(log, stream_of(log, pattern="a-.*"))
    for query in (single, several):
        assert query.next()
    log.delete_topic("t")
    log.delete_topic("a-1")
    with pytest.raises(DataLossError, match=r'"t": \{"0": "3:2"\}.* is gone. There is no topic .*t'):
        single.next()
    with pytest.raises(DataLossError, match="a-1-partition-0 is gone, and with it all from 1:2 on"):
        several.next()
    with pytest.raises(DataLossError, match=r"a-1-partition-0 is gone, and with it \[1:0, 1:2\) of a batch"):
        several.replay()


@pytest.mark.parametrize("by", ["names", "pattern"])
def test_query_goes_on_without_deleted_topics_if_that_is_asked_for(
    log: Log, caplog: pytest.LogCaptureFixture, by: str
) -> None:
    """Delete one topic of two, then the other, and make it again: a warning for each, and the new one is read."""
    for topic in ("a-1", "a-2"):
        log.create_topic(topic)
        with log.producer(topic) as producer:
            send_each(producer, numbered(2, topic))
    which = {"topics": ["a-1", "a-2"]} if by == "names" else {"pattern": "a-.*"}
    query = Follower(log, stream_of(log, **which, fail_on_data_loss=False))  # type: ignore[arg-type]
    assert query.next()
    log.delete_topic("a-1")
    caplog.set_level(logging.WARNING)
    assert query.next() is query.next() is None
    assert len([w for w in warnings(caplog) if "a-1-partition-0 is gone" in w]) == len(warnings(caplog)) == 1
    with log.producer("a-2") as producer:
        send_each(producer, ["more"])
    assert query.values() == [b"more"]
    log.delete_topic("a-2")
    assert query.next() is query.next() is None
    query.stream.newest()
    log.create_topic("a-2")
    with log.producer("a-2") as producer:
        send_each(producer, ["anew"])
    assert query.values() == [b"anew"]
    assert query.next() is None


@pytest.mark.parametrize("partitions", [1, 3])
def test_topic_that_was_made_again_is_data_loss(log: Log, caplog: pytest.LogCaptureFixture, partitions: int) -> None:
    """Delete a topic and make it again while the query is down: an error; or it is read from its start."""
    log.create_topic("t", partitions=2)
    with log.producer("t") as producer:
        for partition in range(2):
            send_each(producer, numbered(3), partition=partition)
    query = Follower(log, stream_of(log))
    assert query.next()
    log.delete_topic("t")
    log.create_topic("t", partitions=partitions)
    with log.producer("t") as producer:
        send_each(producer, ["anew"], partition=0)
    query.stream = stream_of(log)
    with pytest.raises(DataLossError, match="t-partition-"):
        query.next()
    with pytest.raises(DataLossError, match=r"t-partition-0 has lost \[1:0, 1:3\)"):
        query.replay(stream_of(log))
    caplog.set_level(logging.WARNING)
    query.stream = stream_of(log, fail_on_data_loss=False)
    assert query.values() == [b"anew"]
    assert all(any(f"t-partition-{n}" in w for w in warnings(caplog)) for n in range(2))
    assert query.next() is None


def test_trimming_what_was_read_to_its_end_is_no_loss(log: Log) -> None:
    """Read a ledger to its end, let it be closed and trimmed: the stream, and a batch read from there, go on."""
    log.create_topic("t")
    producer = log.producer("t")
    producer.send(b"a")
    producer.flush()
    opened = stream_of(log, start="earliest")
    at = opened.latest(opened.initial())
    log.roll_ledger("t")
    producer.send(b"b")
    producer.flush()
    log.trim("t", keep_bytes=log.stats("t").ledgers[-1].bytes)
    end = opened.latest(at)
    assert opened.plan(at, end).tasks
    [position] = at.positions.values()
    assert log.scan("t", columns=["value"], start=position).read_all()["value"].to_pylist() == [b"b"]


def test_first_batch_begins_where_it_did_when_it_is_replayed(log: Log) -> None:
    """Kill a query that began at latest in its first batch: Spark asks anew where it began, and has its end alone."""
    log.create_topic("t", partitions=2)
    with log.producer("t") as producer:
        send_each(producer, numbered(2))
        query = Follower(log, stream_of(log, start="latest"))
        transfer(log, producer, "a", (0,))
        assert query.values() == [b"a"]
        transfer(log, producer, "b")
    anew = Follower(log, stream_of(log, start="latest"))
    [(_, end, rows)] = query.batches
    assert anew.at != query.batches[0][0]
    assert rows_between(log, anew.stream, anew.at, end) == rows
    query.stream = anew.stream
    assert query.values() == [b"b", b"b"]


# Other topics


def test_place_in_a_topic_that_is_left_out_is_kept(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """Run a query with another topic, and then with the first again: refused; or it goes on where it was in each, and
    doesn't change its topics in the middle of a batch."""
    for topic in ("a", "b"):
        log.create_topic(topic)
        with log.producer(topic) as producer:
            send_each(producer, numbered(2, topic))
    query = Follower(log, stream_of(log, "a", fail_on_data_loss=False))
    assert query.values() == [b"a0", b"a1"]
    query.stream = stream_of(log, "b")
    with pytest.raises(DataLossError, match=r"a-partition-0 is at 1:2 and not read"):
        query.next()
    for strict in (True, False):
        with pytest.raises(DataLossError, match=r"a-partition-0 has \[1:0, 1:2\) of the batch"):
            query.replay(stream_of(log, "b", fail_on_data_loss=strict))
    query.stream = stream_of(log, "b", fail_on_data_loss=False)
    caplog.set_level(logging.WARNING)
    assert query.values() == [b"b0", b"b1"]
    assert query.next() is None
    assert len([w for w in warnings(caplog) if "its place is kept" in w]) == 1
    with log.producer("a") as producer:
        send_each(producer, ["a2"])
    query.stream = stream_of(log, "a", fail_on_data_loss=False)
    assert query.values() == [b"a2"]
    query.stream = stream_of(log, ["a", "b"])
    with log.producer("b") as producer:
        send_each(producer, ["b2"])
    assert query.values() == [b"b2"]
