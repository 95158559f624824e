"""Traces from what sent a message to the micro-batch that read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import DataFrame, SparkSession

import txn_source
from txn_source import tracing


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    made = TracerProvider()
    tracing.enable(made)
    yield made
    tracing.disable()


def book(rows: DataFrame, number: int) -> None:
    """Do as docs/metrics.md says."""
    parents = rows.select("__properties.traceparent").distinct().limit(128).collect()
    with tracing.reading(f"booking {number}", [row.asDict() for row in parents]):
        pass


@pytest.mark.long
def test_a_micro_batch_is_linked_with_what_sent_its_rows(
    spark: SparkSession, root: Path, log: txn_source.Log, tmp_path: Path, provider: TracerProvider
) -> None:
    """Send in spans, plain, committed and aborted, and without; read two messages at a time: each batch is linked with
    the spans of its own rows, and no batch with what was aborted."""
    spans = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    sent: dict[str, int] = {}
    log.create_topic("orders")
    producer = log.producer("orders")

    def send(name: str, **more: Any) -> None:
        with provider.get_tracer("a program").start_as_current_span(name) as span:
            sent[name] = span.get_span_context().span_id
            producer.send(name.encode(), properties=tracing.properties(), **more)

    send("first")
    producer.send(b"without")
    producer.flush()
    committed, aborted = log.begin_transaction(), log.begin_transaction()
    send("committed", txn=committed)
    send("aborted", txn=aborted)
    send("again", txn=committed)
    producer.flush()
    committed.commit()
    aborted.abort()
    producer.close()
    reader = spark.readStream.format("txnlog").options(
        path=str(root), topic="orders", startingOffsets="earliest", metadataColumns="all", maxMessagesPerTrigger="2"
    )
    writer = reader.load().writeStream.foreachBatch(book).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(120)
    batches = [span for span in spans.get_finished_spans() if span.name.startswith("booking")]
    linked = [{link.context.span_id for link in span.links} for span in batches]
    assert linked[0] == {sent["first"]}
    assert sum(map(len, linked)) == 3
    assert set().union(*linked) == {sent[name] for name in ("first", "committed", "again")}
