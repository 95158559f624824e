"""Messages that were delivered too often: where they go, and what happens if they can't."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from tests.log.consuming import WAIT_S, mark, numbered, receive, subscribe
from tests.log.reading import UNCOMMITTED, eventually, values
from tests.log.sites import Site
from txn_source import InvalidArgumentError, Log
from txn_source.client.consuming import dead_letters

VALUES = [b"%d" % number for number in range(10)]


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
        ("team/x", {}, r"a topic that is named after it.*is not a topic name.*dead_letter_topic=\.\.\."),
        ("a b", {}, "a topic that is named after it"),
        ("ö", {}, "a topic that is named after it"),
        ("s", {"dead_letter_topic": "a b"}, "'a b' is not a topic name"),
        ("s", {"dead_letter_topic": "t"}, "would go to that topic again"),
        ("s", {"dead_letter_topic": "public/default/t"}, "would go to that topic again"),
        ("s", {"dead_letter_topic": "typed"}, "has other columns than 't'"),
    ],
)
def test_topic_that_cannot_have_them_is_refused(log: Log, name: str, options: dict[str, str], why: str) -> None:
    """Subscribe with a limit: what can be known is told before anything is made; without a limit nothing is asked."""
    log.create_topic("t")
    log.create_topic("typed", schema=pa.schema([("n", pa.int64())]))
    with pytest.raises(InvalidArgumentError, match=why):
        subscribe(log, name, max_redeliveries=0, **options)
    assert log.subscriptions("t") == []
    subscribe(log, name, **options).close()


def test_names_of_subscriptions_that_are_paths_need_a_topic(log: Log) -> None:
    """Name one: the letters go there."""
    numbered(log, 1)
    consumer = subscribe(log, "team/x", max_redeliveries=0, dead_letter_topic="dead", negative_acknowledge_delay=0.0)
    consumer.negative_acknowledge(receive(consumer))
    eventually(lambda: consumer.receive(0.0) is None and "dead" in log.topics() and values(log, "dead") == [b"0"])


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(dead_letters, "_LONGEST_PAUSE_S", 0.01)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
@pytest.mark.parametrize("at_last", ["again", "close"])
def test_letter_that_cannot_be_sent_waits(
    log: Log, kind: str, at_last: str, no_pause: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Have a topic of other columns made in the meantime: the letter waits and is reported, all else goes on, also past
    a cumulative acknowledgement, and it is sent when that can be."""
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
def test_message_of_a_subscription_that_is_moved_meanwhile_comes_again(site: Site, kind: str) -> None:
    """Seek, as an operator, when a message is on its way there: who receives hears nothing of it, and nothing is lost.

    In order it is counted on and goes there then; what a shared subscription hands out after a seek counts anew.
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
            return len(found) >= (9 if kind == "exclusive" else 10)

        eventually(is_sought)
    assert sorted(found) == (VALUES[1:] if kind == "exclusive" else VALUES)
    if kind == "exclusive":
        assert values(log, "t-s-DLQ") == VALUES[:1]
