"""How a call reaches a service at an address: by gRPC."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.errors import from_rpc_error
from txn_source.metadata.stub.transport import MAX_MESSAGE_BYTES, SERVICE_NAME, check_size
from txn_source.metadata.stub.unsignalled import unsignalled
from txn_source.model.errors import InvalidArgumentError

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
