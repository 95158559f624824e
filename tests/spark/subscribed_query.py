"""A process with two queries, over the path of a log and over its endpoint; they run until they are killed.

Each follows the subscription of topic ``orders`` that is called as its option. When both have had their first
micro-batch it prints ``running``.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    *targets, checkpoints = sys.argv[1:]
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for kind, target in zip(("path", "endpoint"), targets, strict=True):
        source = spark.readStream.format("txnlog").option(kind, target).option("topic", "orders")
        sink = source.option("subscription", kind).load().writeStream.format("noop")
        query = sink.option("checkpointLocation", f"{checkpoints}/{kind}").start()
        query.processAllAvailable()
    print("running", flush=True)
    query.awaitTermination()
