"""Answers that are compressed for browsers that take them so, as all do."""

from __future__ import annotations

import gzip
import re

from starlette.requests import Request
from starlette.responses import Response

_WORTH_BYTES = 1400
"""Smaller ones fit into a packet."""
_LEVEL = 1
_NONE = re.compile(r"\s*q\s*=\s*0(\.0*)?\s*")


def takes_gzip(request: Request) -> bool:
    """Return whether who asks takes gzip."""
    for each in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return not _NONE.fullmatch(weight)
    return False


def packed(response: Response, request: Request) -> Response:
    """Compress the body of a response, if it is worth it."""
    response.headers["Vary"] = "Accept-Encoding"
    if len(response.body) >= _WORTH_BYTES and takes_gzip(request):
        response.body = gzip.compress(bytes(response.body), _LEVEL, mtime=0)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(response.body))
    return response
