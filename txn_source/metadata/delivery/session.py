"""One consumer that is connected through this service: who it is, what it may get, and the answers on their way to it.

1. It begins with the subscription's epoch, at the subscription's cursors.
2. Permits of the current epoch let messages be delivered; each message that is delivered uses one.
3. A new epoch, or another active consumer, begins anew at the cursors. Permits that were given before are void.
4. Partitions that are added to the topic join the epoch at their cursors. The consumer learns of them first.

Requests are taken by one thread, deliveries made by the dispatcher, and answers read by a third one. None of them waits
for another: they share a few numbers under a lock, and a queue. Where it was read is the dispatcher's alone.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.next_entries import ReadCursor
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol import convert_subscriptions as sub_wire
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.model.caller import Ending
from txn_source.model.errors import TxnLogError
from txn_source.model.message_ranges import position_of
from txn_source.model.subscription import Cursor, SubscriptionType
from txn_source.model.topic import PartitionView, Topic

MAX_PERMITS = 1_000_000
MAX_UNACKNOWLEDGED = 50_000
"""A consumer of a shared subscription that has so many messages gets no more until it acknowledges some."""
_LOOK_S = 60.0
"""So often the clock is looked at, which may have been set."""
_DELIVERED = itertools.count(1)


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


class Session:
    """A connected consumer.

    ``active`` False: another consumer of the subscription gets the messages. ``unacknowledged`` messages were delivered
    to it, in this epoch if the subscription isn't shared. ``last_delivery`` grows from delivery to delivery, over all
    consumers; 0: nothing was delivered yet.
    """

    def __init__(
        self,
        topic: Topic,
        subscription: Subscription,
        consumer_id: int,
        outbox: Outbox,
        cursors: Mapping[int, Cursor],
        *,
        active: bool = True,
        counts: bool = False,
    ) -> None:
        """Begin with what the subscription has acknowledged, by partition id.

        ``counts``: the consumer counts what comes again before it hands it out.
        """
        self.topic = topic
        self.subscription = subscription
        self.consumer_id = consumer_id
        self.counts = counts
        self.shared = subscription.type is SubscriptionType.SHARED
        self.failure: TxnLogError | None = None
        self._outbox = outbox
        self._lock = threading.Lock()
        self._after_look: list[pb.ConsumeResponse] = []
        self.permits = self.unacknowledged = self.last_delivery = 0
        self._first = 0
        self._known = set(cursors)
        self._begin(subscription.epoch, active, cursors)

    @property
    def topic_id(self) -> int:
        """The topic that it consumes."""
        return self.topic.topic_id

    @property
    def subscription_id(self) -> int:
        """The subscription that it consumes by."""
        return self.subscription.subscription_id

    # Answers

    def send(self, response: pb.ConsumeResponse) -> None:
        """Give the consumer an answer."""
        self._outbox.put(response)

    def send_after_look(self, response: pb.ConsumeResponse) -> None:
        """Give the consumer an answer when the dispatcher has looked at its subscription the next time."""
        with self._lock:
            self._after_look.append(response)

    def take_after_look(self) -> list[pb.ConsumeResponse]:
        """Return the answers that wait for a look that begins now."""
        if not self._after_look:
            return []
        with self._lock:
            waiting, self._after_look = self._after_look, []
        return waiting

    def fail(self, error: TxnLogError) -> None:
        """End the conversation with an error; the first one counts."""
        if self.failure is None:
            self.failure = error
            self._outbox.put(error)

    # Epochs and partitions: the dispatcher's

    def knows(self, partitions: Sequence[PartitionView]) -> bool:
        """True if the consumer was told of all these partitions."""
        return all(view.partition_id in self._known for view in partitions)

    def tell_partitions(self, partitions: Sequence[PartitionView], cursors: Mapping[int, Cursor]) -> None:
        """Tell the consumer which of a topic's partitions it doesn't know, and where its subscription stands there.

        The epoch goes on, and what it has of them already stays: another epoch may have begun since they were added.
        Only the dispatcher calls it, before it delivers anything of them.
        """
        added = [view for view in partitions if view.partition_id not in self._known]
        if not added:
            return
        stands = {view.partition_id: cursors[view.partition_id] for view in added}
        with self._lock:
            self._known |= stands.keys()
            for partition_id, cursor in stands.items():
                self._acknowledged.setdefault(partition_id, cursor)
                self._read.setdefault(partition_id, ReadCursor.at(position_of(cursor.mark)))
        told = pb.ConsumeResponse.PartitionsAdded(
            partitions=[convert.partition_to_wire(view) for view in added],
            points=[sub_wire.point_to_wire(partition_id, cursor.mark) for partition_id, cursor in stands.items()],
        )
        self.send(pb.ConsumeResponse(partitions_added=told))

    def begin(self, epoch: int, active: bool, cursors: Mapping[int, Cursor]) -> None:
        """Begin an epoch, or one as the active consumer: where the cursors stand, without permits; and tell it."""
        with self._lock:
            self.permits = self.unacknowledged = 0
            self._begin(epoch, active, cursors)
        self.send(pb.ConsumeResponse(epoch_change=pb.ConsumeResponse.EpochChange(epoch=epoch, active=active)))

    def _begin(self, epoch: int, active: bool, cursors: Mapping[int, Cursor]) -> None:
        self.epoch, self.active = epoch, active
        self._acknowledged = dict(cursors)
        self._read = {partition_id: ReadCursor.at(position_of(c.mark)) for partition_id, c in cursors.items()}

    def acknowledged_of(self, partition_id: int) -> Cursor:
        """Return what the subscription had acknowledged when the epoch began."""
        return self._acknowledged[partition_id]

    def read_cursor(self, partition_id: int) -> ReadCursor:
        """Return how far a partition was read for it."""
        return self._read[partition_id]

    def in_turn(self, partitions: Sequence[PartitionView]) -> list[PartitionView]:
        """Return the partitions, each time with another one first, so that none comes last for ever."""
        first, self._first = self._first % max(1, len(partitions)), self._first + 1
        return [*partitions[first:], *partitions[:first]]

    # Permits

    def permit(self, epoch: int, messages: int) -> bool:
        """Permit so many messages more; permits of another epoch are void.

        Returns True if there were none left: else whoever looked last has delivered all that there was.
        """
        with self._lock:
            if epoch != self.epoch:
                return False
            had_none = self.permits <= 0
            self.permits = min(MAX_PERMITS, self.permits + messages)
            return had_none

    def ready(self, epoch: int) -> int:
        """Return how many messages may be handed out now, in an epoch."""
        if not self.active or epoch != self.epoch:
            return 0
        most = MAX_UNACKNOWLEDGED - self.unacknowledged if self.shared else MAX_PERMITS
        return max(0, min(self.permits, most))

    @property
    def at_limit(self) -> bool:
        """True if it would get more of a shared subscription if it had acknowledged some."""
        return self.shared and self.permits > 0 and self.unacknowledged >= MAX_UNACKNOWLEDGED

    def delivered(self, responses: Sequence[pb.ConsumeResponse], cursors: Mapping[int, ReadCursor]) -> None:
        """Send deliveries, once they can't fail any more, so that no permit gets lost; go on at cursors."""
        self._read.update(cursors)
        if responses:
            messages = sum(response.delivery.messages for response in responses)
            with self._lock:
                self.permits -= messages
                self.unacknowledged += messages
                self.last_delivery = next(_DELIVERED)
        for response in responses:
            self.send(response)

    def acknowledged(self, messages: int) -> bool:
        """Take notice of messages that were acknowledged, or are to be delivered again to anyone.

        Returns True if only what it had kept it from getting more.
        """
        with self._lock:
            waited = self.at_limit
            self.unacknowledged = max(0, self.unacknowledged - messages)
        return waited

    def has(self, messages: int) -> None:
        """Correct how many messages it has that are not acknowledged."""
        with self._lock:
            self.unacknowledged = messages
