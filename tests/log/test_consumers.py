"""Consumers of one subscription: who gets what, what comes again and when, and how they come and go."""

from __future__ import annotations

import pytest

from tests.log.consuming import VALUES, WAIT_S, meanwhile, numbered, receive, session_of, subscribe, take
from tests.log.holding import holding, settle
from tests.log.meddling import meddling
from tests.log.reading import eventually, send_each
from tests.log.sites import ManualClock, Site
from tests.selection import for_each
from txn_source import (
    Consumer,
    ConsumerOptions,
    InvalidArgumentError,
    Log,
    SubscriptionBusyError,
    SubscriptionNotFoundError,
    UnavailableError,
)
from txn_source.metadata.delivery import consumer_hub
from txn_source.metadata.delivery import session as sessions

pytestmark = pytest.mark.also("objects", "copies")


def share(*consumers: Consumer, of: int) -> list[list[bytes]]:
    """Take so many messages from consumers that share them, as they come; return what each got."""
    found: list[list[bytes]] = [[] for _ in consumers]

    def one() -> bool:
        for consumer, got in zip(consumers, found, strict=True):
            while (message := consumer.receive(0.0)) is not None:
                got.append(message.value)
        return sum(map(len, found)) >= of

    eventually(one)
    assert sum(map(len, found)) == of
    return found


def name_of(consumer: Consumer) -> str:
    return consumer._request.consumer_name


def test_what_is_delivered_is_read_without_a_call(site: Site) -> None:
    """A delivery brings what its reader has to know: neither time nor a service that is away hold it up."""
    log, way = meddling(site)
    log.create_topic("t", partitions=2)
    with log.producer("t") as producer, subscribe(log) as consumer:
        for number in range(6):
            producer.send(VALUES[number], partition=number % 2)
            producer.flush()
        way.dead = True  # for each call; what is delivered comes all the same
        assert sorted(take(consumer, 6)) == VALUES[:6]
        way.dead = False


# Coming and going


def test_exclusive_subscription_takes_one_consumer(log: Log) -> None:
    """Connect a second one: it is told who is there; when that one is gone it gets what is left."""
    numbered(log)
    first = subscribe(log, consumer_name="the first")
    take(first, 4, acknowledge=True)
    with pytest.raises(SubscriptionBusyError, match="'s' is exclusive, and consumer 'the first' is connected to it"):
        subscribe(log)
    first.close()
    assert take(subscribe(log), 6) == VALUES[4:]


def test_failover_promotes_the_next_one(log: Log) -> None:
    """Connect three: the first gets all; when it goes the second begins at the first unacknowledged message."""
    producer, _ = numbered(log)
    first, second, third = (subscribe(log, type="failover") for _ in range(3))
    take(first, 3, acknowledge=True)
    take(first, 2)
    assert [c.active for c in log.subscription("t", "s").consumers] == [True, False, False]
    assert second.receive(0.0) is None
    first.close()
    assert take(second, 7, acknowledge=True) == VALUES[3:]
    third.close()
    send_each(producer, [b"new"])
    assert take(second, 1) == [b"new"]


def test_consumer_whose_lease_has_ended_gives_way(clocked_site: Site, clock: ManualClock) -> None:
    """Let the time of a lease pass unrenewed, as after a crash: another one takes its place; the old one is told."""
    log = clocked_site.connect()
    numbered(log)
    old = subscribe(log)
    take(old, 2)
    clock.advance(14.9)
    with pytest.raises(SubscriptionBusyError):
        subscribe(log)
    clock.advance(0.1)
    new = subscribe(log)
    assert take(new, 10) == VALUES
    with pytest.raises(SubscriptionBusyError):
        eventually(lambda: old.receive(WAIT_S) is None)


def test_unsubscribe_deletes_the_subscription(log: Log) -> None:
    """Unsubscribe alone, and beside another consumer, which keeps the subscription."""
    numbered(log)
    subscribe(log).unsubscribe()
    assert log.subscriptions("t") == []
    one, other = subscribe(log, type="shared"), subscribe(log, type="shared")
    with pytest.raises(SubscriptionBusyError, match=f"'{name_of(other)}' is connected"):
        one.unsubscribe()
    other.unsubscribe()
    assert log.subscriptions("t") == []


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_consumer_of_a_deleted_topic_is_told(log: Log, kind: str) -> None:
    """Delete the topic while a consumer waits."""
    numbered(log)
    consumer = subscribe(log, type=kind, initial_position="latest")
    with meanwhile(lambda: log.delete_topic("t")), pytest.raises(SubscriptionNotFoundError, match="or its topic was"):
        consumer.receive(WAIT_S)
    for _ in range(2):
        with pytest.raises(SubscriptionNotFoundError):
            consumer.receive(0.0)
    consumer.close()


def test_subscription_that_is_not_durable_goes_with_its_last_consumer(log: Log) -> None:
    """Let two share it: the second one moves nothing, and what the first one held goes to it."""
    numbered(log)
    first = subscribe(log, type="shared", durable=False, queue_size=4)
    take(first, 3, acknowledge=True)
    second = subscribe(log, type="shared", durable=False, initial_position="latest")
    first.close()
    assert sorted(take(second, 7)) == VALUES[3:]
    second.close()
    assert log.subscriptions("t") == []


def test_consumer_that_stops_reading_gets_no_more_than_its_queue(site: Site) -> None:
    """Connect consumers with short queues and take nothing: the service hands out so much, and more as it is taken."""
    log = site.connect()
    numbered(log)
    for kind in ("exclusive", "shared"):
        consumer = subscribe(log, kind, type=kind, queue_size=3)
        eventually(lambda k=kind: log.subscription("t", k).consumers[0].unacknowledged == 3)  # type: ignore[misc]
        settle(consumer)
        assert session_of(site, log, consumer).unacknowledged == 3
        assert take(consumer, 10) == VALUES


def test_unacknowledged_messages_of_a_shared_subscription_are_limited(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Take as many as the limit allows; more come when some are acknowledged, plainly or with a transaction."""
    monkeypatch.setattr(sessions, "MAX_UNACKNOWLEDGED", 4)
    log = site.connect()
    numbered(log)
    consumer = subscribe(log, type="shared")
    first = [receive(consumer) for _ in range(4)]
    settle(consumer)
    assert consumer.receive(0.0) is None
    consumer.acknowledge(first[0])
    consumer.flush()
    assert receive(consumer).value == b"4"
    with log.begin_transaction() as transaction:
        for message in first[1:]:
            transaction.acknowledge(message)
    assert take(consumer, 3) == VALUES[5:8]


def test_service_takes_so_many_consumers(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect one more than it takes: it is refused and leaves no trace; when one goes, there is room."""
    monkeypatch.setattr(consumer_hub, "MAX_CONSUMERS", 2)
    log = site.connect()
    numbered(log)
    first, _ = (subscribe(log, type="shared") for _ in range(2))
    with pytest.raises(UnavailableError, match="2 consumers connected, which is all it takes"):
        subscribe(log, "other")
    assert [info.name for info in log.subscriptions("t")] == ["s"]
    first.close()
    assert take(subscribe(log, "other"), 10) == VALUES


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_consumer_survives_a_restart_of_the_server(remote_site: Site, kind: str) -> None:
    """Acknowledge before and while the server is away: all of it is stored when it is back, and the rest comes."""
    log = remote_site.connect()
    numbered(log)
    consumer = subscribe(log, type=kind, queue_size=5, acknowledge_interval=0.0)
    messages = [receive(consumer) for _ in range(4)]
    for message in messages[:2]:
        consumer.acknowledge(message)
    port = int(remote_site.endpoint.rsplit(":", 1)[1])
    remote_site.stop_server()
    for message in messages[2:]:
        consumer.acknowledge(message)
    remote_site.start_server(port)
    left = set(VALUES[4:])
    while left:
        message = receive(consumer)
        left.discard(message.value)
        consumer.acknowledge(message)
    eventually(lambda: log.subscription("t", "s").partitions[0].backlog == 0)
    assert log.subscription("t", "s").ignored_acknowledgements == 0


# Sharing


def test_shared_subscription_spreads_entries_and_keeps_their_order(log: Log) -> None:
    """Let three consumers share: each message goes to one, each consumer gets some, and its own in order."""
    producer, _ = numbered(log, 0)
    consumers = [subscribe(log, type="shared", queue_size=20) for _ in range(3)]
    for consumer in consumers:
        settle(consumer)  # the service knows its permits
    values = [b"%03d" % number for number in range(60)]
    send_each(producer, values)
    found = share(*consumers, of=60)
    assert sorted(value for got in found for value in got) == values
    assert all(got == sorted(got) and got for got in found)


def test_consumers_of_two_services_share(embedded_site: Site) -> None:
    """Let consumers of two services over the same database share: each message comes once, in order to each."""
    log, other = embedded_site.connect(), embedded_site.connect()
    producer, _ = numbered(log, 0)
    consumers = [subscribe(each, type="shared", queue_size=10) for each in (log, other)]
    values = [b"%03d" % number for number in range(40)]
    send_each(producer, values)
    found = share(*consumers, of=40)
    assert sorted(value for got in found for value in got) == values
    assert all(got == sorted(got) for got in found)


@pytest.mark.parametrize("goodbye", [True, False])
@pytest.mark.kinds("embedded", "remote")
def test_messages_of_a_consumer_that_dies_go_to_others(site: Site, goodbye: bool) -> None:
    """Let one die with messages in hand, of which it acknowledged some: the others get the rest, counted as again."""
    log, way = holding(site)
    numbered(log)
    dying = subscribe(log, type="shared", acknowledge_interval=0.0)
    taken = [receive(dying) for _ in range(10)]
    for message in taken[:4]:
        dying.acknowledge(message)
    dying.flush()
    other = subscribe(log, type="shared")
    if goodbye:
        dying.close()
    else:
        way.hold("subscribe")
        way.talks[0].cut()
        way.talks[0].end()
    again = [receive(other) for _ in range(6)]
    assert [(m.value, m.redelivery_count) for m in again] == [(value, 1) for value in VALUES[4:]]
    assert other.receive(0.0) is None
    way.let_go("subscribe")


def test_redelivery_goes_to_who_has_room(log: Log, site: Site) -> None:
    """Let one die beside two, of which the one whose turn it is permits nothing more: the other one gets it."""
    if site.other is not None:
        pytest.skip("each service has its own turns")
    producer, _ = numbered(log, 1)
    full = subscribe(log, type="shared", queue_size=1)
    eventually(lambda: log.subscription("t", "s").consumers[0].unacknowledged == 1)
    dying = subscribe(log, type="shared")
    send_each(producer, VALUES[1:4])
    assert take(dying, 3) == VALUES[1:4]
    third = subscribe(log, type="shared")
    settle(third)  # the service knows its permits
    send_each(producer, [b"4"])
    assert take(third, 1) == [b"4"]
    dying.close()
    assert take(third, 3) == VALUES[1:4]
    assert [c.unacknowledged for c in log.subscription("t", "s").consumers] == [1, 4]
    assert take(full, 1) == VALUES[:1]


# Again


def test_batches_are_consumed_as_messages_are(log: Log) -> None:
    """Take everything as batches, after a first message; acknowledge them: nothing is left."""
    producer, _ = numbered(log)
    send_each(producer, [b"x"] * 30)
    consumer = subscribe(log, queue_size=8)
    consumer.acknowledge(receive(consumer))
    found: list[bytes] = []
    while len(found) < 39:
        batch = consumer.receive_batch(WAIT_S)
        assert batch is not None
        found += batch.values
        consumer.acknowledge(batch)
    consumer.flush()
    assert found == [*VALUES[1:], *[b"x"] * 30]
    info = log.subscription("t", "s").partitions[0]
    assert (info.backlog, info.acknowledged) == (0, ())


# Bad input


def test_shared_subscription_has_no_cumulative_acknowledgement(log: Log) -> None:
    """Acknowledge so: the error says why not."""
    numbered(log)
    consumer = subscribe(log, type="shared")
    with pytest.raises(InvalidArgumentError, match="is shared: what comes before a message went to others"):
        consumer.acknowledge_cumulative(receive(consumer))


@pytest.fixture
def with_messages(embedded_site: Site) -> Log:
    """A log with messages in topic ``t``."""
    log = embedded_site.connect()
    numbered(log)
    return log


@for_each(
    "bad",
    [
        {"queue_size": 0},
        {"queue_size": 1_000_001},
        {"queue_size": True},
        {"acknowledge_interval": -1},
        {"negative_acknowledge_delay": float("nan")},
        {"acknowledge_timeout": "soon"},
        {"max_redeliveries": -1},
        {"queue_length": 1},
        {"type": "key_shared"},
        {"isolation_level": "serializable"},
        {"options": ConsumerOptions(), "queue_size": 5},
        {"options": {"queue_size": 5}},
        {"consumer_name": 5},
        {"max_redeliveries": 1, "dead_letter_topic": 5},
        {"name": 5},
    ],
)
def test_options_that_cannot_be_are_refused(with_messages: Log, bad: dict[str, object]) -> None:
    """Give nonsense: nothing is subscribed."""
    with pytest.raises(InvalidArgumentError):
        with_messages.subscribe("t", **({"name": "s"} | bad))  # type: ignore[arg-type]
    assert with_messages.subscriptions("t") == []
