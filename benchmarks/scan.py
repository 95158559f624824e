"""A hot scan through Spark, against the prepared-batch source and Spark's own Parquet reader on the same rows."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

import txn_source
from benchmarks.harness import Bench, Result, best_of, spark_session
from benchmarks.prepared import ROWS, prepared_frame

VALUE_BYTES = 120


def run(bench: Bench) -> Iterator[Result]:
    """Measure ``read_committed`` with the default columns and 120-byte values."""
    batches = bench.size(384, 2)
    root, parquet = str(bench.folder / "log"), str(bench.folder / "parquet")
    batch = messages(ROWS, VALUE_BYTES)
    with txn_source.connect(root) as log:
        log.create_topic("hot", partitions=2)
        with log.producer("hot") as producer:
            for index in range(batches):
                producer.send_batch(batch, partition=index % 2)
        spark = spark_session()
        hot = spark.read.format("txnlog").option("topic", "hot").load(root)
        hot.write.parquet(parquet)
        tasks = hot.rdd.getNumPartitions()
        prepared = prepared_frame(spark, log, "hot", bench.folder, batches, tasks)
    assert hot.count() == prepared().count() == spark.read.parquet(parquet).count() == batches * ROWS
    t_hot, t_prepared, t_parquet = best_of(
        bench.runs,
        lambda: drain(spark.read.format("txnlog").option("topic", "hot").load(root)),
        lambda: drain(prepared()),
        lambda: drain(spark.read.parquet(parquet)),
    )
    rows = batches * ROWS
    size = f"{rows / 1e6:.1f} M rows, {tasks} tasks"
    rates = f"{rows / t_hot / 1e6:.1f} M rows/s against {rows / t_prepared / 1e6:.1f}; {size}"
    yield Result("hot scan / prepared-batch source", t_prepared / t_hot, "×", ("≥", 0.9), rates)
    rates = f"{rows / t_hot / 1e6:.1f} M rows/s against {rows / t_parquet / 1e6:.1f}"
    yield Result("hot scan / Spark's Parquet reader", t_parquet / t_hot, "×", ("≥", 0.6), rates)


def drain(frame: DataFrame) -> None:
    """Read all columns of all rows."""
    frame.write.format("noop").mode("overwrite").save()


def messages(rows: int, value_bytes: int) -> pa.RecordBatch:
    """Return raw messages with 8-byte keys and random values."""
    raw = np.frombuffer(os.urandom(rows * value_bytes), np.uint8)
    offsets = np.arange(0, rows * value_bytes + 1, value_bytes, dtype=np.int32)
    values = pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])
    keys = pa.array([b"%08d" % i for i in range(rows)], pa.binary())
    return pa.record_batch([keys, values], names=["key", "value"])
