"""Backups and restores that are killed, or interrupted, anywhere: never half of one, and the next one is whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.interrupts.injection import at_signal_point
from tests.log.reading import COMMITTED, UNCOMMITTED
from tests.upkeep.filled import files, fill, seen
from txn_source import upkeep
from txn_source.metadata.store import putting_back, sqlite_backup
from txn_source.upkeep.manifest import MANIFEST

KILLED = """
import os, signal, sys
from pathlib import Path
import txn_source
from txn_source.upkeep import backup, restore, scanning

what, source, target, mark, step = sys.argv[1:]
names = ("open", "fsync", "replace", "link", "unlink", "write")

def carry_out(at):
    left = [at]
    def dying(real):
        def call(*args, **options):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)
        return call
    for name in names:
        setattr(os, name, dying(getattr(os, name)))
    getattr(txn_source, what)(source, target)

for at in range(0, 100000, int(step)):
    pid = os.fork()  # nothing is open here
    if not pid:
        try:
            carry_out(at)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), (at, status)
    if (Path(target) / mark).exists():
        print(at)
        break
    assert status, at
    try:
        if what == "backup":
            txn_source.restore(target, target + "-restored")
        else:
            txn_source.connect(target, create=False)
        raise AssertionError(at)
    except txn_source.LogNotFoundError:
        pass
"""
"""Kills it at calls of the system from the first to the last, and sees to it that what is left is nothing, until it is
whole; prints the number of the call."""


class Struck(BaseException):
    """What strikes: no Exception, as Ctrl-C is none."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log with all kinds of files."""
    with txn_source.connect(tmp_path / "log") as log:
        fill(log)
    return tmp_path / "log"


@pytest.mark.parametrize("what", ["backup", "restore"])
def test_kills_leave_nothing_that_is_taken_for_whole(
    root: Path, tmp_path: Path, what: str, request: pytest.FixtureRequest
) -> None:
    """What is left of one that was killed is no backup, and no log, and goes with the next one to the same folder."""
    txn_source.backup(root, tmp_path / "good")
    with txn_source.connect(root) as log:
        expected = seen(log)
    source, target, mark = root, tmp_path / "made", MANIFEST
    if what == "restore":
        source, mark = tmp_path / "good", "txnlog.json"
    step = "1" if request.config.getoption("--long") else "17"
    command = [sys.executable, "-c", KILLED, what, str(source), str(target), mark, step]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    assert int(done.stdout) > 50
    if what == "backup":
        target = log_of(target, tmp_path / "restored")
    with txn_source.connect(target, create=False) as log:
        assert seen(log) == expected


def log_of(backup: Path, root: Path) -> Path:
    """Make a log of a backup, and return its root."""
    txn_source.restore(backup, root)
    return root


@pytest.mark.parametrize("what", ["backup", "restore"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that are closed by their end
def test_interrupts_leave_nothing(root: Path, tmp_path: Path, what: str, request: pytest.FixtureRequest) -> None:
    """Strike at signal points of the package, the first ones and further on: nothing is left, until it gets through."""
    txn_source.backup(root, tmp_path / "good")
    source, target = (root, tmp_path / "made") if what == "backup" else (tmp_path / "good", tmp_path / "made")
    call: Callable[..., Any] = getattr(txn_source, what)
    step, struck = 7 if request.config.getoption("--long") else 211, 0
    for k in range(0, 1_000_000, step):
        try:
            with at_signal_point(k, (upkeep, sqlite_backup, putting_back), Struck):
                call(source, target)
            break
        except Struck:
            struck += 1
            if (target / MANIFEST).exists() or (target / "txnlog.json").exists():
                break  # it was whole
            assert not target.exists() or set(files(target)) <= {".txnlog-unfinished"}, files(target)
    assert struck > 3
    if not (target / MANIFEST).exists() and not (target / "txnlog.json").exists():
        call(source, target)
    if what == "backup":
        target = log_of(target, tmp_path / "restored")
    with txn_source.connect(target, create=False) as log, txn_source.connect(root) as original:
        assert seen(log) == seen(original)
        assert log.count("t", COMMITTED) < log.count("t", UNCOMMITTED)
