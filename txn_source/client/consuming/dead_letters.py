"""Moving a message that was delivered too often to a topic of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from txn_source.client.consuming.consumer_state import ConsumerState
from txn_source.client.consuming.messages import Message
from txn_source.client.transaction import Transaction
from txn_source.client.writing.producer import Producer
from txn_source.model.errors import (
    AcknowledgedElsewhereError,
    MessageUnreadableError,
    StaleEpochError,
    TopicExistsError,
)
from txn_source.storage.schema import RAW_SCHEMA

_log = logging.getLogger(__name__)

SendDeadLetter = Callable[[Message, str], None]
"""Sends a message to a dead-letter topic and acknowledges it, in one transaction."""


class WritableLog(Protocol):
    """What of a log dead letters need."""

    def create_topic(self, name: str, *, schema: pa.Schema | None) -> None: ...

    def begin_transaction(self) -> Transaction: ...

    def producer(self, topic: str) -> Producer: ...


def send_dead_letter(log: WritableLog, message: Message, topic: str) -> None:
    """Send a message to a dead-letter topic, made if it isn't there, in one transaction with its acknowledgement."""
    payload = message._batch.origin.payload
    raw = payload is RAW_SCHEMA
    with suppress(TopicExistsError):
        log.create_topic(topic, schema=None if raw else payload)
    properties = message.properties | {
        "txnlog_original_topic": message.topic,
        "txnlog_original_message_id": str(message.message_id),
        "txnlog_redeliveries": str(message.redelivery_count - 1),
    }
    with log.begin_transaction() as txn, log.producer(topic) as producer:
        key = message.key if raw else None
        producer.send(message.value, key=key, properties=properties, event_time=message.event_time, txn=txn)
        txn.acknowledge(message)
    _log.warning(
        "message %s of topic %s went to topic %s: it had been delivered again %d times",
        message.message_id, message.topic, topic, message.redelivery_count - 1,
    )  # fmt: skip


class DeadLetters:
    """The messages of a consumer that were delivered too often, and don't go to its caller any more."""

    def __init__(self, state: ConsumerState, send: SendDeadLetter | None) -> None:
        """Take what sends them; None: nothing is sent, whatever the options say."""
        self._state = state
        self._limit = state.options.max_redeliveries
        name = f"{state.topic_name.short}-{state.request.name}-DLQ"
        self._topic = state.options.dead_letter_topic or name
        self.send = send

    def take(self, message: Message) -> bool:
        """Move a message to the dead-letter topic if it is due; return False for one that has to be handed out."""
        if self.send is None or self._limit is None or message.redelivery_count <= self._limit:
            return False
        try:
            self.send(message, self._topic)
        except AcknowledgedElsewhereError:
            pass  # by an earlier call that was interrupted behind its commit
        except StaleEpochError:
            return True  # it comes again, after a seek or a lost connection, and goes there then
        except MessageUnreadableError as error:
            _log.warning(
                "message %s can't go to a dead-letter topic and is received again: %s", error.message_id, error
            )
            return False
        self._state.redeliveries.forget_count(message._batch, message._row)
        return True
