"""The options of Kafka's own connector, as a job brings them along that changes only its format and path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.partition_writer import PartitionWriter
from tests.selection import for_each
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.reading.options import BATCH, STREAM, ForeignOptions
from txn_source.foreign.source import ForeignSource
from txn_source.model.errors import InvalidArgumentError, OutOfRangeError, TopicNotFoundError
from txn_source.model.isolation import IsolationLevel
from txn_source.reading.plan import plan

T0 = 1_750_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Two partitions of ``t`` with a record a second, 10 and 20 of them, and one of ``u``."""
    marks = {}
    for topic, partition, count in (("t", 0, 10), ("t", 1, 20), ("u", 0, 5)):
        writer = PartitionWriter(tmp_path / "log", topic, partition, segment_bytes=400)
        for index in range(count):
            writer.send([Record(b"k", b"v", T0 + 1000 * index)])
        writer.close()
        marks[topic, partition] = count
    lines = "".join(f"{topic} {partition} {mark}\n" for (topic, partition), mark in marks.items())
    (tmp_path / "log" / "replication-offset-checkpoint").write_text(f"0\n{len(marks)}\n{lines}")
    return f"kafka:{tmp_path / 'log'}"


def ranges(log: str, **options: str) -> dict[str, tuple[int, int]]:
    """Return what a batch read with some options reads, by partition; of the rest, nothing."""
    given = ForeignOptions.parse({"path": log, **options}, BATCH)
    source = ForeignSource(given.target)
    planned = plan(source, source.look(given.selection), given.request)
    return {str(name): (of.start.key, of.end.key) for name, of in planned.ranges if not of.empty}


ALL = {"t-0": (0, 10), "t-1": (0, 20)}


@for_each(
    ("options", "found"),
    [
        ({"subscribe": "t"}, ALL),
        ({"topic": "t", "kafka.bootstrap.servers": "nobody:9092", "kafka.ssl.x": "y", "groupIdPrefix": "g"}, ALL),
        ({"subscribe": "t, u", "maxOffsetsPerTrigger": "3"}, {**ALL, "u-0": (0, 5)}),
        ({"subscribePattern": "[tu]"}, {**ALL, "u-0": (0, 5)}),
        ({"assign": '{"t": [1], "u": [0]}'}, {"t-1": (0, 20), "u-0": (0, 5)}),
        (
            {"subscribe": "t", "startingOffsets": '{"t": {"0": -2, "1": 7}}', "endingOffsets": '{"t":{"0":4,"1":-1}}'},
            {"t-0": (0, 4), "t-1": (7, 20)},
        ),
        ({"topic": "t", "startingOffsets": '{"t": {"1": 7}}'}, {"t-0": (0, 10), "t-1": (7, 20)}),
        (
            {"topic": "t", "startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 3, "1": 9}}'},
            {"t-1": (0, 9)},
        ),
        ({"topic": "t", "startingTimestamp": str(T0 + 3000)}, {"t-0": (3, 10), "t-1": (3, 20)}),
        (
            {"topic": "t", "startingTimestamp": str(T0 + 15000), "startingOffsetsByTimestampStrategy": "latest"},
            {"t-1": (15, 20)},
        ),
        (
            {
                "subscribe": "t",
                "startingOffsetsByTimestamp": json.dumps({"t": {"0": T0 + 9000, "1": T0 - 5}}),
                "startingOffsets": "latest",
                "endingTimestamp": str(T0 + 12001),
            },
            {"t-0": (9, 10), "t-1": (0, 13)},
        ),
        (
            {"subscribe": "t", "endingOffsetsByTimestamp": json.dumps({"t": {"0": T0, "1": T0 + 1}})},
            {"t-1": (0, 1)},
        ),
    ],
)
def test_ranges_that_options_mean(log: str, options: dict[str, str], found: dict[str, tuple[int, int]]) -> None:
    """Plan batch reads with offsets and times, of all partitions and of each."""
    assert ranges(log, **options) == found


@for_each(
    ("options", "said"),
    [
        ({"subscribe": "t", "topic": "t"}, "by 'topic' and by 'subscribe'"),
        ({"assign": "[1]"}, "assign.*no JSON object"),
        ({"assign": '{"t": 1}'}, "partitions of topic 't'"),
        ({"assign": "{}"}, "No partition is named"),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": 1}}'}, "don't name t-1"),
        ({"subscribe": "t", "startingOffsets": '{"t": {"0": 1, "1": -3}}'}, "startingOffsets.*-3"),
        ({"subscribe": "t", "endingOffsets": '{"t": {"0": 1, "1": -2}}'}, "can't end at earliest"),
        ({"subscribe": "t", "startingOffsetsByTimestamp": '{"t": {"0": 1}}'}, "don't name t-1"),
        ({"subscribe": "t", "startingOffsetsByTimestamp": '{"t": {"0": "x"}}'}, "startingOffsetsByTimestamp.*'x'"),
        ({"topic": "t", "startingTimestamp": str(T0 + 15000)}, "No record of t-0 has the time"),
        ({"topic": "t", "startingOffsetsByTimestampStrategy": "never"}, "unknown"),
        ({"topic": "t", "kafka.isolation.level": "read_committed", "isolationLevel": "read_uncommitted"}, "Give one"),
        ({"topic": "t", "startingOffsets": "latest"}, "can't be 'latest'"),
        ({"topic": "t", "trustTransactionIndexes": "x"}, "neither true nor false"),
    ],
)
def test_options_that_cant_be_are_refused(log: str, options: dict[str, str], said: str) -> None:
    """Contradictions, and what is no offset, time or partition; the option is named."""
    with pytest.raises(InvalidArgumentError, match=said):
        ranges(log, **options)


def test_what_isnt_there_is_refused(log: str) -> None:
    """A partition that isn't there, and an offset behind the log's end."""
    with pytest.raises(TopicNotFoundError, match="t-7"):
        ranges(log, assign='{"t": [7]}')
    with pytest.raises(OutOfRangeError, match=r"Offset 11 lies outside t-0"):
        ranges(log, topic="t", startingOffsets='{"t": {"0": 11}}')


def test_level_of_the_connector_counts(log: str) -> None:
    """``kafka.isolation.level`` is ``isolationLevel``; without it the level is read_committed."""
    for name in ("kafka.isolation.level", "isolationLevel"):
        options = {"path": log, "topic": "t", name: "read_uncommitted"}
        assert ForeignOptions.parse(options, STREAM).request.isolation_level is IsolationLevel.READ_UNCOMMITTED
    plain = ForeignOptions.parse({"path": log, "assign": '{"t": [0]}'}, STREAM)
    assert plain.request.isolation_level is IsolationLevel.READ_COMMITTED
    assert plain.selection.partitions == (PartitionName("t", 0),)
