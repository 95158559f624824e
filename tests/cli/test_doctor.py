from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.log import tiers
from txn_source.upkeep.doctor import pace
from txn_source.upkeep.doctor.codes import CODES, Severity


@pytest.fixture(autouse=True)
def _room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have room on the disk, whatever there is."""
    room = shutil.disk_usage("/")._replace(total=1 << 40, free=1 << 39)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)


@pytest.fixture
def filled(log: txn_source.Log, root: Path) -> Path:
    """A topic with three offloaded ledgers."""
    log.create_topic("orders")
    tiers.write_ledgers(log)
    log.offload("orders")
    return root


def damage(root: Path) -> Path:
    path = tiers.objects(root)[0]
    tiers.flip_in_middle(path)
    return path


def test_clean_log_is_told_in_a_line(txnlog: Any, filled: Path) -> None:
    """Look at a log that is whole: one line, exit status 0."""
    told = txnlog("doctor")
    assert (told.stdout, told.exit_code) == ("19 checks: nothing found.\n", 0)


def test_findings_are_told_with_a_remedy_each(txnlog: Any, filled: Path, log: txn_source.Log) -> None:
    """Find a warning and a note: a line for what it is, one for what to do, and exit status 1; a note alone is 0."""
    (filled / "segments" / "list.txt").write_text("mine")
    told = txnlog("doctor")
    note = "NOTE file-strange: 1 file among the segments, not txnlog's.\n    Move it away; txnlog never touches it.\n"
    assert (told.stdout, told.exit_code) == (f"{note}19 checks: 1 note.\n", 0)
    path = damage(filled)
    told = txnlog("doctor", "--checksums", "all")
    assert told.exit_code == 1
    warning, remedy, *rest = told.stdout.splitlines()
    assert warning.startswith(f"WARNING object-damaged: The object {path.relative_to(filled)} of ledger ")
    assert "where" in warning
    assert warning.endswith("the hot copy is there.")
    assert remedy.startswith(
        "    Restore the object. Where the hot copy is there, `txnlog topics delete-offloaded orders"
    )
    assert "\n".join(rest) == f"{note}19 checks: 1 warning, 1 note."


def test_json_is_one_document_with_a_version(txnlog: Any, filled: Path) -> None:
    """Read the document: its fields, of each finding too, and of what was not checked."""
    damage(filled)
    told = txnlog("doctor", "--checksums", "all", "--topic", "orders", "--json")
    assert told.exit_code == 1
    document = json.loads(told.stdout)
    assert list(document) == [
        *("version", "log", "log_id", "clean", "summary", "findings", "checked", "not_checked"),
    ]
    assert (document["version"], document["clean"], document["log"]) == (1, False, str(filled))
    assert document["summary"] == {"errors": 0, "warnings": 1, "notes": 0}
    [found] = document["findings"]
    assert list(found) == ["severity", "code", "subject", "fact", "remedy", "operands", "mended"]
    assert found["severity"] in [severity.value for severity in Severity]
    assert found["code"] in CODES
    assert found["operands"]["topic"] == "orders"
    assert found["mended"] is None
    assert {tuple(one) for one in document["not_checked"]} == {("check", "why")}
    assert "hot segments" in document["checked"]


def test_wrong_usage_is_refused(txnlog: Any, bare: Any, filled: Path, tmp_path: Path) -> None:
    """Give what can't be: exit status 2, and one line; a folder without a log is 1."""
    for wrong in (
        ["--checksums", "some"],
        ["--rate", "fast"],
        ["--rate", "0"],
        ["--repair"],
        ["--topic", ""],
    ):
        told = txnlog("doctor", *wrong)
        assert told.exit_code == 2, wrong
    assert bare("doctor", "--root", tmp_path).exit_code == 1
    missing = txnlog("doctor", "--topic", "missing")
    assert missing.exit_code == 1
    assert "TOPIC_NOT_FOUND" in missing.stderr
    assert not missing.stdout


def test_rate_is_kept(txnlog: Any, filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read 1 KiB in a second, by a clock that sleeping moves: all bytes take as long as they should."""
    slept: list[float] = []
    monkeypatch.setattr(pace.Pace.__init__, "__defaults__", (None, lambda: sum(slept), slept.append))
    assert txnlog("doctor", "--checksums", "all", "--rate", "1k/s").exit_code == 0
    read = sum(path.stat().st_size for path in filled.rglob("*.*") if path.suffix in (".arrow", ".parquet", ".aborted"))
    assert 0.5 * read / 1024 < sum(slept) < 1.1 * read / 1024
