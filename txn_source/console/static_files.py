"""The files of the page: those in the package's folder, and nothing else, whatever name is asked for.

They are read once, when the console is made, so that a tab never gets parts of two releases. The page names them below
the digest of them all (``/page-<digest>/js/app.js``), where a browser may keep them for ever.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from txn_source.console.packing import takes_gzip

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
INDEX = "index.html"
_YEAR_S = 365 * 86_400


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    packed: bytes
    tag: str
    kind: str


class StaticFiles:
    """What is in a folder. ``edition`` is the digest of all of it."""

    def __init__(self, folder: Path = STATIC) -> None:
        """Read the files."""
        found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        contents = {name: path.read_bytes() for name, path in found.items() if path.suffix in TYPES}
        digest = hashlib.sha256()
        for name, content in contents.items():
            digest.update(f"{name} {len(content)} ".encode() + content)
        self.edition = digest.hexdigest()[:16]
        self._below = f"page-{self.edition}/"
        if INDEX in contents:
            contents[INDEX] = self._addressed(contents[INDEX])
        self._files = {name: _file(content, TYPES[found[name].suffix]) for name, content in contents.items()}

    def answer(self, request: Request) -> Response:
        """Return a file, or that it hasn't changed."""
        name = request.path_params.get("name") or INDEX
        file = self._files.get(name.removeprefix(self._below))
        if file is None:
            return PlainTextResponse("There is no such page.\n", 404)
        for_ever = name.startswith(self._below)
        headers = {
            "ETag": file.tag,
            "Cache-Control": f"public, max-age={_YEAR_S}, immutable" if for_ever else "no-cache",
            "Vary": "Accept-Encoding",
        }
        if file.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        headers["Content-Type"] = file.kind
        if takes_gzip(request):
            return Response(file.packed, headers=headers | {"Content-Encoding": "gzip"})
        return Response(file.content, headers=headers)

    def _addressed(self, index: bytes) -> bytes:
        """Return the page with the addresses of its files below the digest."""
        for folder in (b"css/", b"js/"):
            index = index.replace(b'"' + folder, b'"' + self._below.encode() + folder)
        return index


def _file(content: bytes, kind: str) -> _File:
    return _File(content, gzip.compress(content, 9, mtime=0), f'"{hashlib.sha256(content).hexdigest()[:32]}"', kind)
