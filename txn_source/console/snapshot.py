"""The figures of the log at one moment, which all viewers share: made when somebody asks, never by a timer."""

from __future__ import annotations

import threading
import time
from array import array
from collections import defaultdict, deque
from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from txn_source.console.query import in_order
from txn_source.http.log_metrics import Moment, look
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.backlog_figures import SubscriptionFigures, waiting_subscriptions
from txn_source.metadata.store.figures import Blocker, PartitionFigures
from txn_source.metadata.store.open_transactions import Began, who_began
from txn_source.model.topic_name import TopicName

FRESH_S = 1.0
"""So old a snapshot may be; if it takes long to make one, ten times as old as that took, lest who looks at the log
takes more than a tenth of a core."""
_REST = 10
RATE_S = 2.0
"""So far two snapshots must be apart to tell a rate, and at most ``RATE_MOST_S``."""
RATE_MOST_S = 60.0
HISTORY_S = 600.0


class Appended(NamedTuple):
    """Messages and bytes since the topic was made: they never go down."""

    messages: int
    bytes: int


class PerTopic(NamedTuple):
    """A figure of those topics for which it isn't nought; packed, since hundreds of them are kept."""

    topic_ids: Sequence[int]
    figures: Sequence[float]

    @classmethod
    def of(cls, found: Mapping[int, float]) -> PerTopic:
        """Return those of some topics."""
        there = {topic_id: figure for topic_id, figure in found.items() if figure}
        return cls(array("q", there), array("d", there.values()))

    def of_topics(self, topic_ids: Container[int] | None) -> float:
        """Return the sum of some topics' figures; None: of all that there were."""
        if topic_ids is None:
            return sum(self.figures)
        return sum(figure for topic_id, figure in zip(*self, strict=True) if topic_id in topic_ids)


class Point(NamedTuple):
    """The log at one moment of its history; the rate is None while it wasn't known."""

    at_ms: int
    rate_messages: PerTopic | None
    held_back_messages: PerTopic
    open_transactions: int


class TopicFigures(NamedTuple):
    """A topic. Times are milliseconds since the epoch, rates by second and None until they are known.

    ``backlog`` is the largest one of its durable subscriptions. ``held_back_since_ms`` is when the first message was
    published that waits for an open transaction.
    """

    topic_id: int
    name: TopicName
    partitions: Sequence[PartitionFigures]
    messages: int
    bytes: int
    rate_messages: float | None
    rate_bytes: float | None
    held_back_messages: int
    held_back_bytes: int
    held_back_since_ms: int | None
    open_transactions: int
    subscriptions: Sequence[SubscriptionFigures]
    backlog: int
    last_publish_ms: int | None
    short_messages: int


class Snapshot:
    """What is told of the log at one moment; ``before`` is what had been appended at an earlier one, by topic."""

    def __init__(
        self, moment: Moment, began: Mapping[int, Began], before: tuple[float, Mapping[int, Appended]] | None
    ) -> None:
        """``began`` is of the open transactions; ``before`` is how many seconds ago, and what."""
        self.moment = moment
        self.began = began
        self.now_ms = moment.at_ms
        self._before = before
        self.appended = _appended(moment.log.partitions)

    @cached_property
    def partitions(self) -> dict[int, PartitionFigures]:
        """The partitions by id."""
        return {part.partition_id: part for part in self.moment.log.partitions}

    @cached_property
    def names(self) -> dict[int, TopicName]:
        """The topics' names by id."""
        return {topic_id: TopicName.parse(name) for topic_id, name in self.moment.log.topics.items()}

    @cached_property
    def blockers(self) -> dict[int, list[Blocker]]:
        """What each open transaction holds back, by its number, the oldest one first."""
        found: dict[int, list[Blocker]] = defaultdict(list)
        for blocker in self.moment.blockers:
            found[blocker.txn].append(blocker)
        return dict(found)

    @cached_property
    def first_blockers(self) -> dict[int, Blocker]:
        """By partition, the open transaction that its readers wait for first."""
        return {blocker.partition_id: blocker for blocker in self.moment.blockers if blocker.is_first}

    @cached_property
    def waiting(self) -> dict[int, list[SubscriptionFigures]]:
        """By partition, the read_committed subscriptions that wait there."""
        return waiting_subscriptions(self.moment.subscriptions, self.partitions)

    @cached_property
    def topics(self) -> dict[TopicName, TopicFigures]:
        """The topics by name, sorted by it."""
        parts: dict[int, list[PartitionFigures]] = defaultdict(list)
        for part in self.moment.log.partitions:
            parts[part.topic_id].append(part)
        subscriptions: dict[int, list[SubscriptionFigures]] = defaultdict(list)
        for each in self.moment.subscriptions:
            subscriptions[each.topic_id].append(each)
        open_on: dict[int, set[int]] = defaultdict(set)
        for blocker in self.moment.blockers:
            open_on[self.partitions[blocker.partition_id].topic_id].add(blocker.txn)
        return {
            name: self._topic(topic_id, name, parts[topic_id], subscriptions[topic_id], len(open_on[topic_id]))
            for topic_id, name in sorted(self.names.items(), key=lambda item: in_order(item[1].short))
        }

    def topic_of(self, partition_id: int) -> TopicName:
        """Return the topic of a partition."""
        return self.names[self.partitions[partition_id].topic_id]

    def rates(self, topic_ids: Sequence[int]) -> tuple[float | None, float | None]:
        """Return how many messages and bytes a second came to some topics; None if that isn't known."""
        if self._before is None:
            return None, None
        seconds, before = self._before
        messages = of_bytes = 0
        for topic_id in topic_ids:
            now, then = self.appended.get(topic_id, _NOTHING), before.get(topic_id, _NOTHING)
            messages += max(0, now.messages - then.messages)
            of_bytes += max(0, now.bytes - then.bytes)
        return messages / seconds, of_bytes / seconds

    def point(self) -> Point:
        """Return what is kept of it in the history."""
        rates = None
        if self._before is not None:
            rates = PerTopic.of({topic_id: self.rates([topic_id])[0] or 0 for topic_id in self.appended})
        held_back: dict[int, int] = defaultdict(int)
        for part in self.moment.log.partitions:
            held_back[part.topic_id] += part.held_back_messages
        return Point(self.now_ms, rates, PerTopic.of(held_back), self.moment.log.open_transactions)

    def _topic(
        self,
        topic_id: int,
        name: TopicName,
        parts: Sequence[PartitionFigures],
        subscriptions: Sequence[SubscriptionFigures],
        open_transactions: int,
    ) -> TopicFigures:
        rates = self.rates([topic_id])
        since = [part.waits_since_us for part in parts if part.waits_since_us is not None]
        last_us = max((part.last_publish_time_us for part in parts), default=0)
        return TopicFigures(
            topic_id,
            name,
            parts,
            sum(part.messages - part.messages_trimmed for part in parts),
            sum(part.bytes - part.bytes_trimmed for part in parts),
            *rates,
            sum(part.held_back_messages for part in parts),
            sum(part.held_back_bytes for part in parts),
            min(since) // 1000 if since else None,
            open_transactions,
            subscriptions,
            max((each.backlog for each in subscriptions if each.durable), default=0),
            last_us // 1000 or None,
            sum(part.short_messages for part in parts),
        )


class Snapshots:
    """The last snapshot, and what is kept of those before it."""

    def __init__(self, service: MetadataService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._last: Snapshot | None = None
        self._good_until = float("-inf")
        self._past: deque[tuple[float, Mapping[int, Appended]]] = deque()
        self._history: deque[tuple[float, Point]] = deque()

    def current(self) -> Snapshot:
        """Return one that is a moment old at most (``FRESH_S``); whoever comes while it is made waits for it.

        Raises:
            TxnLogError: the database can't be read.
        """
        with self._lock:
            if self._last is None or time.monotonic() >= self._good_until:
                self._service.maintain()  # nobody sees an open transaction past its deadline
                began = time.monotonic()
                moment = look(self._service)
                who = self._service.look(who_began)
                self._last, now = self._next(moment, who, began), time.monotonic()
                self._good_until = now + max(FRESH_S, _REST * (now - began))
            return self._last

    def forget(self) -> None:
        """Have the next one made anew: something was changed."""
        with self._lock:
            self._good_until = float("-inf")

    def history(self) -> list[Point]:
        """Return the log as it was at the snapshots of the last ten minutes, seconds apart."""
        with self._lock:
            return [point for _, point in self._history]

    def _next(self, moment: Moment, began: Mapping[int, Began], at: float) -> Snapshot:
        while self._past and at - self._past[0][0] > RATE_MOST_S:
            self._past.popleft()
        while len(self._past) > 1 and at - self._past[1][0] >= RATE_S:
            self._past.popleft()
        before = self._past[0] if self._past and at - self._past[0][0] >= RATE_S else None
        made = Snapshot(moment, began, None if before is None else (at - before[0], before[1]))
        self._past.append((at, made.appended))
        while self._history and at - self._history[0][0] > HISTORY_S:
            self._history.popleft()
        if not self._history or at - self._history[-1][0] >= RATE_S:
            self._history.append((at, made.point()))
        return made


_NOTHING = Appended(0, 0)


def _appended(partitions: Sequence[PartitionFigures]) -> dict[int, Appended]:
    messages: dict[int, int] = defaultdict(int)
    of_bytes: dict[int, int] = defaultdict(int)
    for part in partitions:
        messages[part.topic_id] += part.messages
        of_bytes[part.topic_id] += part.bytes
    return {topic_id: Appended(messages[topic_id], of_bytes[topic_id]) for topic_id in messages}
