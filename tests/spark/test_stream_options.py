"""The options of a streaming query: what they mean, and how a wrong one is refused, in one line.

Most cases ask the source as Spark does, in this process; one query shows that the line arrives at the user.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

import txn_source
from tests.selection import for_each
from tests.spark.plain import Query, logs_closed
from txn_source.client.target import Target
from txn_source.model.batch_shares import DEFAULT_DELAY_S
from txn_source.reading.limits import StreamLimits
from txn_source.spark.connection import open_log
from txn_source.spark.options import StreamReadOptions
from txn_source.spark.reads import stream_options
from txn_source.spark.source import TxnLogDataSource
from txn_source.spark.stream import StreamReader

Open = Callable[..., StreamReader]


@pytest.fixture
def orders(log: txn_source.Log) -> txn_source.Log:
    """A log with topics ``orders`` (two messages) and ``refunds`` (none)."""
    log.create_topic("orders")
    log.create_topic("refunds")
    with log.producer("orders") as producer:
        for value in ("one", "two"):
            producer.send(value)
            producer.flush()
    return log


@pytest.fixture
def opened(root: Path) -> Iterator[Open]:
    """A function that returns the stream reader that Spark gets; an option that is None is left out."""

    def opened(**options: str | None) -> StreamReader:
        given = {"path": str(root), "topic": "orders"} | options
        source = TxnLogDataSource(CaseInsensitiveDict({n: v for n, v in given.items() if v is not None}))
        return source.streamReader(source.schema())

    yield opened
    if root.exists():
        open_log(Target.of(root, None)).close()


WRONG = {
    "endingOffsets": ({"endingOffsets": "latest"}, ("'endingOffsets'", "batch queries only", "no end")),
    "endingTimestamp": ({"endingTimestamp": "0"}, ("'endingTimestamp'", "batch queries only")),
    "transactionalId": ({"transactionalId": "x"}, ("'transactionalId'", "writing only")),
    "an empty subscription": ({"subscription": ""}, ("'subscription' is empty",)),
    "a subscription of several topics": (
        {"topic": None, "topics": "orders,refunds", "subscription": "s"},
        ("'s' belongs to one whole topic", "Name its topic alone"),
    ),
    "a subscription of a pattern": ({"topic": None, "topicsPattern": "o.*", "subscription": "s"}, ("one whole topic",)),
    "a subscription of a partition": (
        {"topic": "orders-partition-0", "subscription": "s"},
        ("one whole topic", "one partition, 'orders-partition-0'"),
    ),
    "a limit of 0": ({"maxMessagesPerTrigger": "0"}, ("'maxMessagesPerTrigger'", "'0'", "above 0")),
    "a limit below 0": ({"maxMessagesPerTrigger": "-1"}, ("'maxMessagesPerTrigger'", "'-1'", "above 0")),
    "a limit in words": ({"maxMessagesPerTrigger": "all"}, ("'maxMessagesPerTrigger'", "'all'")),
    "a limit with a fraction": ({"maxMessagesPerTrigger": "1.5"}, ("'maxMessagesPerTrigger'", "'1.5'")),
    "bytes of 0": ({"maxBytesPerTrigger": "0"}, ("'maxBytesPerTrigger'", "'0'", "128m")),
    "bytes in words": ({"maxBytesPerTrigger": "much"}, ("'maxBytesPerTrigger'", "'much'", "128m")),
    "a minimum of 0": ({"minMessagesPerTrigger": "0"}, ("'minMessagesPerTrigger'", "'0'", "above 0")),
    "a minimum above the limit": (
        {"minMessagesPerTrigger": "9", "maxMessagesPerTrigger": "8"},
        ("'minMessagesPerTrigger' is 9", "'maxMessagesPerTrigger' 8", "at most"),
    ),
    "a delay alone": ({"maxTriggerDelay": "1m"}, ("'maxTriggerDelay'", "'minMessagesPerTrigger'")),
    "a delay of 0": ({"maxTriggerDelay": "0s", "minMessagesPerTrigger": "5"}, ("'maxTriggerDelay'", "'0s'", "15m")),
    "a delay without unit": ({"maxTriggerDelay": "10", "minMessagesPerTrigger": "5"}, ("'maxTriggerDelay'", "'10'")),
    "a negative delay": ({"maxTriggerDelay": "-1s", "minMessagesPerTrigger": "5"}, ("'maxTriggerDelay'", "'-1s'")),
    "offsets of another topic": (
        {"startingOffsets": '{"refunds": {"0": "1:0"}}'},
        ("refunds-partition-0", "orders-partition-0"),
    ),
    "a near name": ({"maxMessagePerTrigger": "5"}, ("'maxMessagePerTrigger'", "'maxMessagesPerTrigger'")),
    "another near name": ({"maxTriggersDelay": "5s"}, ("'maxTriggersDelay'", "'maxTriggerDelay'")),
}
"""What differs from ``topic=orders`` over the path (None: left out), and what the refusal must say.

What batch queries have, too, is parsed by the same code; ``test_options.py`` and ``test_offsets.py`` have it wrong.
"""


def start(reader: StreamReader) -> None:
    """Do what Spark does first."""
    reader.getDefaultReadLimit()
    reader.initialOffset()


@for_each("case", WRONG)
def test_wrong_option_is_refused(orders, opened: Open, case) -> None:
    """Open a stream with one option wrong, and begin: the error names it, the value or the remedy, in one line."""
    options, said = WRONG[case]
    with pytest.raises(txn_source.InvalidArgumentError) as refused:
        start(opened(**options))
    told = str(refused.value)
    assert "\n" not in told
    assert [text for text in said if text.lower() not in told.lower()] == [], told


def test_latest_and_earliest_are_both_starts_of_a_stream(orders, opened: Open) -> None:
    """Begin at either end, though a batch read can't begin at the latest; without the option it is the latest."""
    ends = [opened(startingOffsets=at).initialOffset()["positions"] for at in ("earliest", "LATEST", None)]
    assert ends == [{"orders": {"0": at}} for at in ("1:0", "1:2", "1:2")]


@for_each(
    ("options", "expected"),
    [
        ({}, StreamLimits()),
        ({"maxMessagesPerTrigger": " 5 "}, StreamLimits(max_messages=5)),
        ({"MAXBYTESPERTRIGGER": "2k"}, StreamLimits(max_bytes=2048)),
        ({"minMessagesPerTrigger": "5"}, StreamLimits(min_messages=5, max_delay_s=DEFAULT_DELAY_S)),
        (
            {"minMessagesPerTrigger": "5", "maxMessagesPerTrigger": "5", "maxTriggerDelay": "1.5h"},
            StreamLimits(max_messages=5, min_messages=5, max_delay_s=5400),
        ),
        ({"minMessagesPerTrigger": "5", "maxTriggerDelay": "250ms"}, StreamLimits(min_messages=5, max_delay_s=0.25)),
        ({"minMessagesPerTrigger": "5", "maxTriggerDelay": "2 min"}, StreamLimits(min_messages=5, max_delay_s=120)),
    ],
)
def test_limits_mean_what_they_say(options: dict[str, str], expected: StreamLimits) -> None:
    """Parse limits with units, in any case of letters, and defaults."""
    assert StreamReadOptions.parse({"path": "/log", "topic": "orders", **options}).limits == expected


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxMessagesPerTrigger": "5", "minMessagesPerTrigger": "2"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "5"}, ReadMaxBytes(5)),
        ({"minMessagesPerTrigger": "5"}, ReadMinRows(5)),
    ],
    ids=str,
)
def test_spark_is_told_of_a_limit(orders, opened: Open, options, limit: ReadLimit) -> None:
    """Ask for the limit as Spark does, and where a batch ends with it; the limit of one that takes all is put aside."""
    reader = opened(startingOffsets="earliest", **options)
    assert reader.getDefaultReadLimit() == limit
    begin = reader.initialOffset()
    assert reader.latestOffset(begin, ReadAllAvailable())["positions"] == {"orders": {"0": "1:2"}}


def test_nothing_new_is_the_same_offset(orders, opened: Open) -> None:
    """Ask again at the end: the very text of the offset comes back, so that Spark makes no batch."""
    reader = opened()
    begin = reader.initialOffset()
    assert reader.initialOffset() is begin
    end = json.loads(json.dumps(begin))
    orders.begin_transaction().commit()
    assert reader.latestOffset(end, ReadAllAvailable()) is end
    assert reader.partitions(begin, end) == []


@pytest.mark.parametrize("offset", [{"sourceVersion": 1}, {"orders": {"0": 17}}], ids=str)
def test_checkpoint_of_another_source_is_refused(orders, opened: Open, offset) -> None:
    """Go on from an offset of Kafka's or of a file source: each call says whose checkpoint it is."""
    reader = opened()
    for ask in (lambda: reader.latestOffset(offset, ReadAllAvailable()), lambda: reader.partitions(offset, offset)):
        with pytest.raises(txn_source.InvalidArgumentError, match="The checkpoint belongs to another query"):
            ask()


def test_checkpoint_of_another_topic_is_refused(orders, query: Query) -> None:
    """Run a query from the checkpoint of one over another topic."""
    query.run(topic="orders")
    with pytest.raises(txn_source.DataLossError, match=r"orders-partition-0.*the checkpoint is another query's"):
        query.run(topic="refunds")


def test_tasks_understand_options_as_the_driver_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan a batch by a relative path; read its pickled tasks in another folder, as executors do."""
    monkeypatch.chdir(tmp_path)
    with txn_source.connect("log") as log, logs_closed():
        log.create_topic("orders")
        with log.producer("orders") as producer:
            producer.send(b"here")
        source = TxnLogDataSource({"path": "log", "topic": "orders", "startingOffsets": "earliest"})
        reader = source.streamReader(source.schema())
        start = reader.initialOffset()
        tasks = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        pickled = pickle.dumps((reader, tasks))
        monkeypatch.chdir("/")
        executor, [task] = pickle.loads(pickled)
        assert [batch.column("value").to_pylist() for batch in executor.read(task)] == [[b"here"]]


def test_credentials_are_those_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Understand options where environment and folder say more than where tasks run: these get what was meant."""
    monkeypatch.setenv("TXNLOG_TLS_CA", "ca.crt")
    monkeypatch.chdir(tmp_path)
    target = stream_options({"endpoint": "h:1", "topic": "orders", "tokenFile": "token"}).target
    assert isinstance(target, Target)
    pickled = pickle.dumps(target)
    monkeypatch.delenv("TXNLOG_TLS_CA")
    monkeypatch.chdir("/")
    shown = pickle.loads(pickled).credentials
    assert (shown.tls_ca, shown.token_file) == (str(tmp_path / "ca.crt"), str(tmp_path / "token"))
