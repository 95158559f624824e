"""A log of an earlier release, which wrote notes into its segments and beside them: it is read, used and moved as ever.

``vectors/log_with_notes.tar.gz`` is such a log, with its rows at both levels. Notes are packed and JSON, in entries and
behind the last one of a segment; ``topic.json`` and a ``.notes`` file lie beside them.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.upkeep.doctored import look
from txn_source import IsolationLevel, Log
from txn_source.upkeep.backup import backup
from txn_source.upkeep.restore import restore

VECTOR = Path(__file__).parent.parent / "vectors" / "log_with_notes.tar.gz"
COLUMNS = ["__partition", "__entry_id", "key", "value", "__properties", "__txn_status"]


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, Any]:
    """What the log in ``tmp_path / "log"`` has, by isolation level."""
    with tarfile.open(VECTOR) as archive:
        archive.extractall(tmp_path)
    found: dict[str, Any] = json.loads((tmp_path / "rows.json").read_text())
    return found


def seen(log: Log, **options: Any) -> dict[str, Any]:
    found = {}
    for level in IsolationLevel:
        rows = log.scan("orders", level, COLUMNS, **options).read_all().to_pylist()
        plain = ([v.decode() if isinstance(v, bytes) else v for v in row.values()] for row in rows)
        found[level.value] = json.loads(json.dumps(sorted(plain, key=str)))
    return found


@pytest.mark.parametrize("first", ["bookkeeper-first", "tiered-first"])
def test_rows_are_what_they_were(tmp_path: Path, rows: dict[str, Any], first: str) -> None:
    with txn_source.connect(tmp_path / "log") as log:
        assert seen(log, read_priority=first) == rows


def test_log_is_written_offloaded_and_looked_at(tmp_path: Path, rows: dict[str, Any]) -> None:
    """Append, offload, delete what is hot, and have the doctor look: nothing is missing, damaged or strange."""
    with txn_source.connect(tmp_path / "log") as log:
        with log.producer("orders") as producer:
            producer.send("new", key="k", partition=0)
        log.roll_ledger("orders")
        log.offload("orders")
        log.delete_hot("orders")
        for found in seen(log).values():
            assert found.pop(0) == [0, 0, "k", "new", None, None]
        assert seen(log)["read_committed"][1:] == rows["read_committed"]
    assert [found for found in look(tmp_path / "log").findings if found.severity.value != "note"] == []


def test_backup_of_it_is_restored(tmp_path: Path, rows: dict[str, Any]) -> None:
    backup(tmp_path / "log", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again")
    with txn_source.connect(tmp_path / "again") as log:
        assert seen(log) == rows


@pytest.mark.usefixtures("rows")
def test_notes_go_with_their_topic(tmp_path: Path) -> None:
    with txn_source.connect(tmp_path / "log") as log:
        log.delete_topic("orders")
    assert list((tmp_path / "log" / "segments").iterdir()) == []
