"""Transactions: their ids and their life.

Life cycle:
1. OPEN from ``begin`` on; messages are appended under its id and get positions at once.
2. COMMITTED or ABORTED, by one atomic change that also writes a marker on each partition it wrote to.
3. An open transaction whose deadline has passed is aborted by whoever looks at it next.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Literal

from txn_source.model.errors import InvalidArgumentError

MAX_TIMEOUT_MS = 15 * 60 * 1000
"""The service's maximum, as Kafka's ``transaction.max.timeout.ms``."""
COORDINATOR = 0
"""The high half of every id; a second coordinator would take another one."""
_TXN_ID = re.compile(r"\(?([0-9]{1,20})[,:]\s*([0-9]{1,20})\)?")
_MAX_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True, order=True)
class TxnId:
    """A transaction's id in two 64-bit halves; text ``(0,7)``. ``(0,0)`` is a valid id: test for presence, not zero."""

    most_sig_bits: int
    least_sig_bits: int

    def __post_init__(self) -> None:
        if not (0 <= self.most_sig_bits <= _MAX_BITS and 0 <= self.least_sig_bits <= _MAX_BITS):
            raise InvalidArgumentError(
                f"Transaction id ({self.most_sig_bits},{self.least_sig_bits}) is out of bounds.",
                "Both halves are unsigned 64-bit integers.",
            )

    def __str__(self) -> str:
        return f"({self.most_sig_bits},{self.least_sig_bits})"

    __repr__ = __str__

    @classmethod
    def parse(cls, value: TxnId | str) -> TxnId:
        """Return the id that a text such as ``(0,7)`` or ``0:7`` names."""
        if isinstance(value, TxnId):
            return value
        found = _TXN_ID.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            raise InvalidArgumentError(f"{value!r} is not a transaction id.", 'Write it as "(0,7)".')
        return cls(int(found[1]), int(found[2]))


def check_timeout(timeout_ms: int) -> None:
    """Raise INVALID_ARGUMENT for a time-out that no transaction can have."""
    if not 1 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidArgumentError(
            f"A transaction can't have a timeout of {timeout_ms / 1000:g} s.",
            f"Use more than 0 and at most {MAX_TIMEOUT_MS // 1000} s.",
        )


def id_of(txn: int) -> TxnId:
    """Return the public id of the transaction of that number."""
    return TxnId(COORDINATOR, txn)


class TransactionState(enum.Enum):
    """Where a transaction is in its life."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"

    def __str__(self) -> str:
        return self.value


GivenState = Literal["open", "committed", "aborted"]
"""A state as callers write it."""


class EndReason(enum.Enum):
    """Who ended a transaction."""

    CLIENT = "client"
    TIMEOUT = "timeout"
    FORCED = "forced"
    FENCED = "fenced"
