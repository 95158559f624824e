"""No look at the console reads all of a table that grows with the messages."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.console.asked import Asked
from tests.console.demo import fill
from tests.metadata.test_query_plans import recorded, scans
from txn_source.console.app import LOOKS

OF_THE_LOG = ("SCAN partitions", "SCAN p ", "SCAN subscriptions", "SCAN s ", "SCAN cursors", "SCAN k ")
"""Each has a row for each partition or subscription of the log; the figures are of all of them."""
OF_OPEN_ONES = ("open_by_deadline", "ongoing_by_partition", "unfinished_copies", "short_entries")
"""Indexes, and a table, that have only what is open, under way or short of copies."""


def test_statements_read_no_growing_table_as_a_whole(asked: Asked) -> None:
    """Ask for everything, and let SQLite explain each statement that was run."""
    fill(asked.log, messages=40)
    with recorded() as statements:
        for path in LOOKS:
            name = "billing" if path.startswith("subscription") else "orders"
            for start in ("earliest", "latest"):
                asked.get(path, topic="orders", partition=0, name=name, limit=5, from_=start)
        asked.post("subscriptions/preview", {"topic": "orders", "name": "billing", "to": {"at": "latest"}})
    assert len(statements) > 20
    with closing(sqlite3.connect(asked.root / "metadata.db")) as database:
        found = [plan for statement, values in statements.items() for plan in scans(database, statement, values)]
    meant = (*OF_THE_LOG, *OF_OPEN_ONES)
    assert [plan for plan in found if not any(part in plan.partition(":")[0] + " " for part in meant)] == []
