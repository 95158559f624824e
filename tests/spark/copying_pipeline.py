"""A process that copies topic ``source`` to topic ``copy`` through Spark until it is killed, or all is copied.

It prints a line when its query runs, one for each micro-batch, and ``done``. If the service goes away it begins again
from the checkpoint, as an operator would have it do.
"""

from __future__ import annotations

import os
import sys

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

RESTARTS_MAX = 50


def start(spark: SparkSession, kind: str, target: str, checkpoint: str, limit: str, finish: bool) -> StreamingQuery:
    """Start the query; it follows the topic, or ends when all is copied that is there now."""
    options = {"topic": "source", "startingOffsets": "earliest", "metadataColumns": "none"}
    source = spark.readStream.format("txnlog").options(**options).option("maxMessagesPerTrigger", limit)
    sink = source.option(kind, target).load().writeStream.format("txnlog").option(kind, target).option("topic", "copy")
    sink = sink.option("checkpointLocation", checkpoint)
    return (sink.trigger(availableNow=True) if finish else sink.trigger(processingTime="0 seconds")).start()


def follow(query: StreamingQuery) -> None:
    """Tell of each batch until the query has ended; raise what it failed with."""
    told = -1
    while True:
        ended = query.awaitTermination(0.01)
        last = query.lastProgress
        if last is not None and last["batchId"] > told:
            told = last["batchId"]
            print("batch", told, flush=True)
        if ended:
            return


if __name__ == "__main__":
    *where, how = sys.argv[1:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for _ in range(RESTARTS_MAX):
        try:
            query = start(spark, *where, how == "finish")  # type: ignore[call-arg]
            print("running", flush=True)
            follow(query)
            print("done", flush=True)
            break
        except StreamingQueryException as failed:
            if "[TXNLOG_UNAVAILABLE]" not in str(failed):
                raise
            print("failed", flush=True)
    spark.stop()
