"""Who makes a call, as far as it matters for what belongs to somebody."""

from __future__ import annotations

from dataclasses import dataclass

from txn_source.model.errors import TxnLogError


@dataclass(frozen=True, slots=True)
class Caller:
    """An identity, which producers, transactions, queries and applications belong to.

    ``admin``: it may take over what belongs to others, on all topics of its call. ``admin_of_all``: on all of the log.
    ``max_transactions``: so many that it has begun may be open at once, None: any number.
    """

    name: str
    admin: bool = False
    admin_of_all: bool = False
    max_transactions: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """When a conversation ends by itself, in seconds since the epoch, and the error that it ends with."""

    at: float
    error: TxnLogError
