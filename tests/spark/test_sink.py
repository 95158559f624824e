"""``df.write``: the rows of a job come to the log once and all together, or not at all with one line that says why."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

import txn_source
from tests.log.meddling import Crash, Meddling
from tests.log.reading import a_week_later
from tests.spark.plain import logs_closed, schema_of, source_of
from txn_source import ProducerFencedError, UnavailableError
from txn_source.client.target import Target
from txn_source.client.writing import bulk_writer
from txn_source.metadata.service.in_process import InProcessTransport
from txn_source.metadata.service.server import Server
from txn_source.spark import sink
from txn_source.spark.sink import BatchWriter

TYPED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
LEVELS = ("read_committed", "read_uncommitted")
VALUE = "value string"
PLANS_AND_COMMITS = """
import sys
from pyspark.sql.types import StringType, StructType
from txn_source.spark.source import TxnLogDataSource
options = {"path": sys.argv[1], "topic": "orders", "checkpointLocation": "unused"}
writer = TxnLogDataSource(options).streamWriter(StructType().add("value", StringType()), False)
writer.commit([], 0)
sys.exit("pandas was loaded" if "pandas" in sys.modules else 0)
"""


@pytest.fixture
def job(root: Path) -> Iterator[Callable[..., BatchWriter]]:
    """A function that plans a write as Spark has it done, in this process, and returns what Spark ships to tasks."""

    def job(schema: str = VALUE, **options: str) -> BatchWriter:
        return source_of({"path": str(root), **options}).writer(schema_of(schema), overwrite=False)

    with logs_closed():
        yield job


def rows(schema: str = VALUE, **columns: list[Any]) -> Iterator[pa.RecordBatch]:
    """Return what a task is handed."""
    yield pa.record_batch(columns, to_arrow_schema(schema_of(schema), timezone="Asia/Kolkata"))


def values(log: txn_source.Log, topic: str = "orders", level: str = "read_committed") -> list[bytes]:
    return [row["value"] for row in log.scan(topic, level, ["value"]).read_all().to_pylist()]


def segments(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in (root / "segments").rglob("*.arrow")}


@pytest.mark.long
def test_process_that_plans_or_commits_a_write_loads_no_pandas(root: Path, log: txn_source.Log) -> None:
    """Do in a process of its own what Spark starts two for in each batch of a stream: loading pandas, which pyarrow
    does when it makes an array of numpy's, would take them longer than their work."""
    log.create_topic("orders")
    done = subprocess.run(
        [sys.executable, "-c", PLANS_AND_COMMITS, str(root)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


# What arrives


def test_job_is_one_transaction_over_all_partitions(spark, log, server: Server, read, spark_write) -> None:
    """Write a frame of three tasks to three partitions, over a server: each row once, in one
    committed transaction, by one producer whose sequence ids are all different."""
    log.create_topic("orders", partitions=3)
    frame = spark.range(0, 3000, numPartitions=3).selectExpr("string(id) AS key", "concat('v', id) AS value")
    spark_write(frame, topic="orders", endpoint=server.address)
    found = log.scan("orders", columns=["key", "value", "__partition", "__txn_id", "__txn_status", "__producer_name"])
    table = found.read_all()
    assert Counter(zip(*table.select(["key", "value"]).to_pydict().values(), strict=True)) == Counter(
        (b"%d" % n, b"v%d" % n) for n in range(3000)
    )
    [transaction] = log.transactions(state=None)
    assert table["__txn_id"].unique().to_pylist() == [str(transaction.id)]
    assert table["__txn_status"].unique().to_pylist() == ["committed"]
    [name] = table["__producer_name"].unique().to_pylist()
    assert name.startswith("spark-")
    assert sorted(table["__partition"].unique().to_pylist()) == [0, 1, 2]
    sequences = log.scan("orders", columns=["__sequence_id"]).read_all()["__sequence_id"].to_pylist()
    assert sorted(sequences) == list(range(3000))
    assert read(topic="orders").count() == 3000


def test_keys_go_where_a_producer_sends_them(log, write) -> None:
    """Write keys to a raw and a typed topic in both ways: one partition for each key."""
    log.create_topic("raw", partitions=5)
    log.create_topic("typed", partitions=5, schema=TYPED)
    keys, x = [f"kéy{number}" for number in range(200)], ["x"] * 200
    write(pa.table({"key": keys, "value": x}), topic="raw")
    write(pa.table({"id": range(200), "name": x, "__key": keys}), topic="typed")
    with log.producer("raw") as raw, log.producer("typed") as typed:
        for number in range(200):
            raw.send("x", key=f"kéy{number}")
            typed.send({"id": number, "name": "x"}, key=f"kéy{number}")
    for topic, column in (("raw", "key"), ("typed", "id")):
        places = defaultdict(list)
        for row in log.scan(topic, columns=[column, "__partition"]).read_all().to_pylist():
            places[row[column]].append(row["__partition"])
        assert len(places) == 200
        assert all(len(found) == 2 and len(set(found)) == 1 for found in places.values())
        assert {found[0] for found in places.values()} == set(range(5))


def test_rows_without_a_key_are_spread(spark, log, spark_write) -> None:
    """Write three tasks of rows without keys to three partitions: each task begins with another one."""
    log.create_topic("orders", partitions=3)
    spark_write(spark.range(0, 30, numPartitions=3).selectExpr("string(id) AS value"), topic="orders")
    assert [p.messages for p in log.stats("orders").partitions] == [10, 10, 10]


def test_partition_column_decides_and_key_fills_in(log, write) -> None:
    """Name a partition in some rows: these go there against their key, and the others by it."""
    log.create_topic("orders", partitions=4)
    partitions = pa.array([n % 4 if n < 50 else None for n in range(100)], pa.int32())
    keys = [str(n) for n in range(100)]
    write(pa.table({"key": keys, "value": ["x"] * 100, "__partition": partitions}), topic="orders")
    with log.producer("orders") as producer:
        for number in range(50, 100):
            producer.send("x", key=str(number))
    places = defaultdict(set)
    for row in log.scan("orders", columns=["key", "__partition"]).read_all().to_pylist():
        places[int(row["key"])].add(row["__partition"])
    assert {n: places[n] for n in range(50)} == {n: {n % 4} for n in range(50)}
    assert all(len(places[n]) == 1 for n in range(50, 100))


def test_topic_column_fans_out_in_one_transaction(log, read, write) -> None:
    """Write to three topics by a column, one of them of another tenant and one named in two ways."""
    audits = "persistent://acme/books/audits"
    for topic in ("orders", "bills", audits):
        log.create_topic(topic, partitions=2)
    named = ["orders", "bills", audits, "persistent://public/default/orders"] * 10
    write(pa.table({"__TOPIC": named, "value": [str(n) for n in range(40)]}), tasks=2)
    for topic, remainders in (("orders", (0, 3)), ("bills", (1,)), (audits, (2,))):
        assert sorted(map(int, values(log, topic))) == [n for n in range(40) if n % 4 in remainders]
    [transaction] = log.transactions(state=None)
    assert {p.topic for p in transaction.partitions} == {"orders", "bills", audits}
    assert len(transaction.producers) == 3
    both = read(topics=f"orders,bills,{audits}", metadataColumns="__txn_id")
    assert len({row["__txn_id"] for row in both.collect()}) == 1


def test_empty_frame_leaves_nothing(spark, log, root: Path, spark_write) -> None:
    """Write frames without rows, and without tasks, to one topic and to many."""
    log.create_topic("orders")
    before = log.stats("orders")
    spark_write(spark.range(0).selectExpr("string(id) AS value"), topic="orders")
    spark_write(spark.createDataFrame([], VALUE), topic="orders")
    spark_write(spark.createDataFrame([], "value string, __topic string"))
    assert log.stats("orders") == before
    assert log.transactions(state=None) == []
    assert segments(root) == set()


def test_many_small_batches_become_few_entries(log, job) -> None:
    """Write 150,000 rows, handed over in batches of 10,000: the entries have about 64k rows."""
    log.create_topic("orders")
    writer = job(topic="orders")
    tens = (rows(value=[str(n) for n in range(at, at + 10_000)]) for at in range(0, 150_000, 10_000))
    writer.commit([writer.write(batch for ten in tens for batch in ten)])
    [ledger] = log.stats("orders").ledgers
    assert (ledger.messages, ledger.entries) == (150_000, 3 + 1)
    assert values(log) == [b"%d" % n for n in range(150_000)], "the order within a task is kept"


# All or nothing


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_is_visible_before_the_commit(log, job, level) -> None:
    """Write two tasks to two topics, look, and commit: all is there at once for both levels, and held nothing back."""
    for topic in ("orders", "bills"):
        log.create_topic(topic)
    before = [log.stats(topic) for topic in ("orders", "bills")]
    writer = job("value string, __topic string")
    schema = "value string, __topic string"
    messages = [writer.write(rows(schema, value=[str(n)] * 2, __topic=["orders", "bills"])) for n in range(2)]
    assert [log.stats(topic) for topic in ("orders", "bills")] == before
    with log.producer("orders") as producer:
        producer.send("meanwhile")
    assert (values(log, level=level), values(log, "bills", level)) == ([b"meanwhile"], [])
    assert log.transactions(state=None) == []
    writer.commit(messages)
    assert (values(log, level=level), values(log, "bills", level)) == ([b"meanwhile", b"0", b"1"], [b"0", b"1"])


def test_only_what_the_commit_lists_counts(log, root: Path, job) -> None:
    """Run a task twice, as speculation does, and fail another one (its message is None): each row of the listed ones
    is there once, and the files of the others are garbage."""
    log.create_topic("orders")
    writer = job(topic="orders")
    first, second, other = (writer.write(rows(value=values)) for values in (["a", "b"], ["a", "b"], ["c"]))
    assert len(segments(root)) == 3
    writer.commit([second, None, other])
    assert values(log) == [b"a", b"b", b"c"]
    a_week_later(log, root)
    unused = log.collect_garbage(older_than=0)
    assert unused.paths == tuple(entry.segment for entry in first.batches[0].entries)
    assert values(log) == [b"a", b"b", b"c"]
    assert log.collect_garbage(older_than=0).paths == ()


def test_repeated_commit_changes_nothing(log, job) -> None:
    """Commit twice, as a driver does that lost the answer."""
    log.create_topic("orders")
    writer = job(topic="orders")
    messages = [writer.write(rows(value=["a"]))]
    for _ in range(2):
        writer.commit(messages)
    assert values(log, level="read_uncommitted") == [b"a"]


def test_abort_after_a_commit_leaves_its_files(log, root: Path, job, monkeypatch) -> None:
    """Lose the answer of the commit: Spark then aborts the job, but it counted, and stays readable."""
    log.create_topic("orders")
    writer = job(topic="orders")
    messages = [writer.write(rows(value=["a", "b"]))]
    way = Meddling(InProcessTransport(Target.of(root, None).service()))

    def lose() -> None:
        raise UnavailableError("The answer was lost.", "Try again.")

    way.after["CommitBatch"] = lose
    with monkeypatch.context() as patch:
        patch.setattr(sink, "open_log", lambda _: txn_source.Log(way))  # type: ignore[arg-type]
        with pytest.raises(UnavailableError):
            writer.commit(messages)
    writer.abort(messages)
    assert len(segments(root)) == 1
    assert log.collect_garbage(older_than=0).paths == ()
    assert values(log) == [b"a", b"b"]


def test_aborted_job_leaves_only_garbage(log, root: Path, job) -> None:
    """Abort a job before its commit: no row is there, and its files are garbage once they are old."""
    log.create_topic("orders")
    writer = job(topic="orders")
    writer.abort([writer.write(rows(value=["a"])), None])
    assert values(log, level="read_uncommitted") == []
    [left] = segments(root)
    assert log.collect_garbage().paths == (), "not before a day"
    assert log.collect_garbage(older_than=0).paths == (left,)


def test_failing_task_removes_its_files(log, root: Path, job, monkeypatch) -> None:
    """Let the rows of a task end in an error after some were written to files of two topics."""
    monkeypatch.setattr(bulk_writer, "ENTRY_MAX_ROWS", 1)
    for topic in ("orders", "bills"):
        log.create_topic(topic)
    schema = "value string, __topic string"
    writer = job(schema)

    def broken() -> Iterator[pa.RecordBatch]:
        for _ in range(2):
            yield from rows(schema, value=["a", "b"], __topic=["orders", "bills"])
        assert len(segments(root)) == 2
        raise Crash

    with pytest.raises(Crash):
        writer.write(broken())
    assert segments(root) == set()


# Transactional ids


def test_transactional_id_fences_a_producer(log, write) -> None:
    """Write with the id of a producer with an open transaction: it is aborted, and the producer can do no more."""
    log.create_topic("orders")
    producer = log.producer("orders", transactional_id="tellers")
    transaction = log.begin_transaction()
    producer.send("left", txn=transaction)
    producer.flush()
    write(pa.table({"value": ["a"]}), topic="orders", transactionalId="tellers")
    assert values(log) == [b"a"]
    producer.send("late")
    with pytest.raises(ProducerFencedError):
        producer.flush()
    assert log.scan("orders", columns=["__producer_name"]).read_all().to_pylist() == [{"__producer_name": "tellers"}]


def test_older_job_of_a_transactional_id_is_fenced(log, job, root: Path) -> None:
    """Plan two jobs with one id and commit the older one last, and first: only the newer one's rows count."""
    log.create_topic("orders")
    for order in ((0, 1), (1, 0)):
        jobs = [job(topic="orders", transactionalId="nightly") for _ in range(2)]
        messages = [[writer.write(rows(value=[name]))] for writer, name in zip(jobs, ("older", "newer"), strict=True)]
        for index in order:
            if index == 0:
                with pytest.raises(ProducerFencedError, match="'nightly'"):
                    jobs[0].commit(messages[0])
            else:
                jobs[1].commit(messages[1])
    assert values(log, level="read_uncommitted") == [b"newer", b"newer"]


# Refused


OPTIONS = {
    "no topic": ({}, VALUE, ("no topic", 'option("topic"', "__topic")),
    "both": ({"topic": "orders"}, "value string, __topic string", ("both", "'topic'", "__topic")),
    "an empty topic": ({"topic": ""}, VALUE, ("'topic'",)),
    "a malformed topic": ({"topic": "a/b"}, VALUE, ("'a/b'",)),
    "an empty id": ({"topic": "orders", "transactionalId": ""}, VALUE, ("'transactionalId'", "empty")),
    "an id of many topics": ({"transactionalId": "t"}, "value string, __topic string", ("'transactionalId'", "many")),
    "an unknown option": ({"topic": "orders", "transactional_id": "t"}, VALUE, ("'transactional_id'", "mean")),
    "topics": ({"topics": "orders"}, VALUE, ("'topics'", "reading only")),
    "isolationLevel": ({"topic": "orders", "isolationLevel": "read_committed"}, VALUE, ("reading only",)),
    "maxMessagesPerTrigger": ({"topic": "orders", "maxMessagesPerTrigger": "1"}, VALUE, ("reads only",)),
    "path and endpoint": ({"topic": "orders", "endpoint": "localhost:1"}, VALUE, ("both", "'path'", "'endpoint'")),
}
"""By case: the options beside the path, the frame's columns, and what the refusal must say."""


@pytest.mark.parametrize("case", OPTIONS)
def test_wrong_option_is_refused(log, root: Path, job, case) -> None:
    """Plan a write with one option wrong: nothing is written, no id is taken over."""
    log.create_topic("orders")
    options, schema, said = OPTIONS[case]
    with pytest.raises(txn_source.InvalidArgumentError) as caught:
        job(schema, **options)
    told = str(caught.value).lower()
    assert [text for text in said if text.lower() not in told] == [], told
    assert log.metadata.open_producer(txn_source.model.topic_name.TopicName.parse("orders"), "t", None)[0].epoch == 0
    assert segments(root) == set()


WRONG_ROWS: dict[str, tuple[str, dict[str, str], dict[str, list[Any]], str, tuple[str, ...]]] = {
    "an unknown topic": ("__topic string", {}, {"__topic": ["orders", "ordres"]}, "TOPIC_NOT_FOUND", ("'ordres'",)),
    "a malformed topic": ("__topic string", {}, {"__topic": ["orders", "a/b"]}, "INVALID_ARGUMENT", ("'a/b'",)),
    "a partition": ("__topic string", {}, {"__topic": ["orders", "orders-partition-0"]}, "TOPIC_NOT_FOUND", ()),
    "no topic in a row": ("__topic string", {}, {"__topic": ["orders", None]}, "SCHEMA_MISMATCH", ("null in 1 rows",)),
    "no topic at all": ("__topic string", {}, {"__topic": [None] * 2}, "SCHEMA_MISMATCH", ("null in 2 rows",)),
    "a topic with other columns": (
        "__topic string", {}, {"__topic": ["orders", "typed"]}, "SCHEMA_MISMATCH",
        ("'value'", "'typed'", "id bigint, name string"),
    ),
    "a partition too high": (
        "__partition int", {"topic": "orders"}, {"__partition": [0, 2]}, "INVALID_ARGUMENT", ("asks for 2", "0 to 1"),
    ),
    "a partition below 0": (
        "__partition int", {"topic": "orders"}, {"__partition": [None, -1]}, "INVALID_ARGUMENT", ("asks for -1",),
    ),
}  # fmt: skip
"""By case: the column beside ``value``, the options, its values, and code and words of the refusal."""


@pytest.mark.parametrize("case", WRONG_ROWS)
def test_row_that_does_not_fit_fails_its_task_without_a_trace(log, root: Path, job, case, monkeypatch) -> None:
    """Hand a task good rows, which are written, and then one that can't be stored: no file stays."""
    monkeypatch.setattr(bulk_writer, "ENTRY_MAX_ROWS", 1)
    log.create_topic("orders", partitions=2)
    log.create_topic("typed", schema=TYPED)
    column, options, wrong, code, said = WRONG_ROWS[case]
    schema = f"value string, {column}"
    writer = job(schema, **options)
    good = {name: ["orders" if name == "__topic" else 1] * 2 for name in wrong}

    def both() -> Iterator[pa.RecordBatch]:
        for _ in range(2):
            yield from rows(schema, value=["a", "b"], **good)
        yield from rows(schema, value=["a", "b"], **wrong)

    with pytest.raises(txn_source.TxnLogError) as caught:
        writer.write(both())
    assert caught.value.code == code
    assert [text for text in said if text not in str(caught.value)] == [], str(caught.value)
    assert segments(root) == set()


def test_refusals_are_shown_by_spark_in_one_line(spark, log, root: Path, refusal, spark_write) -> None:
    """Make mistakes in Spark, found before the tasks and in them: one short error, and nothing is written."""
    log.create_topic("orders", partitions=2)
    one = spark.sql("SELECT 'x' AS value")
    cases: list[tuple[str, Callable[[], None], tuple[str, ...]]] = [
        ("INVALID_ARGUMENT", lambda: spark_write(one), ("no topic",)),
        ("INVALID_ARGUMENT", lambda: spark_write(one, "overwrite", topic="orders"), ("never overwritten", "append")),
        (
            "INVALID_ARGUMENT",
            lambda: spark_write(one.selectExpr("*", "2 AS __partition"), topic="orders"),
            ("asks for 2",),
        ),
    ]
    for code, query, said in cases:
        told = refusal(code, query)
        assert [text for text in said if text not in told] == [], told
    assert values(log, level="read_uncommitted") == []
    assert log.transactions(state=None) == []
    assert segments(root) == set()


@pytest.mark.parametrize("kind", ["missing", "empty"])
def test_wrong_path_is_named_and_nothing_is_made_there(tmp_path: Path, kind) -> None:
    """Plan a write into a folder that isn't there, and one that is empty."""
    place = tmp_path / "elsewhere"
    if kind == "empty":
        place.mkdir()
    source = source_of({"path": str(place), "topic": "orders"})
    with pytest.raises(txn_source.LogNotFoundError, match="elsewhere"):
        source.writer(schema_of(VALUE), overwrite=False)
    assert [path.name for path in tmp_path.rglob("*")] == (["elsewhere"] if kind == "empty" else [])
