"""The messages of a consumer that were delivered too often.

One goes to the dead-letter topic in a transaction that also acknowledges it. If that can't be, it is kept, which is
logged, and tried again; what comes behind it goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from txn_source.client.consuming.consumer_state import ConsumerState
from txn_source.client.consuming.due_thread import DueThread
from txn_source.client.consuming.messages import Message
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

    def __init__(self, state: ConsumerState, thread: DueThread, send: SendDeadLetter | None) -> None:
        """Take what sends them, and the thread that has ``send_kept`` called; None: nothing is sent."""
        self._state = state
        self._thread = thread
        self._limit = state.options.max_redeliveries
        self.send = send
        self._sending = threading.Lock()
        self._pause_s = _FIRST_PAUSE_S
        self._next_at = 0.0

    def take(self, message: Message) -> bool:
        """Move a message to the dead-letter topic if it is due; return False for one that has to be handed out."""
        if self.send is None or self._limit is None or message.redelivery_count <= self._limit:
            return False
        key = message._batch.delivery.partition_id, message._batch.place(message._row)
        self._state.letters[key] = message
        try:
            self._send(message)
        except MessageUnreadableError as error:
            del self._state.letters[key]
            _log.warning(
                "message %s can't go to a dead-letter topic and is received again: %s", error.message_id, error
            )
            return False
        except TxnLogError as error:
            self._keep(message, error)
        return True

    def send_kept(self, *, now: bool = False) -> None:
        """Try those again that couldn't be sent, if that is due; raise nothing."""
        with self._sending:
            if not now and time.monotonic() < self._next_at:
                return
            with self._state.lock:
                kept = list(self._state.letters.values())
            for message in kept:
                try:
                    self._send(message)
                except TxnLogError as error:
                    self._keep(message, error)

    def _send(self, message: Message) -> None:
        assert self.send is not None
        try:
            self.send(message, dead_letter_topic(self._state).short)
        except (AcknowledgedElsewhereError, StaleEpochError):
            pass  # somebody else has settled it, or it comes again, after a seek or a lost connection, and goes then
        else:
            self._pause_s = _FIRST_PAUSE_S
            with self._state.lock:
                self._state.redeliveries.forget_count(message._batch, message._row)
        with self._state.lock:
            self._state.letters = {key: m for key, m in self._state.letters.items() if m is not message}

    def _keep(self, message: Message, error: TxnLogError) -> None:
        topic = dead_letter_topic(self._state).short
        _log.warning("message %s can't go to topic %s, which is tried again: %s", message.message_id, topic, error)
        self._next_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._thread.due(self._next_at)


def dead_letter_topic(state: ConsumerState) -> TopicName:
    """Return the topic that a consumer's dead letters go to.

    Raises:
        InvalidArgumentError: no topic can have its name, or it is the consumer's own one.
    """
    given = state.options.dead_letter_topic
    try:
        topic = TopicName.parse(given or f"{state.topic_name}-{state.request.name}-DLQ")
    except InvalidArgumentError as error:
        if given is not None:
            raise
        raise InvalidArgumentError(
            f"Messages of subscription {state.request.name!r} that are delivered too often can't go to a topic that is"
            f" named after it: {error.fact}",
            "Name a topic for them: dead_letter_topic=...",
        ) from None
    if topic == state.topic_name:
        raise InvalidArgumentError(
            f"Messages of topic {topic.short!r} that are delivered too often would go to that topic again.",
            "Name another dead_letter_topic.",
        )
    return topic


def check_dead_letters(stub: MetadataStub, state: ConsumerState) -> None:
    """Raise INVALID_ARGUMENT unless a consumer's dead letters can go where they are to go, as far as that is known."""
    topic = dead_letter_topic(state)
    try:
        [own, other] = stub.get_view([state.topic_name, topic]).topics
    except (TopicNotFoundError, PermissionDeniedError):
        return  # it is made with the first one, or only that tells
    if not deserialize_schema(own.topic.schema).equals(deserialize_schema(other.topic.schema)):
        raise InvalidArgumentError(
            f"Topic {topic.short!r}, where messages go that are delivered too often, has other columns than"
            f" {state.topic_name.short!r}.",
            "Name another dead_letter_topic, or delete that one.",
        )
