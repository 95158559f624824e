"""Waking those that wait for a topic to change, and keeping their leases, without anybody polling for it.

Changes that this service makes are told by its database object after their commit. Those of other processes on the same
database show in a counter that is cheap to read; one thread looks at it, as long as anybody waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from txn_source.metadata.store import change_states
from txn_source.metadata.store.consumers import RENEW_MS, renew
from txn_source.metadata.store.database import Change, Database, Wait
from txn_source.model.acknowledgement import Acknowledgement
from txn_source.model.errors import TxnLogError, UnavailableError
from txn_source.storage.forks import belongs_to_process

_log = logging.getLogger(__name__)
_TICK_S = 0.02
_REST = 20
"""After a look the thread rests so many times as long as the look took."""
MAX_WAITING = 2_000


class Waiting(Protocol):
    """What waits: one consumer's conversation."""

    topic_id: int
    subscription_id: int
    consumer_id: int
    unacknowledged: int

    def wake(self) -> None:
        """Look again."""

    def fail(self, error: TxnLogError) -> None:
        """End with an error."""

    def acknowledged(self, messages: int) -> None:
        """Take notice of acknowledgements that came another way."""


class Changes:
    """The consumers that are connected through this service, each woken when its topic or subscription changes."""

    def __init__(self, database: Database, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._waiting: dict[int, set[Waiting]] = defaultdict(set)
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        """Has the thread end; each has its own."""
        self._takes_more = True
        database.on_change = self.tell
        belongs_to_process(self)

    def inherited(self) -> None:
        """Wake nobody in a child that was forked until one of its own consumers waits: the others are the parent's."""
        self._lock, self._waiting, self._thread, self._stop = (
            threading.Lock(),
            defaultdict(set),
            None,
            threading.Event(),
        )

    def add(self, waiting: Waiting) -> None:
        """Wake it from now on."""
        with self._lock:
            self._check_room()
            self._waiting[waiting.topic_id].add(waiting)
            if self._thread is None:
                stop = self._stop = threading.Event()
                self._thread = threading.Thread(target=self._watch, args=(stop,), name="txnlog-changes", daemon=True)
                self._thread.start()

    def check_room(self) -> None:
        """Raise UNAVAILABLE if nobody more may wait."""
        with self._lock:
            self._check_room()

    def _check_room(self) -> None:
        if not self._takes_more:
            raise _stops()
        if sum(map(len, self._waiting.values())) >= MAX_WAITING:
            raise UnavailableError(
                f"This service has {MAX_WAITING} consumers connected, which is all it takes.",
                "Close some, or run another service.",
            )

    def remove(self, waiting: Waiting) -> None:
        """Wake it no more."""
        with self._lock:
            of_topic = self._waiting.get(waiting.topic_id, set())
            of_topic.discard(waiting)
            if not of_topic:
                self._waiting.pop(waiting.topic_id, None)

    def of_topic(self, topic_id: int) -> list[Waiting]:
        """Return those that wait for a topic."""
        with self._lock:
            return list(self._waiting.get(topic_id, ()))

    def connected(self) -> dict[int, Waiting]:
        """Return all, by the consumer's id."""
        with self._lock:
            return {waiting.consumer_id: waiting for some in self._waiting.values() for waiting in some}

    def acknowledged(self, consumed: Iterable[Acknowledgement]) -> None:
        """Let consumers take notice of what a transaction acknowledged for them."""
        connected = self.connected()
        for ack in consumed:
            if ack.consumer_id in connected:
                connected[ack.consumer_id].acknowledged(sum(r.messages for p in ack.partitions for r in p.ranges))

    def tell(self, changes: Iterable[Change]) -> None:
        """Wake those that wait for what has changed."""
        if not self._waiting:
            return
        for topic_id, subscription_id in changes:
            for waiting in self.of_topic(topic_id):
                if subscription_id in (0, waiting.subscription_id):
                    waiting.wake()

    def stop(self) -> None:
        """End all that wait, and take no more: the service stops for good."""
        with self._lock:
            self._takes_more = False
        self.close()

    def close(self) -> None:
        """End all that wait; they may come back, here or elsewhere."""
        with self._lock:
            thread, self._thread, stop = self._thread, None, self._stop
        for waiting in self.connected().values():
            waiting.fail(_stops())
        stop.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _watch(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                with self._database.changes(stop) as wait:
                    self._watch_with(wait, stop)
            except Exception as error:  # whatever it is, nobody else would wake those that wait
                _log.warning("looking for changes failed and is tried again: %s", error)
                stop.wait(1.0)

    def _watch_with(self, wait: Wait, stop: threading.Event) -> None:
        states, rest_s = self._states(), _TICK_S
        self.tell(states)  # they may have looked before others' changes were waited for
        renewed = time.monotonic()
        while True:
            changed = wait(rest_s)
            if stop.is_set():
                return
            rest_s = _TICK_S
            if (time.monotonic() - renewed) * 1000 >= RENEW_MS:
                renewed = time.monotonic()
                self._renew()
            if changed is not None:
                self.tell(changed)
                continue
            began = time.monotonic()
            before, states = states, self._states()
            self.tell(change for change in before.keys() | states.keys() if before.get(change) != states.get(change))
            rest_s = max(_TICK_S, _REST * (time.monotonic() - began))

    def _renew(self) -> None:
        found = {consumer_id: waiting.unacknowledged for consumer_id, waiting in self.connected().items()}
        if found:
            self._database.write(lambda connection: renew(connection, found, self._now_ms()))

    def _states(self) -> dict[Change, list[Any]]:
        with self._lock:
            of_topics = list(self._waiting)
        if not of_topics:
            return {}
        with self._database.read() as connection:
            return change_states.read_states(connection, of_topics)


def _stops() -> UnavailableError:
    return UnavailableError("The metadata service stops.", "Try again when it is back.")
