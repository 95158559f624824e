"""Metrics of a service: what a scrape takes with many topics, finding their figures, and what calls pay for it."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import txn_source
from benchmarks.harness import Bench, Result, best_of
from txn_source.client.target import open_service
from txn_source.http.monitoring import Monitoring
from txn_source.metadata.service.server import Server
from txn_source.storage.object_root import root_at

SCRAPE_MS = 50.0
PARTITIONS = 5


def run(bench: Bench) -> Iterator[Result]:
    """Scrape a log with 1,000 topics of 5 partitions, each with series of its own; then flush with and without."""
    topics = bench.size(1000, 20)
    root = bench.folder / "log"
    with txn_source.connect(root) as log:
        for number in range(topics):
            log.create_topic(f"t{number}", partitions=PARTITIONS)
            log.create_subscription(f"t{number}", "s")
        for number in range(0, topics, 10):
            txn = log.begin_transaction(timeout=600)
            with log.producer(f"t{number}") as producer:
                producer.send(b"open", txn=txn)
                producer.flush()
                producer.send(b"behind")
    service = open_service(str(root), None)
    with ExitStack() as held:
        monitoring = Monitoring(service, root_at(root), "127.0.0.1", 0, max_topics=topics, refresh_s=3600)
        held.enter_context(Server(service, "127.0.0.1", 0, observer=monitoring.observer))
        held.enter_context(monitoring)
        [seconds] = best_of(bench.runs, monitoring.refresh)
        found = f"{topics} topics, {topics * PARTITIONS} partitions, {topics} subscriptions"
        yield Result("finding the figures of the log", seconds * 1000, "ms", None, found)
        port, times = monitoring.listener.port, []
        for _ in range(bench.size(50, 3)):
            began = time.perf_counter()
            size = _scrape(port)
            times.append((time.perf_counter() - began) * 1000)
        times.sort()
        detail = f"the slowest {times[-1]:.1f} ms, {size / 1e6:.2f} MB"
        yield Result("a scrape, p50", times[len(times) // 2], "ms", ("≤", SCRAPE_MS), detail)
    with ExitStack() as held:
        flushes = [held.enter_context(_flushes(bench, watch=watch)) for watch in (False, True)]
        plain, watched = best_of(4 * bench.runs, *flushes)
    yield Result("flushes with metrics against without", plain / watched, "×", ("≥", 0.97))


def _scrape(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/metrics")
        return len(connection.getresponse().read())
    finally:
        connection.close()


@contextmanager
def _flushes(bench: Bench, *, watch: bool) -> Iterator[Callable[[], None]]:
    """A function that flushes a message so many times through a service."""
    root = bench.folder / f"watched-{watch}"
    service = open_service(str(root), None, create=True)
    with ExitStack() as held:
        monitoring = Monitoring(service, root_at(root), "127.0.0.1", 0) if watch else None
        observer = None if monitoring is None else monitoring.observer
        server = held.enter_context(Server(service, "127.0.0.1", 0, observer=observer))
        if monitoring is not None:
            held.enter_context(monitoring)
        log = held.enter_context(txn_source.connect(endpoint=server.address))
        log.create_topic("t")
        producer = held.enter_context(log.producer("t"))

        def flush() -> None:
            for _ in range(bench.size(300, 5)):
                producer.send(b"a")
                producer.flush()

        yield flush
