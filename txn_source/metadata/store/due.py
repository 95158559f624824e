"""What is read before each call that looks at bounds, or writes, in one statement: what time and others ask for.

That is which transactions are past their deadline, when somebody looked at the clock last, and whether a newer release
has upgraded the tables meanwhile. An upgrade and a write take the same lock, so a write that has read the version can
rely on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_source.metadata.store.prepared import Prepared
from txn_source.metadata.store.table_version import SCHEMA_VERSION
from txn_source.model.errors import UnavailableError
from txn_source.model.kinds import OPEN

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

LOOK_EVERY_MS = 10_000
"""Whoever writes looks at the clock so often."""


@dataclass(frozen=True, slots=True)
class Due:
    """What was read."""

    looked_at_ms: int
    """What the clock showed when a writer looked at it last; 0 if none has."""
    measured_ms: int
    """Measured time as of then (``timekeeping.py``)."""
    overdue: list[int]
    """The open transactions past their deadline, in the order of the deadlines."""
    counts: tuple[int, ...] = ()
    """What never goes back: transactions begun and ended, and measured time."""

    def check_not_back(self, seen: Due | None) -> None:
        """Raise UNAVAILABLE if the log was further before."""
        if seen is not None and any(now < then for now, then in zip(self.counts, seen.counts, strict=False)):
            raise UnavailableError(
                f"The metadata database has gone back: it has {self.counts[1]} transactions ended (and measured time"
                f" {self.counts[2]}), and had {seen.counts[1]} ({seen.counts[2]}) before.",
                "See whether an older copy of it was put back, or a standby was promoted that lacked some. If it is to"
                " stay so: stop all services, run `txnlog after-restore`, and start them again.",
            )


def read_due(connection: Connection, now_ms: int) -> Due:
    """Read it.

    Raises:
        UnavailableError: a newer release has upgraded the tables.
    """
    return _read(connection, now_ms, _DUE)


def read_due_of_any_version(connection: Connection, now_ms: int) -> Due:
    """Read it where the tables can't be changed from here: they may be of an older version, and tell none."""
    return _read(connection, now_ms, _DUE_OF_ANY_VERSION)


def _read(connection: Connection, now_ms: int, statement: Prepared) -> Due:
    rows = statement.rows(connection, {"now_ms": now_ms})
    if not rows:
        return Due(0, 0, [])
    looked_at_ms, measured_ms, version, begun, ended, _ = rows[0]
    if version > SCHEMA_VERSION:
        raise UnavailableError(
            f"A newer release has upgraded the metadata database to schema version {version}, while this one had it"
            f" open, which knows up to {SCHEMA_VERSION}.",
            "Stop what runs with this release (txnlog serve, programs), and start it with the newer one.",
        )
    overdue = [row[5] for row in rows if row[5] is not None]
    return Due(looked_at_ms, measured_ms, overdue, (begun, ended, measured_ms))


def was_ahead(due: Due, now_ms: int) -> bool:
    """True if the clock shows less than when somebody looked last."""
    return due.looked_at_ms >= now_ms + LOOK_EVERY_MS


def _statement(version: str) -> Prepared:
    return Prepared(
        f"""
        SELECT log_info.looked_at_ms, log_info.measured_ms, {version}, log_info.transactions, log_info.decisions,
            transactions.txn
        FROM log_info LEFT JOIN transactions ON transactions.state = {OPEN} AND transactions.deadline_ms <= :now_ms
        ORDER BY transactions.deadline_ms, transactions.txn"""
    )


_DUE = _statement("(SELECT COALESCE(MAX(version), 0) FROM schema_versions)")
_DUE_OF_ANY_VERSION = _statement("0")
