"""The readers of the bank: monitor D and booking system E, one Spark query at two isolation levels."""

from __future__ import annotations

from dataclasses import dataclass

from bank_clients import TOPIC
from pyspark.sql import DataFrame, SparkSession

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
    """One read: when its answer was there, what it saw, and how many messages were in the log by then."""

    at: float
    log_end: int
    messages: int
    open: int
    aborted: int
    transfers_cents: int

    @property
    def behind(self) -> int:
        return self.log_end - self.messages


class Reader:
    """Reads the whole topic again and again, and remembers what it saw."""

    def __init__(self, spark: SparkSession, log: Log, name: str, isolation_level: str) -> None:
        self.name = name
        self.isolation_level = isolation_level
        self.seen: list[Seen] = []
        self._spark = spark
        self._log = log
        self._past: list[tuple[object, ...]] = []

    def requests(self) -> DataFrame:
        """Return the requests that the isolation level shows now; the bounds are fixed at the first action."""
        source = self._spark.read.format("txnlog").option("topic", TOPIC)
        return source.options(isolationLevel=self.isolation_level, metadataColumns="all").load(str(self._log.root))

    def read(self, now: float) -> None:
        ...
