"""The console's application: its page, and below ``/api/`` what the page asks for.

Nothing changes state by GET. What a visitor sees and does is judged as its calls to the service are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from txn_source.console.admission import MAX_BODY, Admission, check_change
from txn_source.console.answers import answer, failure, refusal
from txn_source.console.api import blockers, messages, overview, partitions, policies, seeking, subscriptions, topics
from txn_source.console.packing import packed
from txn_source.console.snapshot import Snapshots
from txn_source.console.static_files import StaticFiles
from txn_source.console.viewer import Viewer
from txn_source.http.gate import Refused
from txn_source.metadata.service.guard import Guard
from txn_source.metadata.service.service import MetadataService
from txn_source.model.errors import InvalidArgumentError, LimitExceededError, shown
from txn_source.storage.object_root import Root

BODY_S = 10.0
"""So long the body of a request may take to come."""
Looks = Callable[[Request, Viewer], Any]
Changes = Callable[[bytes, Viewer], Any]
LOOKS: dict[str, Looks] = {
    "about": overview.about,
    "overview": overview.overview,
    "topics": topics.topics,
    "topic": topics.topic,
    "partitions": partitions.partitions,
    "partition": partitions.partition,
    "ledgers": partitions.ledgers,
    "blockers": blockers.blockers,
    "subscriptions": subscriptions.subscriptions,
    "subscription": subscriptions.subscription,
    "subscription_partitions": subscriptions.subscription_partitions,
    "messages": messages.messages,
    "policies": policies.policies,
}
"""What is answered to GET, by its path below ``/api/``."""
CHANGES: dict[str, Changes] = {
    "transactions/abort": blockers.abort,
    "subscriptions/preview": seeking.preview,
    "subscriptions/seek": seeking.seek,
}
"""What is answered to POST."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of each answer."""
EDITION = "X-Txnlog-Page"
"""The header that tells which page's files the service has."""


class ConsoleParts:
    """What answers are made of."""

    def __init__(
        self,
        service: MetadataService,
        guard: Guard,
        root: Root,
        admission: Admission,
        version: str,
        pages: Callable[[Mapping[str, str], Viewer], Any],
        look: Callable[[], object] = lambda: None,
    ) -> None:
        """``pages`` reads pages of messages; ``look`` is called now and then: certificates may have changed."""
        self.service = service
        self.guard = guard
        self.root = root
        self.admission = admission
        self.version = version
        self._look = look
        self._pages = pages
        self.snapshots = Snapshots(service)

    def viewer(self, request: Request, body_bytes: int = 0) -> Viewer:
        """Return who asks, or raise ``Refused``."""
        self._look()
        visitor = self.admission.visitor(request, body_bytes)
        return Viewer(visitor, self.service, self.guard, self.root, self.snapshots, self._pages)

    def counted(self, response: Response, viewer: Viewer) -> Response:
        """Count what somebody is answered against its limit."""
        self.admission.answered(viewer.visitor, len(response.body))
        return response


def console_app(parts: ConsoleParts) -> ASGIApp:
    """Return the application."""
    files = StaticFiles()
    routes = [Route(f"/api/{name}", _look(parts, look), methods=["GET"]) for name, look in LOOKS.items()]
    routes += [Route(f"/api/{name}", _change(parts, change), methods=["POST"]) for name, change in CHANGES.items()]
    routes += [
        Route("/api/{rest:path}", _nothing, methods=["GET", "POST"]),
        Route("/", files.answer, methods=["GET"]),
        Route("/{name:path}", files.answer, methods=["GET"]),
    ]
    app = Starlette(routes=routes)
    app.state.version = parts.version
    return _Shell(app, parts.admission, files.edition)


def _look(parts: ConsoleParts, look: Looks) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        try:
            viewer = parts.viewer(request)
            return packed(parts.counted(answer(look(request, viewer)), viewer), request)
        except Exception as error:
            return failure(error, request.url.path)

    return endpoint


def _change(parts: ConsoleParts, change: Changes) -> Callable[[Request], Any]:
    def carried_out(request: Request, body: bytes) -> Response:
        try:
            viewer = parts.viewer(request, len(body))
            return packed(parts.counted(answer(change(body, viewer)), viewer), request)
        except Exception as error:
            return failure(error, request.url.path)

    async def endpoint(request: Request) -> Response:
        try:
            check_change(request)
            async with asyncio.timeout(BODY_S):
                body = await _body(request)
        except Refused as refused:
            return failure(refused, request.url.path)
        except (ClientDisconnect, TimeoutError):
            return Response(status_code=400)
        return await run_in_threadpool(carried_out, request, body)

    return endpoint


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            error = LimitExceededError(f"The body has more than {MAX_BODY:,} bytes.", "Send less.")
            raise Refused(413, error)
    return bytes(body)


def _nothing(request: Request) -> Response:
    error = InvalidArgumentError(f"The console has no {shown(request.url.path)}.", "Reload the page.")
    return refusal(error, 404)


class _Shell:
    """Refuses requests for other hosts' names, and gives each answer its headers."""

    def __init__(self, app: ASGIApp, admission: Admission, edition: str) -> None:
        """``edition`` is of the page's files: a tab with others is told by it that it is an old one."""
        self._app = app
        self._admission = admission
        self._edition = edition

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        is_api = scope["path"].startswith("/api/")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if is_api:
                    headers["Cache-Control"] = "no-store"
                    headers[EDITION] = self._edition
            await send(message)

        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy may take another one of the two, and what follows for somebody else's request.
            error = InvalidArgumentError("The request says twice how long it is.", "Send one of the two headers.")
            refused = refusal(error, 400)
            refused.headers["Connection"] = "close"
        elif not self._admission.knows_host(headers):
            given = f"as {shown(headers['host'])}" if "host" in headers else "to requests that name no host"
            error = InvalidArgumentError(
                f"The console isn't known {given}.", "Use its address, or name it to the service: --console-name."
            )
            refused = refusal(error, 421)
        else:
            await self._app(scope, receive, send_with_headers)
            return
        await refused(scope, receive, send_with_headers)
