"""Whichever way Spark gets the rows, by ``lane``: the same rows, in batches and in streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tests.spark.test_types import COLUMNS

Bank = Any
SCHEMA = pa.schema([("id", pa.int64())])
METADATA = "__topic, __partition, __ledger_id, __entry_id, __batch_index, __publish_time, __sequence_id, __txn_id"


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_both_lanes_have_the_same_rows(bank: Bank, level: str) -> None:
    table = pa.table({name: pa.array([*values, None], arrow) for name, (arrow, _, values) in COLUMNS.items()})
    topic = bank.topic(table.schema, 2)
    bank.send(topic, table)
    with bank.log.begin_transaction() as txn:
        bank.send(topic, table, txn=txn)
        bank.send(topic, table, txn=txn, partition=1)
    aborted = bank.log.begin_transaction()
    bank.send(topic, table, txn=aborted, partition=1)
    aborted.abort()
    query = f"SELECT *, {METADATA}, __txn_status FROM {{{topic}}} WITH (isolationLevel = '{level}', lane = '%s')"
    auto = bank.rows(query % "auto")
    assert len(auto) == (9 if level == "read_committed" else 12)
    assert auto == bank.rows(query % "python")


def test_columns_of_one_batch_are_whole_before_the_next(bank: Bank) -> None:
    """Read many batches with nested columns, whose memory is filled again by each, and keep some rows of all."""
    inner = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    topic = bank.topic(pa.schema([("id", pa.int64()), ("s", inner)]))
    count = 150_000
    ids = range(count)
    rows = [None if i % 7 == 0 else {"x": i, "y": [f"n{i}"] * (i % 3)} for i in ids]
    table = pa.table({"id": list(ids), "s": pa.array(rows, inner)})
    for start in range(0, count, 50_000):
        bank.send(topic, table.slice(start, 50_000))
    found = bank.rows(f"SELECT count(*), sum(s.x), sum(size(s.y)), count(DISTINCT get(s.y, 0)) FROM {{{topic}}}")
    kept = [row for row in rows if row is not None]
    sizes = sum(len(row["y"]) for row in kept)
    assert found == [(count, sum(row["x"] for row in kept), sizes, len([row for row in kept if row["y"]]))]
    some = bank.sql(f"SELECT id, s FROM {{{topic}}} WHERE id % 30000 = 1 ORDER BY id").collect()
    assert [(row.id, row.s and row.s.asDict()) for row in some] == [(i, rows[i]) for i in ids if i % 30_000 == 1]
    assert len(bank.rows(f"SELECT s FROM {{{topic}}} LIMIT 70000")) == 70_000


def test_rows_come_in_columns_unless_the_lane_says_otherwise(bank: Bank, numbers: str) -> None:
    def plan(query: str) -> str:
        return str(bank.sql(query)._jdf.queryExecution().executedPlan())

    assert "ColumnarToRow" in plan(f"SELECT * FROM {{{numbers}}}")
    assert "ColumnarToRow" not in plan(f"SELECT * FROM {{{numbers}}} WITH (lane = 'python')")
    for lane in ("fast", ""):
        with pytest.raises(PySparkException, match=r"\[TXNLOG_INVALID_ARGUMENT\] Option 'lane': .* Use auto or python"):
            bank.rows(f"SELECT * FROM {{{numbers}}} WITH (lane = '{lane}')")


def test_stream_goes_on_in_the_other_lane(bank: Bank, tmp_path: Path) -> None:
    topic = bank.topic(SCHEMA, 2)
    for number, lane in enumerate(("auto", "python", "auto")):
        for partition in range(2):
            bank.send(topic, pa.table({"id": [number] * 3}), partition=partition)
        options = {"startingOffsets": "earliest", "maxMessagesPerTrigger": "4", "lane": lane}
        frame = bank.spark.readStream.options(**options).table(f"reads.public.{topic}")
        writer = frame.select("id", "__partition").writeStream.trigger(availableNow=True).format("parquet")
        query = writer.option("checkpointLocation", str(tmp_path / "at")).start(str(tmp_path / "rows"))
        assert query.awaitTermination(240)
    rows = bank.spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(map(tuple, rows)) == sorted((n, p) for n in range(3) for p in range(2) for _ in range(3))
