"""Forks: what writes belongs to the process that opened it; a log is used by all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.log.reading import UNCOMMITTED, by_id, values
from tests.log.sites import Site

FORKING = Path(__file__).with_name("forking.py")


def outcome(site: Site, what: str, **variables: str) -> Any:
    target = site.endpoint if site.kind == "remote" else str(site.root)
    child = subprocess.run(
        [sys.executable, "-X", "dev", str(FORKING), what, site.kind, target],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert "lost" not in child.stderr
    return json.loads(child.stdout.splitlines()[-1])


def test_inherited_writers_are_refused_and_the_log_is_not(site: Site) -> None:
    """Fork three times while four threads write: what the child inherits is refused, what it opens works."""
    log = site.connect()
    log.create_topic("orders")
    found = outcome(site, "inherit")
    for answer in found["answers"]:
        assert answer.pop("exit") == 0
        assert answer.pop("topics") == ["orders"]
        assert len(answer) == 9
        for call, said in answer.items():
            assert "belongs to the process that opened it" in said, call
            assert "[TXNLOG_INVALID_ARGUMENT]" in said
            assert "Open a new one here" in said
    assert found["ids"] == 2
    stored = values(log, "orders", UNCOMMITTED)
    assert values(log, "orders") == stored
    assert stored.count(b"of the child's own") == 3
    rest = [value for value in stored if not value.startswith((b"thread", b"of the child's own"))]
    assert sorted(rest) == [
        b"of the parent, committed",
        b"of the parent, gathered after",
        b"of the parent, gathered before",
    ]
    assert len(set(stored)) == len(stored) - 2


def test_pool_of_forks_stores_what_it_acknowledges(site: Site) -> None:
    """Send 40 messages from four forks over one producer, which is refused, and over their own ones."""
    log = site.connect()
    log.create_topic("orders")
    answers = outcome(site, "pool")
    assert all("belongs to the process" in refused for refused, _ in answers)
    stored = {str(at): value for at, value in by_id(log, "orders").items()}
    assert [stored.pop(at) for _, at in answers] == [b"own %d" % number for number in range(40)]
    assert sorted(stored.values()) == [b"after", b"before"]


def test_child_that_exits_leaves_the_parents_blocks_alone(site: Site) -> None:
    """Exit in a child inside of the blocks of a log, a producer and a transaction, which the parent then commits."""
    log = site.connect()
    log.create_topic("orders")
    assert outcome(site, "leave_a_block") == 7
    assert values(log, "orders") == [b"committed"]


def test_child_outlives_the_parents_log(site: Site) -> None:
    """Close the log in the parent while its child writes: what the child is told to be stored is there."""
    log = site.connect()
    log.create_topic("orders")
    log.close()
    assert outcome(site, "outlive") == {"exit": 0, "acknowledged": 1}
    log = site.connect()
    assert values(log, "orders") == [b"of the parent", b"of the child", b"of the child, left alone"]


def test_fork_under_a_connected_consumer_can_not_use_an_embedded_log(site: Site) -> None:
    """Fork while a consumer holds the database open: the child is told why it can't use it; a service can be used."""
    site.connect().create_topic("orders")
    found = outcome(site, "consume")
    if site.kind == "remote":
        assert found == {"exit": 0, "topics": "succeeded", "again": "succeeded"}
    else:
        assert found["exit"] == 0
        assert "SQLite can't be used on both sides of a fork" in found["topics"]
        assert "SQLite can't be used on both sides of a fork" in found["again"]


def test_fork_waits_for_calls_of_other_threads(site: Site) -> None:
    """Fork amid a call that ends, and one that doesn't: only the second child may call no service."""
    found = outcome(site, "amid")
    assert found["short"] == {"exit": 0, "amid": False, "topics": "succeeded"}
    assert found["endless"]["exit"] == 0
    assert found["endless"]["amid"]
    if site.kind == "remote":
        assert "[TXNLOG_INVALID_ARGUMENT] This process was forked while" in found["endless"]["topics"]
        assert "(spawn)" in found["endless"]["topics"]


def test_fork_waits_for_imports_of_other_threads(embedded_site: Site, tmp_path: Path) -> None:
    """Fork amid a thread's first array, for which pyarrow imports pandas, and twice amid an import that doesn't end."""
    late = tmp_path / "late"
    late.mkdir()
    (late / "pandas.py").write_text("import during_import\nduring_import.wait()\nraise ImportError('none')\n")
    (late / "endless.py").write_text("import during_import\nduring_import.wait()\n")
    log = embedded_site.connect()
    log.create_topic("orders")
    found = outcome(embedded_site, "importing", PYTHONPATH=f"{late}{os.pathsep}{os.environ['PYTHONPATH']}")
    assert found["imported"] == {"exit": 0, "acknowledged": 1}
    assert found["endless"] == [{"exit": 0}] * 2
    assert sorted(values(log, "orders")) == [b"of the child", b"of the parent"]
