"""A proxy in front of an object store that damages what the store answers, on command."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "expect")
_BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_MISSING = b"<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"


@dataclass(frozen=True)
class Request:
    """What was asked: method, path with the query, and the first and last byte (inclusive) of a range, if one was."""

    method: str
    path: str
    range: tuple[int, int] | None

    def wants(self, at: int) -> bool:
        """True if the answer has a byte of the object."""
        return self.method == "GET" and (self.range is None or self.range[0] <= at <= self.range[1])


@dataclass(frozen=True)
class Fault:
    """What happens to the answers of some requests; ``times`` of them, None: of all.

    ``what`` is ``refuse`` (the connection is closed, and the store never asked), ``lose`` (the store did what it was
    asked for, but its answer is lost), ``silence`` (there is no answer, and the connection stays open until the fault
    ends), ``cut`` (the answer ends in the middle of its body), ``corrupt`` (one byte is another: ``at`` in the object,
    or the middle one) ``busy`` (503, as S3 answers under load), ``missing`` (404), or ``short`` (half of the body, as
    if that were all).
    """

    what: str
    when: Callable[[Request], bool] = lambda request: request.method == "GET"
    at: int | None = None
    times: int | None = None


def on_byte(what: str, name: str, at: int, times: int | None = None) -> Fault:
    """Return a fault of every answer that has a certain byte of an object."""
    return Fault(what, lambda request: name in request.path and request.wants(at), at, times)


class Proxy:
    """Stands between a client and a store on a loopback port. A context manager."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.requests: list[Request] = []
        self._fault: Fault | None = None
        self._left = 0
        self._struck = 0
        self._lock = threading.Condition()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.set_fault(None)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        """Where it listens, ``host:port``."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    @property
    def struck(self) -> int:
        """How many answers the present fault has spoilt."""
        return self._struck

    def set_fault(self, fault: Fault | None) -> None:
        """From now on spoil answers like this; None: none. A silence before that ends: its connections are closed."""
        with self._lock:
            self._fault, self._struck = fault, 0
            self._left = -1 if fault is None or fault.times is None else fault.times
            self._lock.notify_all()

    def strike(self, request: Request) -> Fault | None:
        """Note a request, and return what is to happen to its answer."""
        with self._lock:
            self.requests.append(request)
            if self._fault is None or self._left == 0 or not self._fault.when(request):
                return None
            self._left -= 1
            self._struck += 1
            return self._fault

    def wait(self, fault: Fault | None) -> None:
        """Return when a fault has ended."""
        with self._lock:
            self._lock.wait_for(lambda: self._fault is not fault)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that was cut off hangs up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it would hold back each body until the head was acknowledged
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _forward(self) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        request = Request(self.command, self.path, (int(asked[1]), int(asked[2])) if asked else None)
        body = self._body()
        fault = self.server.proxy.strike(request)
        what = "" if fault is None else fault.what
        if what in ("refuse", "silence"):
            self.close_connection = True
            if what == "silence":
                self.server.proxy.wait(fault)
            return
        status, headers, answer = self._ask(body)
        if what == "lose":
            self.close_connection = True
            return
        if what == "busy":
            status, headers, answer = (
                503,
                [("Content-Type", "application/xml")],
                b"" if self.command == "HEAD" else _BUSY,
            )
        if what == "missing":
            status, headers, answer = 404, [("Content-Type", "application/xml")], _MISSING
        if what == "short":
            answer = answer[: len(answer) // 2]
        if fault is not None and what == "corrupt" and answer:
            first = request.range[0] if request.range else 0
            at = len(answer) // 2 if fault.at is None else fault.at - first
            answer = answer[:at] + bytes([answer[at] ^ 0x01]) + answer[at + 1 :]
        self._answer(status, headers, answer, cut=what == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection(self.server.proxy.upstream, timeout=30)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
            upstream.request(self.command, self.path, body, headers | {"Content-Length": str(len(body))})
            response = upstream.getresponse()
            answer = response.read()
            kept = [(k, v) for k, v in response.getheaders() if k.lower() not in _HOP_BY_HOP]
            if self.command == "HEAD":
                kept.append(("Content-Length", response.getheader("Content-Length", "0")))
            return response.status, kept, answer
        finally:
            upstream.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], answer: bytes, *, cut: bool) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer[: len(answer) // 2] if cut else answer)
        self.close_connection = cut
