"""The files of the page: those in the package's folder, and nothing else, whatever name is asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
INDEX = "index.html"


def static_file(request: Request) -> Response:
    """Return a file, or that it hasn't changed."""
    name = request.path_params.get("name") or INDEX
    path = next((path for path in STATIC.rglob("*") if path.relative_to(STATIC).as_posix() == name), None)
    if path is None or path.suffix not in TYPES or not path.is_file():
        return PlainTextResponse("There is no such page.\n", 404)
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers={**headers, "Content-Type": TYPES[path.suffix]})
