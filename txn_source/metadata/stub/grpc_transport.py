"""How a call reaches a service at an address, or one of several: by gRPC."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.errors import from_rpc_error
from txn_source.metadata.stub.credentials import PLAIN, Credentials, TokenSource
from txn_source.metadata.stub.shared_writes import SharedWrites
from txn_source.metadata.stub.transport import LOG_ID_KEY, MAX_MESSAGE_BYTES, SERVICE_NAME, check_size, other_log
from txn_source.model.errors import InvalidArgumentError, RateLimitedError, UnauthenticatedError, UnavailableError
from txn_source.observing.headers import outgoing
from txn_source.observing.read_counts import ReadCounts
from txn_source.observing.spans import calling
from txn_source.process import forks
from txn_source.process.calls import watched
from txn_source.process.shield import deaf, held, in_main_thread, safe_point

MAX_ENDPOINTS = 16
_ATTEMPTS = 5
_ROUNDS_S = (0.1, 0.3, 0.9, 2.0)
"""So long is waited until several services, none of which could be reached, are tried again: as long as for one."""
_TRIED_ONCE = ("CloseProducer",)
"""Calls for which nobody waits: what they say is found out without them, later."""
_LIMIT_WAIT_S, _LONGEST_LIMIT_WAIT_S = 0.05, 2.0
"""So long is waited, the first time and at most, when the service says that there were too many calls."""


def _channel_options(attempts: int) -> list[tuple[str, Any]]:
    """Return a channel's options; a call that finds nobody is made so many times by gRPC itself."""
    retries = {
        # Every call may be repeated: those that change something carry a request id or a sequence, or say where to end
        # up (EndTransaction).
        "name": [{"service": SERVICE_NAME}],
        "retryPolicy": {
            "maxAttempts": attempts,
            "initialBackoff": "0.1s",
            "maxBackoff": "2s",
            "backoffMultiplier": 3,
            "retryableStatusCodes": ["UNAVAILABLE"],
        },
    }
    once = {"name": [{"service": SERVICE_NAME, "method": method} for method in _TRIED_ONCE]}
    return [
        ("grpc.service_config", json.dumps({"methodConfig": [retries, once]})),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.enable_http_proxy", 0),
        ("grpc.dns_min_time_between_resolutions_ms", 500),  # else 30 s: longer than a call waits for a moved service
    ]


class _Service:
    """One service; the first call opens its channel."""

    def __init__(self, address: str, attempts: int, credentials: Credentials) -> None:
        credentials.check_safe(address)
        self.address = address
        self._credentials = credentials
        self.log_id: str | None = None
        """Of the log that it serves, once that was asked."""
        self._options = _channel_options(attempts)
        self._channel: tuple[grpc.Channel, dict[str, Any]] | None = None

    def method(self, name: str) -> Any:
        """Return what makes a call."""
        found = self._channel
        if found is None:
            forks.check_grpc()
            tls = self._credentials.channel()
            if tls is None:
                channel = grpc.insecure_channel(self.address, options=self._options)
            else:
                channel = grpc.secure_channel(self.address, tls, options=self._options)
            found = self._channel = channel, {}
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

    def close(self) -> None:
        """Close the channel; a later call opens another one."""
        found, self._channel = self._channel, None
        if found is not None:
            found[0].close()


class GrpcTransport:
    """The service at an address ``host:port``, or several services of one log with commas between them.

    Of several, calls go to one, a random one at first, and go on with the next one when that can't be reached: each
    call may be repeated anywhere. Conversations begin at each of them in turn.
    """

    def __init__(self, endpoint: str, timeout_s: float, credentials: Credentials = PLAIN) -> None:
        addresses = list(dict.fromkeys(address.strip() for address in endpoint.split(",")))
        for address in addresses:
            host, _, port = address.rpartition(":")
            if not host or "/" in host or not port.isdigit() or not 0 < int(port) < 65536:
                only = 'Write it as "host:port", or several with commas between them.'
                if "://" in address:
                    only = f'Write it as "host:port", without "{address.partition("://")[0]}://".'
                raise InvalidArgumentError(f"{address!r} is not an endpoint.", only)
        if len(addresses) > MAX_ENDPOINTS:
            raise InvalidArgumentError(f"There are {len(addresses)} endpoints.", f"Give {MAX_ENDPOINTS} at most.")
        if timeout_s <= 0:
            raise InvalidArgumentError(f"The timeout of {timeout_s:g} s is too short.", "Use more than 0.")
        self.endpoint = ",".join(addresses)
        self.timeout_s = timeout_s
        attempts = _ATTEMPTS if len(addresses) == 1 else 2
        self._services = [_Service(address, attempts, credentials) for address in addresses]
        self._process = forks.this_process
        self._token = TokenSource(credentials)
        self._current = random.randrange(len(addresses))
        self._conversations = itertools.count(self._current)
        self._writes = SharedWrites(self._call)
        self.reads = ReadCounts()
        """What was read of this log and its service hasn't been told."""
        self._metadata: tuple[tuple[str, str], ...] = ()
        """With each call: which log is meant, once a service has said which it has. Another log's refuses the call."""

    def call(self, method: str, request: Message) -> Any:
        forks.check(self._process, f"The connection to {self.endpoint}")
        with held(), deaf(), calling(method):
            check_size(method, "request", request, "Send less at once: fewer entries, ids or names.")
            if self._writes.takes(method, request):
                return self._writes.write(method, request)
            return self._call(method, request)

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        forks.check(self._process, f"The connection to {self.endpoint}")
        service = self._services[next(self._conversations) % len(self._services)]
        self._check_log(service)
        metadata = self._metadata + self._token.header() + outgoing("")
        call = service.method(method)(requests, metadata=metadata)
        try:
            with forks.calling():
                yield from call
        except grpc.RpcError as error:
            raise from_rpc_error(error, service.address, self.timeout_s) from None
        finally:
            call.cancel()

    def close(self) -> None:
        if self._process is not forks.this_process:
            return
        with held(), deaf():
            for service in self._services:
                service.close()

    def _call(self, method: str, request: Message) -> Any:
        until = time.monotonic() + self.timeout_s
        wait_s = _LIMIT_WAIT_S
        while True:
            try:
                return self._call_any(method, request)
            except RateLimitedError:
                pause_s = wait_s * random.uniform(0.5, 1.0)
                if time.monotonic() + pause_s > until:
                    raise
                time.sleep(pause_s)
                wait_s = min(2 * wait_s, _LONGEST_LIMIT_WAIT_S)

    def _call_any(self, method: str, request: Message) -> Any:
        if len(self._services) == 1 or method in _TRIED_ONCE:  # of one, gRPC itself tries it again
            return self._call_one(method, request)
        until = time.monotonic() + self.timeout_s
        for wait_s in _ROUNDS_S:
            try:
                return self._call_one(method, request)
            except UnavailableError:  # one that has just come back may not have been found
                if time.monotonic() + wait_s > until:
                    raise
                time.sleep(wait_s)
        return self._call_one(method, request)

    def _call_one(self, method: str, request: Message) -> Any:
        """Call the services in turn, from the one that answered last, until one answers."""
        first, number = self._current, len(self._services)
        for at in range(first, first + number):
            service = self._services[at % number]
            try:
                self._check_log(service)
                answer = self._call_at(service, method, request)
            except UnavailableError:
                if at == first + number - 1:
                    raise
            else:
                self._current = at % number
                return answer
        raise AssertionError("the last one answers or raises")

    def _call_at(self, service: _Service, method: str, request: Message) -> Any:
        token = self._token.header()
        try:
            answer = self._answer(service, method, request, token)
        except UnauthenticatedError:
            newer = self._token.header()
            if newer == token:
                raise
            answer = self._answer(service, method, request, newer)  # it was replaced on the way
        if method == "GetLog":
            self._note_log(answer.log_id)
        return answer

    def _answer(self, service: _Service, method: str, request: Message, token: tuple[tuple[str, str], ...]) -> Any:
        timeout_s = self.timeout_s / len(self._services)
        reads = self.reads.taken()
        metadata = self._metadata + token + outgoing(reads)
        made = service.method(method)

        def call() -> Any:
            with forks.calling():
                return made(request, timeout=timeout_s, metadata=metadata)

        try:
            if in_main_thread():
                return watched(call, safe_point)
            return call()
        except grpc.RpcError as error:
            self.reads.put_back(reads)
            raise from_rpc_error(error, service.address, timeout_s) from None

    def _note_log(self, log_id: str) -> None:
        said = ((LOG_ID_KEY, log_id),)
        if len(self._services) == 1 and self._metadata not in ((), said):
            raise other_log()
        self._metadata = self._metadata or said

    def _check_log(self, service: _Service) -> None:
        """Raise INVALID_ARGUMENT if one of several services is of another log; each is asked once."""
        if len(self._services) == 1 or service.log_id is not None:
            return
        log_id = self._call_at(service, "GetLog", pb.GetLogRequest()).log_id
        for other in self._services:
            if other.log_id not in (None, log_id):
                raise InvalidArgumentError(
                    f"The services at {other.address} and {service.address} are of different logs.",
                    "Give endpoints of one log.",
                )
        service.log_id = log_id
