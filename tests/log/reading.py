"""Short ways to look into a log under test."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txn_source import Batching, Log, MessageId

if TYPE_CHECKING:
    import pytest

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
BY_HAND = Batching(linger_s=1e6)
"""Nothing is written before ``flush``, a commit or a full batch."""
_PLACE = ["__partition", "__ledger_id", "__entry_id", "__batch_index"]


def rows(
    log: Log, topic: str | Sequence[str], level: str = COMMITTED, columns: Sequence[str] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Scan into dicts."""
    return log.scan(topic, level, columns, **options).read_all().to_pylist()


def a_week_later(log: Log, root: Path) -> None:
    """Let so much measured time pass that writers who wrote nothing are idle, and have the service look at them."""
    with closing(sqlite3.connect(root / "metadata.db")) as raw, raw:
        raw.execute("UPDATE log_info SET measured_ms = measured_ms + 604900000, looked_at_ms = looked_at_ms - 20000")
    log.abort_transaction(log.begin_transaction().id)


def values(log: Log, topic: str | Sequence[str], level: str = COMMITTED, **options: Any) -> list[bytes]:
    """Scan the column ``value``."""
    return [row["value"] for row in rows(log, topic, level, ["value"], **options)]


def by_partition(
    log: Log, topic: str, level: str = COMMITTED, column: str = "value", **options: Any
) -> dict[int, list[Any]]:
    """Scan one column, each partition apart; partitions without rows are left out."""
    found = defaultdict(list)
    for row in rows(log, topic, level, ["__partition", column], **options):
        found[row["__partition"]].append(row[column])
    return dict(found)


def by_id(log: Log, topic: str, level: str = UNCOMMITTED, column: str = "value") -> dict[MessageId, Any]:
    """Scan one column, each row under its message id."""
    return {
        MessageId(row["__ledger_id"], row["__entry_id"], row["__batch_index"]): row[column]
        for row in rows(log, topic, level, [*_PLACE, column])
    }


def send_each(producer: Any, values: Sequence[Any], **options: Any) -> list[MessageId]:
    """Send values so that each becomes an entry of its own; return their ids."""
    ids: list[MessageId] = []
    for value in values:
        producer.send(value, **options)
        ids += producer.flush()
    return ids


def trim_closed(log: Log, topic: str) -> None:
    """Trim all ledgers that are closed and decided: by position, since one that was closed in this very millisecond is
    no older than no time at all."""
    ends = {n: f"{partition.ledgers[-1].ledger_id}:0" for n, partition in enumerate(log.stats(topic).partitions)}
    log.trim(topic, before={topic: ends})


def told_by(part: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what a part of the package has logged (``client.reading``), which another test's threads may do, too."""
    return [record.getMessage() for record in caplog.records if record.name.startswith(f"txn_source.{part}")]


def eventually(holds: Callable[[], bool], within_s: float = 30.0) -> None:
    """Return as soon as the condition holds; fail if it doesn't within the deadline."""
    deadline, pause = time.monotonic() + within_s, 0.005
    while not holds():
        assert time.monotonic() < deadline, f"it didn't come true within {within_s:g} s"
        threading.Event().wait(pause)
        pause = min(0.05, 1.5 * pause)


def registered(log: Log) -> list[str]:
    """Return the paths of all segments that entries were registered from and that aren't deleted."""
    stub = log.metadata
    return sorted(segment.path for topic in stub.list_topics() for segment in stub.list_hot_segments(topic))
