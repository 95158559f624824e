"""Alarm F of the bank: a real-time query that sees a large withdrawal some milliseconds after it is published."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

from bank_clients import ACCOUNTS, TOPIC
from pyspark.sql import SparkSession

from txn_source import Log

ALARMING_CENTS = 1_000_000
PER_S = 100
SECONDS = 5
WARM_S = 2.0
NOW = "CAST(reflect('java.lang.System', 'currentTimeMillis') AS BIGINT)"


def alarms(spark: SparkSession, log: Log, folder: Path) -> str:
    """Send large withdrawals while F runs; return a sentence about their delay."""
    noted = folder / "alarms"

    def note(row: Any) -> None:
        with open(noted, "a") as file:  # Spark hands rows to Python in groups, so the JVM takes the time
            file.write(f"{row.late}\n")

    requests = spark.readStream.format("txnlog").option("topic", TOPIC).option("isolationLevel", "read_uncommitted")
    requests = requests.option("metadataColumns", "__publish_time").load(str(log.root))
    large = requests.where(f"amount_cents <= -{ALARMING_CENTS}")
    writer = large.selectExpr(f"{NOW} - unix_millis(__publish_time) AS late").writeStream.foreach(note)
    writer = writer.outputMode("update").option("checkpointLocation", str(folder / "alarm"))
    query = writer.trigger(realTime=f"{SECONDS} seconds").start()
    try:
        while not spark.sparkContext.statusTracker().getActiveJobsIds() and query.isActive:
            time.sleep(0.1)
        time.sleep(WARM_S)
        with log.producer(TOPIC, name="F") as producer:
            for number in range(PER_S):
                row = {"request": f"F-{number}", "kind": "withdrawal", "account": ACCOUNTS[0]}
                producer.send(row | {"amount_cents": -ALARMING_CENTS}, key=ACCOUNTS[0])
                producer.flush()
                time.sleep(1 / PER_S)
        while not query.recentProgress and query.isActive:  # a batch reports its progress at its end
            time.sleep(0.1)
    finally:
        query.stop()
    if (failed := query.exception()) is not None:
        raise failed
    late = [int(line) for line in noted.read_text().splitlines()]
    return f"F saw {len(late)} of {PER_S} large withdrawals in real time, half of them within {median(late):.0f} ms"
