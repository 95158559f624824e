"""An object store that answers after so many milliseconds: ``python -m benchmarks.slow_store MILLISECONDS``.

It speaks as much of S3 as segments need, keeps objects in memory, and asks nobody for a signature. It prints its
address, and ends when its standard input does. ``GET /-/count`` tells how many requests there were.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_OBJECTS: dict[str, bytes] = {}
_DELAY_S = [0.0]
_COUNT = [0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path == "/-/count":
            self._answer(200, b"%d" % _COUNT[0])
            return
        self._wait()
        found = _OBJECTS.get(self.path)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        elif asked is None:
            self._answer(200, found)
        else:
            self._answer(206, memoryview(found)[int(asked[1]) : int(asked[2]) + 1])

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._wait()
        _OBJECTS[self.path] = body
        self._answer(200, b"")

    def _wait(self) -> None:
        _COUNT[0] += 1
        time.sleep(_DELAY_S[0])

    def _answer(self, status: int, body: bytes | memoryview) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    address_family = socket.AF_INET


if __name__ == "__main__":
    _DELAY_S[0] = float(sys.argv[1]) / 1000
    server = _Server(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("{}:{}".format(*server.server_address[:2]), flush=True)
    sys.stdin.read()
