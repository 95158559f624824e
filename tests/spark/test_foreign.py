"""Logs that others wrote, through Spark: rows, options, SQL tables, the catalog, a bucket, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import txn_source
from tests.foreign.kafka import samples as kafka
from tests.foreign.pulsar import sample_cases as pulsar
from tests.reading.kinds import history_of
from tests.selection import mostly_long
from tests.spark.plain import Frame, logs_closed, source_of
from tests.tiers.stores import CREDENTIALS, S3Server
from txn_source.foreign.foreign_log import PartitionName
from txn_source.model.errors import TxnLogError
from txn_source.spark.source import TxnLogDataSource

CONNECTORS = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
    "headers:array<struct<key:string,value:binary>>>"
)
"""What Spark's own source for Kafka has, with ``includeHeaders``."""


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    with logs_closed():
        yield


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign")
    for name in kafka.CASES:
        kafka.unpack(name, folder)
    for name in ("txn-mix", "plain-batch"):
        pulsar.unpack(name, folder / "pulsar")
    return folder


def load(path: object, schema: str | None = None, **options: Any) -> Frame:
    return Frame({"path": str(path), **options}, schema)


def path_of(case: Path) -> str:
    return f"kafka:{','.join(folder.path for folder in kafka.folders(case))}"


def test_rows_are_what_kafkas_consumer_returned(cases: Path) -> None:
    """Read all topics of some samples at once: the connector's columns and types, and the consumer's rows."""
    for name, level in (("records", "read_uncommitted"), ("tiered", "read_committed")):
        case = cases / name
        frame = load(
            path_of(case), topicsPattern=".*", isolationLevel=level, metadataColumns="all",
            consistentCut=False, minPartitions=3,
        )  # fmt: skip
        assert StructType(frame.schema.fields[:8]).simpleString() == CONNECTORS
        told = kafka.partitions(case)
        found: dict[PartitionName, list[Any]] = {of: [] for of in told}
        table = frame.toArrow().sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
        for row, micros in zip(table.to_pylist(), table["timestamp"].cast(pa.int64()).to_pylist(), strict=True):
            headers = row["headers"] and [(header["key"], header["value"]) for header in row["headers"]]
            sent = (row["offset"], micros // 1000, row["timestampType"], row["__leader_epoch"])
            values = (kafka._short(row["key"]), kafka._short(row["value"]))
            found[PartitionName(row["topic"], row["partition"])].append((*sent, *values, headers))
        for of, rows in found.items():
            assert rows == kafka.expected(case, of, level), of


def test_rows_of_pulsar_are_those_of_a_scan(cases: Path) -> None:
    """Read two topics with all columns, and one by declared columns."""
    path = f"pulsar:{cases}/pulsar/txn-mix/objects"
    columns = ["__topic", "__ledger_id", "__entry_id", "__batch_index", "value", "__txn_id"]
    with txn_source.connect(path) as log:
        topics = log.topics()
        wanted = [row for topic in topics for row in log.scan(topic, columns=columns).read_all().to_pylist()]
    frame = load(path, topics=",".join(topics), metadataColumns="all", consistentCut=False)
    rows = frame.toArrow().select(columns).to_pylist()
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)
    few = load(path, "VALUE binary, __partition int", topic=topics[0]).toArrow()
    assert few["__partition"].to_pylist() == [-1] * sum(row["__topic"] == topics[0] for row in wanted)


@pytest.mark.long
def test_table_in_sql_has_the_options_and_is_only_read(spark: SparkSession, cases: Path) -> None:
    """Make a table that ends at an offset; it can't be written."""
    path, until = path_of(cases / "txn"), '{"txn": {"0": 100}}'
    below = [row.offset for row in load(path, topic="txn").collect() if row.offset < 100]
    options = f"path '{path}', topic 'txn', endingOffsets '{until}'"
    spark.sql(f"CREATE TABLE offsets_of_txn USING txnlog OPTIONS ({options})")
    try:
        [[count, last]] = spark.sql("SELECT count(*), max(offset) FROM offsets_of_txn").collect()
        assert (count, last) == (len(below), max(below))
        with pytest.raises(PySparkException, match="only read"):
            spark.sql("INSERT INTO offsets_of_txn SELECT * FROM offsets_of_txn")
    finally:
        spark.sql("DROP TABLE offsets_of_txn")


def test_catalog_shows_topics(spark: SparkSession, cases: Path) -> None:
    """Look at a log that Kafka wrote as a catalog; nothing can be changed in it."""
    spark.conf.set("spark.sql.catalog.of_kafka", "io.txnlog.spark.TxnLogCatalog")
    spark.conf.set("spark.sql.catalog.of_kafka.path", path_of(cases / "txn"))
    assert [row.tableName for row in spark.sql("SHOW TABLES IN of_kafka.public").collect()] == ["txn", "txn3"]
    columns = [row.col_name for row in spark.sql("DESCRIBE of_kafka.public.txn").collect()]
    assert columns[:8] == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    counted = """
        SELECT count(*), count(DISTINCT __producer_id), (SELECT count(*) FROM of_kafka.public.txn3)
        FROM of_kafka.public.txn WITH (isolationLevel = 'read_uncommitted')
    """
    [[rows, producers, others]] = spark.sql(counted).collect()
    assert (rows, others) == (
        151,
        172,
    )  # of 174 that are stable 2 are a transaction's that another partition holds back
    assert producers > 3
    uncommitted = spark.sql(
        "SELECT count(*) FROM of_kafka.public.txn WITH (`kafka.isolation.level` = 'read_uncommitted')"
    )
    assert uncommitted.collect() == [(rows,)]
    until = """WITH (endingOffsetsByTimestamp = '{"txn": {"0": 4102444800000}}')"""
    assert spark.sql(f"SELECT count(*) FROM of_kafka.public.txn {until}").collect() == [(78,)]
    with pytest.raises(Exception, match="There is no option '__limit'"):
        spark.sql("SELECT * FROM of_kafka.public.txn WITH (__limit = 1)").collect()
    assert spark.sql("SELECT count(*) FROM of_kafka.public.txn VERSION AS OF '100'").collect() == [(58,)]
    for statement in (
        "CREATE TABLE of_kafka.public.new (a INT)",
        "INSERT INTO of_kafka.public.txn TABLE of_kafka.public.txn",
        "DROP TABLE of_kafka.public.txn",
        "ALTER TABLE of_kafka.public.txn SET TBLPROPERTIES ('retention' = '1d')",
        "CREATE NAMESPACE of_kafka.other",
    ):
        with pytest.raises(Exception, match="only read"):
            spark.sql(statement)
    with pytest.raises(Exception, match=r"as of a time.*Use VERSION AS OF with offsets, or WITH \(endingTimestamp"):
        spark.sql("SELECT * FROM of_kafka.public.txn TIMESTAMP AS OF '2025-01-01'")


@pytest.mark.parametrize("kind", mostly_long(["kafka", "pulsar"], "kafka"))
def test_scans_of_a_query_end_at_one_moment(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    """Plan one table of a query, and write to both tables before the other one is planned: neither shows the new rows.
    Trim the other one in between: the loss is an error."""
    history = history_of(kind, tmp_path)
    spark.conf.set(f"spark.sql.catalog.of_{kind}2", "io.txnlog.spark.TxnLogCatalog")
    spark.conf.set(f"spark.sql.catalog.of_{kind}2.path", str(history.target))

    def planned() -> DataFrame:
        scans = [f"SELECT int(string(value)) n FROM of_{kind}2.public.{topic}" for topic in "ab"]
        frame = spark.sql(" UNION ALL ".join(scans))
        frame._jdf.queryExecution().sparkPlan().collectLeaves().apply(0).inputPartitions()
        return frame

    frame = planned()
    sent = history.transfer(0, 2)
    for _ in range(9):
        sent += history.send(2)
        history.publish()
    assert sorted(row.n for row in frame.collect()) == [0, 1, 2]
    late = planned()
    history.trim(2)
    with pytest.raises(PySparkException, match=r"\[TXNLOG_DATA_LOSS\] .* was trimmed after the query's cut was made\."):
        late.collect()
    assert {0, 1, sent[0], sent[-1]} <= {row.n for row in planned().collect()}


def test_what_cannot_be_is_refused(cases: Path) -> None:
    """Give options that are wrong, of another kind of query, or that no such log has."""
    path = path_of(cases / "txn")
    for options, told in (
        ({}, "needs one of the options"),
        ({"topic": "txn", "limit": "5"}, "There is no option 'limit'"),
        ({"topic": "txn", "__limit": "5"}, "There is no option '__limit'"),
        ({"topic": "txn", "versionAsOf": "1"}, "There is no option 'versionasof'"),
        ({"topic": "nope"}, "There is no topic 'nope'"),
        ({"topic": "txn", "subscription": "s"}, "'subscription' is for logs of txnlog's own"),
        ({"topic": "txn", "isolationLevl": "read_committed"}, "Did you mean 'isolationLevel'"),
        ({"topic": "txn", "startingOffsets": "latest"}, "would read nothing"),
        (
            {"topic": "txn", "startingOffsets": '{"txn": {"0": 188}}'},
            r"Offset 188 lies outside txn-0, which has \[0, 187\)",
        ),
        ({"topic": "txn", "minPartitions": "0"}, "Option 'minPartitions'"),
        ({"topic": "txn", "metadataColumns": "__nope"}, "not a metadata column"),
    ):
        source = TxnLogDataSource({"path": path, **{name.lower(): value for name, value in options.items()}})
        with pytest.raises(TxnLogError, match=told):
            source.reader(source.schema()).partitions()
    with pytest.raises(TxnLogError, match=r"There is no column|isn't there"):
        load(path, "nope int", topic="txn").collect()
    with pytest.raises(TxnLogError, match="only read"):
        source_of({"path": path, "topic": "txn"}).writer(load(path, topic="txn").schema, False)


def test_tasks_are_pinned(cases: Path, tmp_path: Path) -> None:
    """Plan a read, and read its tasks twice, also after more was written: the same rows."""
    case = kafka.unpack("txn", tmp_path)
    source = TxnLogDataSource({"path": path_of(case), "topic": "txn", "minpartitions": "6"})
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    assert len(tasks) > 3

    def rows(task: InputPartition) -> Iterator[Any]:
        return (row["offset"] for batch in reader.read(task) for row in batch.to_pylist())

    first = [list(rows(task)) for task in tasks]
    assert [offset for task in first for offset in task] == [
        row[0] for row in kafka.expected(case, PartitionName("txn", 0), "read_committed")
    ]
    (case / "log" / "replication-offset-checkpoint").unlink()
    assert [list(rows(task)) for task in tasks] == first


@pytest.mark.long
def test_buckets_are_read(cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy a log directory and offloaded ledgers to a bucket: the same rows, by scan and by the source's tasks."""
    for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), CREDENTIALS, strict=True):
        monkeypatch.setenv(name, value)
    places = {"kafka": cases / "multi" / "log", "pulsar": cases / "pulsar" / "plain-batch" / "objects"}
    with S3Server() as server:
        bucket = server.make_bucket()
        for of, topic in (("kafka", "multi"), ("pulsar", "persistent://lab/txn/plain-batch")):
            for file in sorted(places[of].rglob("*")):
                if file.is_file():
                    bucket.write(f"{of}/{file.relative_to(places[of])}", file.read_bytes())
            path = f"{of}:s3://{bucket.name}/folder/{of}?endpoint_override=http://{server.endpoint}"
            wanted = txn_source.connect(f"{of}:{places[of]}").scan(topic).read_all()
            assert txn_source.connect(path).scan(topic).read_all() == wanted
            source = TxnLogDataSource({"path": path, "topic": topic})
            reader = source.reader(source.schema())
            assert sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task)) == wanted.num_rows
