"""A plan is pinned: whoever reads it, now or after anything that happens to the log, gets the same rows."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tests.log.reading import COMMITTED, UNCOMMITTED, send_each
from tests.log.sites import ManualClock
from txn_source import IsolationLevel, Log, Transaction
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.reading.plan import ReadPlan, plan
from txn_source.reading.request import ReadRequest, Selection

_COLUMNS = ["value", "__partition", "__ledger_id", "__entry_id", "__producer_name", "__txn_id", "__txn_status"]


def planned(log: Log, topic: str, level: str, **options: int) -> ReadPlan:
    return plan(
        OwnLog(log.access),
        resolve(log.metadata, Selection.of(topic)),
        ReadRequest(IsolationLevel.parse(level), **options),
    )


def read(log: Log, pinned: ReadPlan, columns: list[str] = _COLUMNS) -> pa.Table:
    """Read the tasks one after the other, each with a reader of its own."""
    schema = select_columns(pa.schema([("value", pa.binary())]), columns)
    batches = []
    for task in pinned.tasks:
        reader = pinned.reader(OwnLog(log.access), schema)
        batches += reader.read(task)
    return pa.Table.from_batches(batches, schema)


@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED])
def test_plan_reads_the_same_after_everything_that_can_happen(clocked_log: Log, clock: ManualClock, level: str) -> None:
    """Plan with transactions open and decided; then append, end them in each way, roll, take over, and read again."""
    log = clocked_log
    log.create_topic("orders", partitions=2, ledger_max_entries=4)
    producer = log.producer("orders", transactional_id="tellers", name="monday")
    other = log.producer("orders", name="other")

    def write(txn: Transaction | None) -> None:
        for partition in (0, 1):
            send_each(producer, [b"x", b"y"], partition=partition, txn=txn)

    write(None)
    for end in ("commit", "abort"):
        transaction = log.begin_transaction()
        write(transaction)
        getattr(transaction, end)()
    committed, aborted, timed_out, fenced = (log.begin_transaction(timeout=t) for t in (100, 100, 10, 100))
    for transaction in (committed, aborted, timed_out):
        for partition in (0, 1):
            send_each(other, [b"open"], partition=partition, txn=transaction)
    write(fenced)

    pinned = planned(log, "orders", level)
    before = read(log, pinned)
    assert before.num_rows == (8 if level == COMMITTED else 22)

    committed.commit()
    aborted.abort()
    clock.advance(10)
    assert log.transaction(timed_out.id).end_reason == "timeout"
    log.producer("orders", transactional_id="tellers", name="tuesday")
    assert log.transaction(fenced.id).end_reason == "fenced"
    send_each(other, [b"later"] * 5)
    log.roll_ledger("orders")
    assert read(log, pinned) == before
    assert read(log, pinned, ["value"]) == before.select(["value"])
    assert read(log, planned(log, "orders", level)) != before


def test_task_can_be_read_in_any_order_and_again(log: Log) -> None:
    """Read the tasks of a plan backwards and twice; each gives its own rows."""
    log.create_topic("orders", ledger_max_entries=2)
    send_each(log.producer("orders"), [b"%d" % i for i in range(10)])
    pinned = planned(log, "orders", COMMITTED, max_partition_bytes=1)
    assert len(pinned.tasks) == 10
    parts = [read(log, replace(pinned, tasks=(task,))) for task in pinned.tasks[::-1] * 2]
    found = [part["value"].to_pylist() for part in parts]
    assert found == [[b"%d" % i] for i in range(9, -1, -1)] * 2


def test_empty_topic_has_no_tasks(log: Log) -> None:
    """Plan an empty topic, and one whose first message is undecided."""
    log.create_topic("empty", partitions=3)
    log.create_topic("undecided")
    send_each(log.producer("undecided"), [b"x"], txn=log.begin_transaction())
    assert planned(log, "empty", UNCOMMITTED).tasks == []
    assert planned(log, "undecided", COMMITTED).tasks == []
    assert len(planned(log, "undecided", UNCOMMITTED).tasks) == 1
