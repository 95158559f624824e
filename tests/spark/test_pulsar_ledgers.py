"""Ledgers that Pulsar offloads, read by Spark: typed columns, and a query that goes on as they come."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.foreign.pulsar.offload_writer import LZ4, Frame, Sent, batch, marker, single, write_ledger
from tests.foreign.pulsar.sample_cases import unpack

_ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "m", "type": {"type": "map", "values": "double"}},
    ],
}


def test_typed_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Read JSON, pairs and primitive types as columns; a bad value ends the query, or is null."""
    values = [b'{"a": 1, "tags": ["x", "y"], "m": {"k": 2}}', b'{"a": 2, "m": {}}']
    write_ledger(tmp_path, 3, [batch([*map(Sent, values), Sent(None)], Frame(codec=LZ4))])
    schema = {"type": "JSON", "schema": json.dumps(_ROW), "properties": {}}
    reader = spark.read.format("txnlog").option("topic", "orders").option("schema", json.dumps(schema))
    frame = reader.load(f"pulsar:{tmp_path}")
    assert frame.select("value").schema.simpleString() == (
        "struct<value:struct<a:bigint,tags:array<string>,m:map<string,double>>>"
    )
    rows = frame.select("value.*").collect()
    assert [(r.a, r.tags, r.m) for r in rows] == [(1, ["x", "y"], {"k": 2.0}), (2, None, {}), (None, None, None)]
    write_ledger(tmp_path, 4, [single(Sent(b"[]"))])
    with pytest.raises(Exception, match=r"TXNLOG_MESSAGE_UNREADABLE.*message at 4:0 in"):
        reader.load(f"pulsar:{tmp_path}").collect()
    assert reader.option("badValues", "null").load(f"pulsar:{tmp_path}").where("value is null").count() == 2


def test_sample_by_its_schemas(spark: SparkSession, tmp_path: Path) -> None:
    """Read what Pulsar's clients wrote with two versions of an Avro schema, through Spark."""
    case = unpack("schema", tmp_path)
    told = {topic: found["schemas"] for topic, found in case.json("managed-ledger.json").items()}
    file = tmp_path / "schemas.json"
    file.write_text(json.dumps(told))
    frame = (
        spark.read.format("txnlog")
        .options(topic="persistent://lab/txn/schema-avro", schema=str(file))
        .load(f"pulsar:{case.folder / 'objects'}")
    )
    wanted = [e for e in case.lines("expected.jsonl.gz") if e["topic"].endswith("avro")]
    found = frame.selectExpr("value.name", "value.amount", "value.added is not null added").collect()
    assert len(found) == len(wanted) == 77
    assert sum(row.added for row in found) > 0
    assert all(row.name.startswith("acct") or row.name.startswith("n") for row in found)


def test_stream_goes_on_as_ledgers_come(spark: SparkSession, tmp_path: Path) -> None:
    """Offload ledgers one by one under a query that is stopped and started: each message once, when it is decided."""
    place = tmp_path / "bucket"
    place.mkdir()
    ledgers: list[list[bytes]] = [
        [single(Sent(b"0")), single(Sent(b"1"), Frame(txn=(0, 1))), single(Sent(b"2"))],
        [single(Sent(b"3"), Frame(txn=(0, 2))), marker((0, 1), commit=True), batch([Sent(b"4"), Sent(b"5")])],
        [marker((0, 2), commit=False), single(Sent(b"6"))],
    ]
    shown = [["0"], ["1", "2"], ["4", "5", "6"]]

    def start(**trigger: Any) -> StreamingQuery:
        frame = (
            spark.readStream.format("txnlog")
            .options(topic="orders", startingOffsets="earliest")
            .load(f"pulsar:{place}")
        )
        out = frame.selectExpr("cast(value as string) value", "__ledger_id", "__entry_id", "__batch_index")
        writer = out.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(**trigger).start(str(tmp_path / "out"))

    def rows() -> list[str]:
        frame = spark.read.schema("value string, __ledger_id long, __entry_id long, __batch_index int")
        found = frame.parquet(str(tmp_path / "out")).orderBy("__ledger_id", "__entry_id", "__batch_index").collect()
        return [row.value for row in found]

    write_ledger(place, 3, ledgers[0], name=uuid.UUID(int=1))
    query = start(availableNow=True)
    assert query.awaitTermination(240)
    assert rows() == shown[0]
    query = start(processingTime="100 milliseconds")
    try:
        query.processAllAvailable()
        write_ledger(place, 5, ledgers[1], name=uuid.UUID(int=2))
        query.processAllAvailable()
        assert rows() == shown[0] + shown[1]
    finally:
        query.stop()
    write_ledger(place, 9, ledgers[2], name=uuid.UUID(int=3))
    query = start(availableNow=True)
    assert query.awaitTermination(240)
    assert rows() == ["0", "1", "2", "4", "5", "6"]
    query = start(availableNow=True)
    assert query.awaitTermination(240)
    assert rows() == ["0", "1", "2", "4", "5", "6"]


def test_offsets_inside_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Read from and up to messages inside batches: as a batch, by SQL as of a message, and as a stream."""
    place, many = tmp_path / "bucket", [Sent(b"%d" % at) for at in range(4)]
    place.mkdir()
    write_ledger(place, 3, [batch(many), single(Sent(b"s")), batch(many, Frame(codec=LZ4))], name=uuid.UUID(int=1))
    path, start = f"pulsar:{place}", '{"orders": {"-1": "3:0:-1:2"}}'

    def read(**options: str) -> list[str]:
        frame = spark.read.format("txnlog").options(topic="orders", **options).load(path)
        return [row.value for row in frame.selectExpr("cast(value as string) value").collect()]

    assert read(startingOffsets=start, endingOffsets="(3,2,-1,1)") == ["2", "3", "s", "0"]
    assert read(startingOffsets="CAMQAiADKAQ=", minPartitions="3") == ["3"]
    spark.conf.set("spark.sql.catalog.of_pulsar", "io.txnlog.spark.TxnLogCatalog")
    spark.conf.set("spark.sql.catalog.of_pulsar.path", path)
    assert spark.sql("SELECT count(*) FROM of_pulsar.public.orders VERSION AS OF '3:2:-1:3'").collect() == [(8,)]

    def run() -> list[str]:
        frame = spark.readStream.format("txnlog").options(topic="orders", startingOffsets=start).load(path)
        writer = frame.selectExpr("cast(value as string) value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(240)
        return sorted(row.value for row in spark.read.parquet(str(tmp_path / "out")).collect())

    assert run() == sorted(["2", "3", "s", "0", "1", "2", "3"])
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    (tmp_path / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    write_ledger(place, 5, [batch(many)], name=uuid.UUID(int=2))
    assert run() == sorted(["2", "3", "s", *"0123", *"0123"])
