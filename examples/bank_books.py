"""The books of the bank: the topic that E writes balances to, micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from txn_source import Log

SCHEMA = pa.schema(
    [pa.field("account", pa.string(), nullable=False), pa.field("cents", pa.int64(), nullable=False)],
)


@dataclass(frozen=True)
class Books:
    """All balances as they are now, and their sum as it was after each transaction, in cents."""

    balances: dict[str, int]
    sums: Sequence[int]

    @property
    def off(self) -> list[int]:
        """The sums that are wrong: no money is made or lost, so each has to be 0."""
        return [cents for cents in self.sums if cents]


def create_books(log: Log, *topics: str) -> None:
    """Create topics for balances."""
    for topic in topics:
        log.create_topic(topic, partitions=2, schema=SCHEMA)


def read_books(log: Log, topic: str) -> Books:
    """Read a topic of balances from its start; each micro-batch of the query that writes it is one transaction."""
    rows = log.scan(topic, columns=["account", "cents", "__txn_id", "__sequence_id"]).read_all().to_pylist()
    balances: dict[str, int] = {}
    sums: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row["__sequence_id"]):  # one producer, the query, writes all of them
        balances[row["account"]] = row["cents"]
        sums[row["__txn_id"]] = sum(balances.values())
    return Books(balances, tuple(sums.values()))
