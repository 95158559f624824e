"""No statement has to read all of a table that grows: PostgreSQL explains each that the service runs.

It is kept from reading whole tables where an index serves, as it would be if they were large.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.log.sites import ManualClock, Site
from tests.metadata.postgres import server
from tests.metadata.test_query_plans import SMALL, WHOLE, live, recorded
from txn_source.metadata.store.tables import metadata


def scanned(plan: dict[str, Any]) -> Iterator[str]:
    """Yield the tables that a plan reads as a whole."""
    if plan["Node Type"] == "Seq Scan":
        yield plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from scanned(part)


def test_no_statement_reads_a_whole_table(tmp_path: Path, clock: ManualClock) -> None:
    """Explain every statement of a life of the log."""
    with recorded() as found, Site("postgres", tmp_path / "log", clock) as site:
        live(site, clock)
        assert site.url is not None
        name = site.url.revealed.partition("?")[0].rpartition("/")[2]
        wrong = []
        with server().connect(name) as connection:
            connection.execute(b"SET enable_seqscan = off")
            for statement, parameters in found.items():
                text = " ".join(statement.split())
                if not text.startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")) or "pg_catalog" in text:
                    continue
                with psycopg.ClientCursor(connection) as cursor:
                    cursor.execute(f"EXPLAIN (FORMAT JSON) {statement}".encode(), parameters)
                    [[plans]] = cursor.fetchall()
                plans = json.loads(plans) if isinstance(plans, str) else plans
                tables = {table for plan in plans for table in scanned(plan["Plan"])}
                growing = (tables & metadata.tables.keys()) - SMALL.keys()
                if growing and not any(map(text.startswith, WHOLE)):
                    wrong.append(f"{sorted(growing)}: {text}")
    assert len(found) > 120
    assert wrong == []
