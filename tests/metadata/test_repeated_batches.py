"""Batches that come again: a query's last one may, as the first of a run; each topic takes a job's version once."""

from __future__ import annotations

import logging
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.log.reading import UNCOMMITTED, told_by, values
from tests.log.sites import Site
from tests.metadata.test_commit_batch import query, state, written
from tests.selection import for_each
from txn_source import BatchRepeatedError, InvalidArgumentError, Log, TopicNotFoundError
from txn_source.model.spark_commit import CONTENT_MASK, AppVersion, Sink
from txn_source.spark.content import content_of


def of_run(batch_id: int, run_id: str | None) -> Sink:
    """Return who writes a batch in a run of the query."""
    return replace(query(batch_id), run_id=run_id)


def job(app_id: str, version: int) -> Sink:
    """Return who writes a version of an application's rows."""
    return Sink(None, 0, "spark-job", None, app=AppVersion(app_id, version))


# Queries


def test_batch_below_the_last_one_is_refused(log: Log) -> None:
    """Come with a batch from before the last one, as a query does whose checkpoint was restored from a copy: it is
    refused whether the run is new or old, and with the same or other rows; nothing changes, and the query can go on."""
    log.create_topic("orders")
    for batch_id in range(3):
        log.metadata.commit_batch(of_run(batch_id, "one"), [written(log, [b"%d" % batch_id])], f"{batch_id}")
    before = state(log)
    for key, (batch_id, run_id) in enumerate([(0, "one"), (1, "two"), (1, None)]):
        with pytest.raises(BatchRepeatedError, match=f"batch {batch_id}, .*batch 2 .*older.*newest checkpoint"):
            log.metadata.commit_batch(of_run(batch_id, run_id), [written(log, [b"new"])], f"again {key}")
    assert state(log) == before
    log.metadata.commit_batch(of_run(3, "two"), [written(log, [b"3"])], "on")
    assert values(log, "orders") == [b"0", b"1", b"2", b"3"]


def test_last_batch_may_come_again_as_the_first_of_a_run_only(log: Log) -> None:
    """Let two runs go on from copies of one checkpoint: the one that comes to a batch second is refused, whichever."""
    log.create_topic("orders")

    def commit(batch_id: int, run_id: str) -> bool:
        key = f"{batch_id} {run_id} {len(log.transactions(state=None))}"
        return log.metadata.commit_batch(of_run(batch_id, run_id), [written(log, [b"x"])], key)[1]

    assert [commit(0, "a"), commit(1, "a")] == [False, False]
    assert [commit(1, "b"), commit(2, "b")] == [True, False], "b repeats what a couldn't note"
    for batch_id in (2, 2):
        with pytest.raises(BatchRepeatedError, match=r"in the midst of a run.*Stop one"):
            commit(batch_id, "a")
    assert commit(3, "a") is False
    with pytest.raises(BatchRepeatedError, match="in the midst of a run"):
        commit(3, "b")
    assert commit(3, "c") is True
    assert len(values(log, "orders", UNCOMMITTED)) == 4


def test_query_is_restarted_at_each_batch(embedded_site: Site) -> None:
    """Restart a query forty times, more often than runs are kept, and repeat a batch each time."""
    log = embedded_site.connect()
    log.create_topic("orders")
    for number in range(40):
        for batch_id in sorted({max(0, number - 1), number}):
            sink = of_run(batch_id, f"run-{number}")
            log.metadata.commit_batch(sink, [written(log, [b"x"])], f"{number} {batch_id}")
    assert len(values(log, "orders")) == 40


@pytest.mark.parametrize("texts", [[], [b"a"], [b"a", b"b", b"c"]], ids=len)
def test_repetition_with_another_number_of_rows_is_refused(log: Log, texts: list[bytes]) -> None:
    """Repeat a batch of two rows with fewer and with more, also on other partitions."""
    log.create_topic("orders", partitions=2)
    log.metadata.commit_batch(query(0), [written(log, [b"a", b"b"])], "one")
    before = state(log)
    for partition in (0, 1):
        with pytest.raises(BatchRepeatedError, match=f"2 rows, and comes again with {len(texts)}"):
            log.metadata.commit_batch(query(0), [written(log, texts, partition=partition)], f"two {partition}")
    assert state(log) == before


def test_repetition_with_other_values_is_refused(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """Repeat a batch with the same hash of its rows, and with another one, which is refused; of sums of an earlier
    release, which tell little, a warning says that they differ."""
    log.create_topic("orders")
    batch = replace(written(log, [b"a"]), content=~41)
    log.metadata.commit_batch(query(0), [batch], "one")
    with caplog.at_level(logging.WARNING):
        assert log.metadata.commit_batch(query(0), [batch], "two") == (None, True)
        assert told_by("metadata.stub", caplog) == []
        with pytest.raises(BatchRepeatedError, match=r"Batch 0 of query.*other values in as many rows.*uuid\(\)"):
            log.metadata.commit_batch(query(0), [replace(batch, content=~42)], "three")
        assert log.metadata.commit_batch(query(0), [replace(batch, content=41)], "four") == (None, True)
    [said] = told_by("metadata.stub", caplog)
    assert [text for text in ("Batch 0 of query", "other values", "stays") if text not in said] == [], said
    assert values(log, "orders", UNCOMMITTED) == [b"a"]


# Versions of applications


def test_version_is_taken_once_by_each_topic(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """Write versions of two applications to two topics, repeat them, and go back: each topic keeps its own count."""
    for topic in ("orders", "bills"):
        log.create_topic(topic)
    taken = []
    with caplog.at_level(logging.WARNING):
        for key, (app, version, topic) in enumerate(
            [("a", 5, "orders"), ("a", 5, "orders"), ("a", 5, "bills"), ("b", 3, "orders"), ("a", 6, "orders")]
        ):
            txn, repeated = log.metadata.commit_batch(job(app, version), [written(log, [b"x"], topic)], f"{key}")
            assert (txn is None) == repeated
            taken.append(not repeated)
        assert taken == [True, False, True, True, True]
        assert told_by("metadata.stub", caplog) == [], "a repetition is what versions are for"
    with pytest.raises(BatchRepeatedError, match=r"'orders' has taken version 6 of application 'a'.*version 4 comes"):
        log.metadata.commit_batch(job("a", 4), [written(log, [b"x"])], "back")
    assert [len(values(log, topic)) for topic in ("orders", "bills")] == [3, 1]


def test_topics_that_have_not_taken_a_version_get_it(log: Log) -> None:
    """Write a version to one topic, then the same to two of them: only the other one takes it."""
    for topic in ("orders", "bills"):
        log.create_topic(topic)
    log.metadata.commit_batch(job("a", 0), [written(log, [b"one"])], "one")
    both = [written(log, [b"two"], "bills"), written(log, [b"two"])]
    txn, repeated = log.metadata.commit_batch(job("a", 0), both, "two")
    assert txn is not None
    assert not repeated
    assert (values(log, "orders"), values(log, "bills")) == ([b"one"], [b"two"])


def test_version_that_comes_again_with_other_rows_is_refused(log: Log) -> None:
    """Repeat a version with another number of rows, and with other values in as many."""
    log.create_topic("orders")
    batch = replace(written(log, [b"a"]), content=~1)
    log.metadata.commit_batch(job("a", 7), [batch], "one")
    with pytest.raises(BatchRepeatedError, match=r"Version 7 of application 'a' for topic 'orders'.*1 rows.*with 2"):
        log.metadata.commit_batch(job("a", 7), [written(log, [b"a", b"b"])], "two")
    with pytest.raises(BatchRepeatedError, match=r"Version 7 of application 'a'.*other values in as many rows"):
        log.metadata.commit_batch(job("a", 7), [replace(batch, content=~2)], "three")
    assert values(log, "orders", UNCOMMITTED) == [b"a"]


def test_version_that_failed_was_not_taken(site: Site) -> None:
    """Refuse a version because one of its topics is gone; the other topic takes it later."""
    log = site.connect()
    for topic in ("orders", "bills"):
        log.create_topic(topic)
    batches = [written(log, [b"a"], "bills"), written(log, [b"a"])]
    log.delete_topic("orders")
    with pytest.raises(TopicNotFoundError):
        log.metadata.commit_batch(job("a", 1), batches, "one")
    log.create_topic("orders")
    assert log.metadata.commit_batch(job("a", 1), [written(log, [b"b"], "bills")], "two")[1] is False
    assert values(log, "bills", UNCOMMITTED) == [b"b"]


def test_topic_made_again_takes_a_version_again(log: Log) -> None:
    """Delete and make a topic between two writes of a version, as in Delta a table that is made again has none."""
    log.create_topic("orders")
    log.metadata.commit_batch(job("a", 1), [written(log, [b"a"])], "one")
    log.delete_topic("orders")
    log.create_topic("orders")
    log.metadata.commit_batch(job("a", 1), [written(log, [b"b"])], "two")
    assert values(log, "orders") == [b"b"]


@pytest.mark.parametrize(("app_id", "version"), [("", 1), ("a", -1)])
def test_impossible_version_is_refused(log: Log, app_id: str, version: int) -> None:
    """Ask the service for an application without a name, and a version below 0."""
    log.create_topic("orders")
    with pytest.raises(InvalidArgumentError):
        log.metadata.commit_batch(job(app_id, version), [written(log, [b"a"])], "key")
    assert values(log, "orders", UNCOMMITTED) == []


# The hash of the rows


def test_content_depends_on_values_and_not_on_order_or_division() -> None:
    """Hash a batch, its rows in another order, and its halves; then change each column by a little, and swap two."""
    columns = {
        "n": pa.array([1, None, 3, -(1 << 63)], pa.int64()),
        "f": pa.array([0.5, -0.0, float("nan"), None]),
        "t": pa.array([1, 2, None, 4], pa.timestamp("us", "UTC")),
        "s": pa.array(["a", "", None, "äöü"]),
        "b": pa.array([True, None, False, True]),
        "l": pa.array([[1], None, [], [2, 3]]),
        "d": pa.array([1, 2, 3, None], pa.decimal128(9, 2)),
        "u": pa.array([{"a": 1, "b": "y"}, {"a": 2, "b": "x"}, None, {"a": None, "b": "z"}]),
        "m": pa.array([[("a", 1)], [], None, [("b", 2), ("c", 3)]], pa.map_(pa.string(), pa.int64())),
    }
    batch = pa.record_batch(columns)
    content = content_of(batch)
    assert 0 <= content < 1 << 63
    assert content_of(batch.take(pa.array([2, 0, 3, 1]))) == content
    halves = [content_of(batch.slice(at, 2)) for at in (0, 2)]
    assert sum(halves) & CONTENT_MASK == content
    changed = {
        "n": pa.array([1, None, 4, -(1 << 63)], pa.int64()),
        "f": pa.array([0.25, -0.0, float("nan"), None]),
        "t": pa.array([1, 2, 4, None], pa.timestamp("us", "UTC")).fill_null(0),
        "s": pa.array(["a", None, None, "äöü"]),
        "b": pa.array([True, None, True, True]),
        "l": pa.array([[1], None, [], [3, 2]]),
        "d": pa.array([1, 2, 4, None], pa.decimal128(9, 2)),
        "u": pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, None, {"a": None, "b": "z"}]),
        "m": pa.array([[("a", 1)], [], None, [("c", 2), ("b", 3)]], pa.map_(pa.string(), pa.int64())),
    }
    for name, column in changed.items():
        assert content_of(pa.record_batch(columns | {name: column})) != content, name
    assert content_of(pa.record_batch([*batch.columns[:2][::-1], *batch.columns[2:]], batch.schema.names)) != content


@for_each(
    "kind",
    [
        *(pa.int8(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(4), pa.decimal128(38, 2)),
        *(pa.timestamp("us", "UTC"), pa.null(), pa.list_(pa.string()), pa.list_(pa.int64(), 2)),
        *(pa.map_(pa.string(), pa.int64()), pa.struct([("a", pa.list_(pa.int64())), ("b", pa.string())])),
    ],
)
def test_content_of_nothing_is_none(kind: pa.DataType) -> None:
    """Hash no rows, and nulls only, whole and in parts, of each type."""
    assert content_of(pa.record_batch({"a": pa.array([], kind)})) == 0
    nulls = pa.record_batch({"a": pa.nulls(5, kind)})
    assert (content_of(nulls.slice(0, 2)) + content_of(nulls.slice(2))) & CONTENT_MASK == content_of(nulls)
