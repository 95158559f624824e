"""The readers of the bank: monitor D and booking system E, one Spark query at two isolation levels."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from bank_clients import TOPIC
from pyspark.sql import DataFrame, Row, SparkSession

from txn_source import Log

WHAT_IS_THERE = """
    SELECT __partition AS partition,
           max(struct(__ledger_id, __entry_id, __batch_index)) AS last,
           count(*) AS messages,
           bit_xor(xxhash64(request, kind, account, amount_cents)) AS fingerprint,
           count_if(__txn_status = 'open') AS open,
           count_if(__txn_status = 'aborted') AS aborted,
           sum(if(kind = 'transfer', amount_cents, 0)) AS transfers_cents
    FROM {requests}
    GROUP BY __partition
"""

CHANGED_SINCE = """
    SELECT past.read, past.partition
    FROM {past} past LEFT JOIN {requests} now
      ON now.__partition = past.partition
     AND struct(now.__ledger_id, now.__entry_id, now.__batch_index) <= past.last
    GROUP BY past.read, past.partition, past.messages, past.fingerprint
    HAVING count(now.request) <> past.messages
        OR bit_xor(xxhash64(now.request, now.kind, now.account, now.amount_cents)) <> past.fingerprint
"""

BALANCES = "SELECT account, sum(amount_cents) AS cents FROM {requests} GROUP BY account"
BY_KIND = "SELECT kind, sum(amount_cents) AS cents FROM {requests} GROUP BY kind"


@dataclass(frozen=True)
class Seen:
    """What one read saw, and what was in the log by the time its answer was there."""

    at: float
    log_end: int
    due: int
    """Messages in the log that the isolation level has to show, sooner or later: those not aborted, or all."""
    messages: int
    open: int
    aborted: int
    transfers_cents: int

    @property
    def behind(self) -> int:
        return self.due - self.messages


class Reader:
    """Reads all requests again and again, as they are at that moment."""

    def __init__(self, spark: SparkSession, log: Log, name: str, isolation_level: str) -> None:
        self.name = name
        self.isolation_level = isolation_level
        self.seen: list[Seen] = []
        self._spark = spark
        self._log = log
        self._past: list[tuple[object, ...]] = []

    def requests(self) -> DataFrame:
        """Return the requests; what belongs to them is decided at the first action on the data frame."""
        source = self._spark.read.format("txnlog").option("topic", TOPIC).option("metadataColumns", "all")
        return source.option("isolationLevel", self.isolation_level).load(str(self._log.root))

    def ask(self, query: str, **frames: DataFrame) -> list[Row]:
        """Return the answer to a query on the requests as they are now."""
        return self._spark.sql(query, requests=self.requests(), **frames).collect()

    def warm_up(self) -> None:
        """Let Spark do once what takes it seconds the first time."""
        self.ask(WHAT_IS_THERE)

    def keep_reading(self, started: float, over: threading.Event) -> None:
        """Read until it is over, and then once more."""
        while not over.is_set():
            self._read(started)
        self._read(started)

    def changed_since(self) -> int:
        """Count the partitions of past reads that are not exactly the beginning of what is read now."""
        columns = "read int, partition int, last struct<ledger: bigint, entry: bigint, index: int>"
        past = self._spark.createDataFrame(self._past, f"{columns}, messages bigint, fingerprint bigint")
        return len(self.ask(CHANGED_SINCE, past=past))

    def _read(self, started: float) -> None:
        rows = self.ask(WHAT_IS_THERE)
        aborted = sum(p.messages for txn in self._log.transactions("aborted", TOPIC) for p in txn.partitions)
        at, log_end = time.time() - started, self._log.stats(TOPIC).messages
        due = log_end if self.isolation_level == "read_uncommitted" else log_end - aborted
        counts = (sum(row[name] for row in rows) for name in ("messages", "open", "aborted", "transfers_cents"))
        self.seen.append(Seen(at, log_end, due, *counts))
        self._past += [(len(self.seen), r.partition, r.last, r.messages, r.fingerprint) for r in rows]
