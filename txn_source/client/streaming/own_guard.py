"""The guard of a stream over our own log: its subscription, and the rule for another isolation level.

A stream with a subscription starts at the subscription's cursors, and acknowledges everything below the ends of its
batches. While both are in the same epoch, the checkpoint has the start of the next batch. After a seek, which begins a
newer epoch, the next batch starts where the seek moved the subscription, and its end has the new epoch and that start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from txn_source.client.access import Access
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import Source
from txn_source.client.streaming.holders import Holders
from txn_source.client.streaming.level_change import check_change, text_of
from txn_source.client.streaming.stream_subscription import Cursors, StreamSubscription
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import LATEST, Position
from txn_source.reading.limits import StreamLimits
from txn_source.reading.places import Side
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream import Stream
from txn_source.reading.stream_offset import StreamOffset

_log = logging.getLogger(__name__)


def own_stream(
    access: Access,
    selection: Selection,
    request: ReadRequest,
    limits: StreamLimits,
    clock: Callable[[], float] = time.monotonic,
    subscription: StreamSubscription | None = None,
) -> Stream[Source]:
    """Return a streaming query's view of topics.

    With a ``subscription``, which is one of the query's only topic, the stream reads at the subscription's level.
    """
    if subscription is not None:
        request = replace(request, isolation_level=subscription.isolation_level)
    source = OwnLog(access)
    guard = OwnGuard(access, source, selection, request, subscription, clock)
    return Stream(source, selection, request, limits, guard, clock)


class OwnGuard:
    """The guard of a stream over our own log."""

    def __init__(
        self,
        access: Access,
        source: OwnLog,
        selection: Selection,
        request: ReadRequest,
        subscription: StreamSubscription | None,
        clock: Callable[[], float],
    ) -> None:
        self._stub = access.metadata
        self._source = source
        self._selection = selection
        self._request = request
        self._level = request.isolation_level
        self._held = subscription
        self._holders = Holders(access.metadata, clock)
        self._changed_at: StreamOffset | None = None

    def initial(self, first: Callable[[], StreamOffset]) -> StreamOffset:
        """Return the subscription's cursors; create a missing subscription at the start of the query's options."""
        held = self._held
        if held is None:
            return first()
        if held.is_there:
            if self._request.start != Side(LATEST):
                _log.warning(
                    "subscription %r exists, so the stream begins at its cursors, and not at startingOffsets",
                    held.name,
                )
            decisions = self._source.look(self._selection).decisions
        else:
            begins = first()
            held.create(_by_index(begins))
            decisions = begins.decisions
        return self._at(held, held.cursors(), decisions)

    def begin(self, start: StreamOffset) -> StreamOffset:
        """Return ``start``, or the subscription's cursors if the subscription was moved.

        Spark asks for the next batch after it has recorded the last one as committed. So everything before ``start``
        is processed, and is acknowledged here: Spark calls ``commit`` only when there is a next batch.
        """
        held = self._held
        if held is None:
            return start
        cursors = held.cursors()
        if start.subscription != cursors.subscription_id or start.epoch > cursors.epoch:
            raise InvalidArgumentError(
                f"The checkpoint is at {text_of(start)}, but not of what subscription {held.name!r} is now: that was"
                " made anew, or the log was put back, or the query had none before.",
                "Begin a new query with a new checkpoint: it begins where the subscription stands.",
            )
        self.commit(start)
        if start.epoch == cursors.epoch:
            return start
        moved = self._at(held, cursors, start.decisions)
        _log.warning("subscription %r was moved: the stream goes on from %s", held.name, text_of(moved))
        return moved

    def check_level(self, look: Source, start: StreamOffset, starts: Sequence[Position]) -> None:
        """Raise INVALID_ARGUMENT if the stream can't go on at its level (``level_change``)."""
        if start.level is not self._level and start != self._changed_at:
            check_change(self._stub, look, start, starts, self._level)
            self._changed_at = start  # a decided transaction stays decided

    def marked(self, newest: StreamOffset) -> StreamOffset:
        """Return the offset with the subscription and its epoch."""
        held = self._held
        return newest if held is None else replace(newest, epoch=held.epoch, subscription=held.subscription_id)

    def waiting(self, look: Source) -> None:
        """Log the open transactions that hold the stream back."""
        if self._level is IsolationLevel.READ_COMMITTED:
            self._holders.tell(look.partitions)

    def commit(self, end: StreamOffset) -> None:
        """Acknowledge everything before an offset; do nothing without a subscription."""
        if self._held is not None and end.subscription == self._held.subscription_id:
            self._held.acknowledge(end.epoch, _by_index(end))

    def _at(self, held: StreamSubscription, cursors: Cursors, decisions: int) -> StreamOffset:
        """Return a subscription's cursors as an offset; cursors inside entries become ``begins``."""
        marks = {(held.topic, index): mark for index, mark in cursors.marks.items()}
        return StreamOffset(
            {name: mark.position for name, mark in marks.items()},
            self._level,
            {name: mark for name, mark in marks.items() if mark.batch_index > 0},
            decisions=decisions,
            epoch=cursors.epoch,
            subscription=cursors.subscription_id,
        )


def _by_index(offset: StreamOffset) -> dict[int, Position]:
    """Return the positions of an offset in one topic."""
    return {index: at for (_, index), at in offset.positions.items()}
