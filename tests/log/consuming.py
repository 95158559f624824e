"""Short ways to consume in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.log.reading import BY_HAND, send_each
from tests.log.sites import Site
from txn_source import Consumer, Log, Message, MessageId, Producer, Reader
from txn_source.metadata.delivery.session import Session
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.service.service import MetadataService
from txn_source.model.message_ranges import index_of, position_of

WAIT_S = 30.0
VALUES = [b"%d" % number for number in range(10)]
"""Of the messages that ``numbered`` sends."""
END = b"end"


def numbered(log: Log, count: int = 10) -> tuple[Producer, list[MessageId]]:
    """Make the topic with so many messages, each an entry of its own."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    return producer, send_each(producer, [b"%d" % i for i in range(count)])


def subscribe(log: Log, name: str = "s", **options: Any) -> Consumer:
    """Subscribe to ``t`` from the start; acknowledgements are sent by ``flush`` and ``close`` only."""
    given: dict[str, Any] = {"initial_position": "earliest", "acknowledge_interval": 1000.0}
    return log.subscribe("t", name, **(given | options))


def receive(consumer: Consumer) -> Message:
    """Receive a message that must come."""
    message = consumer.receive(WAIT_S)
    assert message is not None
    return message


def take(consumer: Consumer, count: int, *, acknowledge: bool = False) -> list[Any]:
    """Receive so many messages, of the consumer's epoch; return their values."""
    found = []
    for _ in range(count):
        message = receive(consumer)
        assert message.epoch == consumer.epoch
        found.append(message.value)
        if acknowledge:
            consumer.acknowledge(message)
    if acknowledge:
        consumer.flush()
    return found


def up_to_end(consumer: Consumer) -> list[Any]:
    """Receive up to the message ``END``, which is the last one of its partition; return the values before it."""
    found = []
    while (value := receive(consumer).value) != END:
        found.append(value)
    return found


def read(reader: Reader, count: int) -> list[Any]:
    """Read so many messages; return their values."""
    found = [reader.read_next(WAIT_S) for _ in range(count)]
    return [message and message.value for message in found]


def mark(log: Log, partition: int = 0, name: str = "s") -> MessageId:
    """Return where a subscription of ``t`` stands: all below is acknowledged."""
    return message_id(log.subscription("t", name).partitions[partition].mark)


def message_id(key: int) -> MessageId:
    at = position_of(key)
    return MessageId(at.ledger_id, at.entry_id, index_of(key))


def service_of(site: Site, log: Log) -> MetadataService:
    """Return the service that a connection talks to; it runs in this process."""
    if site.server is not None:
        return site.server._service
    assert isinstance(log.metadata.transport, InProcessTransport)
    return log.metadata.transport.service


def holder_of(site: Site, log: Log, consumer: Consumer) -> MetadataService:
    """Return the service that holds a consumer's lease: of two, either may."""
    services = [service_of(each, log) for each in (site, site.other) if each is not None]
    return next(each for each in services if consumer._state.origin.consumer_id in each.hub.connected())


def session_of(site: Site, log: Log, consumer: Consumer) -> Session:
    """Return the service's side of a consumer."""
    return holder_of(site, log, consumer).hub.connected()[consumer._state.origin.consumer_id]


def due_in_s(site: Site, log: Log, consumer: Consumer) -> float | None:
    """Return in how many seconds the service looks for something to deliver; None: not before something changes."""
    session = session_of(site, log, consumer)
    dispatcher = holder_of(site, log, consumer).hub._dispatcher
    return dispatcher.due_in_s(session.topic_id, session.subscription_id)


@contextmanager
def meanwhile(call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Make a call in another thread, which has ended when the block has."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        yield future
        future.result(WAIT_S)
