"""The application on a service's port for HTTP: ``/metrics``, ``/live``, ``/ready``. Nothing changes state here."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from txn_source.http.gate import Gate, Refused
from txn_source.http.readiness import Readiness
from txn_source.model.roles import Role

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
READERS = (Role.MONITOR, Role.ADMIN)
"""The roles, for the whole log, that see its figures."""


def monitoring_app(metrics: Callable[[], bytes], readiness: Readiness, gate: Gate) -> Starlette:
    """Return the application; ``metrics`` gives the text of a scrape."""

    def scrape(request: Request) -> Response:
        gate.admit(request, *READERS)
        return Response(metrics(), media_type=CONTENT_TYPE)

    def live(_: Request) -> Response:
        return PlainTextResponse("alive\n")

    def ready(request: Request) -> Response:
        failures = {name: error for name, error in readiness.ask().items() if error is not None}
        tells = gate.knows(request, *READERS)
        checks = {name: str(error) if tells else f"[TXNLOG_{error.code}]" for name, error in failures.items()}
        body = {"ready": not failures, "failed": checks}
        return JSONResponse(body, 503 if failures else 200, headers={"Cache-Control": "no-store"})

    routes = [Route("/metrics", scrape), Route("/live", live), Route("/ready", ready)]
    return Starlette(routes=routes, exception_handlers={Refused: refuse})


def refuse(_: Request, refusal: Exception) -> Response:
    """Answer a request that was refused."""
    assert isinstance(refusal, Refused)
    headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
    return PlainTextResponse(f"{refusal.error}\n", refusal.status, headers)
