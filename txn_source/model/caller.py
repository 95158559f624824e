"""Who makes a call, as far as it matters for what belongs to somebody."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """An identity, which producers, transactions, queries and applications belong to.

    ``admin``: it may take over what belongs to others, on all topics of its call. ``max_transactions``: so many that it
    has begun may be open at once, None: any number.
    """

    name: str
    admin: bool = False
    max_transactions: int | None = None
