"""What a user of Spark sees when something is wrong with the log itself: one line, with code, operands and remedy."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkValueError

import txn_source
from tests.spark.plain import schema_of, source_of
from txn_source import InternalError
from txn_source.spark.connection import readable
from txn_source.spark.schema import Projection
from txn_source.spark.tasks import read_task


@pytest.fixture
def segment(log: txn_source.Log, root: Path) -> Path:
    """The segment of a topic ``orders`` with entries ``xxxx0``, ``xxxx1`` (aborted) and ``xxxx2``."""
    log.create_topic("orders")
    with log.producer("orders") as producer:
        for number in range(3):
            transaction = log.begin_transaction()
            producer.send(f"xxxx{number}", txn=transaction)
            producer.flush()
            (transaction.abort if number == 1 else transaction.commit)()
    [path] = root.rglob("*.arrow")
    return path


def test_unknown_topic_is_named(log, spark_read, refusal) -> None:
    """Load a topic that isn't there."""
    told = refusal("TOPIC_NOT_FOUND", lambda: spark_read(topic="orders"))
    assert told == (
        "[TXNLOG_TOPIC_NOT_FOUND] There is no topic 'orders' in this log. "
        "Check the name against `txnlog topics list`, or create it first."
    )


@pytest.mark.parametrize("kind", ["missing", "empty", "foreign", "file"])
def test_wrong_path_is_named_and_nothing_is_made_there(tmp_path: Path, read, refusal, kind) -> None:
    """Load from a folder that isn't there, is empty or has something else in it, and from a file."""
    place = tmp_path / "elsewhere"
    if kind in ("empty", "foreign"):
        place.mkdir()
    if kind == "foreign":
        (place / "part-0.parquet").write_bytes(b"PAR1")
    if kind == "file":
        place.write_text("no log")
    before = sorted(tmp_path.rglob("*"))
    told = refusal("LOG_NOT_FOUND", lambda: read(topic="orders", path=str(place)))
    assert str(place) in told
    assert "Check the path" in told
    assert sorted(tmp_path.rglob("*")) == before


def test_newer_root_is_refused(log, root: Path, read, refusal) -> None:
    """Load a root that a release from the future has upgraded, also if the process had it open before."""
    log.create_topic("orders")
    assert read(topic="orders").count() == 0
    marker = root / "txnlog.json"
    marker.write_text('{"format_version": 7}')
    told = refusal("LOG_VERSION", lambda: read(topic="orders"))
    assert str(root) in told
    assert "version 7" in told
    assert "Upgrade" in told


@pytest.mark.parametrize("columns", [None, "__entry_id bigint"], ids=["all columns", "columns without stored bytes"])
def test_topic_deleted_after_planning_is_an_error(segment, log, read, refusal, columns) -> None:
    """Plan, delete the topic, and read: never fewer rows as if that were all."""
    frame = read(schema=columns, topic="orders")
    assert frame.count() == 2
    log.delete_topic("orders")
    told = refusal("DATA_LOSS", frame.collect)
    assert "'orders'" in told
    assert "deleted" in told


def test_log_deleted_after_planning_is_an_error(segment, log, root: Path, read, refusal) -> None:
    """Plan, take the whole root away, and read."""
    frame = read(topic="orders")
    assert frame.count() == 2
    root.rename(root.with_name("moved"))
    assert str(root) in refusal("LOG_NOT_FOUND", frame.collect)
    root.with_name("moved").rename(root)


# Unexpected errors, without Spark


def test_unexpected_error_is_one_line_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    """Raise what isn't ours behind a method that Spark calls: Spark gets a code, and the log where it came from."""

    @readable
    def fails() -> None:
        raise OSError("first line\n  second line")

    with pytest.raises(InternalError) as caught:
        fails()
    assert str(caught.value).startswith("[TXNLOG_INTERNAL] OSError: first line second line. Please report it")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    [record] = [record for record in caplog.records if record.name == "txn_source.spark.connection"]
    assert record.exc_info is not None
    assert traceback.extract_tb(record.exc_info[2])[-1].name == "fails"


def test_errors_of_spark_and_interrupts_pass_unchanged() -> None:
    """Raise an error of Spark's own, and an interrupt."""
    for error in (PySparkValueError("mine"), KeyboardInterrupt()):

        @readable
        def fails(error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            fails()
        assert caught.value is error


def test_what_fails_upstream_of_a_write_is_no_error_of_ours(
    log: txn_source.Log, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Let what Spark hands over end with an error, as a query's own expression does: it arrives as it was, and no stack
    of ours stands in the log."""
    log.create_topic("upstream")
    writer = source_of({"path": str(root), "topic": "upstream"}).writer(schema_of("value binary"), overwrite=False)

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": [b"x"]})
        raise EOFError("the worker's pipe was closed")

    with pytest.raises(EOFError, match="pipe was closed"):
        writer.write(rows())
    assert [record for record in caplog.records if record.name.startswith("txn_source")] == []


def test_unexpected_error_of_a_read_is_one_of_ours(segment, root: Path, plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a task fail while it reads."""
    [task] = plan(topic="orders")

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Projection, "apply", fail)
    with pytest.raises(InternalError, match=r"^\[TXNLOG_INTERNAL\] ZeroDivisionError\. "):
        list(read_task(task))
