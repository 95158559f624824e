"""Real time: from a flush that returned to the message in the writer of a streaming query."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Bench, Result, spark_session
from txn_source.client.connecting import connect

_EACH = 5


def run(bench: Bench) -> Iterator[Result]:
    """Measure within one batch, when all is warm: the clock is the JVM's, where it hands a row to the writer."""
    before_s, measured_s = bench.size(20, 3), bench.size(25, 2)
    spark, root, seen = spark_session(), bench.folder / "log", bench.folder / "seen"
    seen.mkdir()
    spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    now = "CAST(reflect('java.lang.System', 'currentTimeMillis') AS LONG)"

    def keep(row: Any) -> None:
        with open(Path(seen) / "rows", "a") as file:
            file.write(f"{row.number} {row.at}\n")

    flushed: dict[int, float] = {}
    with connect(root) as log:
        log.create_topic("orders", partitions=2)
        reader = spark.readStream.format("txnlog").option("topic", "orders").option("startingOffsets", "earliest")
        frame = reader.option("isolationLevel", "read_uncommitted").load(str(root))
        writer = frame.selectExpr("CAST(CAST(value AS STRING) AS INT) number", f"{now} at").writeStream
        query = (
            writer.foreach(keep)
            .outputMode("update")
            .trigger(realTime=f"{before_s + measured_s + 5} seconds")
            .option("checkpointLocation", str(bench.folder / "checkpoint"))
            .start()
        )
        try:
            begin = time.time()
            with log.producer("orders") as producer:
                for number in range(0, (before_s + measured_s) * 1000, _EACH):
                    for each in range(number, number + _EACH):
                        producer.send(str(each), partition=each % 2)
                    producer.flush()
                    flushed.update(dict.fromkeys(range(number, number + _EACH), time.time()))
                    time.sleep(max(0.0, begin + number / 1000 - time.time()))
            while query.exception() is None and not list((bench.folder / "checkpoint" / "commits").glob("[0-9]*")):
                time.sleep(0.5)
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
        finally:
            query.stop()
    lines = (line.split() for line in (seen / "rows").read_text().splitlines())
    arrived = {int(number): int(at) / 1000 for number, at in lines}
    late = sorted(1000 * (arrived[n] - at) for n, at in flushed.items() if at > begin + before_s)
    detail = f"1,000 messages/s in flushes of {_EACH}, 2 partitions; the slowest of {len(late):,}: {late[-1]:.0f} ms"
    yield Result("real time: flush to writer, p50", late[len(late) // 2], "ms", ("≤", 15), detail)
    yield Result("real time: flush to writer, p99", late[len(late) * 99 // 100], "ms", ("≤", 60))
