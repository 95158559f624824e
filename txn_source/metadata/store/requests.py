"""Answers of calls that changed something, for those who ask again with the same request id.

They are dropped after ``timekeeping.REQUEST_LIFETIME_MS`` of measured time.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection

from txn_source.metadata.store.inserts import NewRows
from txn_source.metadata.store.prepared import Prepared
from txn_source.metadata.store.tables import requests


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """An answer that was given, and the fingerprint of the call that it was given to."""

    answer: bytes
    fingerprint: bytes


def find(connection: Connection, request_id: str) -> KnownAnswer | None:
    """Return what was answered to a request id; None if it is new, or so old that it was dropped."""
    rows = _FIND.rows(connection, {"request_id": request_id})
    return KnownAnswer(*rows[0]) if rows else None


def keep(connection: Connection, request_id: str, known: KnownAnswer, measured_ms: int) -> None:
    """Keep an answer, as of a moment of measured time."""
    row = {"request_id": request_id, "answer": known.answer, "fingerprint": known.fingerprint}
    _KEEP.add(connection, [row | {"stored_at_ms": measured_ms}])


_FIND = Prepared("SELECT answer, fingerprint FROM requests WHERE request_id = :request_id")
_KEEP = NewRows(requests)
