"""Faults made one by one in a log that is whole: each is found with its code, and nothing else is."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sqlite3
from pathlib import Path

import pytest

import txn_source
from tests.doc_blocks import parse
from tests.upkeep.doctored import ask, change, codes, fill, look
from tests.upkeep.faults import FAULTS, E, Fault, W, leave_a_consumer, spoil_a_page
from txn_source.metadata.store import sealing
from txn_source.upkeep.doctor.codes import CODES, Severity
from txn_source.upkeep.doctor.subject import Surroundings

pytestmark = pytest.mark.xdist_group("doctor_faults")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that is whole, and is copied for each fault."""
    root = tmp_path_factory.mktemp("whole") / "log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "_SEAL_FROM_ROWS", 5)
        fill(root)
    return root


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "log"))


def state(root: Path) -> dict[str, tuple[int, bytes]]:
    """Return what is in all files, and when they were written; of the database, its rows are."""
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.name.startswith("metadata.db")
    } | {"rows": (0, dump(root))}


def dump(root: Path) -> bytes:
    try:
        return json.dumps([ask(root, f"SELECT * FROM {t}") for (t,) in ask(root, "SELECT name FROM sqlite_schema"
                          " WHERE type = 'table' ORDER BY name")], default=repr).encode()  # fmt: skip
    except sqlite3.DatabaseError:  # of a damaged one
        return b""


def test_whole_log_has_no_finding(root: Path) -> None:
    """Look at the log that all faults are made in: nothing is found, all was checked, and nothing is changed."""
    before = state(root)
    report = look(root)
    assert report.findings == ()
    assert report.not_checked == ()
    assert report.is_clean
    assert state(root) == before


@pytest.mark.parametrize(("fault", "code", "severity"), FAULTS, ids=[f"{f.__name__}-{c}" for f, c, _ in FAULTS])
def test_fault_is_found(root: Path, fault: Fault, code: str, severity: Severity) -> None:
    """Make one fault: it is found and nothing else, and looking changes nothing."""
    fault(root)
    before = state(root)
    report = look(root)
    assert codes(report) == [code], report.findings
    assert {one.severity for one in report.findings} == {severity}
    assert state(root) == before
    assert not any(re.search(r"{\w+}", one.remedy) for one in report.findings)


def test_page_that_cannot_be_read_is_told(root: Path) -> None:
    """Tear a page: all other checks are made."""
    spoil_a_page(root)
    report = look(root)
    assert (codes(report), report.not_checked) == (["database-pages"], ())


def test_subscriptions_are_listed_where_nothing_can_be_written(root: Path) -> None:
    """Leave a consumer of a subscription that goes with it, which who lists subscriptions would remove: looking lists
    them and removes nothing."""
    with txn_source.connect(root) as log:
        log.set_policies("events", retention_age="30d")
    leave_a_consumer(root)
    change(root, "UPDATE subscriptions SET durable = 0")
    report = look(root)
    assert (codes(report), report.not_checked) == ([], ())
    assert ask(root, "SELECT COUNT(*) FROM consumers") == [(1,)]


def test_every_code_of_a_log_in_one_root_has_its_fault() -> None:
    """Compare the codes with the faults here and those of the modules beside."""
    elsewhere = {"copy-missing", "copy-damaged", "copies-few", "entries-short", "root-unreachable"}
    elsewhere |= {"root-of-another-log", "metadata-twice", "log-twice", "clock-differs", "check-failed"}
    elsewhere |= {"disk-low", "not-readable", "not-writable"}
    assert {code for _, code, _ in FAULTS} | elsewhere == CODES.keys()


@pytest.mark.parametrize(
    ("free", "severity"), [(60 << 30, None), (3 << 30, W), (100 << 20, E)], ids=["enough", "little", "nearly none"]
)
def test_room_is_looked_at(root: Path, free: int, severity: Severity | None) -> None:
    """Have a disk of 1 TiB with so much left."""
    report = look(root, surroundings=Surroundings(disk=lambda _: (1 << 40, free)))
    assert [(one.code, one.severity) for one in report.findings] == ([("disk-low", severity)] if severity else [])


@pytest.mark.parametrize(("lacks", "code"), [(os.R_OK, "not-readable"), (os.W_OK, "not-writable")])
def test_permissions_are_looked_at(root: Path, lacks: int, code: str) -> None:
    """Be refused to read, or to write, a folder."""
    may = lambda path, mode: not (path.name == "segments" and mode & lacks)  # noqa: E731
    report = look(root, surroundings=Surroundings(may=may))
    assert [(one.code, one.subject) for one in report.findings] == [(code, str(root / "segments"))]


def test_commands_of_remedies_can_be_pasted() -> None:
    """Put odd operands into each remedy: its commands are ones that there are, and a shell passes them on whole."""
    odd = {"txn": "(0,7)", "subscription": "a b; $(c)", "topic": "orders", "ledger": "7"}
    for code in CODES.values():
        written, shown = (text.split("`")[1::2] for text in (code.remedy, code.remedy_for(odd)))
        for template, command in zip(written, shown, strict=True):
            program, *arguments = shlex.split(command)
            assert {value for name, value in odd.items() if f"{{{name}}}" in template} <= set(arguments)
            if program == "txnlog":
                try:
                    parse(arguments)
                except Exception as error:
                    if "Missing" not in str(error):  # of a command that is named, and not meant to be pasted
                        raise
