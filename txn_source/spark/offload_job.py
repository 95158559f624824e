"""Offloading many ledgers as a Spark job, so that it takes as long as the cluster is small."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession

from txn_source.client.target import Target
from txn_source.client.tiering.deletion import delete_doomed_files
from txn_source.client.tiering.offload import Offloader, OffloadReport
from txn_source.model.errors import ERROR_CLASSES, TxnLogError
from txn_source.model.ledger import OffloadableLedger
from txn_source.model.topic_name import TopicName
from txn_source.spark.connection import open_log

if TYPE_CHECKING:
    from txn_source.client.log import Log

_TASK_BYTES = 128 << 20
_MIN_TASKS = 8
_LEDGER = ", ".join(
    f"{field.name} {'int' if field.name == 'partition' else 'bigint'}"
    for field in dataclasses.fields(OffloadableLedger)
)
"""The columns of a ledger, in the order of its fields."""
_DONE = pa.schema(
    [
        pa.field("ledger_id", pa.int64()),
        pa.field("skipped", pa.bool_()),
        *(pa.field(name, pa.int64()) for name in ("messages", "hot_bytes", "tiered_bytes")),
        *(pa.field(name, pa.string()) for name in ("code", "fact", "remedy")),
    ]
)


def offload(spark: SparkSession, log: Log, topic: str) -> OffloadReport:
    """Offload all closed, decided ledgers of a topic, as ``Log.offload`` does, in the tasks of a Spark job.

    Tasks that run twice do no harm. The executors must reach the log, and the offload target, as the driver does.

    Raises:
        TxnLogError: what the first ledger that failed failed with. All others have been tried by then.
    """
    name = TopicName.parse(topic)
    ledgers, _ = log.metadata.list_offloadable(name)
    if not ledgers:
        return OffloadReport()
    tasks = min(len(ledgers), max(_MIN_TASKS, sum(ledger.bytes for ledger in ledgers) // _TASK_BYTES))
    rows = spark.createDataFrame([dataclasses.astuple(ledger) for ledger in ledgers], _LEDGER).repartition(tasks)
    done = ", ".join(f"{f.name} {_SPARK_TYPES[f.type]}" for f in _DONE)
    results = rows.mapInArrow(_task(log.target, name), done).collect()
    delete_doomed_files(log.access)
    report = OffloadReport()
    for row in sorted(results, key=lambda row: row.ledger_id):
        if row.code is not None:
            raise ERROR_CLASSES[row.code](row.fact, row.remedy)
        ids = (row.ledger_id,)
        report += OffloadReport(
            () if row.skipped else ids, ids if row.skipped else (), row.messages, row.hot_bytes, row.tiered_bytes
        )
    return report


_SPARK_TYPES = {pa.int64(): "bigint", pa.bool_(): "boolean", pa.string(): "string"}


def _task(target: Target, topic: TopicName) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        log = open_log(target)
        offloader: Offloader | None = None
        for batch in batches:
            for row in batch.to_pylist():
                offloader = offloader or Offloader(log, topic)
                yield pa.RecordBatch.from_pylist([_offload_one(offloader, OffloadableLedger(**row))], schema=_DONE)

    return run


def _offload_one(offloader: Offloader, ledger: OffloadableLedger) -> dict[str, object]:
    done: dict[str, object] = {"ledger_id": ledger.ledger_id, "skipped": False}
    try:
        report = offloader.offload_one(ledger)
    except TxnLogError as error:
        return done | {"code": error.code, "fact": error.fact, "remedy": error.remedy}
    return done | {
        "skipped": bool(report.skipped),
        "messages": report.messages,
        "hot_bytes": report.hot_bytes,
        "tiered_bytes": report.tiered_bytes,
    }
