"""The readers of the bank: monitor D and bookkeeper E, two streaming queries over the same requests.

E keeps its books by double entry: whatever comes in or goes out is posted to the cash desk, too, with the other sign.
So all balances together are 0, always; half a transfer is what would show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pandas as pd
from bank_clients import TOPIC
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.streaming.state import GroupState

from txn_source import Log

CASH_DESK = "cash desk"
COUNTED = (
    "count(*) AS messages",
    "count_if(__txn_status = 'open') AS open",
    "count_if(__txn_status = 'aborted') AS no",
)
POSTINGS = f"""
    explode(if(kind = 'transfer', map(account, amount_cents),
                                  map(account, amount_cents, '{CASH_DESK}', -amount_cents))) AS (account, cents)
"""


@dataclass(frozen=True)
class Seen:
    """How far a query had come when a micro-batch was done."""

    at: float
    """Seconds since the clients began."""
    messages: int
    open: int
    """How many of the messages belonged to open transactions when they were read."""
    aborted: int


class Reader:
    """A streaming query, what it has seen, and how far it was behind the end of the log when somebody looked."""

    def __init__(self, name: str, what: str, writer: DataStreamWriter, checkpoint: Path) -> None:
        self.name = name
        self.what = what
        self.behind: list[int] = []
        self._writer = writer.option("checkpointLocation", str(checkpoint))
        self._checkpoint = checkpoint
        self._done: dict[int, tuple[float, int, int, int]] = {}
        self._query = self._writer.start()

    def seen(self, started: float = 0.0) -> list[Seen]:
        """Return what was seen after each micro-batch; one that Spark repeats counts once."""
        for progress in self._query.recentProgress:
            row = progress.observedMetrics.get("seen")
            if row is not None and progress.numInputRows:
                at = datetime.fromisoformat(progress.timestamp).timestamp() + progress.batchDuration / 1000
                self._done.setdefault(progress.batchId, (at, row.messages, row.open, row.no))
        seen, totals = [], [0, 0, 0]
        for _, (at, *counts) in sorted(self._done.items()):
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
            seen.append(Seen(max(0.0, at - started), *totals))
        return seen

    def look(self, log_end: int) -> None:
        """Note how far the query is behind the end of the log."""
        seen = self.seen()
        self.behind.append(log_end - (seen[-1].messages if seen else 0))

    def catch_up(self) -> None:
        """Wait until all that can be read is read; raise what the query has failed with."""
        self._query.processAllAvailable()

    def finish(self) -> None:
        """Wait until a query ends by itself."""
        self._query.awaitTermination()

    def repeat_last_batch(self) -> int:
        """Stop, forget that the last micro-batch was done, and run it again: as after a crash just before that note.

        Returns:
            The number of the micro-batch.
        """
        self.close()
        done = max((p for p in (self._checkpoint / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        done.unlink()
        done.with_name(f".{done.name}.crc").unlink(missing_ok=True)
        self._query = self._writer.start()
        self.catch_up()
        batch = int(done.name)
        if batch not in {progress.batchId for progress in self._query.recentProgress if progress.numInputRows}:
            raise RuntimeError(f"Spark has not repeated micro-batch {batch}.")
        return batch

    def close(self) -> None:
        """Stop the query, and keep what it has seen."""
        self._query.stop()
        self.seen()


def monitor(spark: SparkSession, log: Log, checkpoints: Path) -> Reader:
    """Start D, which only looks."""
    requests = _requests(spark, log, isolationLevel="read_uncommitted")
    return Reader("D monitor", "read_uncommitted", requests.writeStream.format("noop"), checkpoints / "monitor")


def bookkeeper(spark: SparkSession, log: Log, checkpoints: Path, topic: str, limit: int, *, cut: bool) -> Reader:
    """Start E, which posts requests to accounts, and writes each balance that a micro-batch changes to a topic.

    Args:
        limit: about how many messages a micro-batch may have.
        cut: let micro-batches end at a consistent cut, and go on for good; without, end with what is there now.
    """
    requests = _requests(spark, log, maxMessagesPerTrigger=limit, consistentCut=cut, isolationLevel="read_committed")
    changed = (
        requests.selectExpr(POSTINGS)
        .groupBy("account")
        .applyInPandasWithState(_posting(), "account string, cents bigint", "cents bigint", "append", "NoTimeout")
        .withColumn("__key", expr("account"))
    )
    writer = changed.writeStream.format("txnlog").option("path", str(log.root)).option("topic", topic)
    name, what = ("E bookkeeper", "read_committed") if cut else ("E once more", "without a cut")
    return Reader(name, what, writer if cut else writer.trigger(availableNow=True), checkpoints / topic)


def _requests(spark: SparkSession, log: Log, **options: str | int | bool) -> DataFrame:
    source = spark.readStream.format("txnlog").options(**options).option("topic", TOPIC)
    source = source.option("startingOffsets", "earliest").option("metadataColumns", "__txn_status")
    return source.load(str(log.root)).observe("seen", *map(expr, COUNTED))


def _posting() -> Callable[[tuple[str], Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """Return what posts to one account. It is an inner function, so that workers get it by value, without this file."""

    def post(key: tuple[str], postings: Iterable[pd.DataFrame], balance: GroupState) -> Iterator[pd.DataFrame]:
        [cents] = balance.get if balance.exists else (0,)
        cents += sum(int(frame["cents"].sum()) for frame in postings)
        balance.update((cents,))  # Spark keeps it by batch, with the checkpoint: a repeated batch finds the old one
        yield pd.DataFrame({"account": [key[0]], "cents": [cents]})

    return post
