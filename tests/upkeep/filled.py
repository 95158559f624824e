"""A log with all kinds of files, for tests of backups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, rows
from txn_source import Log

LEVELS = (COMMITTED, UNCOMMITTED)
PLACES = ["__partition", "__ledger_id", "__entry_id", "__batch_index", "__txn_id", "key", "value"]


def fill(log: Log) -> None:
    """Make a topic of two partitions with ended and open transactions, of which a part is offloaded, with and without
    its hot copies."""
    log.create_topic("t", partitions=2)
    producer = log.producer("t", batching=BY_HAND)
    for number in range(3):
        for commit in (True, False):
            transaction = log.begin_transaction()
            for partition in range(2):
                producer.send(b"%d-%d" % (number, commit), partition=partition, txn=transaction)
            producer.flush()
            transaction.commit() if commit else transaction.abort()
        if number < 2:
            log.roll_ledger("t")
            log.offload("t")
        if number == 0:
            log.delete_hot("t")
    log.create_subscription("t", "s", initial_position="earliest")
    transaction = log.begin_transaction(timeout=900)
    producer.send(b"open", txn=transaction)
    producer.flush()


def seen(log: Log) -> dict[str, list[dict[str, Any]]]:
    """Return all rows at each level, with their places, in one order."""
    return {
        level: sorted(rows(log, "t", level, PLACES), key=lambda row: [str(row[name]) for name in PLACES[:4]])
        for level in LEVELS
    }


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def positions_of(positions: Any) -> dict[str, dict[int, Any]]:
    return {"t": {index: position for (_, index), position in positions.items()}}


def end_at(patch: pytest.MonkeyPatch, at: int, *steps: tuple[Any, str]) -> None:
    """Let the call number ``at`` (from 0) of some functions together, and each later one, raise KeyboardInterrupt.

    Each is named by what has it (a module) and its name.
    """
    left = [at]

    def ending(of: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return of(*given, **options)

        return call

    for owner, name in steps:
        patch.setattr(owner, name, ending(getattr(owner, name)))
