"""``txn_source.spark.read``: Spark's Parquet reader takes the tiered ledgers, the Python source the rest, and the rows
are those of the Python source alone, whatever the session is set to."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import txn_source
from tests.log import tiers
from tests.log.reading import BY_HAND
from tests.log.tiers import objects, write_ledgers
from tests.spark.test_types import COLUMNS
from txn_source import InvalidArgumentError, Log, TopicNotFoundError
from txn_source.spark.native_read import unreadable
from txn_source.storage import tiered

LEVELS = ("read_committed", "read_uncommitted")
Native = Callable[..., DataFrame]


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 5)
    monkeypatch.setattr(tiered, "_FOOTERS", tiered._FooterCache())


@pytest.fixture
def native(spark: SparkSession, root: Path) -> Native:
    """A function that reads the test's log natively."""

    def native(topic: Any = "orders", **options: Any) -> DataFrame:
        return txn_source.spark.read(spark, topic, path=root, **options)

    return native


@pytest.fixture
def offloaded(log: Log) -> Log:
    """A log with three offloaded ledgers and an open one; aborted messages in each of the three."""
    log.create_topic("orders", partitions=2)
    write_ledgers(log)
    log.offload("orders")
    return log


def files(frame: DataFrame) -> list[str]:
    """Return the objects that Spark's Parquet reader takes."""
    return sorted(Path(uri).name for uri in frame.inputFiles())


def names(log: Log) -> list[str]:
    return sorted(path.name for path in objects(log.root))


@contextmanager
def session(spark: SparkSession, **settings: str) -> Iterator[None]:
    """Set what belongs to the session, for the block."""
    keys = {name.replace("__", "."): value for name, value in settings.items()}
    try:
        for key, value in keys.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key in keys:
            spark.conf.unset(key)


@pytest.mark.parametrize("level", ["read_committed", pytest.param("read_uncommitted", marks=pytest.mark.long)])
def test_rows_are_those_of_the_source(offloaded, native, spark_read, ordered, level) -> None:
    """Read all columns at both levels, with and without hot copies."""
    options = {"isolationLevel": level, "metadataColumns": "all"}
    for _ in range(2):
        expected = spark_read(topic="orders", **options)
        frame = native(**options)
        assert ordered(frame) == ordered(expected)
        assert frame.dtypes == expected.dtypes
        assert all(field.nullable for field in frame.schema.fields)
        assert files(frame) == (names(offloaded) if level == LEVELS[0] else [])
        offloaded.delete_hot("orders")
    assert native(**options, nativeTieredReads=False).inputFiles() == []
    assert ordered(native(**options, nativeTieredReads="false")) == ordered(expected)


@pytest.mark.long
def test_read_uncommitted_takes_objects_without_aborted_messages(log, native, read, ordered) -> None:
    """Offload a ledger that nothing was aborted in."""
    log.create_topic("orders")
    with log.producer("orders") as producer, log.begin_transaction() as txn:
        producer.send(b"1", txn=txn)
        producer.send(b"2")
        producer.flush()
    log.roll_ledger("orders")
    log.offload("orders")
    frame = native(isolation_level=LEVELS[1], metadataColumns="all")
    assert files(frame) == names(log)
    assert ordered(frame) == ordered(read(topic="orders", isolationLevel=LEVELS[1], metadataColumns="all"))


@pytest.mark.long
def test_ends_divide_ledgers_among_the_readers(offloaded, native, read, ordered) -> None:
    """Read between positions, from a time, and as of a time: the rows of the source with the same options."""
    first, _, third, _ = offloaded.stats("orders").partitions[0].ledgers
    now = datetime.now(UTC).isoformat()
    inside = {"startingOffsets": f'{{"orders": {{"0": "{first.ledger_id}:1"}}}}', "consistentCut": "false"}
    upto = {"endingOffsets": f'{{"orders": {{"0": "{third.ledger_id}:1"}}}}', "consistentCut": "false"}
    for options, count in (
        (inside, 2), (upto, 2), (inside | upto, 1), ({"asOfTimestamp": now}, 3), ({"endingTimestamp": now}, 3),
        ({"dataReadPriority": "bookkeeper-first"}, 0),
    ):  # fmt: skip
        frame = native(**options)
        assert ordered(frame) == ordered(read(topic="orders", **options))
        assert len(files(frame)) == count, options


@pytest.mark.long
def test_cut_is_that_of_the_call(offloaded, native, ordered) -> None:
    """Write, offload and delete hot copies after the call: the frame shows what was there, however often it is used."""
    frame = native()
    before = frame.count()
    with offloaded.producer("orders") as producer:
        producer.send(b"later", partition=0)
        producer.send(b"later", partition=1)
    offloaded.roll_ledger("orders")
    offloaded.offload("orders")
    offloaded.delete_hot("orders")
    assert frame.count() == before
    assert native().count() == before + 2


@pytest.mark.long
def test_columns_filters_and_counts(offloaded, native, spark_read) -> None:
    """Ask for some columns, filter, count, join with itself: Spark prunes and pushes into the objects."""
    frame = native(columns=["value", "__entry_id", "__topic", "__batch_index"])
    assert frame.columns == ["value", "__entry_id", "__topic", "__batch_index"]
    everything = spark_read(topic="orders", metadataColumns="all")
    assert frame.count() == everything.count()
    assert frame.filter("__entry_id > 3").count() == everything.filter("__entry_id > 3").count()
    assert [tuple(r) for r in frame.groupBy("__topic").count().collect()] == [("orders", everything.count())]
    assert native(columns=["__topic"]).count() == everything.count()
    assert frame.join(frame.select("value").distinct(), "value").count() == everything.count()
    plan = frame.filter(F.col("value") == b"x").select("__entry_id")._jdf.queryExecution().toString()
    assert "PushedFilters: [IsNotNull(value), EqualTo(value," in plan


@pytest.mark.long
def test_several_topics_keep_their_names(offloaded, native, read, ordered) -> None:
    """Read two topics, and one partition: each row has its topic's name."""
    offloaded.create_topic("others")
    write_ledgers(offloaded, "others", 1)
    offloaded.offload("others")
    frame = native(["orders", "others"])
    assert ordered(frame) == ordered(read(topics="orders,others"))
    assert len(files(frame)) == 4
    part = native("orders-partition-0", metadataColumns="all")
    assert ordered(part) == ordered(read(topic="orders-partition-0", metadataColumns="all"))
    assert len(files(part)) == 3


# Types

NATIVE = {
    name: column for name, column in COLUMNS.items()
    if unreadable(pa.schema([pa.field(name, column[0])]), pa.schema([])) is None
}  # fmt: skip


@pytest.mark.long
def test_values_of_all_types_are_those_of_the_source(log, native, read, ordered) -> None:
    """Write values of all types that Spark reads from Parquet, with nulls and extremes, also below a null."""
    assert len(NATIVE) > 20
    source = random.Random(3)
    schema = pa.schema([pa.field(name, t) for name, (t, _, _) in NATIVE.items()])
    log.create_topic("orders", schema=schema)
    rows = [{name: source.choice([*pool, None]) for name, (_, _, pool) in NATIVE.items()} for _ in range(60)]
    with log.producer("orders", batching=BY_HAND) as producer:
        producer.send_batch(pa.Table.from_pylist(rows, schema=schema))
        producer.flush()
    log.roll_ledger("orders")
    log.offload("orders")
    expected = ordered(read(topic="orders"))
    frame = native()
    assert len(files(frame)) == 1
    found = ordered(frame)
    assert repr(found) == repr(expected)  # of NaN, too


@pytest.mark.long
def test_types_that_spark_reads_otherwise_are_left(log, native, read, ordered) -> None:
    """Offload a topic with a column of each other type: the source reads it; without those columns, Spark does."""
    others = {name: column for name, column in COLUMNS.items() if name not in NATIVE}
    assert {"utc_ns", "duration_us", "large_list", "nested"} <= others.keys()
    schema = pa.schema([("plain", pa.int32()), *((name, t) for name, (t, _, _) in others.items())])
    log.create_topic("orders", schema=schema)
    values = [pa.array([*pool, None], t) for t, _, pool in others.values()]
    with log.producer("orders") as producer:
        producer.send_batch(pa.table([pa.array([1, 2, 3], pa.int32()), *values], schema=schema))
    log.roll_ledger("orders")
    log.offload("orders")
    frame = native()
    assert files(frame) == []
    assert ordered(frame) == ordered(read(topic="orders"))
    part = native(columns=["plain"])
    assert len(files(part)) == 1
    assert sorted(row.plain for row in part.collect()) == [1, 2, 3]


def test_columns_that_differ_in_case_are_left() -> None:
    """Take topics that Spark can't tell the columns of apart, at any depth."""
    number = pa.int32()
    for fields in ([("a", number), ("A", number)], [("s", pa.struct([("x", number), ("X", number)]))]):
        schema = pa.schema(fields)
        assert unreadable(schema, schema) == "columns differ in the case of letters only"


# What sessions may be set to


@pytest.mark.long
def test_settings_of_a_session_change_nothing(spark, offloaded, native, read, ordered) -> None:
    """Set all that makes Spark read files in another way."""
    expected = ordered(read(topic="orders", metadataColumns="all"))
    with session(
        spark,
        spark__sql__files__ignoreMissingFiles="true",
        spark__sql__files__ignoreCorruptFiles="true",
        spark__sql__parquet__mergeSchema="true",
        spark__sql__parquet__datetimeRebaseModeInRead="LEGACY",
        spark__sql__parquet__enableVectorizedReader="false",
        spark__sql__parquet__binaryAsString="true",
        spark__sql__parquet__inferTimestampNTZ__enabled="false",
        spark__sql__caseSensitive="true",
        spark__sql__sources__useV1SourceList="",
    ):
        frame = native(metadataColumns="all")
        assert ordered(frame) == expected
        first, second, _ = objects(offloaded.root)
        first.unlink()
        with pytest.raises(Py4JJavaError, match=first.name):
            frame.collect()
        assert ordered(native(metadataColumns="all")) == expected  # from the hot copy
        again = native(metadataColumns="all")
        tiers.flip_in_row_group(1)(second)
        with pytest.raises(Py4JJavaError):
            again.collect()
    with pytest.raises(Py4JJavaError, match="checksum"):  # the vectorized reader, too, checks pages
        again.select("value").collect()


@pytest.mark.long
def test_old_dates_are_not_shifted(spark, log, native, read, ordered) -> None:
    """Read times of the Julian calendar in a session that is set to shift them."""
    schema = pa.schema([pa.field("day", pa.date32()), pa.field("at", pa.timestamp("us", "UTC"))])
    log.create_topic("orders", schema=schema)
    with log.producer("orders") as producer:
        producer.send_batch(pa.table([[-600_000], [-50_000_000_000_000_000]], schema=schema))
    log.roll_ledger("orders")
    log.offload("orders")
    expected = ordered(read(topic="orders"))
    with session(spark, spark__sql__parquet__datetimeRebaseModeInRead="LEGACY"):
        frame = native()
        assert len(files(frame)) == 1
        assert ordered(frame) == expected


# Paths


@pytest.mark.long
@pytest.mark.parametrize(("folder", "taken"), [("a b%20+#c/.hid=1/_x:y&z", 3), ("{a,b}", 0), ("[a]*?", 0)])
def test_paths_are_taken_as_they_are(spark, tmp_path, read, ordered, folder, taken) -> None:
    """Put a log, and then its objects too, into folders whose names mean something to Spark or Hadoop."""
    root = tmp_path / folder / "log"
    root.parent.mkdir(parents=True)
    with txn_source.connect(root) as log:
        log.create_topic("orders")
        write_ledgers(log)
        log.offload("orders")
        frame = txn_source.spark.read(spark, "orders", path=root)
        assert ordered(frame) == ordered(read(topic="orders", path=str(root)))
        assert len(frame.inputFiles()) == taken


# Refusals


def test_bad_input_is_refused_in_the_logs_own_words(offloaded, native) -> None:
    """Name a topic, a column, an option and a value that aren't there."""
    with pytest.raises(TopicNotFoundError):
        native("nowhere")
    for options in ({"isolation_level": "serializable"}, {"isolationLevl": "x"}, {"nativeTieredReads": "perhaps"}):
        with pytest.raises(InvalidArgumentError):
            native(**options)
    with pytest.raises(txn_source.SchemaMismatchError):
        native(columns=["nothing"])
