"""All scans of a query end at one cut: however it is written, it sees a transfer on both sides or on neither."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import txn_source
from tests.spark.catalog.transfers import SCHEMA, Transfers

Bank = Any


@pytest.fixture
def transfers(bank: Bank) -> Iterator[list[str]]:
    """Three topics that are written to while a query is planned. Each test has its own: they grow."""
    topics = [bank.topic(SCHEMA, partitions) for partitions in (2, 3, 1)]
    with Transfers(bank.root, topics, most=300):  # one that goes on takes the query's time
        yield topics


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM {a} a FULL JOIN {b} b USING (id, n) WHERE a.id IS NULL OR b.id IS NULL",
        pytest.param(
            "SELECT 2 * count(*) - (SELECT count(*) FROM {b} WHERE n >= 0) - (SELECT count(*) FROM {c}) FROM {a}",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_query_sees_no_half_of_a_transaction(bank: Bank, transfers: list[str], query: str) -> None:
    names = {name: f"{{{topic}}}" for name, topic in zip("abc", transfers, strict=True)}
    assert bank.rows(query.format_map(names)) == [(0,)]


@pytest.mark.long
def test_frames_that_were_made_apart_and_explained_before_are_joined_at_one_cut(
    bank: Bank, transfers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = bank.table(transfers[0]), bank.table(transfers[1])
    a.explain()
    assert a.count() <= b.count()
    lonely = a.join(b, ["id", "n"], "full").filter(a.n.isNull() | b.n.isNull())
    lonely.explain()
    assert "BatchScan" in capsys.readouterr().out
    assert lonely.collect() == []
    assert lonely.count() == 0


@pytest.mark.long
def test_an_insert_takes_its_rows_at_one_cut(bank: Bank, transfers: list[str]) -> None:
    target = bank.topic(SCHEMA)
    names = dict(zip("abt", [f"{{{t}}}" for t in (*transfers[:2], target)], strict=True))
    bank.sql("INSERT INTO {t} SELECT id, 1 FROM {a} UNION ALL SELECT id, -1 FROM {b}".format_map(names))
    assert bank.rows("SELECT sum(n), count(*) > 0 FROM {t}".format_map(names)) == [(0, True)]


def test_a_frame_that_is_run_again_reads_the_same_and_a_new_one_reads_what_is_new(bank: Bank) -> None:
    topic = bank.topic(SCHEMA)
    bank.send(topic, pa.table({"id": [1], "n": [1]}))
    frame = bank.table(topic).where("n > 0")
    bank.send(topic, pa.table({"id": [2], "n": [1]}))
    assert len(frame.collect()) == 2
    bank.send(topic, pa.table({"id": [3], "n": [1]}))
    assert len(frame.collect()) == 2
    assert frame.count() == 3


def test_a_plan_that_is_only_shown_fixes_nothing(bank: Bank) -> None:
    topic = bank.topic(SCHEMA)
    counted, listed = bank.table(topic).groupBy().count(), bank.table(topic)
    counted.explain()
    listed.explain()
    bank.send(topic, pa.table({"id": [1], "n": [1]}))
    assert counted.collect()[0][0] == 1
    assert len(listed.collect()) == 1


@pytest.mark.long
def test_tables_of_another_log_have_a_cut_of_their_own(bank: Bank, tmp_path_factory: pytest.TempPathFactory) -> None:
    topic, root = bank.topic(SCHEMA), tmp_path_factory.mktemp("other") / "log"
    bank.send(topic, pa.table({"id": [1], "n": [1]}))
    with txn_source.connect(root) as other:
        other.create_topic("elsewhere", 1, SCHEMA)
        with other.producer("elsewhere") as producer:
            producer.send_batch(pa.table({"id": [1], "n": [5]}, schema=SCHEMA))
        bank.spark.conf.set("spark.sql.catalog.elsewhere", "io.txnlog.spark.TxnLogCatalog")
        bank.spark.conf.set("spark.sql.catalog.elsewhere.path", str(root))
        assert bank.rows(f"SELECT a.n + b.n FROM {{{topic}}} a JOIN elsewhere.public.elsewhere b USING (id)") == [(6,)]


def test_a_time_is_the_same_moment_of_all_topics(bank: Bank, transfers: list[str]) -> None:
    when = bank.spark.sql("SELECT CAST(current_timestamp() AS STRING)").collect()[0][0]  # in the zone of the session
    names = {name: f"{{{topic}}} TIMESTAMP AS OF '{when}'" for name, topic in zip("ab", transfers, strict=False)}
    first = bank.rows("SELECT count(*) FROM {a}".format_map(names))
    assert bank.rows("SELECT count(*) FROM {b}".format_map(names)) == first


def test_what_was_trimmed_after_the_cut_is_told(bank: Bank) -> None:
    """Plan one table of a query, which makes its cut, and trim the other one before it is planned."""
    topics = [bank.topic(SCHEMA), bank.topic(SCHEMA)]
    for topic in topics:
        bank.send(topic, pa.table({"id": [1, 2], "n": [0, 0]}))

    def planned(options: str) -> Any:
        tables = [f"SELECT id FROM {{{topic}}} WITH (minPartitions = 1{options})" for topic in topics]
        frame = bank.sql(" UNION ALL ".join(tables))
        leaves = frame._jdf.queryExecution().sparkPlan().collectLeaves()
        leaves.apply(0).inputPartitions()
        return frame

    strict, lossy = planned(""), planned(", failOnDataLoss = false")
    bank.log.roll_ledger(topics[1])
    bank.log.trim(topics[1], keep_bytes=0)
    with pytest.raises(PySparkException, match=r"\[TXNLOG_DATA_LOSS\] .* was trimmed after the query's cut was made\."):
        strict.collect()
    assert [row.id for row in lossy.collect()] == [1, 2]
    assert [row.id for row in planned("").collect()] == [1, 2]
