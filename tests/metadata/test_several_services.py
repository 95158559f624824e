"""Several services over one database: clients go on with another one, and what one of them does counts for all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import BY_HAND, UNCOMMITTED, values
from tests.log.sites import Site
from tests.selection import for_each
from txn_source import InvalidArgumentError, Log, UnavailableError, connect
from txn_source.metadata.stub import grpc_transport
from txn_source.metadata.stub.grpc_transport import GrpcTransport

WAIT_S = 60.0


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    """Two services of one log, over one PostgreSQL database."""
    with Site("postgres", tmp_path / "log") as one, Site.beside(one) as other:
        yield one, other


def endpoints(*sites: Site) -> str:
    return ",".join(site.endpoint for site in sites)


def test_clients_go_on_with_another_service(two: tuple[Site, Site]) -> None:
    """Write transactions while the services are stopped and started in turn: each counts once."""
    with connect(endpoint=endpoints(*two)) as log:
        log.create_topic("t")
        producer = log.producer("t", batching=BY_HAND)
        number = 0
        for stopped in (0, 1, 0):
            port = int(two[stopped].endpoint.rpartition(":")[2])
            two[stopped].stop_server()
            for _ in range(5):
                with log.begin_transaction() as txn:
                    producer.send(b"%d" % number, txn=txn)
                number += 1
            two[stopped].start_server(port)
        producer.close()
        assert values(log, "t") == [b"%d" % n for n in range(number)]


def test_nobody_there_is_told_after_all_were_tried(two: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop both."""
    monkeypatch.setattr(grpc_transport, "_ROUNDS_S", (0.0,))
    with connect(endpoint=endpoints(*two), timeout=60) as log:
        for site in two:
            site.stop_server()
        with pytest.raises(UnavailableError, match="can't be reached"):
            log.topics()


def test_processes_are_spread(two: tuple[Site, Site]) -> None:
    """Open twenty connections: some begin at each of the two."""
    firsts = set()
    for _ in range(20):
        with connect(endpoint=endpoints(*two)) as log:
            transport = log.metadata._transport
            assert isinstance(transport, GrpcTransport)
            firsts.add(transport._current)
    assert firsts == {0, 1}


def test_services_of_different_logs_are_refused(
    two: tuple[Site, Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name two logs by mistake: nothing goes to the second one."""
    monkeypatch.setattr("random.randrange", lambda _: 0)
    with Site("remote", tmp_path / "another") as another:
        with connect(endpoint=endpoints(two[0], another)) as log:
            log.create_topic("t")
            two[0].stop_server()
            with pytest.raises(InvalidArgumentError, match="are of different logs"):
                log.create_topic("u")
        assert another.connect().topics() == []


@pytest.mark.usefixtures("impatient")
def test_service_of_another_log_at_the_same_address_is_not_taken_for_the_first(tmp_path: Path) -> None:
    """Stop a service, and start another log's on its port: no call of the client reaches that log."""
    one, two = (Site("remote", tmp_path / name) for name in ("log", "another"))
    with one as site, two as another, site.connect() as log:
        log.create_topic("t")
        with another.connect() as other:
            other.create_topic("t")
        producer = log.producer("t", batching=BY_HAND)
        port = int(site.endpoint.rpartition(":")[2])
        site.stop_server()
        another.stop_server()
        another.start_server(port)
        producer.send(b"deposit")
        with pytest.raises(UnavailableError, match="has another log now"):
            producer.flush()
        with pytest.raises(UnavailableError, match="has another log now"):
            log.subscribe("t", "s")
        with pytest.raises(UnavailableError, match="has another log now"):
            log.metadata.get_log()
        with another.connect() as other:
            assert values(other, "t") == []
        another.stop_server()
        site.start_server(port)
        producer.close()
        assert values(log, "t") == [b"deposit"]


NO_PORTS = ["", "a", "a:", "a:x", "a:0", "a:70000", ":5", "a:1,b", "a:1,,b:2", "a:1, "]
BAD_ENDPOINTS = [(text, "endpoint.*host:port") for text in NO_PORTS] + [
    ("http://a:1", 'Write it as "host:port", without "http://"'),
    (",".join(f"a:{n}" for n in range(1, 19)), "endpoint"),
]


@for_each(("endpoint", "said"), BAD_ENDPOINTS)
def test_bad_endpoints_are_refused(endpoint: str, said: str) -> None:
    """Connect to what is no ``host:port``, and to lists that can't be."""
    with pytest.raises(InvalidArgumentError, match=said):
        connect(endpoint=endpoint)


def test_consumer_goes_on_with_another_service(two: tuple[Site, Site]) -> None:
    """Stop the service that a consumer is connected to: it receives and acknowledges by way of the other one."""
    with connect(endpoint=endpoints(*two)) as log:
        log.create_topic("t")
        with log.producer("t") as producer, log.subscribe("t", "s", initial_position="earliest") as consumer:
            for number in range(4):
                producer.send(b"%d" % number)
                producer.flush()
                value = b""
                while value != b"%d" % number:  # what wasn't acknowledged when the connection was lost comes again
                    message = consumer.receive(timeout=WAIT_S)
                    assert message is not None
                    consumer.acknowledge(message)
                    value = message.value
                if number == 1:
                    two[0].stop_server()
        assert log.stats("t").subscriptions["s"].backlog == 0


@pytest.mark.long
def test_shared_consumers_at_different_services_get_their_share(two: tuple[Site, Site]) -> None:
    """Connect one consumer at each service, and write at the first: both get some, and all acknowledgements count.

    A consumer that has one message waits for the other one's first: however late that is, not all fits into one queue.
    """
    logs = [site.connect() for site in two]
    logs[0].create_topic("t", partitions=4)
    options: dict[str, Any] = {"type": "shared", "initial_position": "earliest", "queue_size": 50}
    consumers = [log.subscribe("t", "s", **options) for log in logs]
    received: list[list[bytes]] = [[], []]
    done, first = threading.Event(), (threading.Event(), threading.Event())

    def receive(number: int) -> None:
        while not done.is_set():
            message = consumers[number].receive(timeout=0.2)
            if message is not None:
                received[number].append(message.value)
                consumers[number].acknowledge(message)
                first[number].set()
                first[1 - number].wait(WAIT_S)
                if sum(map(len, received)) >= 400:
                    done.set()

    threads = [threading.Thread(target=receive, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    with logs[0].producer("t", batching=BY_HAND) as producer:
        for number in range(400):
            producer.send(b"%d" % number, partition=number % 4)
            if number % 10 == 9:
                producer.flush()
    assert done.wait(WAIT_S)
    for thread in threads:
        thread.join()
    for consumer in consumers:
        consumer.close()
    assert sorted(map(int, received[0] + received[1])) == list(range(400))
    assert min(map(len, received)) > 0
    assert logs[1].stats("t").subscriptions["s"].backlog == 0
    assert len(values(logs[1], "t", UNCOMMITTED)) == 400


def test_exclusive_subscription_has_one_consumer_wherever_it_is(two: tuple[Site, Site]) -> None:
    """Let consumers subscribe through both services at once: one of them is refused."""
    logs = [site.connect() for site in two]
    logs[0].create_topic("t")
    logs[0].create_subscription("t", "s")
    begun = threading.Barrier(2)
    outcomes: list[str] = []

    def subscribe(log: Log) -> None:
        begun.wait(WAIT_S)
        try:
            consumer = log.subscribe("t", "s")
        except Exception as error:
            outcomes.append(getattr(error, "code", repr(error)))
        else:
            outcomes.append("connected")
            begun.wait(WAIT_S)
            consumer.close()
            return
        begun.wait(WAIT_S)

    threads = [threading.Thread(target=subscribe, args=(log,)) for log in logs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["SUBSCRIPTION_BUSY", "connected"]
