"""TPC-H's 22 queries over topics, half of whose rows lie in objects, against the same over Parquet files."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.harness import Bench, Result, spark_session
from txn_source.client.connecting import connect
from txn_source.client.log import Log

_TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
_ROWS = 50_000


def run(bench: Bench) -> Iterator[Result]:
    """Measure scale 1; the rows of each query are compared."""
    files = bench.folder / "files"
    _generate(files, "1" if bench.size(1, 0) else "0.01")
    spark = spark_session()
    root = str(bench.folder / "log")
    spark.conf.set("spark.sql.catalog.tpch", "io.txnlog.spark.TxnLogCatalog")
    spark.conf.set("spark.sql.catalog.tpch.path", root)
    with connect(root) as log:
        for table in _TABLES:
            _fill(log, table, files / f"{table}.parquet")
    queries = [text for text in (Path(__file__).parent / "tpch.sql").read_text().split(";") if text.strip()]
    assert len(queries) == 22
    totals = {"topics": 0.0, "files": 0.0}
    slowest = (0.0, 0)
    for number, query in enumerate(queries, 1):
        best, rows = {}, {}
        for _ in range(min(bench.runs, 2)):
            for way in totals:
                _views(spark, way, files)
                start = time.perf_counter()
                rows[way] = spark.sql(query).collect()
                best[way] = min(best.get(way, float("inf")), time.perf_counter() - start)
        assert rows["topics"] == rows["files"], f"query {number} gives other rows"
        for way in totals:
            totals[way] += best[way]
        slowest = max(slowest, (best["topics"] / best["files"], number))
    detail = (
        f"{totals['topics']:.1f} s against {totals['files']:.1f}; all rows equal; worst {slowest[0]:.2f} in query"
        f" {slowest[1]}"
    )
    ratio = totals["topics"] / totals["files"]
    yield Result("TPC-H over topics / over Parquet, sum of 22 queries", ratio, "×", ("≤", 1.3), detail)


def _generate(folder: Path, scale: str) -> None:
    tool = Path(sys.executable).with_name("tpchgen-cli")
    if not tool.exists():
        raise SystemExit(f"TPC-H's tables need a generator:  {sys.executable} -m pip install tpchgen-cli")
    command = [str(tool), "parquet", "-s", scale, f"--output-dir={folder}"]
    subprocess.run(command, check=True, capture_output=True)


def _fill(log: Log, table: str, file: Path) -> None:
    """Write a table's rows to a topic; the first half goes to objects."""
    source = pq.ParquetFile(file)
    types = {field.name: field.type for field in source.schema_arrow}
    schema = pa.schema([(name, pa.string() if t == pa.string_view() else t) for name, t in types.items()])
    log.create_topic(table, 2, schema)
    written, half = 0, source.metadata.num_rows // 2
    with log.producer(table) as producer:
        for number, batch in enumerate(source.iter_batches(_ROWS)):
            producer.send_batch(pa.Table.from_batches([batch]).cast(schema), partition=number % 2)
            before, written = written, written + batch.num_rows
            if before < half <= written:
                producer.flush()
                log.roll_ledger(table)
                log.offload(table)


def _views(spark: SparkSession, way: str, files: Path) -> None:
    for table in _TABLES:
        ours = way == "topics"
        frame = spark.table(f"tpch.public.{table}") if ours else spark.read.parquet(str(files / f"{table}.parquet"))
        frame.createOrReplaceTempView(table)
