"""Errors of a change that met another one: it is carried out again from its beginning, a few times.

All writers of a log take its lock first, so these are a second defence. Where a row isn't as it was read, or a unique
index refuses one, somebody else was faster: the repetition sees what they did, and answers as if it had come later.
"""

from __future__ import annotations

from txn_source.model.errors import InternalError, TxnLogError, UnavailableError


class ConflictError(UnavailableError):
    """The transaction met another one; nothing of it happened."""

    @property
    def final(self) -> TxnLogError:
        """What the caller is told when the repetitions have met others, too."""
        return UnavailableError(self.fact, self.remedy)


class RefusedRowError(ConflictError):
    """A constraint refused a row; if it does so again, nobody was faster and it is our bug."""

    @property
    def final(self) -> TxnLogError:
        return InternalError(self.fact, "Please report it.")


class LockedError(ConflictError):
    """Another writer had the log's lock for too long."""


class LostConnectionError(ConflictError):
    """The connection was lost before the commit was asked for."""


def expect(changed: int, rows: int = 1) -> None:
    """Raise a conflict unless a statement changed so many rows: all that it names were as they had been read."""
    if changed != rows:
        raise ConflictError(f"A change of {rows} rows found {changed} of them as they had been read.", "Try again.")
