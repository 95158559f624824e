"""Sending a message that was delivered too often to a topic of its own."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Protocol

import pyarrow as pa

from txn_source.client.consuming.messages import Message
from txn_source.client.writing.producer import Producer
from txn_source.client.writing.transaction import Transaction
from txn_source.model.errors import TopicExistsError, TopicNotFoundError, TxnLogError
from txn_source.storage.schema import RAW_SCHEMA

_log = logging.getLogger(__name__)


class WritableLog(Protocol):
    """What of a log dead letters need."""

    def create_topic(self, name: str, *, schema: pa.Schema | None) -> None: ...

    def begin_transaction(self) -> Transaction: ...

    def producer(self, topic: str) -> Producer: ...


def send_dead_letter(log: WritableLog, message: Message, topic: str) -> None:
    """Send a message to a dead-letter topic, made if it isn't there, in one transaction with its acknowledgement."""
    payload = message._batch.origin.payload
    properties = message.properties | {
        "txnlog_original_topic": message.topic,
        "txnlog_original_message_id": str(message.message_id),
        "txnlog_redeliveries": str(message.redelivery_count - 1),
    }
    try:
        opened = log.producer(topic)
    except TopicNotFoundError:
        with suppress(TopicExistsError):
            log.create_topic(topic, schema=None if payload is RAW_SCHEMA else payload)
        opened = log.producer(topic)
    txn = log.begin_transaction()
    try:
        with opened as producer:
            producer.send(message.value, key=message.key, properties=properties, event_time=message.event_time, txn=txn)
            txn.acknowledge(message)
            txn.commit()
    except BaseException:
        with suppress(TxnLogError):
            txn.abort()
        raise
    _log.warning(
        "message %s of topic %s went to topic %s: it had been delivered again %d times",
        message.message_id, message.topic, topic, message.redelivery_count - 1,
    )  # fmt: skip
