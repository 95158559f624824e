"""Who asks the console for what, and whether its request is one of its own page.

A page of another site must neither change nor read anything by way of somebody's browser. So a request is for a name
that the console has, and not for one that was made to lead here (DNS rebinding); and what changes something carries a
header and a type that another site's page can't send without asking first, which nobody allows.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.requests import Request

from txn_source.http.gate import Refused, visitor_of
from txn_source.metadata.access.door import Door, Visitor
from txn_source.model.errors import InvalidArgumentError, PermissionDeniedError, shown

MARK = "x-txnlog-console"
"""The header of what changes something."""
MAX_BODY = 1 << 20


class Admission:
    """Lets in who may ask; ``names`` are those that the console has beside its address and this machine's."""

    def __init__(self, door: Door, host: str, names: Iterable[str] = ()) -> None:
        self._door = door
        own = {"localhost", host.strip("[]"), socket.gethostname(), socket.getfqdn(), *names}
        self._names = {name.lower().rstrip(".") for name in own if name}

    def knows_host(self, headers: Headers) -> bool:
        """True if a request is for an address, or for a name that the console has."""
        hosts = headers.getlist("host")
        name = _name_in(hosts[0]) if len(hosts) == 1 else ""
        return name in self._names or _is_address(name)

    def visitor(self, request: Request, body_bytes: int = 0) -> Visitor:
        """Return who asks.

        Raises:
            Refused: it has no token that is taken, or asks too often.
        """
        return visitor_of(self._door, request, "console", body_bytes)

    def answered(self, visitor: Visitor, of_bytes: int) -> None:
        """Take notice of an answer."""
        self._door.usage.answered(visitor.name, of_bytes)


def check_change(request: Request) -> None:
    """Let a request that changes something pass if the console's own page has sent it.

    Raises:
        Refused: it may be another site's.
    """
    headers = request.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or headers.get(MARK) != "1":
        raise Refused(
            415,
            InvalidArgumentError(
                "The request isn't one of the console's page.",
                f"Send JSON, with Content-Type: application/json and {MARK}: 1.",
            ),
        )
    origin = headers.get("origin")
    own = origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()
    if not own or headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused(
            403,
            PermissionDeniedError(
                f"The request comes from a page of {shown(origin)}.", "Use the page that the console serves."
            ),
        )


def _name_in(host: str) -> str:
    """Return the name or address in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
