"""The server and the way to it: health, taken ports, graceful stop, and what answers when it isn't there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc._cython import cygrpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.log.reading import eventually
from tests.log.sites import Site, give_up_after, service_over
from txn_source import InternalError, InvalidArgumentError, LogNotFoundError, UnavailableError, connect
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.consumer_hub import MAX_CONSUMERS
from txn_source.metadata.service import server as server_module
from txn_source.metadata.service.ports import allow_files, most_connections
from txn_source.metadata.service.server import Server
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.stub.transport import SERVICE_NAME
from txn_source.storage.root import LogRoot


def test_health_is_not_watched(remote_site: Site) -> None:
    """Watch the health, which would occupy a thread: the call is refused, and clients poll instead."""
    with grpc.insecure_channel(remote_site.endpoint) as channel, pytest.raises(grpc.RpcError) as caught:
        next(health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60))
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_health_is_that_of_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what reaches the database each second fail, and then succeed again: the health says so."""
    failure: list[Exception] = []

    def fail() -> None:
        if failure:
            raise failure[0]

    connect(tmp_path / "log").close()
    service = service_over(tmp_path / "log")
    monkeypatch.setattr(service, "maintain", fail)
    monkeypatch.setattr(server_module, "_MAINTENANCE_INTERVAL_S", 0.005)
    with Server(service, "127.0.0.1", 0) as server, grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        def says(status: int) -> Callable[[], bool]:
            return lambda: stub.Check(health_pb2.HealthCheckRequest(service=SERVICE_NAME)).status == status

        for error in (UnavailableError("The database is gone.", "Wait."), RuntimeError("a bug")):
            eventually(says(health_pb2.HealthCheckResponse.SERVING))
            failure.append(error)
            eventually(says(health_pb2.HealthCheckResponse.NOT_SERVING))
            failure.clear()
        eventually(says(health_pb2.HealthCheckResponse.SERVING))


def test_taken_port_is_refused_by_its_number(remote_site: Site) -> None:
    """Bind a second server to the port of the first, which serves on."""
    port = remote_site.server.port
    with pytest.raises(UnavailableError, match=rf"can't listen on 127\.0\.0\.1:{port}.*another port"):
        Server(service_over(remote_site.root), "127.0.0.1", port)
    assert remote_site.connect().topics() == []


class Gated:
    """A service whose ``ListTopics`` waits until it is let through."""

    def __init__(self, service: MetadataService) -> None:
        self._service = service
        self.entered, self.gate = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def call(self, name: str, request: Any) -> Any:
        if name == "ListTopics":
            self.entered.set()
            assert self.gate.wait(30)
        return self._service.call(name, request)


def test_call_under_way_is_finished_before_the_server_stops(tmp_path: Path) -> None:
    """Stop while a call waits in the service; let it go on, and it is answered."""
    connect(tmp_path / "log").close()
    service = Gated(service_over(tmp_path / "log"))
    server = Server(service, "127.0.0.1", 0).start()  # type: ignore[arg-type]
    with connect(endpoint=server.address) as log, futures.ThreadPoolExecutor(2) as threads:
        log.create_topic("orders")
        answer = threads.submit(log.topics)
        assert service.entered.wait(30)
        stopped = threads.submit(server.stop, 30.0)
        service.gate.set()
        assert answer.result(30) == ["orders"]
        stopped.result(30)
    server.stop()


def test_server_can_be_stopped_before_it_is_started(tmp_path: Path) -> None:
    """Bind, then stop at once, twice."""
    connect(tmp_path / "log").close()
    server = Server(service_over(tmp_path / "log"), "127.0.0.1", 0)
    server.stop()
    server.stop()


def test_connection_survives_a_restart_of_the_server(remote_site: Site) -> None:
    """Stop and start the server on its port; the same log object goes on."""
    log = remote_site.connect()
    log.create_topic("orders")
    port = remote_site.server.port
    remote_site.stop_server()
    remote_site.start_server(port)

    def listed() -> bool:
        try:
            return log.topics() == ["orders"]
        except UnavailableError:
            return False

    eventually(listed)


@pytest.fixture
def small_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A service that takes two consumers, and has eighteen threads."""
    monkeypatch.setattr("txn_source.metadata.service.server.MAX_CONSUMERS", 2)
    monkeypatch.setattr("txn_source.metadata.delivery.consumer_hub.MAX_CONSUMERS", 2)
    connect(tmp_path / "log").close()
    with Server(service_over(tmp_path / "log"), "127.0.0.1", 0) as server:
        yield server


class Silent:
    """Calls that never send their message, until the block is left."""

    def __init__(self, server: Server) -> None:
        self.channel = grpc.insecure_channel(server.address)
        self._gate = threading.Event()
        self._calls: list[Any] = []

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        self._gate.set()
        self.channel.close()

    def begin(self, name: str, count: int) -> None:
        kind = self.channel.stream_stream if name == "Consume" else self.channel.stream_unary
        call: Any = kind(f"/{SERVICE_NAME}/{name}")
        self._calls += [(call if name == "Consume" else call.future)(self._never()) for _ in range(count)]

    def _never(self) -> Iterator[bytes]:
        self._gate.wait(300)
        yield from ()


def test_consumers_beyond_the_limit_are_refused(small_server: Server) -> None:
    """Begin conversations that say nothing, which count for nothing; then connect two consumers: one more is refused,
    calls are answered, and a consumer that goes makes room."""
    with Silent(small_server) as silent, connect(endpoint=small_server.address) as log:
        silent.begin("Consume", 5)
        log.create_topic("t")
        consumers = [log.subscribe("t", f"s{number}") for number in range(2)]
        consume = silent.channel.stream_stream(f"/{SERVICE_NAME}/Consume")

        def refusal() -> str:
            with pytest.raises(grpc.RpcError) as caught:
                list(consume(iter([b""])))
            return str(caught.value.details())

        assert "[TXNLOG_UNAVAILABLE] This service has 2 consumers connected" in refusal()
        assert log.topics() == ["t"]
        consumers.pop().close()
        eventually(lambda: "2 consumers" not in refusal())
        consumers.pop().close()


def test_silent_connections_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use up all connections, and say nothing on them: they are closed, and a client finds room."""
    monkeypatch.setattr(server_module, "_HANDSHAKE_MS", 300)
    monkeypatch.setattr(server_module, "most_connections", lambda: 8)
    connect(tmp_path / "log").close()
    with Server(service_over(tmp_path / "log"), "127.0.0.1", 0) as server, ExitStack() as held:
        for _ in range(20):
            held.enter_context(closing(socket.create_connection(("127.0.0.1", server.port))))
        with connect(endpoint=server.address, timeout=20) as log:
            assert log.topics() == []


def test_calls_of_one_caller_that_send_no_message_leave_threads_to_others(
    small_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begin more than one caller may: the others of them are refused at once, and threads are left."""
    monkeypatch.setattr("txn_source.metadata.service.first_messages._OF_ONE", 4)
    monkeypatch.setattr("txn_source.metadata.service.first_messages._PATIENCE_S", 600)
    monkeypatch.setattr(server_module, "place_of", lambda peer: peer)  # a connection stands for an address
    with Silent(small_server) as silent, connect(endpoint=small_server.address, timeout=20) as log:
        silent.begin("GetLog", 40)
        assert log.topics() == []


@pytest.mark.long
def test_ten_thousand_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    """Hold 10,000 connections that say nothing, and as many calls as there are threads that send no request."""
    allow_files()
    each = min(10_000, most_connections())
    connect(tmp_path / "log").close()
    with Server(service_over(tmp_path / "log"), "127.0.0.1", 0) as server, ExitStack() as held:
        silent = held.enter_context(Silent(server))
        silent.begin("GetLog", MAX_CONSUMERS + 16)
        for _ in range(each // 2):  # this process has both ends
            held.enter_context(closing(socket.create_connection(("127.0.0.1", server.port))))
        with connect(endpoint=server.address, timeout=30) as log:
            assert log.topics() == []


def test_calls_that_send_no_message_keep_nobody_out(
    small_server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Begin more than there are threads, and send nothing: others are answered."""
    monkeypatch.setattr("txn_source.metadata.service.first_messages._MANY", 4)
    monkeypatch.setattr("txn_source.metadata.service.first_messages._SHORT_S", 0.1)
    with Silent(small_server) as silent, caplog.at_level("ERROR"):
        silent.begin("GetLog", 20)
        silent.begin("Consume", 20)
        with connect(endpoint=small_server.address, timeout=20) as log:
            assert log.topics() == []
    assert not caplog.records


@contextmanager
def _listener() -> Iterator[str]:
    """Something that accepts connections and never says a word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as sock:
        yield f"127.0.0.1:{sock.getsockname()[1]}"


def test_service_that_is_down_is_named(tmp_path: Path) -> None:
    """Connect to a port on which nothing listens."""
    with closing(socket.socket()) as bound:  # so that nobody else gets it
        bound.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=rf"^\[TXNLOG_UNAVAILABLE\] .*{endpoint} .*txnlog serve"):
            connect(endpoint=endpoint, timeout=0.3)


def test_service_that_hangs_is_given_up_at_the_deadline() -> None:
    """Connect to what accepts and is silent."""
    with _listener() as endpoint, pytest.raises(UnavailableError, match=rf"{endpoint} didn't answer within 0.2 s"):
        connect(endpoint=endpoint, timeout=0.2)


def test_call_that_hangs_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    """Connect in time, then let a call wait in the service for longer than the deadline."""
    connect(tmp_path / "log").close()
    service = Gated(service_over(tmp_path / "log"))
    with Server(service, "127.0.0.1", 0) as server, connect(endpoint=server.address) as log:  # type: ignore[arg-type]
        give_up_after(log, 0.2)
        with pytest.raises(UnavailableError, match=rf"{server.address} didn't answer within 0.2 s"):
            log.topics()
        service.gate.set()


def test_wrong_service_is_recognized() -> None:
    """Connect to a gRPC server that has other services."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with pytest.raises(InternalError, match=rf"127\.0\.0\.1:{port} is not this release's metadata service"):
            connect(endpoint=f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()


def test_client_that_can_not_reach_the_segments_is_told(tmp_path: Path) -> None:
    """Serve a log whose segments lie at a path that this machine doesn't have."""
    connect(tmp_path / "log").close()
    service = MetadataService(open_database(LogRoot.at(tmp_path / "log").database_url), str(tmp_path / "elsewhere"))
    with (
        Server(service, "127.0.0.1", 0) as server,
        pytest.raises(LogNotFoundError, match=rf"{server.address} lies at {tmp_path}/elsewhere"),
    ):
        connect(endpoint=server.address)


def test_server_over_an_empty_database_finds_no_log(tmp_path: Path) -> None:
    """Serve a database without tables."""
    service = MetadataService(open_database(f"sqlite:///{tmp_path}/metadata.db"), str(tmp_path))
    with pytest.raises(LogNotFoundError, match="no log in it"):
        service.call("GetLog", pb.GetLogRequest())
    service.close()


@pytest.mark.parametrize("timeout", [0, -1])
def test_timeout_must_be_positive(timeout: float) -> None:
    """Connect with a deadline that has passed."""
    with pytest.raises(InvalidArgumentError, match="timeout"):
        connect(endpoint="localhost:6650", timeout=timeout)


def test_options_are_ones_that_grpc_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for the name of each option of servers and channels in gRPC itself, which takes any name without a word."""
    given: set[str] = set()

    def recorded(make: Any) -> Any:
        def made(*arguments: Any, options: Any, **others: Any) -> Any:
            given.update(name for name, _ in options)
            return make(*arguments, options=options, **others)

        return made

    for name in ("server", "insecure_channel"):
        monkeypatch.setattr(grpc, name, recorded(getattr(grpc, name)))
    connect(tmp_path / "log").close()
    with Server(service_over(tmp_path / "log"), "127.0.0.1", 0) as server, connect(endpoint=server.address) as log:
        assert log.topics() == []
    code = Path(cygrpc.__file__).read_bytes()
    assert len(given) >= 10
    assert [name for name in sorted(given) if name.encode() not in code] == []
