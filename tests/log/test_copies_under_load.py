"""Losing each root while a producer process writes, and killing that in the middle: what was acknowledged is there."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.log.numbered import PARTITIONS, TOPIC, check
from tests.log.roots import Roots
from tests.log.sites import Site
from txn_source import Log

PRODUCER = Path(__file__).with_name("numbered_producer.py")
NAMES = ("main", "b", "c")


def lines_of(child: subprocess.Popen[str], count: int) -> list[Any]:
    """Return what a producer says was acknowledged next."""
    assert child.stdout is not None
    return [json.loads(child.stdout.readline()) for _ in range(count)]


def is_full(log: Log, roots: Roots) -> None:
    """Check that repair brings every root to all that is registered, and that each alone is enough."""
    log.maintain(verify=True)
    registered = {segment.path: segment.roots for segment in log.metadata.list_hot_segments(log_topic())}
    assert set(registered.values()) == {0b111}
    for name in NAMES:
        there = {path.relative_to(roots[name]).as_posix() for path in roots.segments(name)}
        assert registered.keys() <= there


def log_topic() -> Any:
    from txn_source.model.topic_name import TopicName

    return TopicName.parse(TOPIC)


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.long)])
@pytest.mark.long
def test_each_root_is_lost_under_load(tmp_path: Path, rounds: int) -> None:
    """For each root: take it away while a process writes, read and check all that it has acknowledged, bring it back or
    make it anew, repair, and kill the process at its next write."""
    roots = Roots(tmp_path)
    acknowledged: list[Any] = []
    with Site("remote", roots.main) as site:
        log = site.connect()
        log.add_root("b", roots.b)
        log.add_root("c", roots.c)
        policies = {"hot_copies": "main,b,c", "acknowledge_copies": 2}
        log.create_topic(TOPIC, PARTITIONS, ledger_max_entries=20, **policies)
        for number in range(rounds * len(NAMES)):
            name = NAMES[number % len(NAMES)]
            command = [sys.executable, str(PRODUCER), "remote", site.endpoint, str(number + 1)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
                acknowledged += lines_of(child, 3)
                roots.lose(name)
                acknowledged += lines_of(child, 5)
                child.send_signal(signal.SIGSTOP)
                check(log, acknowledged)
                child.send_signal(signal.SIGCONT)
                roots.bring_back(name)
                if name != "main" and number % 2:
                    while roots[name].exists():  # the producer writes there meanwhile
                        shutil.rmtree(roots[name], ignore_errors=True)
                    log.add_root(name, roots[name])
                log.maintain()
                acknowledged += lines_of(child, 3)
                child.kill()
                assert child.stdout is not None
                rest = child.stdout.read()
            acknowledged += [json.loads(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
            check(log, acknowledged)
        for left in log.transactions():
            log.abort_transaction(left.id)
        is_full(log, roots)
        for name in NAMES:
            shutil.move(roots[name] / "segments", tmp_path / "kept")
            check(log, acknowledged)
            shutil.move(tmp_path / "kept", roots[name] / "segments")
