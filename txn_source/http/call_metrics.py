"""What is counted in memory while a service works: calls, refusals, the database's time, work in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from txn_source.http.metric_list import CALL_BUCKETS, METRICS
from txn_source.metadata.service.observer import OK
from txn_source.model.copies import Tier

_ACTIVE_S = 60.0
_MOST_PRODUCERS = 100_000


class CallMetrics(Collector):
    """An ``Observer`` that counts; safe in threads. A call costs it a few microseconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        self._clock = clock
        self._children: dict[tuple[str, ...], Any] = {}
        self._calls = self._made(Counter, "txnlog_calls_total")
        self._seconds = self._made(Histogram, "txnlog_call_seconds", buckets=CALL_BUCKETS)
        self._writes = self._made(Counter, "txnlog_writes_total")
        self._entries = self._made(Counter, "txnlog_appended_entries_total")
        self._timed_out = self._made(Counter, "txnlog_transactions_timed_out_total")
        self._database = self._made(Histogram, "txnlog_database_seconds", buckets=CALL_BUCKETS)
        self._reads = self._made(Counter, "txnlog_client_reads_total")
        self._fallbacks = self._made(Counter, "txnlog_client_fallbacks_total")
        for tier in Tier:  # from 0 on: a series that begins with its first fallback has no increase
            self.told({tier.value: 0}, {tier.value: 0})
        self._rounds = self._made(Counter, "txnlog_background_rounds_total")
        self._succeeded = self._made(Gauge, "txnlog_background_last_success_timestamp_seconds")
        self._producers: dict[int, float] = {}
        self._lock = threading.Lock()
        self._sources: list[Callable[[], Iterable[Family]]] = []
        self.registry.register(self)

    def _made(self, kind: Any, name: str, **more: Any) -> Any:
        metric = METRICS[name]
        return kind(name.removesuffix("_total"), metric.text, metric.labels, registry=self.registry, **more)

    # What an observer is told

    def called(self, name: str, seconds: float, code: str, request: Any, answer: Any) -> None:
        """Take notice of a call that has ended."""
        self._child(self._calls, name, code).inc()
        if name != "Consume":  # which lasts as long as its consumer
            self._child(self._seconds, name).observe(seconds)
        if request is not None and name in _WRITES:
            self._written(name, code, request, answer)

    def transacted(self, kind: str, seconds: float) -> None:
        """Take notice of a transaction of the database that has ended."""
        self._child(self._database, kind).observe(seconds)

    def timed_out(self, count: int) -> None:
        """Take notice of transactions that the service has aborted at their timeout."""
        self._timed_out.inc(count)

    def begins(self, task: str) -> None:
        """Take notice of work in the background whose rounds begin now: until one has succeeded, this is its time."""
        self._child(self._succeeded, task).set(time.time())

    def worked(self, task: str, error: BaseException | None) -> None:
        """Take notice of a round of work in the background."""
        self._child(self._rounds, task, OK if error is None else "failed").inc()
        if error is None:
            self._child(self._succeeded, task).set(time.time())

    def told(self, read: Mapping[str, int], left: Mapping[str, int]) -> None:
        """Take notice of how many ledgers a client says to have read, and how many copies it had to leave, by tier."""
        for metric, counts in ((self._reads, read), (self._fallbacks, left)):
            for tier, count in counts.items():
                self._child(metric, tier).inc(count)

    def _written(self, name: str, code: str, request: Any, answer: Any) -> None:
        now = self._clock()
        for number, (producers, entries) in enumerate(_WRITES[name](request)):
            came = code
            if name == "WriteAll" and answer is not None and number < len(answer.writes):
                written = answer.writes[number]
                came = written.error.code or OK if written.HasField("error") else OK
            self._child(self._writes, came).inc()
            self._entries.inc(entries)
            for producer_id in producers:
                self._producers[producer_id] = now
        if len(self._producers) > _MOST_PRODUCERS:
            self._drop_quiet(now)

    def _child(self, metric: Any, *labels: str) -> Any:
        """Return a series; a look-up of ours is quicker than the library's, which takes a lock."""
        key = (metric._name, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children.setdefault(key, metric.labels(*labels))
        return child

    # What is asked for

    def add(self, source: Callable[[], Iterable[Family]]) -> None:
        """Have more families collected at each scrape, from memory."""
        self._sources.append(source)

    def collect(self) -> Iterator[Family]:
        """Yield what isn't counted but looked at."""
        yield family("txnlog_active_producers", [((), self._drop_quiet(self._clock()))])
        for source in self._sources:
            yield from source()

    def text(self) -> bytes:
        """Return all of it in Prometheus's text format."""
        return generate_latest(self.registry)

    def _drop_quiet(self, now: float) -> int:
        """Forget the producers that write no more; return how many do."""
        with self._lock:
            for producer_id, at in self._producers.copy().items():
                if now - at > _ACTIVE_S:
                    self._producers.pop(producer_id, None)
            return len(self._producers)


def family(name: str, samples: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    """Return a metric of the list with its samples: values of its labels, and a figure."""
    metric = METRICS[name]
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    made = kind(name.removesuffix("_total"), metric.text, labels=metric.labels)
    for labels, value in samples:
        made.add_metric(labels, value)
    return made


Written = Iterable[tuple[Iterable[int], int]]
"""Of each write: the ids of its producers, and how many entries it has."""


def _append(request: Any) -> Written:
    return [((request.producer_id,), len(request.entries))]


def _transaction(request: Any) -> Written:
    return [([each.producer_id for each in request.appends], sum(len(each.entries) for each in request.appends))]


def _all(request: Any) -> Written:
    for write in request.writes:
        yield from _append(write.append) if write.HasField("append") else _transaction(write.transaction)


def _batch(request: Any) -> Written:
    return [((), sum(len(topic.entries) for topic in request.topics))]


def _import(request: Any) -> Written:
    return [([topic.producer_id for topic in request.topics], sum(len(each.entries) for each in request.writes))]


_WRITES: Mapping[str, Callable[[Any], Written]] = {
    "Append": _append,
    "WriteTransaction": _transaction,
    "WriteAll": _all,
    "CommitBatch": _batch,
    "ImportBatch": _import,
}
