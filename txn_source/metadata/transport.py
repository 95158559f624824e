"""How a client's call reaches the service: directly in this process, or by gRPC."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.service import MetadataService
from txn_source.metadata.status import from_rpc_error
from txn_source.metadata.unsignalled import unsignalled
from txn_source.model.door import passes, translated
from txn_source.model.errors import InvalidArgumentError
from txn_source.storage.forks import (
    belongs_to_process,
    close_before_forks,
    keep_for_ever,
    no_fork,
    note_inherited,
    was_inherited,
)
from txn_source.storage.root import LogRoot

SERVICE_NAME: str = pb.DESCRIPTOR.services_by_name["MetadataService"].full_name
MAX_MESSAGE_BYTES = 64 << 20

_SERVICE_CONFIG = {
    "methodConfig": [
        {
            # Every call may be repeated: those that change something carry a request id or a sequence, or say where
            # to end up (EndTransaction).
            "name": [{"service": SERVICE_NAME}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "2s",
                "backoffMultiplier": 3,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
CHANNEL_OPTIONS = [
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.enable_http_proxy", 0),
]


_PATIENCE_S = 30.0


def check_size(method: str, what: str, message: Message, remedy: str) -> None:
    """Raise INVALID_ARGUMENT if a message is larger than one may be on the wire, before it goes there."""
    size = message.ByteSize()
    if size > MAX_MESSAGE_BYTES:
        raise InvalidArgumentError(
            f"The {what} of {method} has {size:,} bytes, and {MAX_MESSAGE_BYTES:,} is the most that is carried.", remedy
        )


class Transport(Protocol):
    """Carries one call to the service and its answer back, raising what the service raised."""

    @property
    def timeout_s(self) -> float:
        """How long to wait for an answer."""

    def call(self, method: str, request: Message) -> Any:
        """Return the answer of the method of that name."""

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        """Hold a conversation of that name: send the requests as they come, and yield the answers as they come.

        It ends when the requests do. Closing the iterator of answers ends it too.
        """

    def close(self) -> None:
        """Give up what this process holds open; a later call opens it again."""


class InProcessTransport:
    """The service in this process: the embedded log.

    A fork may use it, too. A fork that inherited the database open may not (``storage/forks.py``).
    """

    timeout_s = _PATIENCE_S

    def __init__(self, service: MetadataService) -> None:
        self._service = service
        self._database = LogRoot.at(service.storage_uri).database
        self._usable = not was_inherited(self._database)
        close_before_forks(self)
        belongs_to_process(self)

    def before_fork(self) -> None:
        """Close the database."""
        self._service.close_database()

    def inherited(self) -> None:
        """Take notice that this is a fork."""
        keep_for_ever(self._service)
        note_inherited(self._database)
        self._usable = not was_inherited(self._database)

    def call(self, method: str, request: Message) -> Any:
        try:
            with no_fork():
                self._check_usable()
                return getattr(self._service, method)(request)
        except Exception as error:
            if passes(error):
                raise
            raise translated(error, method) from error

    def _check_usable(self) -> None:
        if not self._usable:
            raise InvalidArgumentError(
                f"The log at {self._service.storage_uri} was in use when this process was forked, by a consumer, a"
                " reader or a stream, and SQLite can't be used on both sides of a fork.",
                "Close those before forking, start the process without a fork (spawn), or use `txnlog serve`.",
            )

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        self._check_usable()
        try:
            yield from getattr(self._service, method)(requests)
        except Exception as error:
            if passes(error):
                raise
            raise translated(error, method) from error

    def close(self) -> None:
        self._service.close()


class GrpcTransport:
    """The service at an address ``host:port``.

    A channel made before a fork hangs after it, so each process makes its own at its first call.
    """

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        host, _, port = endpoint.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise InvalidArgumentError(f"{endpoint!r} is not an endpoint.", 'Write it as "host:port".')
        if timeout_s <= 0:
            raise InvalidArgumentError(f"The timeout of {timeout_s:g} s is too short.", "Use more than 0.")
        self.endpoint = endpoint
        self.timeout_s = timeout_s
        self._channels: dict[int, tuple[grpc.Channel, dict[str, Any]]] = {}

    def call(self, method: str, request: Message) -> Any:
        check_size(method, "request", request, "Send less at once: fewer entries, ids or names.")
        return unsignalled(lambda: self._call(method, request))

    def _call(self, method: str, request: Message) -> Any:
        try:
            return self._method(method)(request, timeout=self.timeout_s)
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.endpoint, self.timeout_s) from None

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        call = self._method(method)(requests)
        try:
            yield from call
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.endpoint, self.timeout_s) from None
        finally:
            call.cancel()

    def close(self) -> None:
        found = self._channels.pop(os.getpid(), None)
        if found is not None:
            unsignalled(found[0].close)

    def _method(self, name: str) -> Any:
        found = self._channels.get(os.getpid())
        if found is None:
            channel = grpc.insecure_channel(self.endpoint, options=CHANNEL_OPTIONS)
            found = self._channels.setdefault(os.getpid(), (channel, {}))
        channel, methods = found
        if name not in methods:
            described = pb.DESCRIPTOR.services_by_name["MetadataService"].methods_by_name[name]
            kind = channel.stream_stream if described.client_streaming else channel.unary_unary
            methods[name] = kind(
                f"/{SERVICE_NAME}/{name}",
                request_serializer=getattr(pb, described.input_type.name).SerializeToString,
                response_deserializer=getattr(pb, described.output_type.name).FromString,
            )
        return methods[name]
