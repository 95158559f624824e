"""Tiered copies through Spark: whichever copy a task reads, the rows are the same; and offloading as a Spark job."""

from __future__ import annotations

import pytest

import txn_source
from txn_source.model.errors import StorageWriteError
from txn_source.spark import offload

LEVELS = ("read_committed", "read_uncommitted")
PRIORITIES = ("tiered-first", "bookkeeper-first", "tiered-storage-first")
ALL = {"metadataColumns": "all"}


@pytest.fixture
def ledgers(log: txn_source.Log) -> txn_source.Log:
    """A topic ``orders`` of two partitions with closed ledgers of mixed transactions, and a little in open ones."""
    log.create_topic("orders", partitions=2, ledger_max_entries=6)
    with log.producer("orders") as producer:
        for number in range(20):
            with log.begin_transaction() as transaction:
                txn = None if number % 3 == 0 else transaction
                for partition in range(2):
                    producer.send(f"value {number}", f"key {number}", {"n": str(number)}, number, txn, partition)
                    producer.flush()
                if number % 3 == 1:
                    transaction.abort()
    return log


@pytest.mark.parametrize("level", LEVELS)
def test_rows_are_the_same_whichever_copy_is_read(ledgers, read, ordered, level) -> None:
    """Read all columns before the offload, after it at each priority, and from the objects alone."""
    options = {"topic": "orders", "isolationLevel": level, **ALL}
    before = ordered(read(**options))
    assert before
    ledgers.offload("orders")
    for priority in PRIORITIES:
        assert ordered(read(**options, dataReadPriority=priority)) == before
    ledgers.delete_hot("orders")
    assert ordered(read(**options, dataReadPriority="bookkeeper-first")) == before


def test_trimmed_ledgers_of_a_planned_frame_are_data_loss(ledgers, read, refusal, values) -> None:
    """Trim under planned frames: one names the exact range that is lost, the other one skips it."""
    options = {"topic": "orders-partition-0", "minPartitions": "1"}
    careful, careless = (read(**options, failOnDataLoss=flag) for flag in ("true", "false"))
    assert len(careful.tasks()) == len(careless.tasks()) == 1
    start = ledgers.stats("orders").partitions[0].log_start
    ledgers.trim("orders", keep_bytes=0)
    left = ledgers.stats("orders").partitions[0].log_start
    assert left > start
    line = refusal("DATA_LOSS", careful.collect)
    assert f"[{start}, {left})" in line
    assert "partition 0 of topic 'orders'" in line.lower()
    assert values(careless) == values(read(topic="orders-partition-0"))


def test_offload_as_a_spark_job_does_what_offload_does(spark, ledgers, read, ordered) -> None:
    """Offload by a job: every closed ledger has its object, rows stay the same, and a second job finds nothing."""
    before = ordered(read(topic="orders", **ALL))
    closed = [x for x in ledgers.stats("orders").ledgers if x.closed]
    report = offload(spark, ledgers, "orders")
    assert sorted(report.ledger_ids) == sorted(x.ledger_id for x in closed)
    assert report.messages == sum(x.messages for x in closed)
    assert report.hot_bytes == sum(x.bytes for x in closed)
    assert report.tiered_bytes == sum(
        file.stat().st_size for file in (ledgers.root / "tiered").rglob("*") if file.is_file()
    )
    assert all("tiered" in x.tiers for x in ledgers.stats("orders").ledgers if x.closed)
    ledgers.delete_hot("orders")
    assert ordered(read(topic="orders", **ALL)) == before
    assert offload(spark, ledgers, "orders").ledger_ids == ()


@pytest.mark.long
def test_offload_job_that_cannot_write_says_so_in_our_words(spark, ledgers, tmp_path) -> None:
    """Let the target be a folder inside a file: the job raises the log's own error, and nothing was registered."""
    (tmp_path / "file").write_text("in the way")
    ledgers.set_policies("orders", offload_uri=str(tmp_path / "file" / "folder"))
    with pytest.raises(StorageWriteError):
        offload(spark, ledgers, "orders")
    assert not any("tiered" in x.tiers for x in ledgers.stats("orders").ledgers)
