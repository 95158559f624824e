"""Consumers of subscriptions: how fast they receive, how soon, and what idle ones cost the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np

import txn_source
from benchmarks.harness import Bench, Result, best_of
from benchmarks.scan import messages
from txn_source.client.connecting import connect
from txn_source.client.log import Log

_VALUE_BYTES = 1_000
_BATCH = 1_000
_PER_TRANSACTION = 10
_CLOCK_TICK = os.sysconf("SC_CLK_TCK")

_PRODUCER = """
import json, sys, time
import txn_source
endpoint, transactions, size, interval = sys.argv[1], *map(float, sys.argv[2:])
committed = []
with txn_source.connect(endpoint=endpoint) as log, log.producer("latency") as producer:
    producer.send("first")
    producer.flush()
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.time()
    for number in range(int(transactions)):
        time.sleep(max(0, begin + number * interval - time.time()))
        with log.begin_transaction() as txn:
            for _ in range(int(size)):
                producer.send(str(number), txn=txn)
        committed.append(time.time())
print(json.dumps(committed))
"""
_IDLERS = """
import sys
import txn_source
with txn_source.connect(endpoint=sys.argv[1]) as log:
    consumers = [log.subscribe(f"idle-{n % 10}", f"s{sys.argv[2]}-{n}") for n in range(int(sys.argv[3]))]
    print("ready", flush=True)
    sys.stdin.readline()
"""


def run(bench: Bench) -> Iterator[Result]:
    """Measure all of it."""
    with connect(bench.folder / "log") as log:
        yield from _rates(bench, log)
    with _server(bench.folder / "served") as (endpoint, pid), txn_source.connect(endpoint=endpoint) as log:
        yield from _latency(bench, log, endpoint)
        yield from _idle(bench, log, endpoint, pid)


def _rates(bench: Bench, log: Log) -> Iterator[Result]:
    total = bench.size(1_500_000, 4_000)
    batch = messages(_BATCH, _VALUE_BYTES)
    log.create_topic("t")
    with log.producer("t") as producer:
        for _ in range(total // _BATCH):
            producer.send_batch(batch)
    names = count()

    def received(*, acknowledge: bool) -> None:
        with log.subscribe("t", f"s{next(names)}", initial_position="earliest") as consumer:
            for _ in range(total):
                message = consumer.receive(10)
                assert message is not None
                if acknowledge:
                    consumer.acknowledge(message)

    def received_in_batches() -> None:
        left = total
        with log.subscribe("t", f"s{next(names)}", initial_position="earliest") as consumer:
            while left:
                batch = consumer.receive_batch(10)
                assert batch is not None
                left -= len(batch)
                consumer.acknowledge(batch)

    def scanned() -> None:
        for _ in log.scan("t"):
            pass

    plain, acknowledged, batches, scan = best_of(
        bench.runs,
        lambda: received(acknowledge=False),
        lambda: received(acknowledge=True),
        received_in_batches,
        scanned,
    )
    detail = f"{_VALUE_BYTES}-byte values, entries of {_BATCH:,}, hot"
    yield Result("receive", total / plain / 1e3, "k msg/s", ("≥", 200), detail)
    yield Result("receive and acknowledge each", total / acknowledged / 1e3, "k msg/s", None, detail)
    yield Result("receive_batch and acknowledge, against scan", scan / batches, "×", ("≥", 0.5), detail)


def _latency(bench: Bench, log: Log, endpoint: str) -> Iterator[Result]:
    """From the return of ``commit`` in one process to that of ``receive`` in another one."""
    transactions = bench.size(1_000, 20)
    interval = _PER_TRANSACTION / 1_000
    log.create_topic("latency")
    received = []
    command = [sys.executable, "-c", _PRODUCER, endpoint, str(transactions), str(_PER_TRANSACTION), str(interval)]
    with (
        log.subscribe("latency", "s") as consumer,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer,
    ):
        assert producer.stdout is not None
        assert producer.stdin is not None
        producer.stdout.readline()
        consumer.receive(10)  # the first message waits for what is imported with it
        producer.stdin.write("go\n")
        producer.stdin.flush()
        for _ in range(transactions * _PER_TRANSACTION):
            message = consumer.receive(10)
            received.append(time.time())
            assert message is not None
            consumer.acknowledge(message)
        committed = json.loads(producer.stdout.readline())
    took = (np.array(received) - np.repeat(committed, _PER_TRANSACTION)) * 1_000
    detail = f"1,000 messages/s in transactions of {_PER_TRANSACTION}, over loopback, after the commit's return"
    for percent, target in ((50, 5), (99, 25)):
        yield Result(f"delivery latency, p{percent}", float(np.percentile(took, percent)), "ms", ("≤", target), detail)


def _idle(bench: Bench, log: Log, endpoint: str, pid: int) -> Iterator[Result]:
    consumers, seconds = bench.size(1_000, 20), bench.seconds(20)
    for number in range(10):
        log.create_topic(f"idle-{number}")
    holders = []
    try:
        for number in range(2):
            command = [sys.executable, "-c", _IDLERS, endpoint, str(number), str(consumers // 2)]
            holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            holders.append(holder)
        for holder in holders:
            assert holder.stdout is not None
            assert holder.stdout.readline(), "the idle consumers couldn't subscribe"
        before = _cpu_seconds(pid)
        time.sleep(seconds)
        share = (_cpu_seconds(pid) - before) / seconds * 100
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()
    detail = f"the service's CPU time over {seconds} s; leases are renewed meanwhile"
    yield Result(f"{consumers:,} idle consumers", share, "% of a core", ("≤", 5), detail)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICK


@contextmanager
def _server(root: Path) -> Iterator[tuple[str, int]]:
    """A metadata service in a process of its own: its endpoint and process id."""
    connect(root).close()
    code = (
        "import sys\n"
        "from txn_source.client.target import Target\n"
        "from txn_source.metadata.service.server import Server\n"
        "with Server(Target.of(sys.argv[1], None).service(), '127.0.0.1', 0) as server:\n"
        "    print(server.address, flush=True)\n"
        "    server.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.kill()
