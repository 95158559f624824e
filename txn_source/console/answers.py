"""Answers in JSON, and errors with HTTP's statuses."""

from __future__ import annotations

import json
import logging
from typing import Any

from starlette.responses import Response

from txn_source.http.gate import Refused
from txn_source.model.door import translated
from txn_source.model.errors import TxnLogError

_STATUSES = {
    "INVALID_ARGUMENT": 400,
    "SCHEMA_MISMATCH": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "LOG_NOT_FOUND": 404,
    "TOPIC_NOT_FOUND": 404,
    "NAMESPACE_NOT_FOUND": 404,
    "TXN_NOT_FOUND": 404,
    "SUBSCRIPTION_NOT_FOUND": 404,
    "TXN_ENDED": 409,
    "TXN_TIMED_OUT": 409,
    "STALE_EPOCH": 409,
    "SUBSCRIPTION_BUSY": 409,
    "ACKNOWLEDGED_ELSEWHERE": 409,
    "LIMIT_EXCEEDED": 429,
    "RATE_LIMITED": 429,
    "UNAVAILABLE": 503,
    "LOG_VERSION": 503,
}
_log = logging.getLogger(__name__)


def answer(value: Any, status: int = 200) -> Response:
    """Return a value as JSON."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A text of a message may have half of a surrogate pair, which isn't UTF-8.
    return Response(text.encode("utf-8", "replace"), status, media_type="application/json")


def refusal(error: TxnLogError, status: int | None = None) -> Response:
    """Return an error as JSON; 500 if it isn't the caller's to mend."""
    body = {"error": {"code": error.code, "fact": error.fact, "remedy": error.remedy}}
    response = answer(body, status or _STATUSES.get(error.code, 500))
    if response.status_code == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def failure(error: Exception, doing: str) -> Response:
    """Return whatever went wrong as JSON; what isn't ours is logged."""
    if isinstance(error, Refused):
        return refusal(error.error, error.status)
    if not isinstance(error, TxnLogError):
        _log.error("%s failed", doing, exc_info=error)
    return refusal(translated(error, doing))
