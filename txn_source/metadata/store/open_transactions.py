"""Who began the open transactions: the producers that wrote in them, and the identities that they belong to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txn_source.metadata.store.owners import TRANSACTION
from txn_source.metadata.store.prepared import Prepared
from txn_source.model.kinds import OPEN

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


@dataclass(frozen=True, slots=True)
class Began:
    """Who has to do with a transaction: names of producers with the id of each one's topic, and its owner, if known."""

    producers: tuple[tuple[int, str], ...]
    owner: str | None


def who_began(connection: Connection) -> dict[int, Began]:
    """Return it of all open transactions that have written something, or belong to somebody."""
    owners = {int(key): owner for key, owner in _OWNERS.rows(connection, {"kind": TRANSACTION})}
    producers: dict[int, list[tuple[int, str]]] = defaultdict(list)
    found = _PRODUCERS.rows(connection, {})
    for txn, topic_id, name, _ in sorted(found, key=lambda row: row[3]):
        producers[txn].append((topic_id, name))
    return {
        txn: Began(tuple(producers.get(txn, ())), owners.get(txn)) for txn in sorted(producers.keys() | owners.keys())
    }


_PRODUCERS = Prepared(
    f"""
    SELECT w.txn, p.topic_id, p.name, p.producer_id
    FROM transactions AS t
    CROSS JOIN transaction_producers AS w
    JOIN producers AS p ON p.producer_id = w.producer_id
    WHERE t.state = {OPEN} AND w.txn = t.txn"""
)
"""CROSS JOIN, so that SQLite begins with the few that are open."""
_OWNERS = Prepared(
    f"""
    SELECT o.key, o.owner FROM owners AS o
    JOIN transactions AS t ON o.key = CAST(t.txn AS TEXT)
    WHERE o.kind = :kind AND t.state = {OPEN}"""
)
