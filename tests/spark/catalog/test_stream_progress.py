"""A stream through the catalog says in its progress what it reads, how far it is behind, and who holds it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

Bank = Any
SCHEMA = pa.schema([("id", pa.int64())])


def test_the_progress_says_what_is_read_how_far_it_is_behind_and_who_holds_it_back(bank: Bank, tmp_path: Path) -> None:
    topic = bank.topic(SCHEMA, 2)
    for number in range(3):
        bank.send(topic, pa.table({"id": [number] * 5}))
    with bank.log.begin_transaction() as txn:
        bank.send(topic, pa.table({"id": [4, 5]}), txn=txn, partition=1)
        bank.send(topic, pa.table({"id": [6]}), partition=1)
        frame = bank.spark.readStream.options(startingOffsets="earliest", maxMessagesPerTrigger="5")
        query = (
            frame.table(f"reads.public.{topic}")
            .selectExpr("id", "__partition")
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path))
            .format("noop")
            .start()
        )
        assert query.awaitTermination(240)
        held = {"heldBackBy": str(txn.id), "heldBackMessages": "3"}
    batches = [progress for progress in query.recentProgress if progress.numInputRows]
    sources = [progress.sources[0] for progress in batches]
    assert [progress.numInputRows for progress in batches] == [5, 5, 5]
    assert {source.description for source in sources} == {f"txnlog[{topic}]"}
    assert [source.metrics["messagesBehind"] for source in sources] == ["10", "5", "0"]
    assert float(sources[0].metrics["secondsBehind"]) > 0
    assert sources[2].metrics == {"messagesBehind": "0", "secondsBehind": "0.0", **held}


@pytest.mark.long
def test_a_stream_s_plan_tells_no_range(bank: Bank, tmp_path: Path) -> None:
    topic = bank.topic(SCHEMA)
    bank.send(topic, pa.table({"id": [1, 2]}))
    frame = bank.spark.readStream.option("startingOffsets", "earliest").table(f"reads.public.{topic}")
    counted = frame.groupBy().count().writeStream.trigger(availableNow=True).outputMode("complete")
    query = counted.option("checkpointLocation", str(tmp_path)).format("memory").queryName("counted").start()
    assert query.awaitTermination(240)
    assert bank.spark.table("counted").collect()[0][0] == 2
    plan = query._jsq.explainInternal(False)
    assert f"txnlog {topic}, read_committed; columns: id" in plan


@pytest.mark.long
def test_a_stream_follows_a_subscription_as_the_option_or_the_catalog_says(bank: Bank, tmp_path: Path) -> None:
    """Read a subscription's messages by an option, then those after them by a catalog's default."""
    topic = bank.topic(SCHEMA)
    bank.send(topic, pa.table({"id": [1, 2, 3]}))
    bank.log.create_subscription(topic, "bills", initial_position="earliest")
    setting = "spark.sql.catalog.billing"
    bank.spark.conf.set(setting, "io.txnlog.spark.TxnLogCatalog")
    bank.spark.conf.set(f"{setting}.path", str(bank.root))
    bank.spark.conf.set(f"{setting}.subscription", "bills")
    seen: list[list[int]] = []

    def run(catalog: str, **options: str) -> None:
        frame = bank.spark.readStream.options(**options).table(f"{catalog}.public.{topic}")
        writer = frame.writeStream.foreachBatch(lambda batch, _: seen.append(sorted(row.id for row in batch.collect())))
        query = writer.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(240)

    run("reads", subscription="bills")
    bank.send(topic, pa.table({"id": [4]}))
    run("billing")
    assert seen == [[1, 2, 3], [4]]
    [subscription] = bank.log.subscriptions(topic)
    assert subscription.partitions[0].backlog <= 1  # the last batch is acknowledged with the next one
    assert bank.spark.table(f"billing.public.{topic}").count() == 4
