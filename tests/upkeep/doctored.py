"""A log with everything in it that the doctor looks at, and ways to look at it and to meddle with its database."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import txn_source
from tests.log import tiers
from txn_source.upkeep.doctor.examination import examine
from txn_source.upkeep.doctor.findings import Report
from txn_source.upkeep.doctor.opening import Where, opened
from txn_source.upkeep.doctor.subject import DAY_S, Checksums, Surroundings

TWO_DAYS_S = 2 * DAY_S


def fill(root: Path) -> None:
    """Make a log: ``orders`` with two offloaded ledgers, one without its hot copy, one that has it, and hot ones behind
    them; ``events`` with a shared subscription; deleted files are gone."""
    with txn_source.connect(root) as log:
        log.create_topic("orders")
        tiers.write_ledgers(log)
        first, *_ = tiers.closed_ledgers(log, "orders")
        log.offload("orders")
        log.metadata.delete_copies(_name("orders"), tiers.Tier.BOOKKEEPER, [first])
        log.roll_ledger("orders")
        log.create_topic("events", partitions=2)
        log.create_subscription("events", "audit", "shared", initial_position="earliest")
        with log.producer("events") as producer:
            for n in range(20):
                producer.send(b"%d" % n)
        log.maintain()


def _name(topic: str) -> Any:
    from txn_source.model.topic_name import TopicName

    return TopicName.parse(topic)


def look(where: Path | Where, checksums: Checksums = Checksums.ALL, **options: Any) -> Report:
    """Examine a log."""
    at = where if isinstance(where, Where) else Where(str(where))
    options.setdefault("surroundings", Surroundings(disk=lambda _: (1 << 40, 1 << 39)))  # whatever there is here
    with opened(at, checksums=checksums, **options) as log:
        return examine(log)


def codes(report: Report) -> list[str]:
    """Return the codes that were found, each once."""
    return sorted({one.code for one in report.findings})


def change(root: Path, statement: str, values: Sequence[Any] = ()) -> None:
    """Change the database behind the log's back."""
    with closing(sqlite3.connect(root / "metadata.db")) as raw, raw:
        raw.execute(statement, values)


def ask(root: Path, statement: str) -> list[tuple[Any, ...]]:
    """Ask the database; nothing is made, merged or removed."""
    with closing(sqlite3.connect(f"file:{root / 'metadata.db'}?mode=ro", uri=True)) as raw:
        return raw.execute(statement).fetchall()


def age(path: Path, seconds: float = TWO_DAYS_S) -> Path:
    """Let a file have been written so long ago."""
    at = path.stat().st_mtime - seconds
    os.utime(path, (at, at))
    return path
