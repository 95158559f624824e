"""Backups and restores that are killed anywhere: never half of one, and the next one is whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import txn_source
from tests.selection import mostly_long
from tests.upkeep.filled import fill, seen
from txn_source.upkeep.manifest import MANIFEST

KILLED = """
import os, signal, sys
from pathlib import Path
import txn_source
from txn_source.upkeep import backup, restore, scanning

what, source, target, mark = sys.argv[1:]
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

for at in range(0, 100000, 97):
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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log with all kinds of files."""
    with txn_source.connect(tmp_path / "log") as log:
        fill(log)
    return tmp_path / "log"


@pytest.mark.long
@pytest.mark.parametrize("what", mostly_long(["backup", "restore"], "restore"))
def test_kills_leave_nothing_that_is_taken_for_whole(root: Path, tmp_path: Path, what: str) -> None:
    """What is left of one that was killed is no backup, and no log, and goes with the next one to the same folder."""
    txn_source.backup(root, tmp_path / "good")
    with txn_source.connect(root) as log:
        expected = seen(log)
    source, target, mark = root, tmp_path / "made", MANIFEST
    if what == "restore":
        source, mark = tmp_path / "good", "txnlog.json"
    command = [sys.executable, "-c", KILLED, what, str(source), str(target), mark]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    assert int(done.stdout) > 50
    if what == "backup":
        target = tmp_path / "restored"
        txn_source.restore(tmp_path / "made", target)
    with txn_source.connect(target, create=False) as log:
        assert seen(log) == expected
