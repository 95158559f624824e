"""A log on a read-only mount, such as a snapshot of a disk, can be read: at both levels, from both tiers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import COMMITTED, UNCOMMITTED, values
from tests.log.sites import Site
from tests.log.tiers import write_ledgers
from tests.selection import mostly_long
from txn_source import Log

SCAN = """
import json, sys
import txn_source

kind, target = sys.argv[1:]
with txn_source.connect(**{kind: target, **({"create": False} if kind == "path" else {})}) as log:
    found = {}
    for level in ("read_committed", "read_uncommitted"):
        reader = log.scan("orders", level, ["value"])
        found[level] = [row["value"].hex() for row in reader.read_all().to_pylist()]
        assert not log.copies_read(reader).failures
    found["topics"] = log.topics()
    found["messages"] = log.stats("orders").messages
    if kind == "path":
        try:
            log.create_topic("more")
        except txn_source.TxnLogError as error:
            found["refusal"] = str(error)
print(json.dumps(found))
"""
MOUNTED = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && ! touch "$0/x" 2>&- && exec "$@"'


def on_a_read_only_mount(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command for which a root is mounted read-only, as nobody else sees it."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNTED, str(root)]
    try:
        allowed = subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("this machine lets nobody mount anything in a namespace of his own")
    return subprocess.run([*unshare, *command], capture_output=True, text=True, check=False)


def scanned(root: Path, kind: str, target: str) -> dict[str, Any]:
    """Scan a log on a read-only mount in a process of its own."""
    done = on_a_read_only_mount(root, sys.executable, "-c", SCAN, kind, target)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def filled(log: Log) -> dict[str, list[str]]:
    """Write two closed ledgers, one of which has only a tiered copy, and return what each level sees."""
    log.create_topic("orders")
    write_ledgers(log, ledgers=1)
    log.offload("orders")
    log.delete_hot("orders")
    with log.producer("orders") as producer:
        producer.send(b"hot")
    return {level: [value.hex() for value in values(log, "orders", level)] for level in (COMMITTED, UNCOMMITTED)}


@pytest.mark.parametrize("left", mostly_long(["closed", "open elsewhere"], "closed"))
def test_embedded_log_is_read_from_a_read_only_mount(tmp_path: Path, left: str) -> None:
    """Mount a root read-only that nobody has open, and one that a writer has."""
    with Site("embedded", tmp_path / "log") as site:
        log = site.connect()
        expected = filled(log)
        messages = log.stats("orders").messages
        if left == "closed":
            log.close()
        found = scanned(site.root, "path", str(site.root))
        assert {level: found[level] for level in expected} == expected
        assert (found["topics"], found["messages"]) == (["orders"], messages)
        assert found["refusal"].startswith("[TXNLOG_")
