"""Consumers of a service that asks for tokens: what they may ask in their conversation, and when it ends."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.access.authority import Signer
from tests.access.conftest import Guarded
from tests.access.test_owners import transport
from tests.access.test_roles import BILLS, ORDERS
from tests.log.reading import eventually
from txn_source import PermissionDeniedError, SubscriptionNotFoundError, UnauthenticatedError
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.access.tokens import LEEWAY_S
from txn_source.metadata.delivery import session as sessions
from txn_source.model.errors import TxnLogError


class Conversation:
    """A conversation held by hand."""

    def __init__(self, guarded: Guarded, subject: str = "bob", **roles: list[str]) -> None:
        self._requests: queue.SimpleQueue[pb.ConsumeRequest | None] = queue.SimpleQueue()
        self._answers: Iterator[pb.ConsumeResponse] = transport(guarded, subject, **roles).converse(
            "Consume", iter(self._requests.get, None)
        )

    def ask(self, **request: Any) -> pb.ConsumeResponse:
        """Ask, and return the next answer, or raise what ends the conversation."""
        self._requests.put(pb.ConsumeRequest(sequence=1, **request))
        return self.wait()

    def subscribe(self, topic: str) -> pb.ConsumeResponse:
        kinds = {"type": 1, "isolation_level": 1, "durable": True}
        request = pb.ConsumeRequest.Subscribe(
            topic=topic, name="s", consumer_name="c", token="t", place=pb.SubscriptionPlace(where=1), **kinds
        )
        return self.ask(subscribe=request)

    def wait(self) -> pb.ConsumeResponse:
        """Return the next answer, or raise what ends the conversation."""
        return next(self._answers)

    def close(self) -> None:
        self._requests.put(None)


def test_token_without_a_role_keeps_no_place(guarded: Guarded) -> None:
    """Begin a conversation and say nothing: it ends at once, so nobody else's place is taken."""
    with pytest.raises(PermissionDeniedError, match="no role consume or admin for any topic"):
        Conversation(guarded, produce=["*"]).wait()


@pytest.mark.parametrize(
    ("roles", "allowed"),
    [
        ({"consume": ["bank/public/orders"]}, True),
        ({"admin": ["bank/*"]}, True),
        ({"consume": ["bank/public/bills"], "produce": ["*"]}, False),
    ],
)
def test_subscribing_needs_the_role(roles: dict[str, list[str]], allowed: bool, guarded: Guarded) -> None:
    """Begin a conversation with each role."""
    talk = Conversation(guarded, **roles)
    if allowed:
        assert talk.subscribe(ORDERS).HasField("subscribed")
    else:
        with pytest.raises(PermissionDeniedError, match="no role consume or admin for bank/public/orders"):
            talk.subscribe(ORDERS)
    talk.close()


def test_dead_letters_go_to_a_topic_that_is_there_without_the_right_to_make_one(guarded: Guarded) -> None:
    """Consume one topic, with the right to produce to the topic of dead letters, and none to look at it."""
    alice = guarded.connect("alice", admin=["bank/*"], produce=["bank/*"], consume=["bank/*"])
    alice.create_topic("bank/public/dead")
    with alice.producer(ORDERS) as producer:
        producer.send(b"1")
    worker = guarded.connect("bob", consume=["bank/public/orders"], produce=["bank/public/dead"])
    options = {"max_redeliveries": 0, "dead_letter_topic": "bank/public/dead", "negative_acknowledge_delay": 0.0}
    with worker.subscribe(ORDERS, "s", initial_position="earliest", **options) as consumer:
        message = consumer.receive(30.0)
        assert message is not None
        consumer.negative_acknowledge(message)
        eventually(lambda: consumer.receive(0.0) is None and alice.stats("bank/public/dead").messages == 1)


def test_conversation_stays_with_its_topics(guarded: Guarded) -> None:
    """Subscribe to what is allowed, then acknowledge for, and seek, a subscription of another topic."""
    alice = transport(guarded, "alice", consume=["bank/*"])
    place = pb.SubscriptionPlace(where=1)
    alice.call("CreateSubscription", pb.CreateSubscriptionRequest(
        request_id="c", topic=BILLS, name="s", type=1, isolation_level=1, place=place))  # fmt: skip
    [theirs] = alice.call("ListSubscriptions", pb.ListSubscriptionsRequest(topic=BILLS)).subscriptions
    acknowledged = pb.SubscriptionAcknowledgements(subscription_id=theirs.subscription_id, consumer_id=1)
    seek = pb.SeekSubscriptionRequest(request_id="s", topic=BILLS, name="s", place=place)
    for request, which in (
        ({"acknowledge": acknowledged}, f"no subscription {theirs.subscription_id} that this token has a role"),
        ({"seek": seek}, "no role consume or admin for bank/public/bills"),
    ):
        talk = Conversation(guarded, consume=["bank/public/orders"])
        talk.subscribe(ORDERS)
        with pytest.raises((PermissionDeniedError, SubscriptionNotFoundError), match=which):
            talk.ask(**request)
        talk.close()
    [after] = alice.call("ListSubscriptions", pb.ListSubscriptionsRequest(topic=BILLS)).subscriptions
    assert after.epoch == theirs.epoch


class Time:
    """The time as conversations see it: set forward, they look at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        monkeypatch.setattr(sessions, "_LOOK_S", 0.02)
        monkeypatch.setattr(sessions, "time", SimpleNamespace(time=lambda: time.time() + self.ahead_s))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


def test_conversation_ends_with_its_token(guarded: Guarded, clock: Time) -> None:
    """Let time pass behind the end of the token, while nothing is said."""
    talk = Conversation(guarded, consume=["bank/*"])
    talk.subscribe(ORDERS)
    clock.ahead_s = 600 + LEEWAY_S + 1
    with pytest.raises(UnauthenticatedError, match="The token of 'bob' has expired at"):
        next(talk._answers)
    talk.close()


def write_token(path: Path, token: str) -> None:
    """Put a token in place of another one, as whoever rotates them does."""
    new = path.with_suffix(".new")
    new.write_text(f"{token}\n")
    os.replace(new, path)


def connected(guarded: Guarded) -> set[int]:
    """Return the ids of the consumers of subscription ``s``."""
    asked = pb.ListSubscriptionsRequest(topic=ORDERS, name="s")
    [found] = transport(guarded, "looker", consume=["bank/*"]).call("ListSubscriptions", asked).subscriptions
    return {consumer.consumer_id for consumer in found.consumers}


def test_consumer_goes_on_with_a_new_token(guarded: Guarded, clock: Time, tmp_path: Path) -> None:
    """Let the token of a consumer's file expire after it was replaced: nothing is lost or doubled."""
    signer, file = guarded.signer, tmp_path / "token"
    roles = {"consume": ["bank/*"], "produce": ["bank/*"]}
    write_token(file, signer.token("bob", **roles))
    log = guarded.open(token_file=file)
    with log.producer(ORDERS) as producer, log.subscribe(ORDERS, "s", initial_position="earliest") as consumer:
        producer.send(b"1")
        producer.flush()
        first = consumer.receive(timeout=30)
        consumer.acknowledge(first)
        eventually(lambda: log.stats(ORDERS).subscriptions["s"].backlog == 0)
        before = connected(guarded)
        newer = signer.claims("bob", **roles) | {"exp": int(time.time()) + 5000}
        write_token(file, signer.sign(newer))
        clock.ahead_s = 600 + LEEWAY_S + 1
        eventually(lambda: connected(guarded).isdisjoint(before) and len(connected(guarded)) == 1)
        producer.send(b"2")
        producer.flush()
        second = consumer.receive(timeout=30)
        consumer.acknowledge(second)
        eventually(lambda: log.stats(ORDERS).subscriptions["s"].backlog == 0)
        assert [first.value, second.value] == [b"1", b"2"]
        assert consumer.receive(timeout=0.2) is None


def test_consumer_whose_token_stays_expired_is_told(
    guarded: Guarded, clock: Time, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the token expire, for calls too, without a new one."""
    log = guarded.connect("bob", consume=["bank/*"])
    with log.subscribe(ORDERS, "s") as consumer:
        verifier = guarded.door.verifier
        assert verifier is not None
        monkeypatch.setattr(verifier, "_clock", lambda: time.time() + clock.ahead_s)
        clock.ahead_s = 600 + LEEWAY_S + 1

        def told() -> bool:
            try:
                consumer.receive(timeout=0.1)
            except UnauthenticatedError as error:
                return "has expired" in str(error)
            return False

        eventually(told)
        for call in (lambda: consumer.receive(timeout=0.1), lambda: consumer.seek("earliest")):
            with pytest.raises(TxnLogError):
                call()


def test_call_with_a_token_that_was_replaced_is_made_again(guarded: Guarded, tmp_path: Path) -> None:
    """Refuse the token of a file and replace it meanwhile: calls before and after are answered."""
    file = tmp_path / "token"
    write_token(file, guarded.signer.token("bob", consume=["bank/*"]))
    log = guarded.open(token_file=file)
    assert log.topics() == sorted([ORDERS, BILLS])
    write_token(file, guarded.signer.token("bob", consume=["bank/public/bills"]))
    assert log.topics() == [BILLS]
    write_token(file, "rubbish")
    with pytest.raises(UnauthenticatedError, match="is no signed JWT"):
        log.topics()
    write_token(file, Signer(tmp_path, name="other").token("bob"))
    with pytest.raises(UnauthenticatedError, match="a key that this service doesn't have"):
        log.topics()
    write_token(file, guarded.signer.token("bob"))
    assert log.topics() == []
