"""kill -9 at random points, of a producer and of the server: what was acknowledged is there once, and nothing half."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.log.numbered import PARTITIONS, TOPIC, check, produce
from tests.log.reading import BY_HAND
from tests.log.sites import Site
from txn_source import UnavailableError, connect
from txn_source.metadata.store.database_url import DatabaseUrl

PRODUCER = Path(__file__).with_name("numbered_producer.py")
SEED = 20260131
DEADLINE_S = 60.0


def test_killed_producer_leaves_all_it_acknowledged_and_nothing_half(site: Site) -> None:
    """Run two producers one after the other, each killed after some acknowledgements and a moment more."""
    source = random.Random(SEED)
    log = site.connect()
    log.create_topic(TOPIC, PARTITIONS, ledger_max_entries=20)
    target = site.endpoint if site.kind == "remote" else str(site.root)
    acknowledged: list[list[Any]] = []
    for number in (1, 2):
        command = [sys.executable, str(PRODUCER), site.kind, target, str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            acknowledged += [json.loads(child.stdout.readline()) for _ in range(source.randrange(1, 20))]
            threading.Event().wait(source.uniform(0, 0.02))
            child.kill()
            rest = child.stdout.read()
        acknowledged += [json.loads(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
        check(log, acknowledged)
    for left in log.transactions():
        log.abort_transaction(left.id)
    check(log, acknowledged)
    assert {what for what, *_ in acknowledged} == {"plain", "committed", "aborted"}


def lasting_port() -> int:
    """Return a free port that the system gives to nobody who asks for any: it stays free between two servers."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, lowest)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class FragileServer:
    """``txnlog serve`` in a process of its own, on one port; with a URL, over PostgreSQL."""

    def __init__(self, root: Path, url: DatabaseUrl | None = None) -> None:
        self._command = [sys.executable, "-m", "txn_source.cli", "serve", "--root", str(root), "--port"]
        self._environment = os.environ | ({} if url is None else {"TXNLOG_METADATA": url.revealed})
        self._process = self._start(lasting_port())
        self.endpoint = f"127.0.0.1:{self._port}"

    def _start(self, port: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*self._command, str(port)], stderr=subprocess.PIPE, text=True, env=self._environment
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        assert " serving on 127.0.0.1:" in line
        self._port = int(line.split(" serving on 127.0.0.1:")[1].split(",")[0])
        return process

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def restart(self) -> None:
        self.kill()
        self._process = self._start(self._port)


def insist(call: Callable[[], Any]) -> Any:
    """Repeat a call until the service answers it."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return call()
        except UnavailableError:
            assert time.monotonic() < deadline


def kill_servers(
    root: Path,
    rounds: int,
    url: DatabaseUrl | None = None,
    attack: Callable[[FragileServer, int], None] = lambda server, _: server.restart(),
) -> None:
    """Kill the server while a producer writes and repeats what wasn't answered; then check, and after a restart.

    ``attack`` does something else than to kill it, and is told how often it has.
    """
    source = random.Random(SEED)
    server = FragileServer(root, url)
    acknowledged: list[list[Any]] = []
    progress = threading.Semaphore(0)
    over = threading.Event()

    def kill() -> None:
        try:
            for number in range(rounds):
                for _ in range(source.randrange(1, 15)):
                    progress.acquire()
                threading.Event().wait(source.uniform(0, 0.02))
                attack(server, number)
        finally:
            over.set()

    killer = threading.Thread(target=kill, daemon=True)
    try:
        with connect(endpoint=server.endpoint, timeout=5.0) as log:
            log.create_topic(TOPIC, PARTITIONS, ledger_max_entries=20)
            producer = log.producer(TOPIC, transactional_id="numbered", batching=BY_HAND)
            killer.start()
            steps = produce(log, producer, "1", insist)
            while not over.is_set() or len(acknowledged) < rounds:
                acknowledged.append(next(steps))
                progress.release()
            killer.join()
            check(log, acknowledged)
            server.restart()
            insist(log.topics)
            check(log, acknowledged)
            assert [t for t in log.transactions() if t.partitions] == []
    finally:
        server.kill()
    if url is None:
        with connect(root, create=False) as log:
            check(log, acknowledged)


@pytest.mark.long
def test_killed_server_loses_nothing_and_stores_nothing_twice(tmp_path: Path) -> None:
    """Kill the server once."""
    kill_servers(tmp_path / "log", 1)
