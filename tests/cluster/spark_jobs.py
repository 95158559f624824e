"""What a driver does on its host, in one Spark session on the cluster."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

HOLD, HELD = Path("/tmp/hold"), Path("/tmp/held")
"""Where there is the first one, the next task that comes by makes it the second one, and waits until it is killed."""
_queries: dict[str, StreamingQuery] = {}


def _spark() -> SparkSession:
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _shown(frame: DataFrame) -> list[list[Any]]:
    return sorted(list(row) for row in frame.collect())


def read(topic: str, level: str = "read_committed") -> list[list[Any]]:
    """Return each message as a list, sorted."""
    options = {"endpoint": os.environ["TXNLOG_ENDPOINT"], "topic": topic, "isolationLevel": level}
    frame = _spark().read.format("txnlog").options(**options).load()
    return _shown(frame.select("transfer", "leg"))


def sql(statement: str) -> list[list[Any]]:
    """Return the rows of a statement, sorted."""
    return _shown(_spark().sql(statement))


def run(code: str) -> None:
    """Run the document's code."""
    exec(compile(code, "cluster.md", "exec"), {})


def _held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass on what comes; wait between two batches if that was asked for on this host."""
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        try:
            HOLD.rename(HELD)
        except OSError:
            pass
        else:
            threading.Event().wait()
        yield batch.slice(half)


def write(topic: str, first: int, transfers: int) -> None:
    """Write transfers by a batch job of several tasks."""
    frame = _spark().range(first, first + transfers, numPartitions=4)
    both = frame.selectExpr("id AS transfer", "explode(array('debit', 'credit')) AS leg")
    held = both.mapInArrow(_held, "transfer bigint, leg string")
    options = {"endpoint": os.environ["TXNLOG_ENDPOINT"], "topic": topic}
    held.write.format("txnlog").options(**options).mode("append").save()


def copy(name: str, source: str, target: str, limit: int) -> None:
    """Start a stream from topic to topic, with a checkpoint of the name on this host."""
    where = {"endpoint": os.environ["TXNLOG_ENDPOINT"]}
    options = {**where, "topic": source, "startingOffsets": "earliest", "maxMessagesPerTrigger": str(limit)}
    rows = _spark().readStream.format("txnlog").options(**options).load().select("transfer", "leg")
    held = rows.repartition(2).mapInArrow(_held, "transfer bigint, leg string")
    sink = held.writeStream.format("txnlog").options(**where, topic=target)
    _queries[name] = sink.option("checkpointLocation", f"/tmp/checkpoints/{name}").start()


def watch(topic: str, wanted: int) -> int:
    """Return the number of messages that a query in real time has read, once it is the wanted one, or after a minute;
    Spark asks the executors' Python."""
    options = {"endpoint": os.environ["TXNLOG_ENDPOINT"], "topic": topic, "startingOffsets": "earliest"}
    stream = _spark().readStream.format("txnlog").options(**options, isolationLevel="read_uncommitted").load()
    sink = stream.writeStream.foreach(lambda row: None).outputMode("update").trigger(realTime="10 seconds")
    query = sink.option("checkpointLocation", f"/tmp/checkpoints/watch-{time.monotonic_ns()}").start()
    until, count = time.monotonic() + 60, 0
    try:
        while query.isActive and count < wanted and time.monotonic() < until:
            time.sleep(0.1)
            count = sum(progress.numInputRows for progress in query.recentProgress)
    finally:
        query.stop()
    if (error := query.exception()) is not None:
        raise error
    return count


def progress(name: str) -> dict[str, Any]:
    """Return the number of the last batch of a stream, and whether it goes on."""
    query = _queries[name]
    last = query.lastProgress
    return {"batch": -1 if last is None else last["batchId"], "active": query.isActive, "error": str(query.exception())}


def drain(name: str) -> None:
    """Wait until a stream has all that there is, and stop it."""
    query = _queries.pop(name)
    query.processAllAvailable()
    query.stop()


def executors() -> int:
    """Return how many executors there are."""
    return int(_spark()._jsc.sc().getExecutorMemoryStatus().size()) - 1
