"""The process that answers a catalog: it may die, hang, or be asked twice; no change is made twice or lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StructType

import txn_source
from tests.log.reading import eventually
from tests.spark.sql.conftest import Statements, add_catalog
from txn_source.client.target import Target
from txn_source.metadata.service.server import Server

DEADLINE_S = 240


def test_catalogs_share_a_process_that_may_die(bank: Statements, tmp_path: Path) -> None:
    """Give two sessions catalogs of two logs, and kill the process that answers them, as an operator may."""
    sessions = [bank.spark, bank.spark.newSession()]
    for number, session in enumerate(sessions):
        with txn_source.connect(tmp_path / f"log{number}") as log:
            log.create_topic("orders")
        add_catalog(session, f"shared{number}", path=str(tmp_path / f"log{number}"))
    for _ in range(2):
        kill_helpers()
        for number, session in enumerate(sessions):
            assert session.sql(f"SHOW TABLES IN shared{number}.public").count() == 1
        assert len(helpers()) == 1


class Gate:
    """Holds the first call of a name, before or after a service carries it out, until the block is left."""

    def __init__(self, server: Server, name: str, *, after: bool) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()
        self._service: Any = server._service
        self._call, self._held, self._after = self._service.call, name, after
        self._service.call = self._pass

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.set()
        del self._service.call

    def _pass(self, name: str, request: Any) -> Any:
        held = name == self._held and not self.reached.is_set()
        answer = self._call(name, request) if self._after or not held else None
        if held:
            self.reached.set()
            assert self._open.wait(DEADLINE_S)
        return self._call(name, request) if answer is None else answer


@contextmanager
def running(bank: Statements, statement: str) -> Iterator[None]:
    """Run a statement meanwhile; it must succeed."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            bank.sql(statement).collect()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert raised == []


@dataclass(frozen=True)
class Remote:
    """A log, its service, and a catalog of that."""

    log: txn_source.Log
    server: Server
    catalog: str


@pytest.fixture(scope="module")
def remote(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """A service whose calls can be held."""
    root = tmp_path_factory.mktemp("remote") / "log"
    with txn_source.connect(root) as log, Server(Target.of(root, None).service(), "127.0.0.1", 0) as server:
        name = add_catalog(spark, "gated", endpoint=server.address, allowDrop="true")
        yield Remote(log, server, name)


ALTER = "ALTER TABLE {table} SET TBLPROPERTIES ('retention_age' = '7d', 'partitions' = '3')"


@pytest.mark.parametrize(
    ("call", "statement"),
    [
        pytest.param("CreateTopic", "CREATE TABLE {table} AS SELECT 1 AS a", marks=pytest.mark.long),
        ("UpdateTopic", ALTER),
    ],
)
def test_change_counts_once_if_its_process_dies(bank: Statements, remote: Remote, call: str, statement: str) -> None:
    """Kill the process while the service has its call: another one asks again, and is answered as the first."""
    topic = bank.topic("orders")
    if not statement.startswith("CREATE"):
        remote.log.create_topic(topic, schema=pa.schema([("a", pa.int32())]))
    gate = Gate(remote.server, call, after=True)
    with running(bank, statement.replace("{table}", f"{remote.catalog}.{bank.tenant}.orders")), gate:
        assert gate.reached.wait(DEADLINE_S)
        kill_helpers()
    assert len(remote.log.topics(f"{bank.tenant}/default")) == 1
    if "AS SELECT" in statement:
        assert remote.log.scan(topic, columns=["a"]).read_all().to_pylist() == [{"a": 1}]
    if statement == ALTER:
        assert remote.log.policies(topic)["retention_age"].value == 7 * 86400
        assert len(remote.log.stats(topic).partitions) == 3


def test_query_that_waits_for_its_service_keeps_no_other_waiting(bank: Statements, remote: Remote) -> None:
    """Let a service be slow with one table, and look at another."""
    for name in ("slow", "quick"):
        remote.log.create_topic(bank.topic(name))
    tables = f"DESCRIBE TABLE {remote.catalog}.{bank.tenant}."
    gate = Gate(remote.server, "GetPolicies", after=False)
    with running(bank, tables + "slow"), gate:
        assert gate.reached.wait(DEADLINE_S)
        assert [row[0] for row in bank.sql(tables + "quick").collect()][:2] == ["key", "value"]


_DYING = """
import os, sys
from txn_source.metadata.service.service import MetadataService
from txn_source.spark.catalog import __main__

done = MetadataService.call

def call(service, name, request):
    answer = done(service, name, request)
    if name == sys.argv[1]:
        os._exit(9)
    return answer

MetadataService.call = call
__main__.main()
"""


@pytest.mark.long
def test_process_takes_the_change_of_a_dead_one_for_its_own(tmp_path: Path) -> None:
    """Let processes die after they changed an embedded log, and give another one the same calls, for a new topic."""
    schema = StructType().add("a", IntegerType()).json()
    calls: list[tuple[str, str, dict[str, object]]] = [
        ("CreateTopic", "create", {"schema": schema, "properties": {"partitions": "2"}}),
        ("DeleteTopic", "drop", {}),
    ]
    lines = []
    with txn_source.connect(tmp_path / "log") as log:
        for dies_in, name, more in calls:
            arguments = {"namespace": ["public"], "name": "orders", **more}
            asked = {"id": name, "target": {"path": str(log.root)}, "call": name, "arguments": arguments}
            lines.append(json.dumps(asked) + "\n")
            assert _answers(lines[-1], "-c", _DYING, dies_in) == {}
        assert log.topics() == []
        log.create_topic("orders")
        answers = _answers("".join(lines), "-m", "txn_source.spark.catalog")
        assert answers == {"create": None, "drop": True}
        assert (log.topics(), len(log.stats("orders").partitions)) == (["orders"], 1)


def _answers(lines: str, *command: str) -> dict[str, object]:
    run = subprocess.run(
        [sys.executable, *command], input=lines, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    return {answer["id"]: answer["answer"] for answer in map(json.loads, run.stdout.splitlines())}


def kill_helpers() -> None:
    """Kill the processes that answer catalogs; return when they are gone."""
    killed = helpers()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not killed & helpers())


def helpers() -> set[int]:
    """Return the ids of the processes that answer catalogs of this test's Java."""
    whole_lines = ["ps", "-ww", "-eo", "pid,ppid,stat,args"]
    listed = subprocess.run(whole_lines, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()[1:]]
    children: dict[int, set[int]] = {}
    for pid, parent, *_ in rows:
        children.setdefault(int(parent), set()).add(int(pid))
    mine, todo = set(), [os.getpid()]
    while todo:
        found = children.get(todo.pop(), set()) - mine
        mine |= found
        todo += found
    named = {int(row[0]) for row in rows if "txn_source.spark.catalog" in row[-1] and not row[2].startswith("Z")}
    return mine & named
