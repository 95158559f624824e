"""Dead letters: the topic they go to, and letters that can't be sent."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.log.consuming import VALUES, WAIT_S, mark, numbered, receive, subscribe
from tests.log.reading import UNCOMMITTED, eventually, values
from tests.log.sites import Site
from txn_source import InvalidArgumentError, Log, Message, StorageWriteError
from txn_source.client.consuming import dead_letters


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_message_that_is_refused_too_often_goes_to_the_dead_letter_topic(log: Log, kind: str) -> None:
    """Refuse one each time: after two redeliveries it lies in the other topic, with where it came from, once."""
    _, ids = numbered(log)
    consumer = subscribe(log, type=kind, negative_acknowledge_delay=0.0, max_redeliveries=2)
    seen: Counter[bytes] = Counter()
    while len(seen) < 10 or seen[b"3"] < 3:
        message = receive(consumer)
        seen[message.value] += 1
        (consumer.negative_acknowledge if message.value == b"3" else consumer.acknowledge)(message)

    def nothing_is_left() -> bool:
        if (message := consumer.receive(0.01)) is not None:
            consumer.acknowledge(message)
        return message is None and "t-s-DLQ" in log.topics()

    eventually(nothing_is_left)
    with log.reader("t-s-DLQ", isolation_level=UNCOMMITTED) as reader:
        dead = reader.read_next(WAIT_S)
        assert dead is not None
        assert dead.value == b"3"
        assert dead.properties == {
            "txnlog_original_topic": "t",
            "txnlog_original_message_id": str(ids[3]),
            "txnlog_redeliveries": "2",
        }
        assert not reader.has_message_available()
    consumer.close()
    assert log.subscription("t", "s").partitions[0].backlog == 0
    assert seen[b"3"] == 3


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("team/x", {}, r"has no valid name: .*is not a topic name.*dead_letter_topic=\.\.\."),
        ("a b", {}, "has no valid name"),
        ("ö", {}, "has no valid name"),
        ("s", {"dead_letter_topic": "a b"}, "'a b' is not a topic name"),
        ("s", {"dead_letter_topic": "t"}, "is the topic itself"),
        ("s", {"dead_letter_topic": "public/default/t"}, "is the topic itself"),
        ("s", {"dead_letter_topic": "typed"}, "has other columns than 't'"),
    ],
)
def test_topic_that_cannot_have_them_is_refused(log: Log, name: str, options: dict[str, str], why: str) -> None:
    """Subscribe with a limit and an impossible dead-letter topic: it is refused, and no subscription is made."""
    log.create_topic("t")
    log.create_topic("typed", schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(InvalidArgumentError, match=why):
        subscribe(log, name, max_redeliveries=0, **options)
    assert log.subscriptions("t") == []
    subscribe(log, name, **options).close()


def test_names_of_subscriptions_that_are_paths_need_a_topic(log: Log) -> None:
    """Name a dead-letter topic for a subscription whose name has a slash: the letters go there."""
    numbered(log, 1)
    consumer = subscribe(log, "team/x", max_redeliveries=0, dead_letter_topic="dead", negative_acknowledge_delay=0.0)
    consumer.negative_acknowledge(receive(consumer))
    eventually(lambda: consumer.receive(0.0) is None and "dead" in log.topics() and values(log, "dead") == [b"0"])


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(dead_letters, "_LONGEST_PAUSE_S", 0.01)


@pytest.mark.parametrize(("kind", "at_last"), [("exclusive", "again"), ("shared", "close")])
def test_letter_that_cannot_be_sent_waits(
    log: Log, kind: str, at_last: str, no_pause: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Create the dead-letter topic with other columns after the subscribe: the letter waits and is logged, a cumulative
    acknowledgement passes it over, and it is sent once the topic is deleted."""
    _, ids = numbered(log)
    consumer = subscribe(
        log, type=kind, max_redeliveries=0, dead_letter_topic="dead", negative_acknowledge_delay=0.0, queue_size=1
    )
    log.create_topic("dead", schema=pa.schema([("n", pa.int64())]))
    found = []
    while len(found) < 9:
        message = receive(consumer)
        if message.value == b"3":
            consumer.negative_acknowledge(message)
            continue
        found.append(message.value)
        (consumer.acknowledge if kind == "shared" else consumer.acknowledge_cumulative)(message)
        consumer.flush()
    assert sorted(found) == [*VALUES[:3], *VALUES[4:]]
    eventually(lambda: consumer.receive(0.0) is None and "can't go to topic dead, which is tried again" in caplog.text)
    assert mark(log) == ids[3]
    log.delete_topic("dead")
    if at_last == "close":
        consumer.close()
    eventually(lambda: log.subscription("t", "s").partitions[0].backlog == 0)
    assert values(log, "dead") == [b"3"]


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_letter_that_can_never_be_sent_holds_no_other_back(log: Log, kind: str, no_pause: None) -> None:
    """Refuse ten messages. One can never be sent; the other nine reach the dead-letter topic."""
    numbered(log)
    consumer = subscribe(log, type=kind, max_redeliveries=0, negative_acknowledge_delay=0.0)
    inner = consumer._dead_letters.send
    assert inner is not None

    def send(message: Message, topic: str) -> None:
        if message.value == b"0":
            raise StorageWriteError("It can't be written.", "")
        inner(message, topic)

    with patch.object(consumer._dead_letters, "send", send):
        for message in [receive(consumer) for _ in range(10)]:
            consumer.negative_acknowledge(message)
        eventually(
            lambda: (
                consumer.receive(0.0) is None
                and "t-s-DLQ" in log.topics()
                and sorted(values(log, "t-s-DLQ")) == VALUES[1:]
            )
        )
    consumer.close()
    assert sorted(values(log, "t-s-DLQ")) == VALUES, "it is tried once more"


def test_letter_is_tried_again_though_its_consumer_has_other_work_before(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail a letter once, and acknowledge another message before the pause is over: the letter is sent."""
    monkeypatch.setattr(dead_letters, "_FIRST_PAUSE_S", 0.5)
    numbered(log)
    consumer = subscribe(log, type="shared", max_redeliveries=0, negative_acknowledge_delay=0.0, acknowledge_interval=0)
    inner = consumer._dead_letters.send
    assert inner is not None
    tries: list[bytes] = []

    def send(message: Message, topic: str) -> None:
        tries.append(message.value)
        if len(tries) == 1:
            raise StorageWriteError("It can't be written.", "")
        inner(message, topic)

    with patch.object(consumer._dead_letters, "send", send):
        first, second = receive(consumer), receive(consumer)
        consumer.negative_acknowledge(first)
        eventually(lambda: consumer.receive(0.0) is None and bool(tries))
        consumer.acknowledge(second)
        eventually(lambda: "t-s-DLQ" in log.topics() and values(log, "t-s-DLQ") == [first.value])


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_message_of_a_subscription_that_is_moved_meanwhile_comes_again(site: Site, kind: str) -> None:
    """Seek, as an operator, when a message is on its way there: who receives hears nothing of it, and nothing is lost.

    After a seek counts begin anew.
    """
    log, operator = site.connect(), site.connect()
    numbered(log)
    consumer = subscribe(log, type=kind, negative_acknowledge_delay=0.0, max_redeliveries=0)
    sought: list[int] = []

    inner = consumer._dead_letters.send

    def send(*arguments: Any) -> None:
        if not sought:
            sought.append(operator.seek("t", "s", "earliest").epoch)
        inner(*arguments)

    with patch.object(consumer._dead_letters, "send", send):
        message = receive(consumer)
        consumer.negative_acknowledge(message)
        found: list[bytes] = []

        def is_sought() -> bool:
            if (message := consumer.receive(0.01)) is not None and [message.epoch] == sought:
                found.append(message.value)
            return len(found) >= 10

        eventually(is_sought)
    assert sorted(found) == VALUES
