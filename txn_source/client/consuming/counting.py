"""Counting what comes again to a consumer with ``max_redeliveries``, before its caller gets it.

So a message that ends the process is known to have been received, however often that happens. What was never delivered
before isn't counted first, and costs nothing: the service takes it for received where a consumer never says.
"""

from __future__ import annotations

import threading

from txn_source.client.consuming.consumer_state import ConsumerState
from txn_source.client.consuming.messages import MessageBatch
from txn_source.model.acknowledgement import Acknowledged
from txn_source.model.errors import StaleEpochError, UnavailableError


class Counting:
    """Has the service count messages of the current batch, for one caller at a time."""

    def __init__(self, state: ConsumerState) -> None:
        self._state = state
        self._one = threading.Lock()

    def needed(self, batch: MessageBatch, row: int) -> bool:
        """True if a row of the current batch is to be counted before it is handed out. The consumer's lock is held."""
        state = self._state
        return state.given.counts and batch.delivery.redeliveries > 0 and row >= state.queue.counted

    def count(self, batch: MessageBatch, row: int, end: int) -> threading.Lock | None:
        """Count rows ``[row, end)``, unless another caller has; return a ticket of ``state.news`` if that can't be now.

        What comes again meanwhile in another epoch, or over another connection, isn't counted: look anew afterwards.
        """
        state = self._state
        with self._one:
            with state.lock:
                state.check_open()
                if state.queue.batch is not batch or state.queue.counted >= end:
                    return None
                conversation = state.link.current
            rows = range(max(row, state.queue.counted), end)
            try:
                (conversation or state.link.conversation).count(
                    batch.epoch, [Acknowledged(batch.delivery.partition_id, tuple(batch.ranges(rows)))]
                )
            except (UnavailableError, StaleEpochError):
                with state.lock:
                    is_new = state.queue.batch is not batch or state.link.current is not conversation
                    return None if is_new else state.news.expect()
            with state.lock:
                if state.queue.batch is batch:
                    state.queue.counted = end
            return None
