"""Many processes use one log at once, and a log travels: pickled to another process, or through a fork."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import UNCOMMITTED, by_partition, rows, send_each, values
from tests.log.sites import Site
from txn_source import connect

CHILD = Path(__file__).with_name("child.py")


def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(CHILD), *arguments], stdout=subprocess.PIPE, **options)


def outcome(child: subprocess.Popen[bytes], stdin: bytes | None = None) -> Any:
    output, _ = child.communicate(stdin, timeout=120)
    assert child.returncode == 0
    return json.loads(output)


def target(site: Site) -> str:
    return site.endpoint if site.kind == "remote" else str(site.root)


def test_processes_that_write_at_once_lose_nothing(site: Site) -> None:
    """Let two processes append to two partitions, plainly and in transactions, while this one reads."""
    log = site.connect()
    log.create_topic("orders", partitions=2, ledger_max_entries=16)
    names = ["a", "b"]
    children = [start("append", site.kind, target(site), name, "30") for name in names]
    seen = 0
    while any(child.poll() is None for child in children):
        found = values(log, "orders")
        assert len(found) == len(set(found)) >= seen
        seen = len(found)
        threading.Event().wait(0.1)  # the children have the machine
    assert [outcome(child) for child in children] == ["done"] * 2
    stored = by_partition(log, "orders")
    assert sum(len(found) for found in stored.values()) == 60
    for name in names:
        for partition in (0, 1):
            mine = [value for value in stored[partition] if value.startswith(name.encode())]
            assert mine == [f"{name} {i}".encode() for i in range(30) if i // 2 % 2 == partition]
    places = [(r["__ledger_id"], r["__entry_id"]) for r in rows(log, "orders", columns=["__ledger_id", "__entry_id"])]
    assert len(set(places)) == 60


@pytest.mark.long
def test_processes_that_open_a_new_root_at_once_make_one_log(tmp_path: Path) -> None:
    """Let two processes connect to a folder that isn't there."""
    children = [start("open_and_list", "embedded", str(tmp_path / "log")) for _ in range(2)]
    assert [outcome(child) for child in children] == [[]] * 2
    with connect(tmp_path / "log", create=False) as log:
        log.create_topic("orders")
        assert log.topics() == ["orders"]


@pytest.mark.also("remote")
def test_full_disk_is_told_and_loses_nothing(site: Site) -> None:
    """Limit the size of files, as a full disk does: the waiting messages are stored when there is space."""
    log = site.connect()
    log.create_topic("orders")
    *of_segments, last = outcome(start("write_to_a_full_disk", site.kind, target(site)))
    if site.kind == "embedded":
        assert "metadata.db can't be written" in last
    else:
        of_segments.append(last)
    assert len(of_segments) == 2
    assert all("segments/" in fact and "not registered" in fact for fact in of_segments)
    stored = values(log, "orders", UNCOMMITTED)
    assert [(value[:1], len(value)) for value in stored] == [(b"b", 6), (b"x", 200_000), (b"s", 5), (b"a", 5)]
    assert len(log.transactions()) == (0 if site.kind == "embedded" else 1)


@pytest.mark.long
def test_pickled_log_works_in_a_fresh_interpreter(site: Site) -> None:
    """Send a log that has been used, with an open producer, to another interpreter, and use it there."""
    log = site.connect()
    log.create_topic("orders")
    send_each(log.producer("orders"), [b"from here"])
    found = outcome(start("use_pickled", stdin=subprocess.PIPE), pickle.dumps(log))
    assert found == ["from here", "x"]
    assert values(log, "orders") == [b"from here", b"x"]
