"""The gRPC server: the service on a port, with health checks, graceful stop and a maintenance thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.message import DecodeError, Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.access.addresses import place_of
from txn_source.metadata.delivery.consumer_hub import MAX_CONSUMERS, too_many_consumers
from txn_source.metadata.protocol.bearer import MAX_TOKEN_BYTES
from txn_source.metadata.protocol.errors import to_status
from txn_source.metadata.service.first_messages import FirstMessages
from txn_source.metadata.service.observer import Observer, observed
from txn_source.metadata.service.ports import cannot_listen, most_connections
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.stub.transport import LOG_ID_KEY, MAX_MESSAGE_BYTES, SERVICE_NAME, check_size, other_log
from txn_source.model.door import translated
from txn_source.model.errors import InvalidArgumentError, TxnLogError
from txn_source.observing.headers import READS_KEY, REQUEST_KEY, TRACE_KEY, incoming
from txn_source.observing.read_counts import told
from txn_source.observing.repeated_work import RepeatedWork
from txn_source.observing.request_ids import given
from txn_source.observing.spans import serving

if TYPE_CHECKING:
    from txn_source.metadata.access.door import Door, Visitor
    from txn_source.metadata.service.guard import Guard

_log = logging.getLogger(__name__)
_CALLS_AT_ONCE = 16
_PENDING = 4 * MAX_CONSUMERS
"""So many calls and conversations that nobody has taken yet may wait."""
_HANDSHAKE_MS = 10_000
_IDLE_MS = 300_000
"""A connection without calls is closed then; clients connect again by themselves."""
_MAINTENANCE_INTERVAL_S = 1.0


class Server:
    """A running server; a context manager that stops it gracefully."""

    def __init__(
        self,
        service: MetadataService,
        host: str,
        port: int,
        *,
        tls: grpc.ServerCredentials | None = None,
        door: Door | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Bind to the port; 0 takes a free one, see ``port``.

        Args:
            service: what is served.
            host: the address to listen on.
            port: the port.
            tls: what connections are made with; None: plain text.
            door: who may come in; None: anybody may, and nothing is noted.
            observer: is told of each call; None: nobody is.
        """
        try:
            from grpc_health.v1 import health, health_pb2, health_pb2_grpc
        except ImportError:
            raise InvalidArgumentError(
                "The server needs the package grpcio-health-checking.", "Install txn-source[server]."
            ) from None
        self._service = service
        self._observer = observer
        self._states = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
        self._health = _health_of(health.HealthServicer)
        self._healthy: bool | None = None
        self._stopping = threading.Event()
        self._first_messages = FirstMessages()
        self._maintenance = threading.Thread(target=self._maintain, name="txnlog-maintenance", daemon=True)
        self._grpc = grpc.server(
            # A conversation keeps a thread for as long as it lasts; calls take one of so many more.
            futures.ThreadPoolExecutor(MAX_CONSUMERS + _CALLS_AT_ONCE, thread_name_prefix="txnlog"),
            options=[
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                # Of more that wait gRPC cancels some, without a word: thousands that come back at once are let in.
                ("grpc.server.max_pending_requests", _PENDING),
                ("grpc.server.max_pending_requests_hard_limit", 2 * _PENDING),
                ("grpc.so_reuseport", 0),  # else a second server could share the port unnoticed
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),  # clients ping every 30 s
                ("grpc.keepalive_permit_without_calls", 1),
                ("grpc.max_metadata_size", 2 * MAX_TOKEN_BYTES),
                ("grpc.absolute_max_metadata_size", 2 * MAX_TOKEN_BYTES),
                ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
                ("grpc.max_allowed_incoming_connections", most_connections()),
            ],
        )
        self._grpc.add_generic_rpc_handlers((_handlers(service, door, observer, self._first_messages),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        address = f"{host}:{port}"
        try:
            if tls is None:
                self.port = self._grpc.add_insecure_port(address)
            else:
                self.port = self._grpc.add_secure_port(address, tls)
        except RuntimeError:
            self.port = 0
        if self.port == 0:
            raise cannot_listen(address)
        self.address = f"{host}:{self.port}"

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Server:
        """Begin to serve."""
        self._service.load()
        self._service.maintain()
        self._grpc.start()
        if self._observer is not None:
            self._observer.begins("deadlines")
        self._maintenance.start()
        self._say_healthy(True)
        return self

    def stop(self, grace_s: float = 5.0) -> None:
        """Refuse new calls, let those under way finish within the grace, then stop."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._health.enter_graceful_shutdown()
        stopped = self._grpc.stop(grace_s)  # takes no new calls: consumers that are sent away can't come back
        self._service.hub.stop()
        stopped.wait()
        if self._maintenance.ident is not None:  # it was started
            self._maintenance.join()
        self._service.close()

    def wait(self) -> None:
        """Block until the server has stopped."""
        self._grpc.wait_for_termination()

    def _maintain(self) -> None:
        rounds = RepeatedWork(_log, "ending transactions past their deadline")
        while not self._stopping.wait(_MAINTENANCE_INTERVAL_S):
            self._first_messages.cancel_late()
            failure: Exception | None = None
            try:
                self._service.maintain()
            except Exception as error:  # whatever it is: without it no transaction would time out any more
                failure = error
                rounds.failed(error)
            else:
                rounds.succeeded()
            if self._observer is not None:
                self._observer.worked("deadlines", failure)
            self._say_healthy(failure is None)

    def _say_healthy(self, healthy: bool) -> None:
        """Tell those who ask for the health, which is that of the database: every call needs it."""
        if healthy is not self._healthy:  # or else who watches would be told again
            self._healthy = healthy
            for name in ("", SERVICE_NAME):
                self._health.set(name, self._states[0 if healthy else 1])


def _health_of(servicer: Any) -> Any:
    """Return what answers health checks. ``Watch`` would hold a thread for each of its calls."""

    class Health(servicer):  # type: ignore[misc]
        def Watch(self, request: Any, context: grpc.ServicerContext, *_: Any) -> NoReturn:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "Use Check.")

    return Health(experimental_non_blocking=False)


def _handlers(
    service: MetadataService, door: Door | None, observer: Observer | None, first_messages: FirstMessages
) -> grpc.GenericRpcHandler:
    methods: dict[str, Any] = {}
    calls = threading.Semaphore(_CALLS_AT_ONCE)
    conversations = threading.Semaphore(MAX_CONSUMERS)  # more would take the threads of calls, and wait for their turn
    guard = None
    if door is not None:
        from txn_source.metadata.service.guard import Guard  # with what reads tokens, which only the extra `server` has

        guard = Guard(service, door)
    behavior: Any
    for method in pb.DESCRIPTOR.services_by_name["MetadataService"].methods:
        read = _reading(getattr(pb, method.input_type.name))
        if method.client_streaming:
            kind = grpc.stream_stream_rpc_method_handler
            behavior = _converse(service, guard, read, method.name, conversations, observer, first_messages)
        else:
            kind = grpc.stream_unary_rpc_method_handler  # it is asked before the request has come
            behavior = _answer(service, guard, read, method.name, calls, observer, first_messages)
        methods[method.name] = kind(
            behavior,
            request_deserializer=None,  # bytes: gRPC would answer those that can't be read with a text of its own
            response_serializer=getattr(pb, method.output_type.name).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(SERVICE_NAME, methods)


def _reading(kind: type[Message]) -> Callable[[bytes], Message]:
    """Return what reads a request of a kind, or raises INVALID_ARGUMENT."""

    def read(data: bytes) -> Message:
        try:
            return kind.FromString(data)
        except DecodeError as error:
            raise InvalidArgumentError(
                f"{len(data)} bytes are no {kind.DESCRIPTOR.name}: {error}.",
                "Check that client and service are of the same release.",
            ) from None

    return read


def _name(visitor: Visitor | None, context: grpc.ServicerContext) -> str:
    return place_of(context.peer()) if visitor is None else visitor.name


def _answer(
    service: MetadataService,
    guard: Guard | None,
    read: Callable[[bytes], Message],
    name: str,
    calls: threading.Semaphore,
    observer: Observer | None,
    first_messages: FirstMessages,
) -> Callable[[Iterator[bytes], grpc.ServicerContext], Any]:
    def answer(requests: Iterator[bytes], context: grpc.ServicerContext) -> Any:
        came = incoming(context.invocation_metadata())
        with (
            given(came.get(REQUEST_KEY)),
            _refusals(name, context),
            serving(name, came.get(TRACE_KEY)),
            observed(observer, name) as noted,
        ):
            visitor = None if guard is None else guard.visitor(name, context)
            request = first_messages.of(requests, context, _name(visitor, context))
            call = service.call if guard is None or visitor is None else guard.call_of(name, visitor, len(request))
            if observer is not None and READS_KEY in came:
                observer.told(*told(came[READS_KEY]))
            with calls:
                if name != "GetLog":  # which tells the log
                    _check_log(service, context)
                noted.request = read(request)
                noted.answer = answered = call(name, noted.request)
                check_size(name, "answer", answered, "Ask for less at once: fewer topics, or a smaller range or limit.")
                return answered

    return answer


def _converse(
    service: MetadataService,
    guard: Guard | None,
    read: Callable[[bytes], Message],
    name: str,
    conversations: threading.Semaphore,
    observer: Observer | None,
    first_messages: FirstMessages,
) -> Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[Any]]:
    def converse(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
        with _refusals(name, context), observed(observer, name), ExitStack() as held:
            hold: Any = service.converse
            visitor = None if guard is None else guard.visitor(name, context)
            _check_log(service, context)
            first = first_messages.of(
                requests, context, _name(visitor, context)
            )  # no place of a consumer is taken before
            if guard is not None and visitor is not None:
                hold = held.enter_context(guard.conversation_of(name, visitor, context.is_active))
            if not conversations.acquire(blocking=False):
                raise too_many_consumers()
            held.callback(conversations.release)
            yield from hold(name, map(read, chain([first], requests)))

    return converse


def _check_log(service: MetadataService, context: grpc.ServicerContext) -> None:
    """Raise UNAVAILABLE if the client means another log: the address may have been another service's before."""
    for key, value in context.invocation_metadata() or ():
        if key == LOG_ID_KEY and value != service.log_id:
            raise other_log()


@contextmanager
def _refusals(name: str, context: grpc.ServicerContext) -> Iterator[None]:
    """Give the caller the errors of a call."""
    try:
        yield
    except TxnLogError as error:
        _refuse(context, error)
    except grpc.RpcError:  # the call is cancelled, so nobody waits for an answer
        raise
    except Exception as error:
        _log.exception("%s failed", name)
        _refuse(context, translated(error, name))


def _refuse(context: grpc.ServicerContext, error: TxnLogError) -> NoReturn:
    context.abort_with_status(to_status(error))
    raise AssertionError("abort_with_status raises")
