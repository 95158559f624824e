"""Consumers by the thousand: what idle ones cost a service, and how soon and how evenly busy ones get their messages.

Real ``txnlog serve`` processes over SQLite and over PostgreSQL. Two other processes hold the conversations of the
consumers, over asyncio, since as many threads would cost more than what is measured; nobody reads the messages. Each
delivery is acknowledged at once. ``exclusive``: each consumer has a subscription of its own, all of one topic, and gets
every message. ``shared``: all of them have the same one. Of two services each has a half of the consumers.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np

import txn_source
from benchmarks.harness import Bench, Result
from benchmarks.services import Service, postgres, services
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.stub.transport import SERVICE_NAME

_PERMITS = 1_000
_AT_ONCE = 32
"""So many consumers of a process subscribe at a time."""
_CLOCK_TICK = os.sysconf("SC_CLK_TCK")
_WAIT_S = 120.0


def run(bench: Bench) -> Iterator[Result]:
    """Measure one service over both databases, and two over PostgreSQL."""
    yield from _measured(bench, "1 service over SQLite", [None])
    with postgres() as server:
        if server is None:
            return
        for number in (1, 2):
            server.psql(f"CREATE DATABASE consumers{number}")
            url = server.get_uri(database=f"consumers{number}")
            yield from _measured(bench, f"{number} service{'s'[: number - 1]} over PostgreSQL", [url] * number)


def _measured(bench: Bench, what: str, databases: Sequence[str | None]) -> Iterator[Result]:
    consumers = bench.size(2_000, 20)
    with services(bench.folder / what.replace(" ", "-"), databases) as running:
        before = [_Use.of(service) for service in running]
        with txn_source.connect(endpoint=running[0].address) as log:
            for kind in ("exclusive", "shared"):
                log.create_topic(kind)
                with _Clients(running, kind, consumers) as clients:
                    name = f"{consumers:,} {kind}, {what}"
                    if kind == "exclusive":
                        yield from _idle(name, running, before, consumers, bench.seconds(20))
                    with log.producer(kind) as producer:
                        send = _Sender(producer)
                        measure = _exclusive if kind == "exclusive" else _shared
                        yield from measure(bench, name, running, clients, send)


def _idle(
    name: str, running: Sequence[Service], before: Sequence[_Use], consumers: int, seconds: float
) -> Iterator[Result]:
    """What they cost while there is nothing to deliver; leases are renewed meanwhile."""
    first = [_Use.of(service) for service in running]
    time.sleep(seconds)
    last = [_Use.of(service) for service in running]
    share = sum(b.cpu_s - a.cpu_s for a, b in zip(first, last, strict=True)) / seconds * 100
    memory = sum(b.kilobytes - a.kilobytes for a, b in zip(before, last, strict=True)) / consumers
    threads = sum(b.threads - a.threads for a, b in zip(before, last, strict=True)) / consumers
    detail = f"all services together; {memory:.0f} kB and {threads:.1f} threads for each consumer"
    yield Result(f"{name}: idle", share, "% of a core", None, detail)


def _exclusive(
    bench: Bench, name: str, running: Sequence[Service], clients: _Clients, send: _Sender
) -> Iterator[Result]:
    """One message at a time, each when all have the one before; then many as fast as they can be written."""
    all_of_them = clients.consumers
    last, middle = [], []
    before = _cpu_s(running)
    rounds = bench.size(10, 2)
    for _ in range(rounds):
        sent = send()
        waits = np.array([at - sent for _, at, _, _ in clients.delivered(all_of_them)]) * 1_000
        last.append(waits.max())
        middle.append(np.median(waits))
    each = (_cpu_s(running) - before) / rounds / all_of_them * 1e6
    detail = f"half of them after {np.median(middle):.0f} ms; {each:.0f} µs of the services' CPU for each, acknowledged"
    yield Result(f"{name}: one message to all", float(np.median(last)), "ms", None, detail)
    messages = bench.size(50, 5)
    began = time.time()
    for _ in range(messages):
        send()
    clients.delivered(messages * all_of_them)
    rate = messages * all_of_them / (time.time() - began)
    yield Result(f"{name}: messages delivered and acknowledged", rate / 1e3, "k/s", None, f"{messages} in a row")


def _shared(bench: Bench, name: str, running: Sequence[Service], clients: _Clients, send: _Sender) -> Iterator[Result]:
    """One message after the other, as fast as they can be written; who gets how many, and how soon."""
    seconds = bench.seconds(20)
    before, began = _cpu_s(running), time.time()
    sent = []
    while time.time() < began + seconds:
        sent.append(send())
    found = clients.delivered(len(sent))
    took = time.time() - began
    each = (_cpu_s(running) - before) / len(sent) * 1e3
    in_order = sorted(found, key=lambda delivery: delivery[2])
    arrived = [at for _, at, _, messages in in_order for _ in range(messages)]
    p50, p99 = np.percentile((np.array(arrived) - np.array(sent)) * 1_000, (50, 99))
    shares = Counter[int]()
    for consumer, _, _, messages in found:
        shares[consumer] += messages
    counts = [shares[number] for number in range(clients.consumers)]
    detail = (
        f"after the write: p50 {p50:.0f} ms, p99 {p99:.0f} ms; each consumer got {min(counts)} to {max(counts)};"
        f" {each:.1f} ms of the services' CPU for each message, its write included"
    )
    yield Result(f"{name}: messages", len(sent) / took, "/s", None, detail)


class _Sender:
    """Writes a message, and returns when that was answered."""

    def __init__(self, producer: txn_source.Producer) -> None:
        self._producer = producer

    def __call__(self) -> float:
        self._producer.send(b"x" * 100)
        self._producer.flush()
        return time.time()


class _Use(NamedTuple):
    """What a service has used so far, and has now."""

    cpu_s: float
    kilobytes: int
    threads: int

    @classmethod
    def of(cls, service: Service) -> _Use:
        of_process = Path(f"/proc/{service.pid}")
        fields = (of_process / "stat").read_text().rsplit(")", 1)[1].split()
        status = dict(line.split(":", 1) for line in (of_process / "status").read_text().splitlines())
        cpu_s = (int(fields[11]) + int(fields[12])) / _CLOCK_TICK
        return cls(cpu_s, int(status["VmRSS"].split()[0]), int(status["Threads"]))


def _cpu_s(running: Sequence[Service]) -> float:
    return sum(_Use.of(service).cpu_s for service in running)


_Delivered = tuple[int, float, int, int]
"""Which consumer got it and when, where it begins, and its messages."""


class _Clients:
    """The processes that hold the consumers."""

    def __init__(self, running: Sequence[Service], kind: str, consumers: int) -> None:
        self.consumers = consumers
        command = [sys.executable, "-m", "benchmarks.consumers", kind]
        self._processes = []
        for number in range(2):
            endpoint, share = running[number % len(running)].address, range(number, consumers, 2)
            arguments = [endpoint, str(share.start), str(share.stop), str(share.step)]
            self._processes.append(
                subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )

    def __enter__(self) -> _Clients:
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "the consumers couldn't subscribe"
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def delivered(self, messages: int) -> list[_Delivered]:
        """Return the deliveries of so many messages, when all of them are there and acknowledged."""
        found: list[_Delivered] = []
        until = time.monotonic() + _WAIT_S
        while sum(delivery[3] for delivery in found) < messages:
            assert time.monotonic() < until, "messages are missing"
            for process in self._processes:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("tell\n")
                process.stdin.flush()
                found += [tuple(delivery) for delivery in json.loads(process.stdout.readline())]
            time.sleep(0.01)
        return found


class _Consumers:
    """The consumers of one process."""

    def __init__(self, endpoint: str, kind: str) -> None:
        channel = grpc.aio.insecure_channel(endpoint)
        self._consume: Callable[[], Any] = channel.stream_stream(
            f"/{SERVICE_NAME}/Consume",
            request_serializer=pb.ConsumeRequest.SerializeToString,
            response_deserializer=pb.ConsumeResponse.FromString,
        )
        self._kind = kind
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self.acknowledged: list[_Delivered] = []

    async def subscribe(self, number: int) -> Callable[[], Any]:
        """Connect one; return what consumes for it until the connection ends."""
        shared = self._kind == "shared"
        kind = pb.SUBSCRIPTION_TYPE_SHARED if shared else pb.SUBSCRIPTION_TYPE_EXCLUSIVE
        request = pb.ConsumeRequest.Subscribe(
            topic=self._kind,
            name="s" if shared else f"s{number}",
            type=kind,
            isolation_level=pb.ISOLATION_LEVEL_READ_COMMITTED,
            durable=True,
            place=pb.SubscriptionPlace(where=pb.TOPIC_END_LATEST),
            consumer_name=f"c{number}",
            token=f"{os.getpid()}-{number}",
        )
        async with self._turn:
            call = self._consume()
            await call.write(pb.ConsumeRequest(subscribe=request))
            subscribed = (await call.read()).subscribed
            await call.write(_flow(_PERMITS))
        return lambda: self._hold(number, call, subscribed)

    async def _hold(self, number: int, call: Any, subscribed: pb.ConsumeResponse.Subscribed) -> None:
        waiting: dict[int, _Delivered] = {}
        sequences = count(1)
        of = {"subscription_id": subscribed.subscription_id, "consumer_id": subscribed.consumer_id}
        while (response := await call.read()) is not grpc.aio.EOF:
            if response.HasField("delivery"):
                delivery = response.delivery
                sequence = next(sequences)
                waiting[sequence] = (number, time.time(), delivery.start, delivery.messages)
                part = pb.Acknowledgements(partition_id=delivery.partition_id, ranges=delivery.wanted)
                ack = pb.SubscriptionAcknowledgements(**of, epoch=delivery.epoch, partitions=[part])
                await call.write(pb.ConsumeRequest(sequence=sequence, acknowledge=ack))
                await call.write(_flow(delivery.messages))
            elif response.HasField("receipt") and not response.receipt.HasField("error"):
                self.acknowledged.append(waiting.pop(response.receipt.sequence))


def _flow(messages: int) -> pb.ConsumeRequest:
    return pb.ConsumeRequest(flow=pb.ConsumeRequest.Flow(epoch=0, messages=messages))


async def _hold(kind: str, endpoint: str, *numbers: str) -> None:
    consumers = _Consumers(endpoint, kind)
    begun = await asyncio.gather(*(consumers.subscribe(number) for number in range(*map(int, numbers))))
    tasks = [asyncio.create_task(consume()) for consume in begun]
    print("ready", flush=True)
    while await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
        assert not any(task.done() for task in tasks), "a conversation has ended"
        told, consumers.acknowledged = consumers.acknowledged, []
        print(json.dumps(told), flush=True)


if __name__ == "__main__":  # a process of consumers: KIND ENDPOINT START STOP STEP
    asyncio.run(_hold(*sys.argv[1:]))
