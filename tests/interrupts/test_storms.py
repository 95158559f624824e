"""Storms of real signals over a process that writes: what it was told to be stored is there once, and whole."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.log.numbered import PARTITIONS, TOPIC, check
from tests.log.sites import Site

STORM = Path(__file__).with_name("storm.py")
STEPS, LONG_STEPS, ENOUGH = 120, 6_000, 12


def storm(site: Site, steps: int) -> int:
    """Send signals to a writer at random moments, for so many steps and until some came into calls; check, and return
    how many did."""
    log = site.connect()
    log.create_topic(TOPIC, PARTITIONS, ledger_max_entries=100)
    command = [sys.executable, str(STORM), site.kind, site.endpoint if site.kind == "remote" else str(site.root), "1"]
    source, told = random.Random(20260131), list[Any]()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == "ready"
        calm = threading.Event()

        def thunder() -> None:
            while not calm.wait(source.expovariate(1 / 0.01)):
                child.send_signal(signal.SIGINT)

        thread = threading.Thread(target=thunder)
        thread.start()
        try:
            while len(told) < steps or max(count for what, count, *_ in told if what == "interrupted") < ENOUGH:
                told.append(json.loads(child.stdout.readline()))
        finally:
            calm.set()
            thread.join()
            child.stdin.close()
            told += [json.loads(line) for line in child.stdout]
    assert child.returncode == 0
    *_, interrupted = [line[1] for line in told if line[0] == "interrupted"]
    acknowledged: list[list[Any]] = [line for line in told if line[0] != "interrupted"]
    assert {what for what, *_ in acknowledged} == {"plain", "committed", "aborted"}
    check(log, acknowledged)
    assert not [each for each in log.transactions() if each.partitions]
    with log.producer(TOPIC) as producer:
        producer.send(b"plain 999999999", partition=0)
        assert len(producer.flush()) == 1
    check(log, [*acknowledged, ["plain", 999999999]])
    return int(interrupted)


def test_storm_of_signals_loses_nothing(site: Site) -> None:
    """Interrupt a writer every hundredth of a second."""
    assert storm(site, STEPS) >= ENOUGH


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_storm_of_signals_for_long(site: Site) -> None:
    """Interrupt a writer for minutes; print how often it was."""
    print(site.kind, LONG_STEPS, "steps,", storm(site, LONG_STEPS), "interrupts")
