"""The tables in README and in the pages keep their word: the levels and anomalies, and the policies.

``test_docs.py`` runs the code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import txn_source
from txn_source.client.log import Log

ROOT = Path(__file__).resolve().parents[2]
README, CONCEPTS, TIERS = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/concepts.md", "docs/tiers.md")
)
LEVELS = ("read_committed", "read_uncommitted")


def _values(log: Log, level: str, **how: Any) -> list[bytes]:
    return log.scan("t", level, columns=["value"], **how).read_all()["value"].to_pylist()


def _sees_open(log: Log, level: str) -> bool:
    producer, txn = log.producer("t"), log.begin_transaction()
    producer.send(b"open", txn=txn)
    producer.flush()
    return b"open" in _values(log, level)


def _sees_aborted(log: Log, level: str) -> bool:
    producer, txn = log.producer("t"), log.begin_transaction()
    producer.send(b"aborted", txn=txn)
    producer.flush()
    txn.abort()
    return b"aborted" in _values(log, level)


def _sees_committed(log: Log, level: str) -> bool:
    with log.producer("t") as producer, log.begin_transaction() as txn:
        producer.send(b"committed", txn=txn)
    return b"committed" in _values(log, level)


def _sees_markers(log: Log, level: str) -> bool:
    for end in ("commit", "abort"):
        producer, txn = log.producer("t"), log.begin_transaction()
        producer.send(b"one", txn=txn)
        producer.flush()
        getattr(txn, end)()
    return len(_values(log, level)) != {"read_committed": 1, "read_uncommitted": 2}[level]


def _waits(log: Log, level: str) -> bool:
    producer, txn = log.producer("t"), log.begin_transaction()
    producer.send(b"open", txn=txn)
    producer.flush()
    producer.send(b"plain")
    producer.flush()
    return b"plain" not in _values(log, level)


def _sees_half(log: Log, level: str) -> bool:
    producer, txn = log.producer("t"), log.begin_transaction()
    producer.send(b"one leg", txn=txn)
    producer.flush()
    seen = [_values(log, level)]
    producer.send(b"other leg", txn=txn)
    txn.commit()
    log.create_topic("two", partitions=2)
    two, hanging = log.producer("two"), log.begin_transaction()
    two.send(b"hanging", txn=hanging, partition=0)
    two.flush()
    with log.begin_transaction() as txn:
        two.send(b"one leg", txn=txn, partition=0)
        two.send(b"other leg", txn=txn, partition=1)
    ends = {"two": {0: str(log.stats("two").partitions[0].log_start)}}
    seen.append(log.scan("two", level, columns=["value"], end=ends).read_all()["value"].to_pylist())
    return any(len(values) == 1 for values in seen)


def _rereads_other_rows(log: Log, level: str) -> bool:
    producer, txn = log.producer("t"), log.begin_transaction()
    producer.send(b"plain")
    producer.flush()
    producer.send(b"undecided", txn=txn)
    producer.flush()
    end = log.stats("t").partitions[0].log_end
    before = _values(log, level, end=end)
    producer.send(b"later")
    producer.flush()
    txn.abort()
    return _values(log, level, end=end) != before


CLAIMS: dict[str, Callable[[Log, str], bool]] = {
    "sees messages of an open transaction": _sees_open,
    "sees messages of an aborted transaction": _sees_aborted,
    "sees messages of a committed transaction": _sees_committed,
    "sees transaction markers": _sees_markers,
    "waits behind an open transaction, also with plain messages": _waits,
    "sees half of a transaction over several partitions or topics": _sees_half,
    "reads other rows when the same plan is read again": _rereads_other_rows,
}


def _table(text: str = README) -> dict[str, tuple[str, ...]]:
    section = text.split("## What each level sees")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert [cell.strip("`") for cell in rows[0][1:]] == list(LEVELS)
    return {row[0]: tuple(row[1:]) for row in rows[2:]}


def test_every_row_of_the_table_is_checked() -> None:
    """Compare the table's rows with the experiments of this module."""
    assert _table().keys() == CLAIMS.keys()
    assert _table(CONCEPTS) == _table()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("claim", CLAIMS)
def test_table_says_what_happens(claim: str, level: str, tmp_path: Path) -> None:
    """Do what a row is about on a fresh log, and compare what is seen with the table's cell."""
    with txn_source.connect(tmp_path / "log") as log:
        log.create_topic("t")
        seen = CLAIMS[claim](log, level)
    assert _table()[claim][LEVELS.index(level)] == ("yes" if seen else "no")
