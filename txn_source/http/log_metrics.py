"""Figures of the log, found again every few seconds by a thread and kept as text: a scrape asks nobody."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric as Family

from txn_source.http.call_metrics import family
from txn_source.metadata.service.observer import Observer
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.backlog_figures import SubscriptionFigures, subscription_figures
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.figures import Blocker, LogFigures, PartitionFigures, blockers, log_figures
from txn_source.model.isolation import IsolationLevel
from txn_source.model.topic_name import TopicName
from txn_source.observing.repeated_work import RepeatedWork
from txn_source.process.repeating import Repeating

REFRESH_S = 10.0
MAX_TOPICS = 100
_REST = 20
"""After a look the thread rests so many times as long as the look took."""
_STALE_S = 60.0
"""Figures that are older are not shown any more."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moment:
    """The figures of the log at one moment; ``at_ms`` is the time that deadlines go by."""

    log: LogFigures
    subscriptions: Sequence[SubscriptionFigures]
    blockers: Sequence[Blocker]
    at_ms: int


def look(service: MetadataService) -> Moment:
    """Return the figures as they are now."""
    now_ms = service.now_ms()

    def found(connection: Connection) -> Moment:
        log = log_figures(connection, now_ms)
        return Moment(log, subscription_figures(connection, log.partitions, now_ms), blockers(connection), now_ms)

    return service.look(found)


class LogMetrics:
    """The figures of a service's log as text, and the thread that finds them."""

    def __init__(
        self,
        service: MetadataService,
        observer: Observer,
        max_topics: int = MAX_TOPICS,
        refresh_s: float = REFRESH_S,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """``max_topics``: so many topics, and so many subscriptions, have series of their own; those that hold back, or
        keep, the most. ``before`` is called before each look."""
        self._service = service
        self._observer = observer
        self._max_topics = max_topics
        self._refresh_s = refresh_s
        self._before = before
        self._rounds = RepeatedWork(_log, "finding the figures of the log")
        self._repeating = Repeating(refresh_s, self._round, "txnlog-figures")
        self._turn = threading.Lock()
        """Whoever looks: a look that began earlier must not take the place of a later one."""
        self._text = b""
        self._found_at = 0.0
        self._totals: tuple[dict[int, tuple[int, int]] | None, int, int] = None, 0, 0

    def start(self) -> None:
        """Begin, with a first look at once."""
        self._observer.begins("figures")
        self._repeating.start()

    def stop(self) -> None:
        """End; a look under way is waited for, ten seconds at most."""
        self._repeating.stop(10.0)

    def text(self) -> bytes:
        """Return the figures in Prometheus's text format; nothing if they are too old to be true."""
        return self._text if time.monotonic() - self._found_at < _STALE_S else b""

    def refresh(self) -> None:
        """Look now."""
        with self._turn:
            began = time.monotonic()
            moment = look(self._service)
            took = time.monotonic() - began
            registry = CollectorRegistry(auto_describe=False)
            registry.register(_Families([*self._families(moment), family("txnlog_figures_seconds", [((), took)])]))
            self._text, self._found_at = generate_latest(registry), time.monotonic()

    def _round(self) -> None:
        began = time.monotonic()
        failure: Exception | None = None
        try:
            self._before()
            self.refresh()
        except Exception as error:
            failure = error
            self._rounds.failed(error)
        else:
            self._rounds.succeeded()
        self._observer.worked("figures", failure)
        self._repeating.stopping.wait(max(0.0, _REST * (time.monotonic() - began) - self._refresh_s))

    def _families(self, moment: Moment) -> Iterator[Family]:
        topics = _by_topic(moment)
        durable = [each for each in moment.subscriptions if each.durable]
        backlogs: dict[int, int] = defaultdict(int)
        for each in durable:
            backlogs[each.topic_id] = max(backlogs[each.topic_id], each.backlog)
        topics.sort(key=lambda t: (-t.short_messages, -t.held_back_messages, -backlogs[t.topic_id], -t.bytes, t.name))
        durable.sort(key=lambda s: (-s.backlog, moment.log.topics.get(s.topic_id, ""), s.name))
        shown, sought = topics[: self._max_topics], durable[: self._max_topics]
        yield from self._of_log(moment, topics, durable)
        yield _one("topics_left_out", len(topics) - len(shown))
        yield _one("subscriptions_left_out", len(durable) - len(sought))
        yield from _of_topics(shown)
        yield from _of_subscriptions(sought, moment)

    def _of_log(
        self, moment: Moment, topics: Sequence[_Topic], durable: Sequence[SubscriptionFigures]
    ) -> Iterator[Family]:
        log = moment.log
        appended, appended_bytes = self._appended(topics)
        yield _one("figures_timestamp_seconds", moment.at_ms / 1000)
        yield _one("topics", len(topics))
        yield _one("partitions", len(log.partitions))
        yield _one("messages", sum(t.messages for t in topics))
        yield _one("bytes", sum(t.bytes for t in topics))
        yield _one("appended_messages_total", appended)
        yield _one("appended_bytes_total", appended_bytes)
        yield _one("transactions_begun_total", log.transactions_begun)
        yield _one("transactions_ended_total", log.transactions_ended)
        yield _one("open_transactions", log.open_transactions)
        yield _one("oldest_open_transaction_seconds", _age(log.oldest_open_ms, moment.at_ms))
        yield _one("held_back_messages", sum(t.held_back_messages for t in topics))
        yield _one("held_back_bytes", sum(t.held_back_bytes for t in topics))
        yield _one("short_messages", sum(t.short_messages for t in topics))
        yield _one("held_back_seconds", max((t.held_back_s for t in topics), default=0.0))
        counts, backlogs = dict.fromkeys(IsolationLevel, 0), dict.fromkeys(IsolationLevel, 0)
        ages = dict.fromkeys(IsolationLevel, 0.0)
        for each in durable:
            counts[each.isolation_level] += 1
            backlogs[each.isolation_level] += each.backlog
            ages[each.isolation_level] = max(ages[each.isolation_level], _waits_s(each, moment.at_ms))
        for name, figures in (("subscriptions", counts), ("backlog_messages", backlogs), ("backlog_seconds", ages)):
            yield family(f"txnlog_{name}", [((level.value,), value) for level, value in figures.items()])
        running = log.consumers - log.consumers_without_lease
        yield family("txnlog_consumers", [(("running",), running), (("ended",), log.consumers_without_lease)])
        yield _one("doomed_files", log.doomed_files)
        yield _one("offloads_under_way", log.offloads_under_way)
        yield _one("oldest_offload_seconds", _age(log.oldest_offload_ms, moment.at_ms))

    def _appended(self, topics: Sequence[_Topic]) -> tuple[int, int]:
        """Return how much was appended since the first look, also to topics that were deleted meanwhile.

        It never goes down, and begins at 0: a counter that began anew with what the topics have now would look as if
        all of it had just been appended, if it was higher before.
        """
        known, messages, of_bytes = self._totals
        now = {topic.topic_id: (topic.appended, topic.appended_bytes) for topic in topics}
        for topic_id, (appended, appended_bytes) in now.items():
            before = (now if known is None else known).get(topic_id, (0, 0))
            messages += appended - before[0]
            of_bytes += appended_bytes - before[1]
        self._totals = now, messages, of_bytes
        return messages, of_bytes


class _Families:
    """A collector of what is there."""

    def __init__(self, families: list[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


@dataclass(frozen=True, slots=True)
class _Topic:
    """The figures of a topic, of all its partitions together."""

    topic_id: int
    name: str
    messages: int
    bytes: int
    appended: int
    appended_bytes: int
    trimmed: int
    stable: int
    held_back_messages: int
    held_back_bytes: int
    held_back_s: float
    short_messages: int
    oldest_open_s: float
    last_append_s: float


def _by_topic(moment: Moment) -> list[_Topic]:
    parts: dict[int, list[PartitionFigures]] = defaultdict(list)
    for part in moment.log.partitions:
        parts[part.topic_id].append(part)
    oldest: dict[int, int] = {}
    for blocker in reversed(moment.blockers):
        oldest[blocker.partition_id] = blocker.created_at_ms
    return [
        _topic(topic_id, name, parts[topic_id], oldest, moment.at_ms) for topic_id, name in moment.log.topics.items()
    ]


def _topic(topic_id: int, name: str, parts: Sequence[PartitionFigures], oldest: dict[int, int], now_ms: int) -> _Topic:
    began = [oldest[part.partition_id] for part in parts if part.partition_id in oldest]
    waits = [part.waits_since_us for part in parts if part.held_back_messages and part.waits_since_us is not None]
    return _Topic(
        topic_id,
        TopicName.parse(name).short,
        sum(part.messages - part.messages_trimmed for part in parts),
        sum(part.bytes - part.bytes_trimmed for part in parts),
        sum(part.messages for part in parts),
        sum(part.bytes for part in parts),
        sum(part.messages_trimmed for part in parts),
        sum(part.messages_before_stable for part in parts),
        sum(part.held_back_messages for part in parts),
        sum(part.held_back_bytes for part in parts),
        max(0.0, now_ms / 1000 - min(waits) / 1e6) if waits else 0.0,
        sum(part.short_messages for part in parts),
        _age(min(began, default=None), now_ms),
        max((part.last_publish_time_us for part in parts), default=0) / 1e6,
    )


def _of_topics(topics: Sequence[_Topic]) -> Iterator[Family]:
    for name, values in (
        ("messages", [t.messages for t in topics]),
        ("bytes", [t.bytes for t in topics]),
        ("appended_messages_total", [t.appended for t in topics]),
        ("appended_bytes_total", [t.appended_bytes for t in topics]),
        ("last_append_timestamp_seconds", [t.last_append_s for t in topics]),
        ("held_back_messages", [t.held_back_messages for t in topics]),
        ("held_back_bytes", [t.held_back_bytes for t in topics]),
        ("short_messages", [t.short_messages for t in topics]),
        ("held_back_seconds", [t.held_back_s for t in topics]),
        ("oldest_open_transaction_seconds", [t.oldest_open_s for t in topics]),
    ):
        yield family(f"txnlog_topic_{name}", [((t.name,), value) for t, value in zip(topics, values, strict=True)])
    bounds = [
        ((t.name, bound), value)
        for t in topics
        for bound, value in (
            ("log_start", t.trimmed),
            ("last_stable", t.stable),
            ("high_watermark", t.appended - t.short_messages),
            ("log_end", t.appended),
        )
    ]
    yield family("txnlog_topic_bound_messages", bounds)


def _of_subscriptions(found: Sequence[SubscriptionFigures], moment: Moment) -> Iterator[Family]:
    names = [
        (TopicName.parse(moment.log.topics[each.topic_id]).short, each.name, each.isolation_level.value)
        for each in found
    ]
    for name, values in (
        ("backlog_messages", [each.backlog for each in found]),
        ("backlog_seconds", [_waits_s(each, moment.at_ms) for each in found]),
        ("consumers", [each.consumers for each in found]),
        ("epoch", [each.epoch for each in found]),
        ("ignored_acknowledgements_total", [each.ignored_acknowledgements for each in found]),
    ):
        yield family(f"txnlog_subscription_{name}", zip(names, values, strict=True))


def _one(name: str, value: float) -> Family:
    return family(f"txnlog_{name}", [((), value)])


def _age(at_ms: int | None, now_ms: int) -> float:
    return 0.0 if at_ms is None else max(0.0, (now_ms - at_ms) / 1000)


def _waits_s(of: SubscriptionFigures, now_ms: int) -> float:
    since_us = of.waits_since_us()
    return 0.0 if since_us is None else max(0.0, now_ms / 1000 - since_us / 1e6)
