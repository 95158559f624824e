"""The consumers that are connected through this service: woken by changes, their leases kept, without polling.

Changes that this service makes are told by its database object after their commit. Those of other processes on the same
database show in a counter that is cheap to read; one thread looks at it, as long as anybody waits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.dispatcher import ALL, Dispatcher
from txn_source.metadata.delivery.session import Session
from txn_source.metadata.delivery.topic_dispatch import TopicDispatch
from txn_source.metadata.delivery.work import Work
from txn_source.metadata.store import change_states
from txn_source.metadata.store.consumers import RENEW_MS, renew
from txn_source.metadata.store.database import Change, Database, Wait
from txn_source.metadata.store.group_commit import Urgent
from txn_source.model.acknowledgement import Acknowledgement
from txn_source.model.door import translated
from txn_source.model.errors import TxnLogError, UnavailableError
from txn_source.observing.repeated_work import RepeatedWork

_log = logging.getLogger(__name__)
_TICK_S = 0.02
_REST = 20
"""After a look the thread rests so many times as long as the look took."""
MAX_CONSUMERS = 2_000


class _Sessions:
    """The connected consumers, by id, and of each topic by subscription."""

    def __init__(self) -> None:
        self.by_id: dict[int, Session] = {}
        self.topics: dict[int, dict[int, dict[int, Session]]] = {}

    def add(self, session: Session) -> None:
        of_topic = self.topics.setdefault(session.topic_id, {})
        of_topic.setdefault(session.subscription_id, {})[session.consumer_id] = session
        self.by_id[session.consumer_id] = session

    def remove(self, session: Session) -> None:
        if self.by_id.pop(session.consumer_id, None) is None:
            return
        of_topic = self.topics[session.topic_id]
        del of_topic[session.subscription_id][session.consumer_id]
        if not of_topic[session.subscription_id]:
            del of_topic[session.subscription_id]
        if not of_topic:
            del self.topics[session.topic_id]

    def of(self, topic_id: int, subscription_ids: frozenset[int]) -> list[Session]:
        """Return the consumers of some of a topic's subscriptions, or of all."""
        of_topic = self.topics.get(topic_id, {})
        wanted = of_topic if ALL in subscription_ids else subscription_ids & of_topic.keys()
        return [session for subscription_id in wanted for session in of_topic[subscription_id].values()]


class ConsumerHub:
    """The consumers that are connected through this service, woken when their topic or subscription changes."""

    def __init__(self, database: Database, work: Work, configuration: Mapping[str, Any]) -> None:
        """``configuration`` are the broker's policies."""
        self._database = database
        self._work = work
        self._dispatch = TopicDispatch(work, configuration)
        self._dispatcher = Dispatcher(self._look)
        self._lock = threading.Lock()
        self._sessions = _Sessions()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        """Has the thread end; each has its own."""
        self._takes_more = True
        database.on_change = self.tell

    def add(self, session: Session, first: pb.ConsumeResponse) -> None:
        """Deliver to a consumer from now on; ``first`` is the answer that it gets before anything else."""
        with self._lock:
            self._check_room()
            if self._thread is None:
                stop = self._stop = threading.Event()
                self._thread = threading.Thread(target=self._watch, args=(stop,), name="txnlog-changes", daemon=True)
                self._thread.start()
            session.send(first)
            self._sessions.add(session)
            dispatcher, topics = self._dispatcher, len(self._sessions.topics)
        dispatcher.serve(topics)
        dispatcher.wake(session.topic_id, session.subscription_id)

    def check_room(self) -> None:
        """Raise UNAVAILABLE if nobody more may wait."""
        with self._lock:
            self._check_room()

    def _check_room(self) -> None:
        if not self._takes_more:
            raise _stops()
        if len(self._sessions.by_id) >= MAX_CONSUMERS:
            raise too_many_consumers()

    def remove(self, session: Session) -> None:
        """Deliver to it no more."""
        with self._lock:
            self._sessions.remove(session)

    def connected(self) -> dict[int, Session]:
        """Return all, by the consumer's id."""
        with self._lock:
            return dict(self._sessions.by_id)

    def wake(self, session: Session) -> None:
        """Look for something to deliver to the consumers of a subscription."""
        self._dispatcher.wake(session.topic_id, session.subscription_id)

    def acknowledged(self, consumed: Iterable[Acknowledgement]) -> None:
        """Let consumers take notice of what a transaction acknowledged for them."""
        connected = self.connected()
        for ack in consumed:
            if ack.consumer_id in connected:
                count = sum(r.messages for p in ack.partitions for r in p.ranges)
                self.acknowledged_by(connected[ack.consumer_id], count)

    def acknowledged_by(self, session: Session, messages: int) -> None:
        """Let a consumer take notice that messages of its were acknowledged; a shared one may get more now."""
        if session.acknowledged(messages):
            self.wake(session)

    def tell(self, changes: Iterable[Change]) -> None:
        """Look for what to deliver of what has changed."""
        for topic_id, subscription_id in changes:
            if topic_id in self._sessions.topics:
                self._dispatcher.wake(topic_id, subscription_id)

    def _look(self, topic_id: int, subscription_ids: frozenset[int]) -> Mapping[int, float | None]:
        with self._lock:
            found = self._sessions.of(topic_id, subscription_ids)
        sessions = sorted((s for s in found if s.failure is None), key=lambda session: session.consumer_id)
        if not sessions:
            return {}
        try:
            return self._dispatch.look(sessions)
        except Exception as error:
            if not isinstance(error, TxnLogError):
                _log.exception("looking for what to deliver failed")
            for session in sessions:
                session.fail(translated(error, "Consume"))
            return {}

    def stop(self) -> None:
        """End all that wait, and take no more: the service stops for good."""
        with self._lock:
            self._takes_more = False
        self.close()

    def close(self) -> None:
        """End all that wait; they may come back, here or elsewhere."""
        with self._lock:
            thread, self._thread, stop = self._thread, None, self._stop
            dispatcher, self._dispatcher = self._dispatcher, Dispatcher(self._look)
        for session in self.connected().values():
            session.fail(_stops())
        stop.set()
        dispatcher.stop()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _watch(self, stop: threading.Event) -> None:
        watching = RepeatedWork(_log, "looking for changes")
        while not stop.is_set():
            try:
                with self._database.changes(stop) as wait:
                    self._watch_with(wait, stop, watching)
            except Exception as error:  # whatever it is, nobody else would wake those that wait
                watching.failed(error)
                stop.wait(1.0)

    def _watch_with(self, wait: Wait, stop: threading.Event, watching: RepeatedWork) -> None:
        states, rest_s = self._states(), _TICK_S
        watching.succeeded()
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
        found = {consumer_id: session.unacknowledged for consumer_id, session in self.connected().items()}
        if found:
            # Thousands that connect at once would else let the leases of the first of them end.
            self._database.write(Urgent(lambda connection: renew(connection, found, self._work.now_ms())))

    def _states(self) -> dict[Change, list[Any]]:
        with self._lock:
            of_topics = list(self._sessions.topics)
        if not of_topics:
            return {}
        with self._database.read() as connection:
            return change_states.read_states(connection, of_topics)


def too_many_consumers() -> UnavailableError:
    """Return the error of a consumer that is one too many for this service."""
    return UnavailableError(
        f"This service has {MAX_CONSUMERS} consumers connected, which is all it takes.",
        "Close some, or run another service.",
    )


def _stops() -> UnavailableError:
    return UnavailableError("The metadata service stops.", "Try again when it is back.")
