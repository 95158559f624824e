"""The messages of a consumer that were delivered too often.

A dead letter goes to its topic in a transaction that also acknowledges it. A letter that can't be sent is logged, kept
and tried again; the messages behind it are delivered meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from txn_source.client.consuming.consumer_state import ConsumerState
from txn_source.client.consuming.messages import Message
from txn_source.metadata.stub.conversation import Delivery
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import (
    AcknowledgedElsewhereError,
    InvalidArgumentError,
    MessageUnreadableError,
    PermissionDeniedError,
    StaleEpochError,
    TopicNotFoundError,
    TxnLogError,
)
from txn_source.model.topic_name import TopicName
from txn_source.storage.schema import deserialize_schema

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0

SendDeadLetter = Callable[[Message, str], None]
"""Sends a message to a dead-letter topic and acknowledges it, in one transaction."""


class DeadLetters:
    """The messages of a consumer that were delivered too often, and don't go to its caller any more."""

    def __init__(self, state: ConsumerState, send: SendDeadLetter | None) -> None:
        """Take the function that sends a letter; None: none is sent."""
        self._state = state
        self._thread = state.thread
        self._limit = state.options.max_redeliveries
        self.send = send
        self._sending = threading.Lock()
        self._pause_s = _FIRST_PAUSE_S
        self._next_at = 0.0

    def wants(self, delivery: Delivery) -> bool:
        """True if a delivery's messages were delivered too often, for sure."""
        if self.send is None or self._limit is None or delivery.unsure:
            return False
        return delivery.redeliveries > self._limit

    def take(self, message: Message) -> bool:
        """Take a message that was delivered too often; return False for one that the caller gets. The consumer's lock
        is held."""
        if not self.wants(message._batch.delivery):
            return False
        try:
            _ = message.key, message.properties, message.event_time
        except MessageUnreadableError as error:
            _log.warning(
                "message %s can't go to a dead-letter topic and is received again: %s", error.message_id, error
            )
            return False
        self._state.letters[_key(message)] = message
        if time.monotonic() >= self._next_at:  # else a letter has just failed, and this one would wait for the same
            self._try(message)
        return True

    def send_kept(self, *, now: bool = False) -> None:
        """Send the kept letters, if their pause is over, up to the first one that fails; raise nothing."""
        with self._sending:
            if not now and time.monotonic() < self._next_at:
                self._thread.due(self._next_at)  # whatever has woken it before may have taken that wish's place
                return
            with self._state.lock:
                kept = list(self._state.letters.values())
            for message in kept:
                if not self._try(message):
                    return

    def _try(self, message: Message) -> bool:
        """Send a letter; if it fails, move it behind the others and return False."""
        assert self.send is not None
        topic = dead_letter_topic(self._state).short
        try:
            self.send(message, topic)
        except (AcknowledgedElsewhereError, StaleEpochError):
            pass  # another consumer has acknowledged it, or a seek or a reconnect redelivers it
        except TxnLogError as error:
            _log.warning("message %s can't go to topic %s, which is tried again: %s", message.message_id, topic, error)
            with self._state.lock:
                if self._forget(message):
                    self._state.letters[_key(message)] = message
            self._next_at = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._thread.due(self._next_at)
            return False
        else:
            self._pause_s, self._next_at = _FIRST_PAUSE_S, 0.0
            with self._state.lock:
                self._state.redeliveries.forget_count(message._batch, message._row)
        with self._state.lock:
            self._forget(message)
        return True

    def _forget(self, message: Message) -> bool:
        """Remove a letter; return False if a later delivery of the message has replaced it. The lock is held."""
        known = self._state.letters.get(_key(message)) is message
        if known:
            del self._state.letters[_key(message)]
        return known


def _key(message: Message) -> tuple[int, int]:
    return message._batch.key(message._row)


def dead_letter_topic(state: ConsumerState) -> TopicName:
    """Return the topic that a consumer's dead letters go to.

    Raises:
        InvalidArgumentError: no topic can have its name, or it is the consumer's own one.
    """
    given = state.options.dead_letter_topic
    try:
        topic = TopicName.parse(given or f"{state.topic_name}-{state.given.name}-DLQ")
    except InvalidArgumentError as error:
        if given is not None:
            raise
        raise InvalidArgumentError(
            f"The default dead-letter topic of subscription {state.given.name!r} has no valid name: {error.fact}",
            "Name another one: dead_letter_topic=...",
        ) from None
    if topic == state.topic_name:
        raise InvalidArgumentError(
            f"The dead-letter topic of {topic.short!r} is the topic itself.", "Name another dead_letter_topic."
        )
    return topic


def check_dead_letters(stub: MetadataStub, state: ConsumerState) -> None:
    """Raise INVALID_ARGUMENT if the dead-letter topic can't take the consumer's messages, as far as that is known."""
    topic = dead_letter_topic(state)
    try:
        [own, other] = stub.get_view([state.topic_name, topic]).topics
    except (TopicNotFoundError, PermissionDeniedError):
        return  # the first letter makes the topic, or fails if it may not
    if not deserialize_schema(own.topic.schema).equals(deserialize_schema(other.topic.schema)):
        raise InvalidArgumentError(
            f"The dead-letter topic {topic.short!r} has other columns than {state.topic_name.short!r}.",
            "Name another dead_letter_topic, or delete that one.",
        )
