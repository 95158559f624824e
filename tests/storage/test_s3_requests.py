"""Signed requests to S3: the signature that Amazon documents, and stores that answer as they shouldn't."""

from __future__ import annotations

import datetime
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from txn_source.storage.s3_credentials import Credentials, find_credentials, find_region
from txn_source.storage.s3_requests import S3Place, S3Requests, StoreError

KEY = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


def place(port: int, **options: object) -> S3Place:
    given = {
        "bucket": "bucket", "host": "127.0.0.1", "port": port, "tls": False, "path_style": True, "region": "us-east-1",
        "connect_timeout": 1.0, "request_timeout": 0.2, "max_attempts": 2, "write_deadline": 0.5,
    }  # fmt: skip
    return S3Place(**(given | options))  # type: ignore[arg-type]


@contextmanager
def store(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Listen; each connection that comes is answered in a thread of its own, and closed."""

    def serve(connection: socket.socket) -> None:
        with closing(connection), suppress(OSError):
            connection.recv(1 << 16)
            answer(connection)

    def listen() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=listen, daemon=True).start()
        yield listener.getsockname()[1]


def test_signature_is_the_documented_one() -> None:
    """Sign Amazon's example of a GET of a range."""
    now = datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC)
    where = place(443, bucket="examplebucket", host="examplebucket.s3.amazonaws.com", tls=True, path_style=False)
    requests = S3Requests(where, lambda: KEY, now=lambda: now)
    signed = requests._signed("GET", "test.txt", {"range": "bytes=0-9"}, b"")
    assert signed["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        " SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
        " Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_secrets_are_not_shown() -> None:
    """Look at what a traceback or a log may show of credentials."""
    assert "wJalr" not in repr(KEY)
    assert "token" not in repr(Credentials("a", "b", "token-of-a-session"))


def test_store_that_trickles_is_given_up() -> None:
    """Send a byte now and then, more often than the limit of silence: reads and writes end all the same."""
    ended = threading.Event()

    def trickle(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 1000\r\n\r\n")
        while not ended.wait(0.02):
            connection.sendall(b"x")

    with store(trickle) as port:
        requests = S3Requests(place(port, request_timeout=0.1), lambda: KEY)
        for call in (lambda: requests.get("key", 0, memoryview(bytearray(1000))), lambda: requests.put("key", b"1")):
            with pytest.raises(StoreError, match="it didn't answer in time") as raised:
                call()
            assert raised.value.unreachable
        ended.set()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 206 Partial Content\r\nContent-Length: 9\r\n\r\n123456789", "it is truncated: it ends at byte 14"),
        (b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n", "it is truncated"),
        (b"HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\n\r\n1234", "cut in the middle"),
        (b"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n\r\n", "the bucket is in another region"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "the store denies access"),
        (
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 47\r\n\r\n<Error><Code>RequestTimeTooSkewed</Code></Error>",
            "the clock of this machine is wrong",
        ),
        (b"HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n", r"refused GET with no reason \(HTTP status 418\)"),
        (b"what?\r\n\r\n", "the store can't be reached"),
        (b"", "the store can't be reached"),
    ],
)
def test_wrong_answers_are_told(answer: bytes, said: str) -> None:
    """Answer a request for ten bytes in ways that are not what was asked for."""
    with store(lambda connection: connection.sendall(answer)) as port:
        requests = S3Requests(place(port), lambda: KEY, sleep=lambda _: None)
        with pytest.raises(StoreError, match=said):
            requests.get("key", 5, memoryview(bytearray(10)))


def test_nobody_listening_and_no_credentials_are_told() -> None:
    """Ask a port that nobody listens on, and sign without credentials."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(StoreError, match="nobody listens there"):
        S3Requests(place(port), lambda: KEY, sleep=lambda _: None).read("key")
    with pytest.raises(StoreError, match="no credentials were found"):
        S3Requests(place(port), lambda: None).read("key")


def test_whole_object_where_a_range_was_asked_for_is_cut() -> None:
    """Let a store ignore the range."""
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"
    with store(lambda connection: connection.sendall(whole)) as port:
        into = bytearray(3)
        S3Requests(place(port), lambda: KEY).get("key", 4, memoryview(into))
        assert into == b"456"


def test_writes_are_tried_until_their_deadline() -> None:
    """Be busy for ever: a write is tried with pauses that grow, up to its deadline, a read a few times."""
    busy, asked, time_s, pauses = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", [0], [0.0], []

    def answer(connection: socket.socket) -> None:
        asked[0] += 1
        connection.sendall(busy)

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        time_s[0] += seconds

    with store(answer) as port:
        requests = S3Requests(
            place(port, write_deadline=30.0, request_timeout=5.0), lambda: KEY, clock=lambda: time_s[0], sleep=sleep
        )
        with pytest.raises(StoreError, match="too busy"):
            requests.put("key", b"1")
        assert asked[0] > 5
        assert 20 < time_s[0] <= 30
        assert max(pauses) > 1 > pauses[0]
        before = asked[0]
        with pytest.raises(StoreError, match="too busy"):
            requests.read("key")
        assert asked[0] == before + 2


def test_credentials_come_from_the_environment_or_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look where the SDK does: the environment first, then the profile's section of the files."""
    folder = tmp_path
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = a\naws_secret_access_key = b\n"
        "[other]\naws_access_key_id = c\naws_secret_access_key = d\naws_session_token = e\n"
    )
    (folder / "config").write_text("[profile other]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
    assert find_credentials() == Credentials("a", "b")
    assert find_region() is None
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert find_credentials() == Credentials("c", "d", "e")
    assert find_region() == "eu-west-1"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "f")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "g")
    assert find_credentials() == Credentials("f", "g")
