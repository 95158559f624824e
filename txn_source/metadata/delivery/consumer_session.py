"""One consumer that is connected through this service: who it is, its state, and the answers on their way to it.

Requests are taken by one thread, deliveries made by the dispatcher, and answers read by a third one. None of them waits
for another: what they share is a few numbers under a lock, and a queue.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.session_state import SessionState
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol import convert_subscriptions as sub_wire
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.model.caller import Ending
from txn_source.model.errors import TxnLogError
from txn_source.model.subscription import Cursor, SubscriptionType
from txn_source.model.topic import PartitionView, Topic

_LOOK_S = 60.0
"""So often the clock is looked at, which may have been set."""


class Outbox:
    """Answers for a consumer, in order, up to the end of its conversation."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[pb.ConsumeResponse | TxnLogError | None] = queue.SimpleQueue()

    def put(self, item: pb.ConsumeResponse | TxnLogError | None) -> None:
        """Add an answer, the error that the conversation ends with, or None: it ends without one."""
        self._queue.put(item)

    def answers(self, ending: Ending | None = None) -> Iterator[pb.ConsumeResponse]:
        """Yield the answers as they come; raise the error that the conversation ends with, at its ending at last."""
        while (item := self._next(ending)) is not None:
            if isinstance(item, TxnLogError):
                raise item
            yield item

    def _next(self, ending: Ending | None) -> pb.ConsumeResponse | TxnLogError | None:
        while ending is not None:
            left_s = ending.at - time.time()
            if left_s <= 0:
                return ending.error
            with suppress(queue.Empty):
                return self._queue.get(timeout=min(left_s, _LOOK_S))
        return self._queue.get()


class ConsumerSession:
    """A connected consumer. ``state`` is changed by the dispatcher, and under ``lock`` by anyone."""

    def __init__(
        self,
        topic: Topic,
        subscription: Subscription,
        consumer_id: int,
        state: SessionState,
        outbox: Outbox,
        *,
        counts: bool = False,
    ) -> None:
        """Begin; ``counts``: the consumer counts what comes again before it hands it out."""
        self.topic = topic
        self.subscription = subscription
        self.consumer_id = consumer_id
        self.state = state
        self.counts = counts
        self.lock = threading.Lock()
        self.failure: TxnLogError | None = None
        self._outbox = outbox
        self._after_look: list[pb.ConsumeResponse] = []

    @property
    def topic_id(self) -> int:
        """The topic that it consumes."""
        return self.topic.topic_id

    @property
    def subscription_id(self) -> int:
        """The subscription that it consumes by."""
        return self.subscription.subscription_id

    @property
    def unacknowledged(self) -> int:
        """How many messages it has that are not acknowledged."""
        return self.state.unacknowledged

    def send(self, response: pb.ConsumeResponse) -> None:
        """Give the consumer an answer."""
        self._outbox.put(response)

    def tell_partitions(self, partitions: Sequence[PartitionView], cursors: Mapping[int, Cursor]) -> None:
        """Tell the consumer which of a topic's partitions it doesn't know, and where its subscription stands there.

        Only the dispatcher calls it, before it delivers anything of them.
        """
        added = self.state.unknown(partitions)
        if not added:
            return
        stands = {view.partition_id: cursors[view.partition_id] for view in added}
        with self.lock:
            self.state.join(stands)
        told = pb.ConsumeResponse.PartitionsAdded(
            partitions=[convert.partition_to_wire(view) for view in added],
            points=[sub_wire.point_to_wire(partition_id, cursor.mark) for partition_id, cursor in stands.items()],
        )
        self.send(pb.ConsumeResponse(partitions_added=told))

    def send_after_look(self, response: pb.ConsumeResponse) -> None:
        """Give the consumer an answer when the dispatcher has looked at its subscription the next time."""
        with self.lock:
            self._after_look.append(response)

    def take_after_look(self) -> list[pb.ConsumeResponse]:
        """Return the answers that wait for a look that begins now."""
        if not self._after_look:
            return []
        with self.lock:
            waiting, self._after_look = self._after_look, []
        return waiting

    def acknowledged(self, messages: int) -> bool:
        """Take notice of acknowledgements; return True if only what it had kept it from getting more."""
        with self.lock:
            waited = self.state.at_limit
            self.state.acknowledged(messages)
        return waited and self.subscription.type is SubscriptionType.SHARED

    def fail(self, error: TxnLogError) -> None:
        """End the conversation with an error; the first one counts."""
        if self.failure is None:
            self.failure = error
            self._outbox.put(error)
