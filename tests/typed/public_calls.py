"""What an editor says of public calls: mypy reads this file, and fails if a call that it should refuse is taken."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa

import txn_source
from txn_source import IsolationLevel, Log, ReadPriority, SubscriptionType


def taken(log: Log, word: str) -> None:
    """Calls as they are meant."""
    log.scan("orders", "read_uncommitted", read_priority="bookkeeper-first")
    log.scan(["a", "b"], IsolationLevel.READ_COMMITTED, read_priority=ReadPriority.TIERED_FIRST)
    log.scan("orders", IsolationLevel.parse(word))
    log.count("orders", "read_committed")
    log.subscribe("orders", "booking", "shared", "read_uncommitted")
    log.subscribe("orders", "booking", SubscriptionType.FAILOVER)
    log.transactions("aborted", limit=3)
    log.transactions(None)
    log.metadata_table("ledgers")
    log.create_topic("orders", schema="id bigint, name string")
    log.create_topic("orders", 3, pa.schema([("id", pa.int64())]))
    log.create_topic("orders", ledger_max_entries=1000, ledger_max_age="1h", retention_age="7d")
    log.set_policies("orders", retention_age=timedelta(days=7), offload_deletion_lag=None, hot_copies="main,b")
    log.set_policies(data_read_priority="bookkeeper-first", offload_after_bytes="10g")
    log.trim("orders", older_than=timedelta(days=7))
    with txn_source.connect("/log") as own, own.producer("orders") as producer:
        producer.send_batch(pa.table({"id": [1]}))


def refused(log: Log, word: str) -> None:
    """Calls that can't be right: an ignored error that mypy doesn't find is an error."""
    log.scan("orders", "dirty")  # type: ignore[arg-type]
    log.scan("orders", word)  # type: ignore[arg-type]
    log.scan("orders", read_priority="hot")  # type: ignore[arg-type]
    log.count("orders", "dirty")  # type: ignore[arg-type]
    log.cut("orders", "dirty")  # type: ignore[arg-type]
    log.reader("orders", isolation_level="dirty")  # type: ignore[arg-type]
    log.subscribe("orders", "booking", "key_shared")  # type: ignore[arg-type]
    log.subscribe("orders", "booking", isolation_level="dirty")  # type: ignore[arg-type]
    log.set_subscription_isolation_level("orders", "booking", "dirty")  # type: ignore[arg-type]
    log.set_data_read_priority("hot", topic="orders")  # type: ignore[arg-type]
    log.transactions("hanging")  # type: ignore[arg-type]
    log.metadata_table("topics")  # type: ignore[arg-type]
    log.create_topic("orders", partition=3)  # type: ignore[call-arg]
    log.create_topic("orders", retention_age=b"7d")  # type: ignore[arg-type]
    log.set_policies("orders", retention="7d")  # type: ignore[call-arg]
    log.set_policies("orders", ledger_max_entries=5)  # type: ignore[call-arg]
    log.set_policies(data_read_priority="hot")  # type: ignore[arg-type]
