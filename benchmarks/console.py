"""The console with many topics: how long its pages wait, and what producers pay while somebody looks."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import txn_source
from benchmarks.harness import Bench, Result, best_of
from txn_source.cli.serve import settled
from txn_source.client.target import open_service
from txn_source.console.serving import Console
from txn_source.metadata.service.server import Server
from txn_source.storage.object_root import root_at

OVERVIEW_MS = 300.0
PARTITIONS = 5
PAGES = {
    "overview": "overview",
    "topics, first page": "topics?limit=100&sort=messages&descending=1",
    "who blocks whom": "blockers",
    "partitions with strips, 100": "partitions?limit=100",
    "subscriptions, first page": "subscriptions?limit=100&sort=backlog&descending=1",
    "messages of a topic, the last 50": "messages?topic=t0&limit=50",
}
_POLLS_S = 2.0


def run(bench: Bench) -> Iterator[Result]:
    """Ask for each page of a log with 1,000 topics of 5 partitions; then flush with and without somebody who looks."""
    topics = bench.size(1000, 20)
    root = bench.folder / "log"
    with txn_source.connect(root) as log:
        for number in range(topics):
            log.create_topic(f"t{number}", partitions=PARTITIONS)
            log.create_subscription(f"t{number}", "s", initial_position="earliest")
        for number in range(0, topics, 10):
            with log.producer(f"t{number}") as producer:
                for _ in range(20):
                    producer.send(b"message" * 10)
                producer.flush()
                producer.send(b"open", txn=log.begin_transaction(timeout=900))
                producer.flush()
                producer.send(b"behind")
    service = open_service(str(root), None)
    with ExitStack() as held:
        held.callback(service.close)
        console = held.enter_context(Console(service, root_at(root), "127.0.0.1", 0))
        held.enter_context(settled())
        found = f"{topics} topics, {topics * PARTITIONS} partitions, {topics} subscriptions, {topics // 10} open"
        for what, path in PAGES.items():
            times = []
            for _ in range(bench.size(15, 2)):
                console.snapshots.forget()
                began = time.perf_counter()
                size = _get(console.listener.port, path)
                times.append((time.perf_counter() - began) * 1000)
            times.sort()
            target = ("≤", OVERVIEW_MS) if what == "overview" else None
            detail = f"{found}; the slowest {times[-1]:.0f} ms, {size / 1e3:.1f} kB"
            yield Result(f"{what}, p50", times[len(times) // 2], "ms", target, detail)
    with ExitStack() as held:
        flushes = [held.enter_context(_flushes(bench, looked_at=looked_at)) for looked_at in (False, True)]
        alone, watched = best_of(2 * bench.runs, *flushes)
    yield Result("flushes while the console is looked at against without", alone / watched, "×", ("≥", 0.95))


def _get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", f"/api/{path}")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {body[:300]!r}")
        return len(body)
    finally:
        connection.close()


@contextmanager
def _flushes(bench: Bench, *, looked_at: bool) -> Iterator[Callable[[], None]]:
    """A function that flushes a message so many times through a service whose console somebody looks at, or nobody."""
    root = bench.folder / f"looked-at-{looked_at}"
    service = open_service(str(root), None, create=True)
    ended = threading.Event()
    with ExitStack() as held:
        server = held.enter_context(Server(service, "127.0.0.1", 0))
        log = held.enter_context(txn_source.connect(endpoint=server.address))
        for number in range(bench.size(200, 2)):
            log.create_topic(f"t{number}", partitions=PARTITIONS)
        producer = held.enter_context(log.producer("t0"))
        if looked_at:
            console = held.enter_context(Console(service, root_at(root), "127.0.0.1", 0))
            viewer = threading.Thread(target=_look, args=(console.listener.port, ended))
            viewer.start()
            held.callback(viewer.join)
            held.callback(ended.set)

        def flush() -> None:
            for _ in range(bench.size(600, 5)):
                producer.send(b"a")
                producer.flush()

        yield flush


def _look(port: int, ended: threading.Event) -> None:
    """Look at two pages as a browser does, every two seconds."""
    while not ended.wait(_POLLS_S):
        for path in ("overview", "partitions?topic=t0"):
            _get(port, path)
