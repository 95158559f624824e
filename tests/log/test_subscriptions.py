"""Subscriptions: isolation level, cursor, backlog and seeks of each, through consumers of every type."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.log.consuming import (
    END,
    WAIT_S,
    due_in_s,
    mark,
    meanwhile,
    message_id,
    numbered,
    receive,
    subscribe,
    take,
    up_to_end,
)
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, eventually, send_each
from tests.log.sites import ManualClock, Site
from tests.log.test_isolation_vectors import Runner
from tests.selection import mostly_long
from txn_source import (
    InvalidArgumentError,
    IsolationLevel,
    Log,
    MessageId,
    Producer,
    SubscriptionBusyError,
    SubscriptionExistsError,
    SubscriptionIsolationMismatchError,
    SubscriptionNotFoundError,
    TopicNotFoundError,
    Transaction,
)

LEVELS = (COMMITTED, UNCOMMITTED)
STORY = {COMMITTED: [b"m1", b"b1", b"b2", b"m2"], UNCOMMITTED: [b"m1", b"a1", b"b1", b"a2", b"b2", b"m2"]}


def tell(log: Log, producer: Producer | None = None) -> Producer:
    """Write plain messages, a transaction that aborts and one that commits; make the topic if there is no producer."""
    if producer is None:
        log.create_topic("t")
        producer = log.producer("t", batching=BY_HAND)
    a, b = log.begin_transaction(), log.begin_transaction()
    send_each(producer, [b"m1"])
    for txn, value in ((a, b"a1"), (b, b"b1"), (a, b"a2"), (b, b"b2")):
        send_each(producer, [value], txn=txn)
    a.abort()
    b.commit()
    send_each(producer, [b"m2", END])
    return producer


# Levels


@pytest.mark.parametrize("kind", mostly_long(["exclusive", "shared"], "shared"))
@pytest.mark.parametrize("first", [True, False])
def test_two_levels_side_by_side(log: Log, kind: str, first: bool) -> None:
    """The two systems of PIP-298: subscribe before or after all was written; each sees what its level says."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    if not first:
        tell(log, producer)
    consumers = {level: subscribe(log, level, type=kind, isolation_level=level) for level in LEVELS}
    if first:
        tell(log, producer)
    for level, consumer in consumers.items():
        assert up_to_end(consumer) == STORY[level]
        assert consumer.isolation_level is IsolationLevel.parse(level)
        assert log.subscription("t", level).isolation_level is IsolationLevel.parse(level)


def test_consumers_wait_for_copies(site: Site) -> None:
    """Have an entry lack copies, as another process registers it, and then have them: consumers get it only then."""
    if site.url is not None:
        pytest.skip("what is changed behind the service's back isn't told there")
    runner = Runner(site)
    with subscribe(runner.log, isolation_level=UNCOMMITTED) as consumer:
        runner.append({"txn": None, "messages": 1})
        assert receive(consumer).message_id.entry_id == 0
        runner.high_watermark(1)
        runner.append({"txn": None, "messages": 1})
        [partition] = runner.log.stats("t").partitions
        assert (partition.high_watermark.entry_id, partition.log_end.entry_id) == (1, 2)
        assert consumer.receive(0.0) is None
        site.execute("DELETE FROM short_entries")
        assert receive(consumer).message_id.entry_id == 1


def test_other_level_is_refused(log: Log) -> None:
    """Ask for the other level, with a consumer connected and without: the error names all that one needs to know."""
    numbered(log)
    consumer = subscribe(log)
    expected = r"\[TXNLOG_SUBSCRIPTION_ISOLATION_MISMATCH\] .*'s' is read_committed.* read_uncommitted.*another subscr"
    for _ in range(2):
        with pytest.raises(SubscriptionIsolationMismatchError, match=expected + ".*set-isolation-level"):
            subscribe(log, isolation_level=UNCOMMITTED)
        consumer.close()


def test_stored_level_is_taken_if_none_is_asked_for(log: Log) -> None:
    """Leave the level open, of a subscription that is there and of one that isn't."""
    numbered(log)
    log.create_subscription("t", "s", isolation_level=UNCOMMITTED)
    assert subscribe(log, isolation_level=None).isolation_level is IsolationLevel.READ_UNCOMMITTED
    with pytest.raises(SubscriptionNotFoundError, match="'other'"):
        subscribe(log, "other", isolation_level=None)
    assert [info.name for info in log.subscriptions("t")] == ["s"]


def test_operator_changes_the_level_while_nobody_is_connected(log: Log) -> None:
    """Change it under a consumer, then without: what comes next is of the new level, from where it stood.

    The aborted message behind the one that was acknowledged was passed with it.
    """
    tell(log)
    consumer = subscribe(log)
    take(consumer, 1, acknowledge=True)
    with pytest.raises(SubscriptionBusyError, match=f"'{consumer._request.consumer_name}' is connected"):
        log.set_subscription_isolation_level("t", "s", UNCOMMITTED)
    consumer.close()
    log.set_subscription_isolation_level("t", "s", UNCOMMITTED)
    assert up_to_end(subscribe(log, isolation_level=UNCOMMITTED)) == STORY[UNCOMMITTED][2:]


def test_backlog_follows_a_change_of_the_level(log: Log) -> None:
    """Acknowledge aborted and committed messages above a gap, and change the level: it counts what is left."""
    tell(log)
    consumer = subscribe(log, isolation_level=UNCOMMITTED)
    messages = [receive(consumer) for _ in STORY[UNCOMMITTED]]
    for number in (1, 2, 3, 4):
        consumer.acknowledge(messages[number])
    consumer.close()
    for level, left in ((COMMITTED, [b"m1", b"m2"]), (UNCOMMITTED, [b"m1", b"m2"])):
        log.set_subscription_isolation_level("t", "s", level)
        assert log.subscription("t", "s").partitions[0].backlog == len(left) + 1
        with subscribe(log, isolation_level=None) as again:
            assert up_to_end(again) == left


def test_trimmed_messages_count_no_more(log: Log) -> None:
    """Acknowledge some messages of a ledger out of order, and trim it away."""
    producer, ids = numbered(log)
    log.roll_ledger("t")
    newer = send_each(producer, [b"x", b"y"])
    consumer = subscribe(log, durable=False)
    for message in [receive(consumer) for _ in ids][3:]:
        consumer.acknowledge(message)
    consumer.flush()
    log.trim("t", before=newer[0].position)
    assert (mark(log), log.subscription("t", "s").partitions[0].backlog) == (newer[0], 2)


def test_subscription_survives_a_restart(site: Site) -> None:
    """Restart the server, or open the log anew: level, epoch, cursor and type are those from before."""
    log = site.open()
    _, ids = numbered(log)
    consumer = subscribe(log, type="failover", isolation_level=UNCOMMITTED)
    consumer.seek(ids[2])
    taken = [receive(consumer) for _ in range(4)]
    for message in (taken[0], taken[2]):
        consumer.acknowledge(message)
    consumer.close()
    before = log.subscription("t", "s")
    log.close()
    if site.kind == "remote":
        site.stop_server()
        site.start_server()
    log = site.connect()
    assert log.subscription("t", "s") == before
    assert (before.epoch, mark(log), before.partitions[0].backlog) == (1, ids[3], 6)
    assert take(subscribe(log, type="failover", isolation_level=None), 6) == [b"3", b"5", b"6", b"7", b"8", b"9"]


# Aborted messages and markers


@pytest.mark.parametrize("level", LEVELS)
def test_aborted_messages_are_filtered_in_offloaded_ledgers(log: Log, level: str) -> None:
    """Offload and delete the hot copies, and seek back: the level alone decides, and no marker is seen."""
    tell(log)
    consumer = subscribe(log, isolation_level=level)
    log.roll_ledger("t")
    log.offload("t")
    assert log.delete_hot("t") == 1
    consumer.seek("earliest")
    assert up_to_end(consumer) == STORY[level]


def test_mark_passes_markers_and_aborted_messages(log: Log) -> None:
    """Acknowledge each message as it comes, with transactions that end behind it: no hole is left below the mark."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    kinds = [(kind, level) for kind in ("exclusive", "shared") for level in LEVELS]
    consumers = [(level, subscribe(log, f"{kind} {level}", type=kind, isolation_level=level)) for kind, level in kinds]
    for number in range(6):
        transaction = log.begin_transaction()
        [at] = send_each(producer, [b"%d" % number], txn=transaction)
        for level, consumer in consumers:
            if level == UNCOMMITTED:
                take(consumer, 1, acknowledge=True)
        (transaction.commit if number % 2 else transaction.abort)()
        for level, consumer in consumers:
            if level == COMMITTED and number % 2:
                take(consumer, 1, acknowledge=True)
    for _, consumer in consumers:
        info = log.subscription("t", consumer.subscription)
        assert info.partitions[0].acknowledged == ()
        assert message_id(info.partitions[0].mark) > at
        assert info.partitions[0].backlog == 0


# Waiting


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_open_transaction_holds_messages_back_until_it_ends(site: Site, log: Log, end: str) -> None:
    """Wait behind an open transaction: nobody looks before its deadline, and its end wakes the consumer."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    consumers = [subscribe(log, kind, type=kind) for kind in ("exclusive", "shared")]
    transaction = log.begin_transaction(500.0)
    send_each(producer, [b"inside"], txn=transaction)
    send_each(producer, [b"behind"])
    for consumer in consumers:
        eventually(lambda c=consumer: 400 < (due_in_s(site, log, c) or 0) <= 500)  # type: ignore[misc]
        assert consumer.receive(0.0) is None
        info = log.subscription("t", consumer.subscription)
        assert info.held_by == (transaction.id,)
        assert info.partitions[0].backlog == 0
    with meanwhile(lambda: [consumer.receive(WAIT_S) for consumer in consumers]) as received:
        getattr(transaction, end)()
        first = [message and message.value for message in received.result(WAIT_S)]
    assert first == [b"inside" if end == "commit" else b"behind"] * 2
    assert log.subscription("t", "shared").held_by == ()
    for consumer in consumers:
        eventually(lambda c=consumer: due_in_s(site, log, c) is None)  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_consumer_wakes_when_a_transaction_times_out(
    clocked_log: Log, clock: ManualClock, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leave a transaction to its deadline: nobody else looks, and what is behind it comes."""
    monkeypatch.setattr(Transaction, "_age_ms", lambda _: 0)  # its owner is as quick as the service's clock
    log = clocked_log
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    consumer = subscribe(log, type=kind)
    send_each(producer, [b"inside"], txn=log.begin_transaction(0.3))
    send_each(producer, [b"behind"])
    assert consumer.receive(0.0) is None
    clock.advance(1.0)
    assert take(consumer, 1) == [b"behind"]


def test_consumer_hears_of_what_other_processes_write(embedded_site: Site) -> None:
    """Write through another service over the same database: the consumer of this one wakes."""
    log, other = embedded_site.connect(), embedded_site.connect()
    log.create_topic("t")
    consumers = [subscribe(log, kind, type=kind) for kind in ("exclusive", "shared")]
    producer = other.producer("t", batching=BY_HAND)
    for number in range(5):
        with (
            meanwhile(lambda: [take(consumer, 1) for consumer in consumers]) as received,
            other.begin_transaction() as t,
        ):
            send_each(producer, [b"%d" % number], txn=t)
        assert received.result() == [[b"%d" % number]] * 2
    other.seek("t", "exclusive", "earliest")
    eventually(lambda: consumers[0].epoch == 1)
    assert take(consumers[0], 5) == [b"%d" % number for number in range(5)]


# Cursor and backlog


def test_cursor_is_a_mark_and_ranges(log: Log) -> None:
    """Acknowledge out of order: the mark rises when the gap closes."""
    _, ids = numbered(log)
    consumer = subscribe(log)
    messages = [receive(consumer) for _ in ids]
    found = []
    for number in (3, 0, 4, 1, 2):
        consumer.acknowledge(messages[number])
        consumer.flush()
        [partition] = log.subscription("t", "s").partitions
        ranges = [(message_id(r.start), message_id(r.end), r.messages) for r in partition.acknowledged]
        found.append((message_id(partition.mark), ranges, partition.backlog))
    assert found == [
        (ids[0], [(ids[3], ids[4], 1)], 9),
        (ids[1], [(ids[3], ids[4], 1)], 8),
        (ids[1], [(ids[3], ids[5], 2)], 7),
        (ids[2], [(ids[3], ids[5], 2)], 6),
        (ids[5], [], 5),
    ]


def test_message_of_another_subscription_is_refused(log: Log) -> None:
    """Acknowledge and refuse with the wrong consumer: its own subscription isn't touched."""
    numbered(log)
    one, other = subscribe(log, "s"), subscribe(log, "other")
    message = receive(other)
    for call in (one.acknowledge, one.acknowledge_cumulative, one.negative_acknowledge):
        with pytest.raises(InvalidArgumentError, match=r"another subscription of topic 't' than 's'"):
            call(message)
    one.flush()
    assert log.subscription("t", "s").partitions[0].backlog == 10


def test_what_is_no_message_is_refused(embedded_site: Site) -> None:
    """Acknowledge and refuse ids, text and nothing, wait for text, and seek to an epoch of text: nothing moves."""
    log = embedded_site.connect()
    numbered(log)
    consumer = subscribe(log)
    message_id = receive(consumer).message_id
    with log.begin_transaction() as transaction:
        for call in (
            consumer.acknowledge,
            consumer.acknowledge_cumulative,
            consumer.negative_acknowledge,
            transaction.acknowledge,
        ):
            for wrong in (message_id, "1:0:0", None):
                with pytest.raises(InvalidArgumentError, match="is not a message that a consumer received"):
                    call(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="'5' is not a timeout"):
        consumer.receive("5")  # type: ignore[arg-type]
    for epoch in ("1", 1 << 63):
        with pytest.raises(InvalidArgumentError, match="can't be a new epoch"):
            log.seek("t", "s", "earliest", epoch)  # type: ignore[arg-type]
    consumer.flush()
    info = log.subscription("t", "s")
    assert (info.epoch, info.partitions[0].backlog) == (0, 10)


def test_messages_inside_an_entry_are_acknowledged_one_by_one(log: Log) -> None:
    """Send a batch as one entry: messages of it are acknowledged alone, and what is left comes again, no more."""
    log.create_topic("t", schema=pa.schema([("n", pa.int64())]))
    with log.producer("t") as producer:
        producer.send_batch(pa.table({"n": range(6)}))
    consumer = subscribe(log)
    messages = [receive(consumer) for _ in range(6)]
    assert len({m.message_id.position for m in messages}) == 1
    for number in (0, 1, 3, 5):
        consumer.acknowledge(messages[number])
    consumer.close()
    assert mark(log).batch_index == 2
    assert log.subscription("t", "s").partitions[0].backlog == 2
    consumer = subscribe(log)
    left = [receive(consumer) for _ in range(2)]
    assert [m.value["n"] for m in left] == [2, 4]
    assert consumer.receive(0.0) is None
    consumer.acknowledge(left[1])
    consumer.acknowledge(left[0])
    consumer.flush()
    assert log.subscription("t", "s").partitions[0].acknowledged == ()
    assert mark(log) == MessageId(left[0].message_id.ledger_id, left[0].message_id.entry_id + 1)


# Names and limits


@pytest.mark.parametrize("name", ["", " padded", "x" * 201, "line\nbreak", "tab\t"])
def test_name_that_cannot_be_is_refused(log: Log, name: str) -> None:
    """Subscribe and create with names that can't be told apart or shown."""
    numbered(log)
    for call in (log.subscribe, log.create_subscription):
        with pytest.raises(InvalidArgumentError, match="can't be the name of a subscription"):
            call("t", name)


def test_calls_about_what_is_not_there_say_so(log: Log) -> None:
    """Name a topic and a subscription that don't exist, and one that does."""
    with pytest.raises(TopicNotFoundError):
        subscribe(log)
    numbered(log)
    for call in (
        lambda: log.subscription("t", "none"),
        lambda: log.seek("t", "none", "earliest"),
        lambda: log.delete_subscription("t", "none"),
        lambda: log.set_subscription_isolation_level("t", "none", COMMITTED),
    ):
        with pytest.raises(SubscriptionNotFoundError, match="no subscription 'none'"):
            call()
    log.create_subscription("t", "s", "shared")
    with pytest.raises(SubscriptionExistsError, match="'s' already exists"):
        log.create_subscription("t", "s", "shared")
    with pytest.raises(InvalidArgumentError, match="'s' is shared, and the consumer asks for exclusive"):
        subscribe(log)
