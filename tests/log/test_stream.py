"""A stream's offsets: where a query begins, how far it could go, what holds it back, and that transactions stay whole.

The streams are those under Spark's source, asked as Spark asks them: every offset goes through its JSON text.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.log.meddling import meddling
from tests.log.reading import UNCOMMITTED, send_each, told_by
from tests.log.sites import ManualClock, Site
from tests.log.streaming import Follower, as_text, numbered, reread, stream_of, transfer
from txn_source import (
    DataLossError,
    InvalidArgumentError,
    IsolationLevel,
    Log,
    OutOfRangeError,
    Position,
    TopicNotFoundError,
    UnavailableError,
)
from txn_source.client.reading.own_log import DESCRIPTION
from txn_source.model.topic_name import TopicName
from txn_source.reading.limits import StreamLimits
from txn_source.reading.stream_offset import StreamOffset

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ORDERS, REFUNDS = TopicName.parse("orders"), TopicName.parse("refunds")


@pytest.fixture
def stream_log(log: Log) -> Log:
    """A log with an empty topic ``t`` of two partitions."""
    log.create_topic("t", partitions=2)
    return log


# Offsets


def test_offset_is_readable_json_with_keys_in_one_order() -> None:
    """Write an offset whose places come in any order: the text is sorted by topic and number, and reads back equal."""
    places = {(REFUNDS, 0): Position(9, 0), (ORDERS, 10): Position(3, 4), (ORDERS, 2): Position(1, 2)}
    offset = StreamOffset(places, decisions=7)
    text = '{"epoch": 0, "decisions": 7, "positions": {"orders": {"2": "1:2", "10": "3:4"}, "refunds": {"0": "9:0"}}}'
    assert as_text(offset) == as_text(StreamOffset(dict(reversed(places.items())), decisions=7)) == text
    assert reread(offset) == offset
    newcomer = StreamOffset(places, decisions=7, begins={(REFUNDS, 0): Position(8, 0)})
    assert as_text(newcomer) == text[:-1] + ', "begins": {"refunds": {"0": "8:0"}}}'
    assert reread(newcomer) == newcomer
    whole = replace(newcomer, level=IsolationLevel.READ_COMMITTED, turn=2, subscription=3)
    assert list(DESCRIPTION.offsets.to_json(whole)) == [
        "epoch",
        "decisions",
        "level",
        "turn",
        "positions",
        "begins",
        "subscription",
    ]
    assert reread(whole) == whole


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        [],
        "latest",
        {},
        {"orders": {"0": 12}},
        {"epoch": 0, "decisions": 1},
        {"epoch": 0, "decisions": 1, "positions": []},
        {"epoch": 0, "decisions": 1, "positions": {"orders": "1:2"}},
        {"epoch": 0, "decisions": 1, "positions": {"orders": {"0": 12}}},
        {"epoch": 0, "decisions": 1, "positions": {"orders": {"0": "12"}}},
        {"epoch": 0, "decisions": 1, "positions": {"orders": {"first": "1:2"}}},
        {"epoch": 0, "decisions": 1, "positions": {"a/b": {"0": "1:2"}}},
        {"epoch": 0, "decisions": None, "positions": {}},
        {"epoch": "now", "decisions": 1, "positions": {}},
    ],
    ids=lambda value: json.dumps(value),
)
def test_what_is_no_offset_of_ours_is_refused(value: Any) -> None:
    """Read what another source, or a hand, may have left in a checkpoint; the error shows it and says what to do."""
    with pytest.raises(InvalidArgumentError, match="checkpoint belongs to another query") as refused:
        DESCRIPTION.offsets.from_json(value)
    assert repr(value)[:200] in str(refused.value)


def test_offset_of_another_querys_topics_is_data_loss(log: Log) -> None:
    """Go on from the checkpoint of a query over another topic: that isn't taken for nothing to read."""
    log.create_topic("orders")
    log.create_topic("refunds")
    with log.producer("orders") as producer:
        send_each(producer, numbered(2))
    theirs = stream_of(log, "orders")
    end = theirs.latest(theirs.initial())
    with pytest.raises(DataLossError, match=r"orders-partition-0 .*the checkpoint is another query's"):
        stream_of(log, "refunds").latest(end)
    with pytest.raises(DataLossError, match=r"orders-partition-0 .*\[1:0, 1:2\)"):
        stream_of(log, "refunds").plan(theirs.initial(), end)


@pytest.mark.parametrize("position", ["1:9", "7:0"])
def test_offset_beyond_the_end_is_data_loss(log: Log, position: str) -> None:
    """Go on from a position that the log doesn't have, as after it was put back from a copy: an error."""
    log.create_topic("orders")
    with log.producer("orders") as producer:
        send_each(producer, numbered(2))
    stream = stream_of(log, "orders")
    beyond = StreamOffset({(ORDERS, 0): Position.parse(position)})
    with pytest.raises(DataLossError, match=f"orders-partition-0 .*{position}"):
        stream.latest(beyond)
    with pytest.raises(DataLossError, match=rf"orders-partition-0 has lost \[1:2, {position}\)"):
        stream.plan(stream.initial(), beyond)


# Where a query begins


def test_query_begins_where_it_is_told_to(stream_log: Log) -> None:
    """Begin at every form of ``startingOffsets``; partitions that JSON leaves out begin at the end."""
    log = stream_log
    with log.producer("t") as producer:
        send_each(producer, numbered(3, "a"), partition=0)
        send_each(producer, numbered(3, "b"), partition=1)
    first, second = (p.log_start for p in log.stats("t").partitions)

    def found(start: Any) -> list[bytes]:
        return sorted(Follower(log, stream_of(log, start=start)).all_values())

    assert found("earliest") == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    assert found("latest") == found(None) == []
    assert found({"t": {0: str(first.plus(2)), 1: str(second.plus(1))}}) == [b"a2", b"b1", b"b2"]
    assert found(json.dumps({"t": {"1": "earliest"}})) == [b"b0", b"b1", b"b2"]
    assert found({"t": {0: "latest", 1: str(second.plus(2))}}) == [b"b2"]
    assert Follower(log, stream_of(log, "t-partition-1", start=second.plus(2))).all_values() == [b"b2"]


def test_query_begins_at_a_time(clocked_log: Log, clock: ManualClock) -> None:
    """Publish a message a minute; a partition without a message at or after the time begins at its end."""
    clocked_log.create_topic("t", partitions=2)
    with clocked_log.producer("t") as producer:
        for value, partition in (("a0", 0), ("a1", 0), ("b0", 1), ("a2", 0)):
            send_each(producer, [value], partition=partition)
            clock.advance(60)
        query = Follower(clocked_log, stream_of(clocked_log, start=NOON.replace(minute=3)))
        early = Follower(clocked_log, stream_of(clocked_log, start=NOON.replace(minute=1, second=1)))
        late = Follower(clocked_log, stream_of(clocked_log, start=NOON.replace(hour=13)))
        send_each(producer, ["b1"], partition=1)
        assert [f.all_values() for f in (query, early, late)] == [[b"a2", b"b1"], [b"a2", b"b0", b"b1"], [b"b1"]]


@pytest.mark.parametrize(
    ("start", "error"),
    [
        ({"t": {2: "earliest"}}, InvalidArgumentError),
        ({"other": {0: "earliest"}}, InvalidArgumentError),
        ("1:0", InvalidArgumentError),
        ({"t": {0: "99:0"}}, OutOfRangeError),
    ],
    ids=str,
)
def test_start_that_cannot_be_is_refused(stream_log: Log, start: Any, error: type[Exception]) -> None:
    """Begin at a partition, a topic or a position that isn't there, or at one that names no partition."""
    with pytest.raises(error):
        stream_of(stream_log, start=start).initial()


@pytest.mark.parametrize("lose", [True, False])
def test_query_over_nothing_is_refused(log: Log, lose: bool) -> None:
    """Begin with a topic, or a pattern, that isn't there: an error, whatever ``failOnDataLoss`` says."""
    for stream in (stream_of(log, "t", fail_on_data_loss=lose), stream_of(log, pattern="t.*", fail_on_data_loss=lose)):
        with pytest.raises(TopicNotFoundError):
            stream.initial()


def test_query_that_begins_at_the_end_begins_at_a_cut(stream_log: Log) -> None:
    """Begin while one leg of a transfer lies behind an open transaction: later it is seen with both legs, or not."""
    log = stream_log
    producer = log.producer("t")
    hanging = log.begin_transaction()
    send_each(producer, ["open"], partition=0, txn=hanging)
    transfer(log, producer, "whole")
    query = Follower(log, stream_of(log, start="latest"))
    assert query.next() is None
    hanging.abort()
    assert query.all_values() == [b"whole", b"whole"]


# New topics


def test_topic_that_matches_later_is_read_from_its_start(log: Log) -> None:
    """Make a second topic that matches the pattern, and one that doesn't, while the query runs, even from latest."""
    log.create_topic("a-1")
    with log.producer("a-1") as producer:
        send_each(producer, ["old"])
    query = Follower(log, stream_of(log, pattern="a-.*", start="latest"))
    for name in ("a-2", "b-1"):
        log.create_topic(name, partitions=2)
        with log.producer(name) as producer:
            send_each(producer, [f"{name} {n}" for n in range(2)], partition=1)
    assert query.values() == [b"a-2 0", b"a-2 1"]
    assert query.next() is None
    query.replay(stream_of(log, pattern="a-.*"))


def test_topic_made_while_topics_are_looked_up_is_part_of_the_batch(site: Site) -> None:
    """Make a topic, and commit a transfer between it and an older one, after the topics were listed and before their
    bounds were read: the batch has both legs."""
    log = site.connect()
    log.create_topic("a-1")
    slow, way = meddling(site)
    query = Follower(slow, stream_of(slow, pattern="a-.*"))

    def make() -> None:
        log.create_topic("a-2")
        with log.begin_transaction() as transaction:
            for topic in ("a-1", "a-2"):
                send_each(log.producer(topic), ["leg"], txn=transaction)

    way.after["ListTopics"] = make
    assert query.values() == [b"leg", b"leg"]
    assert query.next() is None


def test_topics_that_are_made_without_end_are_told(site: Site) -> None:
    """Make a topic at every listing: an error, and no batch that may have halves of transactions."""
    log = site.connect()
    log.create_topic("a-0")
    slow, way = meddling(site)
    names = iter(range(1, 1000))

    def make() -> None:
        log.create_topic(f"a-{next(names)}")
        way.after["ListTopics"] = make

    way.after["ListTopics"] = make
    with pytest.raises(UnavailableError, match=r"'a-\.\*'.* made or deleted"):
        stream_of(slow, pattern="a-.*").initial()
    assert next(names) < 30


# Available now


def test_target_is_fixed_when_the_query_starts(log: Log) -> None:
    """Freeze, then append, make a topic and open transactions: batches end where the log ended, and there they end."""
    log.create_topic("a-1", partitions=2)
    producer = log.producer("a-1")
    for number in range(6):
        transfer(log, producer, f"{number}")
    query = Follower(log, stream_of(log, pattern="a-.*", limits=StreamLimits(max_messages=3)))
    query.stream.freeze()
    target = query.stream.newest().positions
    found = list(query.next() or ())
    hanging = log.begin_transaction()
    send_each(producer, ["open"], partition=0, txn=hanging)
    transfer(log, producer, "later")
    log.create_topic("a-2")
    with log.producer("a-2") as other:
        send_each(other, ["new topic"])
    log.roll_ledger("a-1")
    found += [row for rows in query.drain(most=20) for row in rows]
    assert Counter(row["value"] for row in found) == Counter({f"{n}".encode(): 2 for n in range(6)})
    assert {place: query.at.positions[place] for place in target} == target
    hanging.abort()
    again = Follower(log, stream_of(log, pattern="a-.*"))
    again.at = query.at
    assert sorted(again.all_values()) == [b"later", b"later", b"new topic"]


def test_target_never_lies_below_the_checkpoint(stream_log: Log) -> None:
    """Freeze where nothing is left to read, and with a minimum: it ends at once, and reads what is less than that."""
    log = stream_log
    producer = log.producer("t")
    send_each(producer, ["x"])
    query = Follower(log, stream_of(log, limits=StreamLimits(min_messages=100)))
    query.stream.freeze()
    assert query.values() == [b"x"]
    again = stream_of(log)
    again.freeze()
    send_each(producer, ["y"])
    assert again.latest(query.at) is query.at


# Holding back


def test_who_holds_the_stream_back_is_told_once(
    clocked_log: Log, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Leave a transaction open before three messages; the warning names it, its age, and what of this topic waits."""
    log, now = clocked_log, [0.0]
    log.create_topic("t", partitions=2)
    log.create_topic("other")
    hanging = log.begin_transaction(600)
    producer = log.producer("t")
    send_each(producer, [b"open"], partition=1, txn=hanging)
    send_each(producer, numbered(3), partition=1)
    send_each(log.producer("other"), [b"elsewhere"], txn=hanging)
    elsewhere = log.begin_transaction(600)
    send_each(log.producer("other"), [b"elsewhere"], txn=elsewhere)
    size = sum(ledger.bytes for ledger in log.stats("t").ledgers)
    clock.advance(90)
    caplog.set_level(logging.WARNING)
    query = Follower(log, stream_of(log, clock=lambda: now[0]))
    for _ in range(3):
        assert query.next() is None
        now[0] += 60
    [told] = told_by("client.streaming", caplog)
    assert (
        f"transaction {hanging.id}, open for 90 s, which holds back 4 messages ({size} bytes) of t-partition-1" in told
    )
    second = log.begin_transaction(600)
    send_each(producer, [b"open too"], partition=0, txn=second)
    assert query.next() is None
    told_now = told_by("client.streaming", caplog)
    assert len(told_now) == 2
    assert str(second.id) in told_now[1]


def test_stream_that_nobody_holds_back_says_nothing(stream_log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """Wait at the end of the log, and at read_uncommitted beside an open transaction."""
    caplog.set_level(logging.WARNING)
    producer = stream_log.producer("t")
    assert Follower(stream_log, stream_of(stream_log)).next() is None
    send_each(producer, ["open"], txn=stream_log.begin_transaction())
    query = Follower(stream_log, stream_of(stream_log, level=UNCOMMITTED))
    assert query.values() == [b"open"]
    assert query.next() is None
    assert told_by("client.streaming", caplog) == []
