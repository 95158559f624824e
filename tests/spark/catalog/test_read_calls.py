"""What the catalog's scans ask of a log, asked without Spark."""

from __future__ import annotations

import json
import pickle
import random
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_source
from txn_source.model.errors import InvalidArgumentError, TopicNotFoundError
from txn_source.model.packing import Slice
from txn_source.reading.filters import Filters
from txn_source.spark.catalog.read_calls import ReadCalls
from txn_source.spark.schema import to_spark
from txn_source.spark.tasks import read_rows

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def log(tmp_path: Path) -> Iterator[txn_source.Log]:
    with txn_source.connect(tmp_path / "log") as log:
        log.create_topic("a", 2, SCHEMA)
        log.create_topic("b", 1, SCHEMA)
        yield log


@pytest.fixture
def calls(log: txn_source.Log) -> ReadCalls:
    return ReadCalls(log)


def _send(log: txn_source.Log, topic: str, rows: int, partition: int = 0, txn: Any = None) -> None:
    with log.producer(topic) as producer:
        producer.send_batch(pa.table({"id": list(range(rows))}, schema=SCHEMA), partition=partition, txn=txn)


def _options(log: txn_source.Log, **more: str) -> dict[str, str]:
    return {"path": str(log.root), "topic": "a", **more}


def _ends(cut: dict[str, dict[str, str]]) -> dict[str, str]:
    return {level: options["endingoffsets"] for level, options in cut.items()}


def test_all_levels_of_a_query_end_at_one_moment(log: txn_source.Log, calls: ReadCalls) -> None:
    with log.begin_transaction() as txn:
        _send(log, "a", 3, txn=txn)
        _send(log, "b", 3, txn=txn)
        _send(log, "a", 2, partition=1)
        cut = _ends(calls.cut({"read_committed": ["a", "b"], "READ-UNCOMMITTED": ["b"]}))
    committed, uncommitted = (json.loads(cut[level]) for level in ("read_committed", "READ-UNCOMMITTED"))
    assert committed["level"] == "read_committed"
    assert uncommitted["level"] == "read_uncommitted"
    assert [log.scan(topic, end=cut["read_committed"]).read_all().num_rows for topic in "ab"] == [2, 0]
    assert log.scan("b", "read_uncommitted", end=cut["READ-UNCOMMITTED"]).read_all().num_rows == 3
    assert committed["positions"]["b"]["0"] < uncommitted["positions"]["b"]["0"]


def test_a_partition_has_the_cut_of_its_topic(log: txn_source.Log, calls: ReadCalls) -> None:
    _send(log, "a", 3, partition=1)
    cut = _ends(calls.cut({"read_committed": ["a-partition-1", "a", "persistent://public/default/b"]}))
    assert list(json.loads(cut["read_committed"])["positions"]) == ["a", "b"]
    assert log.scan("a-partition-1", end=cut["read_committed"]).read_all().num_rows == 3


def test_a_cut_of_a_topic_that_is_gone_is_refused(calls: ReadCalls) -> None:
    with pytest.raises(TopicNotFoundError):
        calls.cut({"read_committed": ["a", "gone"]})


def test_the_outlook_is_what_planning_finds(log: txn_source.Log, calls: ReadCalls) -> None:
    _send(log, "a", 4)
    _send(log, "a", 6)
    _send(log, "a", 5, partition=1)
    found = calls.outlook(_options(log))
    assert found["rows"] == 15
    assert found["bytes"] == log.stats("a").bytes
    assert found["tasks"] == 1
    half = calls.outlook(_options(log, endingOffsets=json.dumps({"a": {"0": "1:1", "1": "earliest"}})))
    assert half["rows"] == 5  # half of the entries of a ledger with ten messages
    assert half["ledgers"] == "1 ledger: 1 hot, 0 tiered"
    assert calls.outlook({**_options(log), "topic": "b"}) == {
        "rows": 0, "bytes": 0, "bounds": "0: [3:0, 3:0)", "ledgers": "0 ledgers: 0 hot, 0 tiered", "tasks": 0,
    }  # fmt: skip
    with pytest.raises(InvalidArgumentError):
        calls.outlook(_options(log, endingOffsets="9:9"))


def test_counts_are_those_of_scans(log: txn_source.Log, calls: ReadCalls) -> None:
    choose = random.Random(7)
    for _ in range(12):
        txn = choose.choice([None, log.begin_transaction()])
        _send(log, "a", choose.randint(1, 9), choose.randint(0, 1), txn)
        if txn is not None:
            choose.choice([txn.commit, txn.abort])()
        if choose.random() < 0.3:
            log.roll_ledger("a")
    log.offload("a")
    log.delete_hot("a")
    _send(log, "a", 3)
    middle = json.loads(log.cut("a").json())
    for level in ("read_committed", "read_uncommitted"):
        assert calls.count(_options(log, isolationLevel=level)) == log.scan("a", level).read_all().num_rows
        part = {"startingOffsets": json.dumps({"a": {"0": middle["positions"]["a"]["0"]}}), "isolationLevel": level}
        start = {"a": {"0": middle["positions"]["a"]["0"]}}
        assert calls.count(_options(log, **part)) == log.scan("a", level, start=start).read_all().num_rows


@pytest.mark.parametrize("many", [False, True])
def test_python_reads_the_slices_that_are_left_at_once(log: txn_source.Log, calls: ReadCalls, many: bool) -> None:
    """Mix large entries, small ones and objects: the rows of a partition keep their order, in few steps.

    Where there are many partitions with little in each, nothing but the Python task is planned.
    """
    partitions = 20 if many else 3
    log.create_topic("mixed", partitions, SCHEMA)
    for partition in range(partitions):
        _send(log, "mixed", 100, partition)
        if partition % 2:
            _send(log, "mixed", 1, partition)
    log.roll_ledger("mixed")
    log.offload("mixed")
    for partition in range(partitions):
        _send(log, "mixed", 100, partition)
    plan = calls.plan(_options(log, topic="mixed", maxPartitionBytes="1g"), to_spark(SCHEMA).json(), objects=not many)
    by_java, rows = 0, 0
    for task in plan["tasks"]:
        steps = [_Step.of(task, step) for step in task["steps"]]
        by_java += sum(step.by_java for step in steps)
        assert [step.by_java for step in steps].count(False) == many
        reaches = [(part.partition, part.range) for step in steps for part in step.parts]
        for partition in range(partitions):
            mine = [reach for of, reach in reaches if of == partition]
            assert all(before.end <= after.start for before, after in pairwise(mine))
        rows += sum(step.rows for step in steps)
    assert by_java == (0 if many else 6)
    assert rows == 200 * partitions + partitions // 2


@dataclass(frozen=True)
class _Step:
    """A step of a task, with its slices, and the number of rows that Python reads of it."""

    by_java: bool
    parts: Sequence[Slice]
    rows: int

    @classmethod
    def of(cls, task: dict[str, Any], step: dict[str, Any]) -> _Step:
        pickled = b64decode(task["python"])
        numbers = {"first": [step["first"]], "last": [step["last"]], "begin": [-1], "done": [0]}
        rows = read_rows([pa.record_batch({"task": [pickled], **numbers})])
        parts = pickle.loads(pickled).parts
        mine = parts if step["last"] < 0 else parts[step["first"] : step["last"]]
        return cls("entries" in step or "object" in step, mine, sum(batch.num_rows for batch in rows))


def test_python_goes_on_behind_the_rows_that_another_reader_has_handed_out(
    log: txn_source.Log, calls: ReadCalls
) -> None:
    for _ in range(3):
        _send(log, "b", 100)
    log.roll_ledger("b")
    log.offload("b")
    filters = json.dumps([{"op": "<", "column": ["id"], "value": {"type": "long", "value": 0}}])
    options = _options(log, topic="b", catalogdefaults="")
    plan = calls.plan(options, to_spark(SCHEMA).json(), objects=True)
    [[step]] = [task["steps"] for task in plan["tasks"]]
    assert (step["rows"], step["object"]) != (0, "")
    pickled = pickle.loads(b64decode(plan["tasks"][0]["python"]))
    filtered = replace(pickled, request=replace(pickled.request, filters=Filters.parse(filters)))
    for done in (1, 99, 100, 250, 300):
        rows = read_rows([pa.record_batch({"task": [pickle.dumps(filtered)], **_numbers(done)})])
        assert [i for batch in rows for i in batch["id"].to_pylist()] == (3 * list(range(100)))[done:]
    assert calls.plan({**options, "__pushedFilters": filters}, to_spark(SCHEMA).json(), objects=True)["tasks"] == []


def _numbers(done: int) -> dict[str, list[int]]:
    return {"first": [0], "last": [1], "begin": [-1], "done": [done]}
