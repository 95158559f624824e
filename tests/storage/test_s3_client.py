"""The client of S3: stores that answer as they shouldn't, odd keys, and credentials that change."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.selection import for_each
from tests.tiers.stores import CREDENTIALS, S3Server
from txn_source.storage.s3_client import S3Client, S3Place
from txn_source.storage.store_errors import StoreError


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give credentials as users do, and keep the client from looking for others."""
    for name in ("PROFILE", "SESSION_TOKEN", "ENDPOINT_URL", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", CREDENTIALS[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CREDENTIALS[1])
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def place(port: int, **options: object) -> S3Place:
    given = {
        "bucket": "bucket", "endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1",
        "connect_timeout": 10.0, "request_timeout": 10.0, "max_attempts": 2, "write_deadline": 30.0,
    }  # fmt: skip
    return S3Place(**(given | options))  # type: ignore[arg-type]


@contextmanager
def store(answer: Callable[[socket.socket, bytes], None]) -> Iterator[int]:
    """Listen; each connection that comes is answered in a thread of its own, and closed."""

    def serve(connection: socket.socket) -> None:
        with closing(connection), suppress(OSError):
            answer(connection, connection.recv(1 << 16))

    def listen() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # a close wakes nobody, and the next listener may get its number
            listener.close()
            listening.join()


def test_store_that_trickles_is_given_up() -> None:
    """Send a byte now and then, more often than the limit of silence: reads and writes end all the same."""
    ended = threading.Event()

    def trickle(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 1000\r\n\r\n")
        while not ended.wait(0.02):
            connection.sendall(b"x")

    with store(trickle) as port:
        requests = S3Client(place(port, request_timeout=0.1, write_deadline=0.2))
        for call in (lambda: requests.get("key", 0, memoryview(bytearray(1000))), lambda: requests.put("key", b"1")):
            with pytest.raises(StoreError, match="it didn't answer in time") as raised:
                call()
            assert raised.value.unreachable
        ended.set()


@for_each(
    ("answer", "said"),
    [
        (b"HTTP/1.1 206 Partial Content\r\nContent-Length: 9\r\n\r\n123456789", "it is truncated: it ends at byte 14"),
        (b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n", "it is truncated"),
        (b"HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\n\r\n1234", "cut in the middle"),
        (b"HTTP/1.1 301 Moved\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "the bucket is in another region"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "the store denies access"),
        (
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 48\r\n\r\n<Error><Code>RequestTimeTooSkewed</Code></Error>",
            "the clock of this machine is wrong",
        ),
        (b"HTTP/1.1 418 Teapot\r\nContent-Length: 0\r\n\r\n", r"refused GetObject with no reason \(HTTP status 418\)"),
        (b"what?\r\n\r\n", "the store can't be reached"),
        (b"", "the store can't be reached"),
    ],
)
def test_wrong_answers_are_told(answer: bytes, said: str) -> None:
    """Answer a request for ten bytes in ways that are not what was asked for."""
    with store(lambda connection, _: connection.sendall(answer)) as port:
        requests = S3Client(place(port), sleep=lambda _: None)
        with pytest.raises(StoreError, match=said):
            requests.get("key", 5, memoryview(bytearray(10)))


def test_nobody_listening_and_no_credentials_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a port that nobody listens on, and sign without credentials."""
    with socket.socket() as bound:  # so that nobody else gets it
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(StoreError, match="nobody listens there"):
            S3Client(place(port), sleep=lambda _: None).read("key")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{name}")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(StoreError, match="no credentials were found"):
        S3Client(place(port)).read("key")


def test_whole_object_where_a_range_was_asked_for_is_cut() -> None:
    """Let a store ignore the range."""
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"
    with store(lambda connection, _: connection.sendall(whole)) as port:
        into = bytearray(3)
        S3Client(place(port)).get("key", 4, memoryview(into))
        assert into == b"456"


def test_writes_are_tried_until_their_deadline() -> None:
    """Be busy for ever: a write is tried with pauses that grow, up to its deadline, a read a few times."""
    busy = b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"  # or a try may meet its end
    asked, time_s, pauses = [0], [0.0], []

    def answer(connection: socket.socket, _: bytes) -> None:
        asked[0] += 1
        connection.sendall(busy)

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        time_s[0] += seconds

    with store(answer) as port:
        requests = S3Client(place(port), clock=lambda: time_s[0], sleep=sleep)
        with pytest.raises(StoreError, match="too busy"):
            requests.put("key", b"1")
        assert asked[0] > 5
        assert 20 < time_s[0] <= 29  # the last try has a second
        assert max(pauses) > 1 > pauses[0]
        before = asked[0]
        with pytest.raises(StoreError, match="too busy"):
            requests.read("key")
        assert asked[0] == before + 2


def test_a_short_deadline_has_room_for_another_try() -> None:
    """Be busy once, and give the write a second for all tries."""
    answers = [b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" % s for s in (b"200 OK", b"503 Busy")]
    with store(lambda connection, _: connection.sendall(answers.pop())) as port:
        S3Client(place(port, write_deadline=1.0), clock=lambda: 0.0, sleep=lambda _: None).put("key", b"1")
    assert answers == []


def test_credentials_are_looked_for_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse the first key: another one in the file is taken at once; one in the environment without being refused."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{name}")
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    seen: list[bytes] = []

    def answer(connection: socket.socket, asked: bytes) -> None:
        seen.append(asked.partition(b"Credential=")[2].partition(b"/")[0])
        old = b"<Error><Code>ExpiredToken</Code></Error>"
        if seen[-1] == b"old":
            file.write_text("[default]\naws_access_key_id = new\naws_secret_access_key = d\n")
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%s" % (len(old), old))
        else:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    file.write_text("[default]\naws_access_key_id = old\naws_secret_access_key = b\n")
    with store(answer) as port:
        requests = S3Client(place(port))
        assert requests.read("key") == b"ok"
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "third")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "f")
        assert requests.read("key") == b"ok"
    assert seen == [b"old", b"new", b"third"]


def test_key_that_stays_refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every key: it is looked for once more, not for ever."""
    asked = [0]
    old = b"<Error><Code>InvalidAccessKeyId</Code></Error>"

    def answer(connection: socket.socket, _: bytes) -> None:
        asked[0] += 1
        connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%s" % (len(old), old))

    with store(answer) as port, pytest.raises(StoreError, match="doesn't know the access key"):
        S3Client(place(port)).put("key", b"1")
    assert asked == [2]


def test_store_that_takes_a_body_slowly_is_given_up() -> None:
    """Take the request and a part of the body, and nothing more; and send a header now and then."""
    ended = threading.Event()

    def take_little(connection: socket.socket, _: bytes) -> None:
        ended.wait()

    def trickle_headers(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while not ended.wait(0.02):
            connection.sendall(b"x: y\r\n")

    for answer in (take_little, trickle_headers):
        with store(answer) as port, pytest.raises(StoreError, match="didn't answer in time") as raised:
            S3Client(place(port, request_timeout=0.1, write_deadline=0.2)).put("key", bytes(32 << 20))
        assert raised.value.unreachable
    ended.set()


def test_call_that_was_given_up_fills_no_buffer() -> None:
    """Let the rest of an answer come after the call was given up: its buffer stays as it was."""
    ended, seen = threading.Event(), threading.Event()

    def answer(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\n\r\n")
        ended.wait()
        connection.sendall(b"0123456789")
        connection.recv(1)
        seen.set()

    into = bytearray(10)
    with store(answer) as port:
        with pytest.raises(StoreError, match="didn't answer in time"):
            S3Client(place(port, request_timeout=0.1, max_attempts=1)).get("key", 0, memoryview(into))
        ended.set()
        seen.wait(5)
    assert into == bytes(10)


def test_any_key_comes_back(s3: S3Server) -> None:
    """Put, read, look at, list and delete objects whose keys have characters that URLs are made of."""
    bucket = s3.make_bucket()
    port = s3.endpoint.partition(":")[2]
    requests = S3Client(place(int(port), bucket=bucket.name))
    for key in ("plain", "a b", "a+b", "a%20b", "a=b&c?d#e", "é\u4e2d\U0001f600", "x'y\"z", "a//b", "~a*(b)!"):
        requests.put(key, b"content")
        assert requests.read(key) == b"content"
        assert requests.size(key) == 7
        assert [found.key for found in requests.listed("")] == [key]
        requests.delete(key)
        assert requests.size(key) is None
        assert list(requests.listed("")) == []


def test_own_and_foreign_tries_to_put_the_first_one_are_told_apart_by_whoever_asks(s3: S3Server) -> None:
    """Put twice where none may be: the first one stays."""
    bucket = s3.make_bucket()
    port = s3.endpoint.partition(":")[2]
    requests = S3Client(place(int(port), bucket=bucket.name))
    requests.put("key", b"first", if_absent=True)
    requests.put("key", b"second", if_absent=True)
    assert requests.read("key") == b"first"


def test_uploads_that_were_left_are_listed_and_aborted(s3: S3Server) -> None:
    """Begin an upload in parts, and leave it; abort it twice."""
    bucket = s3.make_bucket()
    port = s3.endpoint.partition(":")[2]
    requests = S3Client(place(int(port), bucket=bucket.name))
    requests._asked("create_multipart_upload", Key="a/key")
    [(key, upload, begun)] = requests.uploads("a/")
    assert key == "a/key"
    assert begun > 0
    requests.abort_upload(key, upload)
    requests.abort_upload(key, upload)
    assert list(requests.uploads("")) == []
