"""What a log has opened and closes with itself, unless it was forgotten before."""

from __future__ import annotations

import weakref
from contextlib import ExitStack

from txn_source.client.consuming.consumer import Consumer
from txn_source.client.consuming.due_thread import DueThread
from txn_source.client.writing.producer import Producer


class OpenHandles:
    """The producers and consumers of a log; it keeps none of them alive."""

    def __init__(self) -> None:
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self._consumers: weakref.WeakSet[Consumer | DueThread] = weakref.WeakSet()

    def add_producer(self, producer: Producer) -> Producer:
        """Have a producer closed with the log."""
        self._producers.add(producer)
        return producer

    def add_consumer(self, consumer: Consumer) -> Consumer:
        """Have a consumer closed with the log; one that was forgotten before then has its end waited for."""
        try:
            self._consumers.add(consumer)
            self._consumers.add(consumer._thread)
        except BaseException:
            consumer._thread.leave()
            raise
        return consumer

    def close(self) -> None:
        """Close those that are still open, consumers first; one that fails keeps no other from being closed."""
        with ExitStack() as stack:
            for producer in list(self._producers):
                stack.callback(producer.close)
            for consumer in list(self._consumers):
                stack.callback(consumer.close)
