from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import txn_source

STRAY = "segments/1/0/1-1-0123456789ab.arrow"


@pytest.fixture
def stray(log: txn_source.Log, root: Path) -> Path:
    """A segment of 1,000 bytes that nothing refers to, two days old, beside one that is registered."""
    log.create_topic("orders")
    with log.producer("orders") as producer:
        producer.send("kept")
    file = root / STRAY
    file.write_bytes(bytes(1000))
    for path in file.parent.iterdir():
        os.utime(path, (path.stat().st_mtime - 2 * 86_400,) * 2)
    return file


def test_dry_run_only_tells(txnlog: Any, stray: Path) -> None:
    """Looking removes nothing: run dry, as text and as JSON."""
    assert txnlog("gc", "--dry-run").stdout == f"{STRAY}\n1 file, 1000 B would be removed.\n"
    told = {"paths": [STRAY], "bytes": 1000, "uploads": [], "unknown": []}
    assert json.loads(txnlog("gc", "--dry-run", "--json").stdout) == told
    assert stray.exists()


def test_unreferenced_files_of_that_age_are_removed(txnlog: Any, log: txn_source.Log, stray: Path) -> None:
    """Age decides, and what is registered stays: run for three days, then for the default of one."""
    assert txnlog("gc", "--older-than", "3d").stdout == "0 files, 0 B removed.\n"
    assert stray.exists()
    assert txnlog("gc").stdout == f"{STRAY}\n1 file, 1000 B removed.\n"
    assert not stray.exists()
    assert txnlog("consume", "orders").stdout == "kept\n"
