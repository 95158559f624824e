"""Requests for S3's objects by ``botocore``: a range by one GET, a whole object by one PUT, however large.

``pyarrow.fs`` asks for an object's size before it reads it (HEAD), can't be told one from Python, and has no limit of
the time that a whole request may take. Here each request has one, and so a store that sends a byte now and then is
found out as one that is silent. Credentials come from all places that ``botocore`` knows: environment, files,
single sign-on, roles of machines and pods.

What may be passing is tried again after a pause that grows and is random (so that many clients don't come back at
once): reads a few times, since readers may have another copy; writes until their deadline.
"""

from __future__ import annotations

import io
import math
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

from txn_source.process.calls import Call
from txn_source.storage.root_health import answered
from txn_source.storage.store_errors import AlreadyThereError, StoreError

R = TypeVar("R")
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 3.0
_LEAST_TRY_S = 1.0
"""No write is tried again with less time than this, or than a quarter of its deadline: the try would end for want of
time, and hide why those before it failed."""
_LEAST_BYTES_PER_S = 128 << 10
"""Slower than this a request counts as failed."""
_PIECE_BYTES = 128 << 10
"""Of a body that is sent: each piece must be taken within the connect timeout, as urllib3 has it."""
_READ_BYTES = 256 << 10
_CONNECTIONS = 24
"""The reads and puts of a process that are under way at most."""
_PASSING_STATUS = (408, 429, 500, 502, 503, 504)
_PASSING_CODES = ("RequestTimeout", "SlowDown", "InternalError", "ServiceUnavailable", "OperationAborted")
_OLD_CREDENTIALS = (
    "ExpiredToken",
    "InvalidToken",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
)
"""What a store says where the credentials were changed since they were read."""
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
    "301": "the bucket is in another region than the URI's",  # by status: what has no body has no code either
    "403": "the store denies access",
    "429": "the store is too busy",
    "503": "the store is too busy",
}


@dataclass(frozen=True, slots=True)
class S3Place:
    """Where a bucket is, and how long to wait for it (seconds). ``endpoint`` is a URL, None for Amazon's; ``region``
    None: where the surroundings say, or else where the bucket is."""

    bucket: str
    endpoint: str | None
    region: str | None
    connect_timeout: float
    request_timeout: float
    max_attempts: int
    write_deadline: float


@dataclass(frozen=True, slots=True)
class S3Object:
    """An object as a listing shows it; ``modified_at_s`` is since the epoch, by the store's clock."""

    key: str
    size: int
    modified_at_s: float


class S3Client:
    """Requests to one bucket, for one process. Thread-safe; its connections are kept for the next requests."""

    def __init__(
        self,
        place: S3Place,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare requests; ``clock`` returns seconds that only go up. Nothing is loaded before the first request."""
        self._place = place
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._made: tuple[object, Any] | None = None

    def get(self, key: str, start: int, into: memoryview) -> None:
        """Fill a buffer with an object's bytes from ``start`` on.

        Raises:
            FileNotFoundError: there is no such object.
            StoreError: it is shorter, or the store refuses or doesn't answer.
        """
        into = into.cast("B")
        end = start + len(into)

        def once(client: Any, call: Call) -> None:
            answer = client.get_object(Bucket=self._place.bucket, Key=key, Range=f"bytes={start}-{end - 1}")
            with answer["Body"] as body:
                is_part = answer["ResponseMetadata"]["HTTPStatusCode"] == 206
                size = answer.get("ContentLength")
                if is_part and size is not None and size < len(into):
                    raise StoreError(f"it is truncated: it ends at byte {start + size}, not at {end} or later")
                if is_part and size is not None and size > len(into):
                    raise StoreError(f"the store sent {size} bytes where {len(into)} were asked for")
                filled = -start if not is_part else 0  # a store may ignore the range
                while filled < len(into):
                    piece = body.read1(_READ_BYTES, decode_content=False)
                    call.go_on()
                    if not piece and size is not None and start + filled < (start if is_part else 0) + size:
                        raise StoreError("the connection was cut in the middle of an answer", unreachable=True)
                    if not piece:
                        raise StoreError(f"it is truncated: it ends at byte {start + filled}, not at {end} or later")
                    part = memoryview(piece)[max(0, -filled) : len(into) - filled]
                    call.fill(into[max(0, filled) : max(0, filled) + len(part)], part)
                    filled += len(piece)
                if is_part and size is None and body.read1(1, decode_content=False):
                    raise StoreError(f"the store sent more than the {len(into)} bytes that were asked for")

        self._tried(once, len(into), attempts=self._place.max_attempts)

    def read(self, key: str) -> bytes:
        """Return a small object; raise FileNotFoundError if there is none."""

        def once(client: Any, call: Call) -> bytes:
            with client.get_object(Bucket=self._place.bucket, Key=key)["Body"] as body:
                parts = []
                while piece := body.read1(_READ_BYTES, decode_content=False):
                    call.go_on()
                    parts.append(piece)
                return b"".join(parts)

        return self._tried(once, 0, attempts=self._place.max_attempts)

    def put(self, key: str, data: bytes, *, if_absent: bool = False, within_s: float | None = None) -> None:
        """Store an object. It is there, whole and safe, when this returns. ``within_s`` is a shorter deadline than the
        place's own.

        A try that had no answer may have stored it, and a repetition stores the same bytes; so with ``if_absent`` one
        that is there may be this call's own, and whoever calls must look.
        """
        more = {"IfNoneMatch": "*"} if if_absent else {}

        def once(client: Any, call: Call) -> None:
            client.put_object(Bucket=self._place.bucket, Key=key, Body=_Body(data, call), **more)

        seconds = self._place.write_deadline if within_s is None else min(within_s, self._place.write_deadline)
        try:
            self._tried(once, len(data), within_s=seconds)
        except AlreadyThereError:
            return

    def delete(self, key: str) -> None:
        """Delete an object; harmless if there is none."""
        try:
            self._asked("delete_object", Key=key)
        except FileNotFoundError:
            return

    def size(self, key: str) -> int | None:
        """Return an object's length; None if there is none."""
        try:
            return int(self._asked("head_object", Key=key)["ContentLength"])
        except FileNotFoundError:
            return None

    def listed(self, prefix: str) -> Iterator[S3Object]:
        """Yield all objects whose keys begin with a prefix."""
        more: dict[str, str] = {}
        while True:
            page = self._asked("list_objects_v2", Prefix=prefix, **more)
            for found in page.get("Contents", ()):
                yield S3Object(found["Key"], int(found["Size"]), found["LastModified"].timestamp())
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def uploads(self, prefix: str) -> Iterator[tuple[str, str, float]]:
        """Yield uploads in parts that were neither completed nor aborted: key, id, and when they were begun, in seconds
        since the epoch."""
        more: dict[str, str] = {}
        while True:
            page = self._asked("list_multipart_uploads", Prefix=prefix, **more)
            for found in page.get("Uploads", ()):
                yield found["Key"], found["UploadId"], found["Initiated"].timestamp()
            if not page.get("IsTruncated"):
                return
            more = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def abort_upload(self, key: str, upload_id: str) -> None:
        """Let go of the parts of an upload; harmless if it has ended."""
        try:
            self._asked("abort_multipart_upload", Key=key, UploadId=upload_id)
        except FileNotFoundError:
            return

    def _asked(self, operation: str, **asked: str) -> Any:
        def once(client: Any, _: Call) -> Any:
            return getattr(client, operation)(Bucket=self._place.bucket, **asked)

        return self._tried(once, 0, attempts=self._place.max_attempts)

    def _tried(
        self, once: Callable[[Any, Call], R], size: int, *, attempts: int | None = None, within_s: float | None = None
    ) -> R:
        """Carry out a request, again if what failed may pass."""
        number, is_new = 0, False
        allowed = 2 * self._place.request_timeout + size / _LEAST_BYTES_PER_S
        limit = math.inf if within_s is None else within_s
        until, least = self._clock() + limit, min(_LEAST_TRY_S, limit / 4)
        while True:
            number += 1
            seconds = min(allowed, until - self._clock())
            client = self._client()
            try:
                return answered(seconds, partial(_told, once, client))
            except _OldCredentialsError:
                if is_new:
                    raise
                is_new = True  # they may have been changed since: they are looked for once more
                self._drop(client)
                continue
            except StoreError as error:
                pause = random.uniform(0, min(_LONGEST_PAUSE_S, _PAUSE_S * 2**number))
                over = self._clock() + pause + least >= until
                if not error.passing or over or (attempts is not None and number >= attempts):
                    raise
            self._sleep(pause)

    def _client(self) -> Any:
        """Return the client for the present surroundings."""
        surroundings = tuple(os.environ.get(name) for name in _SURROUNDINGS)
        with self._lock:
            if self._made is None or self._made[0] != surroundings:
                with _making:
                    self._made = surroundings, _new_client(self._place)
            return self._made[1]

    def _drop(self, client: Any) -> None:
        with self._lock:
            if self._made is not None and self._made[1] is client:
                self._made = None


_making = threading.Lock()
"""A fork waits for it: where a module is half loaded by another thread, a child would wait for that for ever."""
os.register_at_fork(before=_making.acquire, after_in_parent=_making.release, after_in_child=_making.release)

_SURROUNDINGS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")


class _Body(io.BytesIO):
    """What is put: it comes in pieces, and none after the call was given up."""

    def __init__(self, data: bytes, call: Call) -> None:
        super().__init__(data)
        self._call = call

    def read(self, size: int | None = -1, /) -> bytes:
        self._call.go_on()
        return super().read(_PIECE_BYTES if size is not None and 0 < size < _PIECE_BYTES else size)


class _OldCredentialsError(StoreError):
    """The store refuses the credentials."""


def _new_client(place: S3Place) -> Any:
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session

    try:
        session = Session()
        session.register_component("data_loader", _loader())
        region = place.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
        if region is None:
            import pyarrow.fs as fs

            region = fs.resolve_s3_region(place.bucket)
        config = Config(
            signature_version="s3v4",
            connect_timeout=place.connect_timeout,
            read_timeout=place.request_timeout,
            max_pool_connections=_CONNECTIONS,
            retries={"total_max_attempts": 1, "mode": "standard"},  # ours know deadlines
            s3={"addressing_style": "path" if place.endpoint or "." in place.bucket else "virtual"},
            parameter_validation=False,
            # Many stores don't know the newer checksums; entries have their own, and signatures cover what is put.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        trusted = None if session.get_config_variable("ca_bundle") else ssl.get_default_verify_paths().cafile
        client = session.create_client(
            "s3", region_name=region, endpoint_url=place.endpoint, config=config, verify=trusted
        )
    except BotoCoreError as error:
        raise StoreError(f"no client can be made: {error}", refused=True) from error
    client.meta.events.register_last("before-call.s3", _plainly)
    return client


@cache
def _loader() -> Any:
    """What S3's operations are, read once in a process."""
    from botocore.loaders import create_loader

    return create_loader()


def _plainly(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
    """Let a request be one: it neither waits until the store says that it wants the body, a second where that doesn't
    speak of it, nor looks for the bucket in other regions, which ``pyarrow.fs`` wouldn't do either."""
    params["headers"].pop("Expect", None)
    context["s3_redirect"] = {**context.get("s3_redirect", {}), "redirected": True}


def _told(once: Callable[[Any, Call], R], client: Any, call: Call) -> R:
    """Carry out a request, and raise what its failure means."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        HTTPClientError,
        NoCredentialsError,
        PartialCredentialsError,
    )
    from botocore.exceptions import (
        ConnectionError as UnreachableError,
    )
    from urllib3.exceptions import HTTPError

    try:
        return once(client, call)
    except ClientError as error:
        raise _refusal(error) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise StoreError("no credentials were found", refused=True) from error
    except (HTTPClientError, UnreachableError, HTTPError, ssl.SSLError, TimeoutError, ConnectionError) as error:
        raise _failure(error) from error
    except BotoCoreError as error:
        raise StoreError(f"the request can't be made: {error}", refused=True) from error


def _refusal(error: Any) -> OSError:
    """Return what the answer of a store that didn't do what it was asked for means."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    said = str(error.response.get("Error", {}).get("Message", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in ("NoSuchKey", "NoSuchUpload", "404"):
        return FileNotFoundError("it is missing")
    if status == 412 or code == "PreconditionFailed":
        return AlreadyThereError("there is one already")
    if status == 416:
        return StoreError("it is truncated: it ends before the bytes that were asked for")
    meaning = _MEANINGS.get(code)
    if code in _OLD_CREDENTIALS:
        return _OldCredentialsError(meaning or "the credentials have expired", refused=True)
    passing = status in _PASSING_STATUS or code in _PASSING_CODES
    named = code if not code.isdigit() else "no reason"
    said = "" if code.isdigit() else said
    return StoreError(
        meaning
        or f"the store refused {error.operation_name} with {named} (HTTP status {status}){': ' * bool(said)}{said}",
        passing=passing,
        refused=True,
    )


def _failure(error: BaseException) -> StoreError:
    """Return what an error of the connection means."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return StoreError(f"the store's certificate isn't trusted: {cause.verify_message}", refused=True)
    from urllib3.exceptions import IncompleteRead
    from urllib3.exceptions import TimeoutError as SlowError

    why = str(error)
    for cause in causes:
        if isinstance(cause, IncompleteRead):
            return StoreError("the connection was cut in the middle of an answer", unreachable=True)
        if isinstance(cause, TimeoutError | SlowError):
            why = "it didn't answer in time"
        elif isinstance(cause, ConnectionRefusedError):
            why = "nobody listens there"
        elif isinstance(cause, socket.gaierror):
            why = "its name is unknown"
    return StoreError(f"the store can't be reached: {why}", unreachable=True)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it came from, the outermost first."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo += [one.__cause__, one.__context__]
        todo += [of for of in one.args if isinstance(of, BaseException)]
