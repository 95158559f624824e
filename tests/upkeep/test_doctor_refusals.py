"""What this user may not read, or write, is told as that: it is no damage."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.log import tiers
from tests.log.test_read_only_roots import on_a_read_only_mount
from tests.upkeep import faults
from tests.upkeep.doctored import codes, fill, look
from txn_source.metadata.store import sqlite_check
from txn_source.model.errors import UnavailableError
from txn_source.storage.object_store import ObjectStore
from txn_source.storage.segment_store import LocalSegments
from txn_source.storage.store_errors import StoreError
from txn_source.upkeep.doctor.subject import Surroundings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "log")
    return tmp_path / "log"


def denied() -> OSError:
    return PermissionError(13, "Permission denied")


def denied_by_a_store() -> OSError:
    return StoreError("the store denies access", refused=True)


def denied_by_pyarrow() -> OSError:
    return OSError("When reading: AWS Error ACCESS_DENIED (HTTP status 403) during HeadObject operation: No response.")


def refusing(patch: pytest.MonkeyPatch, of: type, name: str, error: Callable[[], OSError]) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error()

    patch.setattr(of, name, refuse)


def test_segments_that_may_not_be_read_are_no_damage(root: Path) -> None:
    """Be refused each segment: one finding says so."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("size", "fill"):
            refusing(patch, LocalSegments, name, denied)
        report = look(root)
        assert codes(report) == ["not-readable"]
        [found] = report.findings
        assert found.operands["files"] > 1
        assert Path(found.operands["path"]).is_file()
    assert look(root).findings == ()


@pytest.mark.parametrize("error", [denied_by_a_store, denied_by_pyarrow])
def test_objects_that_may_not_be_read_are_no_damage(root: Path, error: Callable[[], OSError]) -> None:
    """Be refused each object: one finding says so, and a damaged hot copy is told beside it."""
    with pytest.MonkeyPatch.context() as patch:
        refusing(patch, ObjectStore, "open", error)
        assert codes(look(root)) == ["not-readable"]
        tiers.flip_near_end(faults.segment(root, tiered=True))
        assert codes(look(root)) == ["not-readable", "segment-damaged"]


@pytest.mark.parametrize("name", ["metadata.db", "txnlog.json", "broker.conf"])
def test_file_of_the_log_that_may_not_be_read_is_told(root: Path, name: str) -> None:
    """Be refused one of the log's own files: it isn't taken for damaged."""
    if name == "txnlog.json":
        (root / name).write_text("{}")  # what can't be read isn't looked at
    (root / "broker.conf").write_text("managedLedgerOffload=1\n" if name == "broker.conf" else "")
    may = lambda path, mode: path.name != name  # noqa: E731
    report = look(root, surroundings=Surroundings(may=may, disk=lambda _: (1 << 40, 1 << 39)))
    assert {(one.code, one.subject) for one in report.findings} == {("not-readable", str(root / name))}


@pytest.mark.long
def test_log_on_a_read_only_mount_is_looked_at(root: Path) -> None:
    """Mount it read-only while nobody has it open: all is checked, and only that it can't be written is told."""
    done = on_a_read_only_mount(root, sys.executable, "-m", "txn_source.cli", "doctor", "--root", str(root))
    assert done.stdout.splitlines() == [
        f"WARNING not-writable: This user may not write {root}.",
        f"    Check the owner and the mode of {root}; whoever produces or serves writes there.",
        "19 checks: 1 warning.",
    ], done.stderr[-500:]


def test_locked_database_is_no_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the file locked by another program: that is told, with the remedy for it."""
    monkeypatch.setattr(sqlite_check, "_WAIT_S", 0.0)
    with closing(sqlite3.connect(root / "metadata.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(UnavailableError, match="is locked"):
            look(root)
    assert look(root).findings == ()


def test_folder_that_cannot_be_written_is_told_once(root: Path) -> None:
    """Lack the right to write anywhere in a root: its folder is told, and not each file in it."""
    may = lambda path, mode: not mode & os.W_OK  # noqa: E731
    report = look(root, surroundings=Surroundings(may=may, disk=lambda _: (1 << 40, 1 << 39)))
    assert [(one.code, one.subject) for one in report.findings] == [("not-writable", str(root))]
