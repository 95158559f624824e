"""Looks at topics when something has changed for their consumers, by a few threads for all of them.

1. ``wake`` notes that a subscription, or all of a topic's, may get something. It takes no lock and never waits, since
   whoever has just committed calls it.
2. One thread, the leader, waits for such a note. It takes the topic, lets another thread lead, and looks once for all
   that was noted of the topic so far.
3. No two threads look at one topic at a time: what is noted meanwhile is looked at when the first has finished.
4. A look tells when to look again by itself: at a deadline, or at once if it left something.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MAX_THREADS = 4
ALL = 0
"""Stands for all subscriptions of a topic; no subscription has this id."""
_NEVER_S = float("inf")
_NUDGE = (0, 0)
"""A note of no topic: the leader looks again how long to wait."""
Look = Callable[[int, frozenset[int]], Mapping[int, float | None]]
"""Looks at some subscriptions of a topic, and returns in how many seconds to look again at each (None: never)."""


@dataclass(slots=True)
class _Topic:
    """What is noted of a topic: subscriptions that changed, and, by monotonic time, when to look at others again."""

    changed: set[int] = field(default_factory=set)
    due_s: dict[int, float] = field(default_factory=dict)
    busy: bool = False

    def next_s(self) -> float:
        """Return when to look at it: 0 is now."""
        if self.busy:
            return _NEVER_S
        return 0.0 if self.changed else min(self.due_s.values(), default=_NEVER_S)

    def take(self, now_s: float) -> frozenset[int]:
        """Return the subscriptions to look at now, and forget them."""
        taken = frozenset(self.changed | {number for number, at_s in self.due_s.items() if at_s <= now_s})
        self.changed = set()
        self.due_s = {n: at_s for n, at_s in self.due_s.items() if n not in taken and ALL not in taken}
        return taken


class Dispatcher:
    """Threads that call ``look``, which handles its own errors."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._notes: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        self._leading = threading.Lock()
        self._lock = threading.Lock()
        self._topics: dict[int, _Topic] = {}
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def serve(self, topics: int) -> None:
        """Have as many threads as topics, up to ``MAX_THREADS``; fewer topics end none."""
        with self._lock:
            while not self._stopped and len(self._threads) < min(topics, MAX_THREADS):
                thread = threading.Thread(target=self._run, name="txnlog-dispatch", daemon=True)
                thread.start()
                self._threads.append(thread)

    def wake(self, topic_id: int, subscription_id: int = ALL) -> None:
        """Look at a subscription, or at all of a topic's."""
        self._notes.put((topic_id, subscription_id))

    def due_in_s(self, topic_id: int, subscription_id: int) -> float | None:
        """Return in how many seconds a subscription is looked at; None: not before something changes."""
        with self._lock:
            topic = self._topics.get(topic_id, _Topic())
            if not self._notes.empty() or topic.busy or topic.changed:
                return 0.0
            at_s = topic.due_s.get(subscription_id)
        return None if at_s is None else max(0.0, at_s - time.monotonic())

    def stop(self) -> None:
        """End the threads, and wait for looks under way."""
        with self._lock:
            self._stopped, threads = True, list(self._threads)
        self._notes.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        while (taken := self._lead()) is not None:
            topic_id, subscription_ids = taken
            again = self._look(topic_id, subscription_ids)
            now_s = time.monotonic()
            with self._lock:
                topic = self._topics[topic_id]
                topic.busy = False
                topic.changed |= {number for number, wait_s in again.items() if wait_s == 0.0}
                topic.due_s |= {number: now_s + wait_s for number, wait_s in again.items() if wait_s}
                if not topic.changed and not topic.due_s:
                    del self._topics[topic_id]
            self._notes.put(_NUDGE)

    def _lead(self) -> tuple[int, frozenset[int]] | None:
        """Wait for a topic to look at, and return it with its subscriptions; None when all is over."""
        with self._leading:
            while True:
                try:
                    note = self._notes.get(timeout=self._wait_s())
                except queue.Empty:
                    note = _NUDGE
                if note is None:
                    self._notes.put(None)  # for the next leader
                    return None
                with self._lock:
                    if note != _NUDGE:
                        self._topics.setdefault(note[0], _Topic()).changed.add(note[1])
                    found = self._next()
                if found is not None:
                    return found

    def _wait_s(self) -> float | None:
        """Return how long to wait for a note: 0 if some wait, or something is due."""
        with self._lock:
            next_s = min((topic.next_s() for topic in self._topics.values()), default=_NEVER_S)
        return None if next_s == _NEVER_S else max(0.0, next_s - time.monotonic())

    def _next(self) -> tuple[int, frozenset[int]] | None:
        """Return the topic whose turn it is, if no more notes wait: they may be of the same one."""
        if not self._notes.empty():
            return None
        now_s = time.monotonic()
        for topic_id, topic in self._topics.items():
            if topic.next_s() <= now_s:
                topic.busy = True
                self._topics[topic_id] = self._topics.pop(topic_id)  # the others have their turn first
                return topic_id, topic.take(now_s)
        return None
