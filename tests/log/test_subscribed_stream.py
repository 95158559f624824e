"""A stream that follows a subscription: who is where, after commits, seeks, restarts and crashes of all of them.

Streams are driven as Spark drives them, without it: a batch is asked for, planned, read and committed.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.log.reading import BY_HAND, UNCOMMITTED, send_each
from tests.log.sites import Site
from tests.log.streaming import Follower, numbered, reread, transfer
from tests.log.subscribed import Streams, ends, marks
from tests.selection import mostly_long
from txn_source import (
    DataLossError,
    InvalidArgumentError,
    Log,
    MessageId,
    SubscriptionBusyError,
    SubscriptionIsolationMismatchError,
    SubscriptionNotFoundError,
)
from txn_source.client.reading.own_log import DESCRIPTION
from txn_source.model.topic_name import TopicName
from txn_source.reading.limits import StreamLimits


def together(log: Log, *values: str, partition: int = 0) -> list[MessageId]:
    """Send values so that they are one entry."""
    with log.producer("t", batching=BY_HAND) as producer:
        for value in values:
            producer.send(value, partition=partition)
        return list(producer.flush())


# Where a stream begins


@pytest.mark.parametrize(("start", "expected"), [("earliest", [b"m0", b"m1", b"new"]), ("latest", [b"new"])])
def test_subscription_that_is_not_there_is_made_where_the_stream_begins(
    log: Log, streams: Streams, start: str, expected: list[bytes]
) -> None:
    """Begin without the subscription: it has the stream's level, and keeps what comes after the beginning."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, numbered(2))
    query = Follower(log, streams.open(log, start=start, level=UNCOMMITTED))
    info = log.subscription("t", "s")
    assert (info.type, info.isolation_level.value, info.durable, info.epoch) == ("exclusive", UNCOMMITTED, True, 0)
    assert [consumer.name.partition("-")[0] for consumer in info.consumers] == ["stream"]
    send_each(producer, ["new"])
    assert query.all_values() == expected


def test_new_subscription_begins_at_a_cut(log: Log, streams: Streams) -> None:
    """Begin at the latest while one leg of a committed transfer waits behind an open transaction: both legs come."""
    log.create_topic("t", partitions=2)
    producer = log.producer("t", batching=BY_HAND)
    hanging = log.begin_transaction()
    send_each(producer, ["open"], partition=1, txn=hanging)
    transfer(log, producer, "both")
    query = Follower(log, streams.open(log))
    assert query.next() is None
    hanging.abort()
    assert query.all_values() == [b"both", b"both"]


def test_stream_begins_where_the_subscription_stands_at_its_level(log: Log, streams: Streams) -> None:
    """Acknowledge two of four with a consumer, then let a stream go on, with another start: the other two come, also of
    an open transaction, for that is the subscription's level."""
    log.create_topic("t")
    consumer = log.subscribe("t", "s", isolation_level=UNCOMMITTED)
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, numbered(2))
    with log.begin_transaction() as transaction:
        send_each(producer, ["open", "open too"], txn=transaction)
        for message in (consumer.receive(10), consumer.receive(10)):
            assert message is not None
            consumer.acknowledge(message)
        consumer.close()
        query = Follower(log, streams.open(log, start="earliest"))
        assert query.values() == [b"open", b"open too"]
        assert query.batches[0][2][0]["__txn_status"] == "open"


def test_stream_begins_inside_an_entry(log: Log, streams: Streams) -> None:
    """Acknowledge up to a message inside an entry, and one by one above it: the stream begins behind the first, without
    gaps; what it begins with is in its offsets, so that a batch that is replayed is the same."""
    log.create_topic("t", partitions=2)
    log.create_subscription("t", "s")
    for partition in (0, 1):
        together(log, *(f"{partition}{n}" for n in range(5)), partition=partition)
    with log.subscribe("t", "s") as consumer:
        got = {message.value: message for message in (consumer.receive(10) for _ in range(10)) if message}
        consumer.acknowledge_cumulative(got[b"01"])
        consumer.acknowledge(got[b"03"])
        consumer.flush()
    query = Follower(log, streams.open(log))
    before = marks(log)
    assert before[0].batch_index == 2
    assert query.values() == [b"02", b"03", b"04", b"10", b"11", b"12", b"13", b"14"]
    _, end, _ = query.batches[0]
    assert DESCRIPTION.offsets.to_json(end)["begins"] == {"t": {"0": str(before[0])}}
    query.replay()
    query.stream.commit(end)
    assert marks(log) == ends(end)


@pytest.mark.parametrize("begin", [6, 104])
def test_stream_begins_inside_an_entry_of_either_copy(log: Log, streams: Streams, begin: int) -> None:
    """Begin behind the first, or at the last message of an entry between others; then replay it from the other copy."""
    log.create_topic("t")
    values = numbered(110)
    ids = [at for part in (values[:5], values[5:105], values[105:]) for at in together(log, *map(bytes.decode, part))]
    log.create_subscription("t", "s", initial_position=str(ids[begin]))
    query = Follower(log, streams.open(log))
    rows = query.next() or []
    assert [row["value"] for row in rows] == values[begin:]
    assert [row["__batch_index"] for row in rows] == [at.batch_index for at in ids[begin:]]
    log.roll_ledger("t")
    log.offload("t")
    log.delete_hot("t")
    query.replay()


def test_beginning_inside_an_aborted_entry_leaves_out_nothing_else(log: Log, streams: Streams) -> None:
    log.create_topic("t")
    transaction = log.begin_transaction()
    with log.producer("t", batching=BY_HAND) as producer:
        for _ in range(3):
            producer.send("never", txn=transaction)
        inside = producer.flush()[1]
    transaction.abort()
    together(log, "a", "b", "c")
    log.create_subscription("t", "s", initial_position=str(inside))
    assert Follower(log, streams.open(log)).values() == [b"a", b"b", b"c"]


def test_limit_inside_the_first_entry_takes_it_whole(log: Log, streams: Streams) -> None:
    """Begin inside an entry of one partition while the other's comes first: the beginning isn't forgotten."""
    log.create_topic("t", partitions=2)
    log.create_subscription("t", "s")
    ids = {p: together(log, *(f"{p}{n}" for n in range(3)), partition=p) for p in (0, 1)}
    log.seek("t", "s", {"t": {p: str(ids[p][1]) for p in (0, 1)}})
    query = Follower(log, streams.open(log, limits=StreamLimits(max_messages=1)))
    assert list(query.drain()) == [batch for *_, batch in query.batches]
    assert [[row["value"] for row in batch] for *_, batch in query.batches] in (
        [[b"01", b"02"], [b"11", b"12"]],
        [[b"11", b"12"], [b"01", b"02"]],
    )
    query.replay()


# What is refused


def test_other_level_is_refused(log: Log, streams: Streams) -> None:
    log.create_topic("t")
    log.create_subscription("t", "s", isolation_level=UNCOMMITTED)
    with pytest.raises(SubscriptionIsolationMismatchError, match="'s' is read_uncommitted"):
        streams.open(log, level="read_committed")
    streams.open(log, level=UNCOMMITTED)


@pytest.mark.parametrize("kind", ["shared", "failover"])
def test_subscription_of_several_consumers_is_refused(log: Log, streams: Streams, kind: str) -> None:
    log.create_topic("t")
    log.create_subscription("t", "s", type=kind)
    with pytest.raises(InvalidArgumentError, match=f"'s' is {kind}.* exclusive"):
        streams.open(log)


def test_subscription_is_held_until_the_stream_ends(site: Site, streams: Streams) -> None:
    """Open a second stream, a consumer, or delete it, before and after the first stream ends."""
    log, other = site.connect(), site.connect()
    log.create_topic("t")
    query = Follower(log, streams.open(log))
    for second in (
        lambda: streams.open(other),
        lambda: other.subscribe("t", "s"),
        lambda: other.delete_subscription("t", "s"),
    ):
        with pytest.raises(SubscriptionBusyError, match="consumer 'stream-"):
            second()
    send_each(log.producer("t", batching=BY_HAND), ["x"])
    assert query.values() == [b"x"]
    streams.close()
    assert Follower(other, streams.open(other)).values() == [b"x"]


def test_checkpoint_of_another_subscription_is_refused(log: Log, streams: Streams) -> None:
    """Go on from a checkpoint when the subscription was deleted, was made anew, or when the query had none before."""
    log.create_topic("t")
    send_each(log.producer("t", batching=BY_HAND), numbered(2))
    query = Follower(log, streams.open(log, start="earliest"))
    at = reread(query.at)
    streams.close()
    log.delete_subscription("t", "s")
    with pytest.raises(SubscriptionNotFoundError):
        streams.open(log).latest(at)
    log.create_subscription("t", "s", initial_position="latest")
    before = marks(log)
    stream = streams.open(log)
    for foreign in (at, replace(at, subscription=None, level=None)):
        with pytest.raises(InvalidArgumentError, match=r"subscription 's'.* new checkpoint"):
            stream.latest(foreign)
        stream.commit(foreign)
    assert marks(log) == before


def test_deleted_topic_is_lost_data(log: Log, streams: Streams) -> None:
    log.create_topic("t")
    send_each(log.producer("t", batching=BY_HAND), ["x"])
    query = Follower(log, streams.open(log, start="earliest"))
    query.next()
    log.delete_topic("t")
    with pytest.raises(DataLossError, match="is gone"):
        query.next()


# Commits


def test_commit_acknowledges_what_the_batch_read(log: Log, streams: Streams) -> None:
    """Commit a batch with aborted messages in it; ask for the next without a commit: the end of it is acknowledged, for
    whoever asks has the batch in its log."""
    log.create_topic("t", partitions=2)
    producer = log.producer("t", batching=BY_HAND)
    query = Follower(log, streams.open(log))
    transfer(log, producer, "a")
    aborted = log.begin_transaction()
    send_each(producer, ["never"], partition=1, txn=aborted)
    aborted.abort()
    assert query.values() == [b"a", b"a"]
    assert log.subscription("t", "s").partitions[0].backlog == 1
    query.stream.commit(reread(query.at))
    assert marks(log) == ends(query.at)
    assert [p.backlog for p in log.subscription("t", "s").partitions] == [0, 0]
    transfer(log, producer, "b")
    assert query.values() == [b"b", b"b"]
    assert query.next() is None
    assert marks(log) == ends(query.at)


def test_checkpoint_wins_over_the_subscription_in_the_same_epoch(log: Log, streams: Streams) -> None:
    """Crash with a batch in the checkpoint that wasn't acknowledged: it doesn't come again, and is acknowledged."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    query = Follower(log, streams.open(log))
    send_each(producer, ["a"])
    assert query.values() == [b"a"]
    streams.close()
    send_each(producer, ["b"])
    stream = streams.open(log)
    query.replay(stream)
    query.stream = stream
    assert marks(log) == ends(query.batches[0][0])
    assert query.values() == [b"b"]
    assert marks(log) == ends(query.batches[0][1])


def test_replayed_batch_is_read_at_the_level_it_had(log: Log, streams: Streams) -> None:
    """Change the level between a batch and its replay: the same rows; the batches after it have the new one."""
    log.create_topic("t")
    log.create_subscription("t", "s", isolation_level=UNCOMMITTED)
    producer = log.producer("t", batching=BY_HAND)
    query = Follower(log, streams.open(log))
    transaction = log.begin_transaction()
    send_each(producer, ["dirty"], txn=transaction)
    transaction.abort()
    assert query.values() == [b"dirty"]
    streams.close()
    log.set_subscription_isolation_level("t", "s", "read_committed")
    query.stream = streams.open(log)
    query.replay()
    aborted = log.begin_transaction()
    send_each(producer, ["never"], txn=aborted)
    aborted.abort()
    send_each(producer, ["clean"])
    assert query.values() == [b"clean"]


# Seeks


@pytest.mark.parametrize("to", mostly_long(["earliest", "an entry", "a message", "latest"], "earliest", "a message"))
def test_next_batch_begins_where_a_seek_went(log: Log, streams: Streams, to: str) -> None:
    """Seek while a batch runs: its commit doesn't move the cursor and is counted, the next batch begins where the seek
    went and tells it, and a replay of it is the same, also by a stream that was opened later."""
    log.create_topic("t")
    query = Follower(log, streams.open(log, start="earliest"))
    ids = [*together(log, "a", "b"), *together(log, "c", "d", "e")]
    assert query.all_values() == [b"a", b"b", b"c", b"d", b"e"]
    together(log, "f")
    assert query.values() == [b"f"]
    place = {"earliest": "earliest", "latest": "latest", "an entry": str(ids[2].position), "a message": str(ids[3])}[to]
    sought = log.seek("t", "s", place)
    cursor = marks(log)
    query.stream.commit(query.at)
    assert marks(log) == cursor
    assert log.subscription("t", "s").ignored_acknowledgements == 1
    rest = {"earliest": b"abcdef", "an entry": b"cdef", "a message": b"def", "latest": b""}[to]
    assert query.values() == [rest[i : i + 1] for i in range(len(rest))]
    start, end, _ = query.batches[-1]
    assert (start.epoch, end.epoch, sought.epoch) == (0, 1, 1)
    shown = str(cursor[0]) if to == "a message" else str(cursor[0].position)
    assert DESCRIPTION.offsets.to_json(end)["begins"] == {"t": {"0": shown}}
    assert query.next() is None
    assert marks(log) == ends(end)
    streams.close()
    query.replay(streams.open(log))


def test_seek_while_the_query_is_stopped_wins_over_its_checkpoint(log: Log, streams: Streams) -> None:
    log.create_topic("t")
    ids = send_each(log.producer("t", batching=BY_HAND), numbered(4))
    query = Follower(log, streams.open(log, start="earliest"))
    query.all_values()
    streams.close()
    log.seek("t", "s", str(ids[2]))
    log.seek("t", "s", str(ids[1]))
    query.stream = streams.open(log)
    assert query.values() == numbered(4)[1:]
    assert query.at.epoch == 2


def test_limits_hold_after_a_seek(log: Log, streams: Streams) -> None:
    """Rewind, with limits: batches of that size; but what ``minMessagesPerTrigger`` waits for isn't waited for once."""
    log.create_topic("t")
    ids = send_each(log.producer("t", batching=BY_HAND), numbered(5))
    query = Follower(log, streams.open(log, start="earliest", limits=StreamLimits(max_messages=2, min_messages=2)))
    assert [len(batch) for batch in query.drain()] == [2, 2]
    log.seek("t", "s", str(ids[2]))
    assert [[row["value"] for row in batch] for batch in query.drain()] == [[b"m2", b"m3"]]
    log.seek("t", "s", str(ids[4]))
    assert query.values() == [b"m4"]


def test_available_now_follows_a_seek_up_to_its_target(log: Log, streams: Streams) -> None:
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    send_each(producer, numbered(3))
    query = Follower(log, streams.open(log, start="earliest"))
    query.stream.freeze()
    assert query.values() == numbered(3)
    send_each(producer, ["later"])
    log.seek("t", "s", "earliest")
    assert query.all_values() == numbered(3)
    log.seek("t", "s", "latest")
    assert query.all_values() == []


def test_trimmed_beginning_of_a_sought_batch_is_lost_data(log: Log, streams: Streams) -> None:
    """Trim what a batch after a seek begins with, then replay it: an error that says what is lost."""
    log.create_topic("t", ledger_max_entries=1)
    send_each(log.producer("t", batching=BY_HAND), numbered(4))
    query = Follower(log, streams.open(log, start="earliest"))
    query.all_values()
    log.seek("t", "s", "earliest")
    query.next()
    query.stream.commit(query.at)
    first = query.batches[-1][1].begins[TopicName.parse("t"), 0]
    log.trim("t", before={"t": {0: f"{first.ledger_id + 2}:0"}})
    with pytest.raises(DataLossError, match="has lost"):
        query.replay()
