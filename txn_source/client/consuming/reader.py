"""A reader: an exclusive subscription that leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from txn_source.client.consuming.consumer import Consumer
from txn_source.client.consuming.messages import Message, MessageBatch
from txn_source.client.places import GivenPlace, Sought
from txn_source.model.door import guarded


@guarded(but=("read_next", "__iter__"))
class Reader:
    """Reads a topic from anywhere on, each partition in order; iterating yields messages without end.

    Nothing is acknowledged: the reader itself knows how far it is, and goes on there after a lost connection. Nor is
    anything kept for it: what was trimmed before it was read is ``DATA_LOSS``, once, and the next call goes on behind.
    Many threads may use it, but not a process that was forked. One that its program forgets goes by itself.
    """

    def __init__(self, consumer: Consumer) -> None:
        """Read by a consumer of a subscription of its own that isn't durable; ``Log.reader`` makes both."""
        self._consumer = consumer

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        return iter(self._consumer)

    def __repr__(self) -> str:
        return f"<Reader of {self.topic}>"

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._consumer.topic

    def read_next(self, timeout: float | None = None) -> Message | None:
        """Return the next message, or None if none comes within so many seconds; None waits without end."""
        return self._consumer.receive(timeout)

    def read_batch(self, timeout: float | None = None) -> MessageBatch | None:
        """Return the next messages of a partition together, or None if none come within so many seconds."""
        return self._consumer.receive_batch(timeout)

    def has_message_available(self) -> bool:
        """True if the level shows a message to read now (no marker, no aborted message), or if unread messages were
        trimmed: the next call then raises DATA_LOSS."""
        return self._consumer.has_more()

    def seek(self, to: GivenPlace) -> Sought:
        """Go elsewhere: see ``Consumer.seek``. Partitions that it doesn't name stay where they are."""
        return self._consumer.seek(to)

    def close(self) -> None:
        """Disconnect; closing again is harmless."""
        self._consumer.close()
