"""Requests for S3's objects, signed by us (Signature Version 4): a range, a whole object, a deletion.

``pyarrow.fs`` asks for an object's size before it reads it (HEAD), can't be told one from Python, and has no limit of
the time that a whole request may take. Here a range is one request, an object is put by one, however large, and only if
none is there if that is wanted; and a store that sends a byte now and then is found out as one that is silent.

What may be passing is tried again after a pause that grows and is random (so that many clients don't come back at
once): reads a few times, since readers may have another copy; writes until their deadline.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import http.client
import os
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote
from xml.sax.saxutils import unescape

from txn_source.model.values import dataclass
from txn_source.storage.s3_credentials import Credentials, find_credentials

R = TypeVar("R")
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 3.0
_LEAST_BYTES_PER_S = 128 << 10
"""Slower than this a request counts as failed."""
_CHUNK_BYTES = 1 << 20
_MOST_IDLE = 16
_PASSING_STATUS = (408, 429, 500, 502, 503, 504)
_PASSING_CODES = ("RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "OperationAborted")
_MEANINGS = {
    "NoSuchBucket": "there is no such bucket",
    "AccessDenied": "the store denies access",
    "AllAccessDisabled": "the store denies access",
    "InvalidAccessKeyId": "the store doesn't know the access key",
    "SignatureDoesNotMatch": "the secret key is not that of the access key",
    "ExpiredToken": "the credentials have expired",
    "InvalidToken": "the credentials have expired",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "PermanentRedirect": "the bucket is in another region than the URI's",
    "AuthorizationHeaderMalformed": "the bucket is in another region than the URI's",
    "IllegalLocationConstraintException": "the bucket is in another region than the URI's",
    "SlowDown": "the store is too busy",
    "ServiceUnavailable": "the store is too busy",
}


class StoreError(OSError):
    """Why a store did not do what it was asked for.

    ``passing``: it may do so later. ``unreachable``: it didn't answer at all.
    """

    def __init__(self, text: str, *, passing: bool = False, unreachable: bool = False) -> None:
        super().__init__(text)
        self.passing = passing or unreachable
        self.unreachable = unreachable


class AlreadyThereError(StoreError):
    """An object is there that was to be put only if none was."""


@dataclass(frozen=True, slots=True)
class S3Place:
    """Where a bucket is, and how long to wait for it (seconds)."""

    bucket: str
    host: str
    port: int
    tls: bool
    path_style: bool
    region: str
    connect_timeout: float
    request_timeout: float
    max_attempts: int
    write_deadline: float


class S3Requests:
    """Requests to one bucket. Thread-safe; connections are kept for the next request, and not used after a fork."""

    def __init__(
        self,
        place: S3Place,
        credentials: Callable[[], Credentials | None] = find_credentials,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        """Prepare requests; ``clock`` returns seconds that only go up, ``now`` is what requests are signed with."""
        self._place = place
        self._credentials = credentials
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._idle: dict[int, list[http.client.HTTPConnection]] = {}

    def __del__(self) -> None:
        for connection in self._idle.pop(os.getpid(), []) if hasattr(self, "_idle") else []:
            connection.close()

    def get(self, key: str, start: int, into: memoryview) -> None:
        """Fill a buffer with an object's bytes from ``start`` on.

        Raises:
            FileNotFoundError: there is no such object.
            StoreError: it is shorter, or the store refuses or doesn't answer.
        """
        end = start + len(into)

        def once(deadline: float) -> None:
            headers = {"range": f"bytes={start}-{end - 1}"}
            with _Exchange(self, "GET", key, headers, b"", deadline) as answer:
                size = answer.length
                if answer.status == 206 and size is not None and size < len(into):
                    raise StoreError(f"it is truncated: it ends at byte {start + size}, not at {end} or later")
                if answer.status != 206 or size != len(into):
                    whole = answer.rest()
                    part = whole[start:end] if answer.status == 200 else whole
                    if len(part) != len(into):
                        raise StoreError(f"the store sent {len(part)} bytes where {len(into)} were asked for")
                    into[:] = part
                    return
                answer.fill(into)

        self._tried(once, len(into), attempts=self._place.max_attempts)

    def read(self, key: str) -> bytes:
        """Return a small object; raise FileNotFoundError if there is none."""

        def once(deadline: float) -> bytes:
            with _Exchange(self, "GET", key, {}, b"", deadline) as answer:
                return answer.rest()

        return self._tried(once, 0, attempts=self._place.max_attempts)

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """Store an object. It is there, whole and safe, when this returns.

        A try that had no answer may have stored it, and a repetition stores the same bytes; so with ``if_absent`` one
        that is there may be this call's own, and whoever calls must look.
        """
        headers = {"if-none-match": "*"} if if_absent else {}

        def once(deadline: float) -> None:
            with _Exchange(self, "PUT", key, headers, data, deadline) as answer:
                answer.rest()

        try:
            self._tried(once, len(data), until=self._clock() + self._place.write_deadline)
        except AlreadyThereError:
            return

    def delete(self, key: str) -> None:
        """Delete an object; harmless if there is none."""

        def once(deadline: float) -> None:
            with _Exchange(self, "DELETE", key, {}, b"", deadline) as answer:
                answer.rest()

        try:
            self._tried(once, 0, attempts=self._place.max_attempts)
        except FileNotFoundError:
            return

    def _tried(
        self, once: Callable[[float], R], size: int, *, attempts: int | None = None, until: float | None = None
    ) -> R:
        """Carry out a request, again if what failed may pass; ``once`` is given when it must be done."""
        number = 0
        allowed = 2 * self._place.request_timeout + size / _LEAST_BYTES_PER_S
        while True:
            number += 1
            deadline = self._clock() + allowed
            try:
                return once(deadline if until is None else min(deadline, until))
            except StoreError as error:
                pause = random.uniform(0, min(_LONGEST_PAUSE_S, _PAUSE_S * 2**number))
                over = until is not None and self._clock() + pause >= until
                if not error.passing or over or (attempts is not None and number >= attempts):
                    raise
            self._sleep(pause)

    def _checkout(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection, and whether it was used before."""
        idle = self._idle.setdefault(os.getpid(), [])
        try:
            return idle.pop(), True
        except IndexError:
            place = self._place
            if place.tls:
                context = ssl.create_default_context()
                return http.client.HTTPSConnection(
                    place.host, place.port, timeout=place.connect_timeout, context=context
                ), False
            return http.client.HTTPConnection(place.host, place.port, timeout=place.connect_timeout), False

    def _checkin(self, connection: http.client.HTTPConnection) -> None:
        idle = self._idle.setdefault(os.getpid(), [])
        if len(idle) < _MOST_IDLE:
            idle.append(connection)
        else:
            connection.close()

    def _target(self, key: str) -> str:
        path = f"{self._place.bucket}/{key}" if self._place.path_style else key
        return "/" + quote(path, safe="/-_.~")

    def _signed(self, method: str, key: str, headers: Mapping[str, str], data: bytes) -> dict[str, str]:
        """Return the headers of a request, its signature among them."""
        credentials = self._credentials()
        if credentials is None:
            raise StoreError("no credentials were found")
        place = self._place
        now = self._now()
        usual_port = place.port == (443 if place.tls else 80)
        digest = hashlib.sha256(data).hexdigest()
        signed = {
            **headers,
            "host": place.host if usual_port else f"{place.host}:{place.port}",
            "x-amz-content-sha256": digest,
            "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
        }
        if credentials.token:
            signed["x-amz-security-token"] = credentials.token
        names = sorted(signed)
        canonical = "\n".join(
            [method, self._target(key), "", *(f"{n}:{signed[n].strip()}" for n in names), "", ";".join(names), digest]
        )
        scope = f"{now:%Y%m%d}/{place.region}/s3/aws4_request"
        to_sign = "\n".join(
            ["AWS4-HMAC-SHA256", signed["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()]
        )
        secret = f"AWS4{credentials.secret_key}".encode()
        for part in scope.split("/"):
            secret = hmac.digest(secret, part.encode(), "sha256")
        signature = hmac.new(secret, to_sign.encode(), "sha256").hexdigest()
        signed["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, SignedHeaders={';'.join(names)},"
            f" Signature={signature}"
        )
        return signed


class _Exchange:
    """A request and its answer. Its connection is used again only if the answer was read to its end."""

    def __init__(
        self, of: S3Requests, method: str, key: str, headers: Mapping[str, str], data: bytes, deadline: float
    ) -> None:
        self._of = of
        self._deadline = deadline
        signed = of._signed(method, key, headers, data)
        self._done = False
        self._answer: Any = None
        self._connection, reused = of._checkout()
        try:
            self._answer = self._ask(method, of._target(key), signed, data, reused)
            self.status = self._answer.status
            self.length = self._answer.length
            if self.status >= 300:
                raise _refusal(method, self.status, self.rest())
        except BaseException as error:
            self.__exit__()
            if isinstance(error, StoreError | FileNotFoundError) or not isinstance(error, _FAILURES):
                raise
            raise _failure(error) from error

    def __enter__(self) -> _Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        if self._done:
            self._of._checkin(self._connection)
        else:
            if self._answer is not None:
                self._answer.close()  # it holds the socket, too
            self._connection.close()

    def rest(self) -> bytes:
        """Return all that the answer has."""
        parts = []
        try:
            while part := self._answer.read1(_CHUNK_BYTES):
                parts.append(part)
                self._wait_on()
        except _FAILURES as error:
            raise _failure(error) from error
        if self._answer.length:
            raise StoreError("the connection was cut in the middle of an answer", unreachable=True)
        self._end()
        return b"".join(parts)

    def fill(self, into: memoryview) -> None:
        """Fill a buffer with the answer, which has as many bytes."""
        filled = 0
        source: Any = self._answer.fp
        try:
            while filled < len(into):
                got = source.readinto1(into[filled:])
                if not got:
                    raise StoreError("the connection was cut in the middle of an answer", unreachable=True)
                filled += got
                self._wait_on()
        except _FAILURES as error:
            raise error if isinstance(error, StoreError) else _failure(error) from error
        self._end()

    def _end(self) -> None:
        """Take notice that the answer was read to its end."""
        will_close = self._answer.will_close
        self._answer.close()  # or the connection takes no other request
        self._done = not will_close

    def _ask(
        self, method: str, target: str, headers: dict[str, str], data: bytes, reused: bool
    ) -> http.client.HTTPResponse:
        connection = self._connection
        try:
            self._send(method, target, headers, data)
            return connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            if not reused:
                raise
            connection.close()  # it was closed while nobody used it
            self._send(method, target, headers, data)
            return connection.getresponse()

    def _send(self, method: str, target: str, headers: dict[str, str], data: bytes) -> None:
        connection = self._connection
        if connection.sock is None:
            connection.timeout = self._of._place.connect_timeout
            connection.connect()
            made: Any = connection.sock
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if method == "PUT":
            connection.putheader("content-length", str(len(data)))
        self._socket: Any = connection.sock  # the connection lets go of it if the store ends it with its answer
        self._wait_on(whole=True)
        connection.endheaders(data or None)
        self._wait_on()

    def _wait_on(self, *, whole: bool = False) -> None:
        """Let the next step of the connection take as long as it may: until silence is too long, or the deadline."""
        left = self._deadline - self._of._clock()
        if left <= 0:
            raise StoreError("it didn't answer in time: it sends too slowly", unreachable=True)
        self._socket.settimeout(left if whole else min(left, self._of._place.request_timeout))


_FAILURES = (OSError, http.client.HTTPException)


def _failure(error: BaseException) -> StoreError:
    """Return what an error of the connection means."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreError(f"the store's certificate isn't trusted: {error.verify_message}")
    if isinstance(error, TimeoutError):
        why = "it didn't answer in time"
    elif isinstance(error, ConnectionRefusedError):
        why = "nobody listens there"
    elif isinstance(error, socket.gaierror):
        why = "its name is unknown"
    else:
        why = str(error) or type(error).__name__
    return StoreError(f"the store can't be reached: {why}", unreachable=True)


def _refusal(method: str, status: int, body: bytes) -> OSError:
    """Return what the answer of a store that didn't do what it was asked for means."""
    text = body[:4096].decode("utf-8", "replace")
    found = {name: re.search(rf"<{name}>(.*?)</{name}>", text, re.DOTALL) for name in ("Code", "Message")}
    code, said = (unescape(found[name][1]) if found[name] else "" for name in ("Code", "Message"))  # type: ignore[index]
    if code == "NoSuchKey" or (status == 404 and not code):
        return FileNotFoundError("it is missing")
    if status == 412 or code == "PreconditionFailed":
        return AlreadyThereError("there is one already")
    if status == 416:
        return StoreError("it is truncated: it ends before the bytes that were asked for")
    passing = status in _PASSING_STATUS or code in _PASSING_CODES
    meaning = _MEANINGS.get(code)
    if meaning is None and not code:
        meaning = {
            301: _MEANINGS["PermanentRedirect"], 403: "the store denies access", 503: "the store is too busy",
            429: "the store is too busy",
        }.get(status)  # fmt: skip
    return StoreError(
        meaning
        or f"the store refused {method} with {code or 'no reason'} (HTTP status {status}){': ' * bool(said)}{said}",
        passing=passing,
    )
