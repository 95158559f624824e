"""Plans of reads, to be read later, and again."""

from __future__ import annotations

import pyarrow as pa

from txn_source import IsolationLevel, Log
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.own_log import OwnLog
from txn_source.reading.plan import ReadPlan, plan
from txn_source.reading.request import ReadRequest, Selection

_COLUMNS = ["value", "__partition", "__ledger_id", "__entry_id", "__producer_name", "__txn_id", "__txn_status"]


def planned(log: Log, topic: str, level: str, **options: int) -> ReadPlan:
    """Plan a read of a topic."""
    source = OwnLog(log.access)
    return plan(source, source.look(Selection.of(topic)), ReadRequest(IsolationLevel.parse(level), **options))


def read(log: Log, pinned: ReadPlan, columns: list[str] = _COLUMNS) -> pa.Table:
    """Read the tasks one after the other, each with a reader of its own."""
    schema = select_columns(pa.schema([("value", pa.binary())]), columns)
    batches = [rows for task in pinned.tasks for rows in pinned.reader(OwnLog(log.access), schema).read(task)]
    return pa.Table.from_batches(batches, schema)
