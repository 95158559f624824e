"""Streams over a Kafka topic that grows, rolls, moves and is compacted under them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.foreign.kafka.live_log import PLAIN, LiveLog
from tests.foreign.kafka.samples import expected, partitions, unpack
from tests.reading.kinds import KafkaHistory
from tests.reading.sources import History, Query, Row, Written
from tests.selection import mostly_long
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.reading.options import STREAM, ForeignOptions
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position
from txn_source.reading.limits import StreamLimits, by_offsets
from txn_source.reading.request import Selection

_ASKED = ("isolation_level", "start", "consistent_cut")


class LiveTopic(History):
    """The topic of a ``LiveLog`` for a query; the number of a message is that of its transaction."""

    columns = KafkaHistory.columns

    def __init__(self, log: LiveLog) -> None:
        self.log, self.target = log, ForeignTarget.parse(log.path)

    @property
    def names(self) -> list[PartitionName]:  # type: ignore[override]
        """The partitions that are there now."""
        return [PartitionName("t", index) for index in range(len(self.log.parts))]

    def left(self, rows: Iterable[Row]) -> list[Row]:
        """Return those that compaction didn't take."""
        return [row for row in rows if row.position.key not in self.log.parts[row.place].removed]


def query_of(log: LiveLog, level: IsolationLevel = IsolationLevel.READ_COMMITTED, **limits: int) -> Query:
    """Return a query from the earliest offset on."""
    return Query(LiveTopic(log), StreamLimits(**limits), Selection(("t",)), isolation_level=level)


def offsets(rows: Iterable[Row], index: int = 0) -> list[int]:
    """Return the offsets of rows of a partition."""
    return [row.position.key for row in rows if row.place == index]


def check_batch(log: LiveLog, query: Query, rows: list[Row], level: IsolationLevel) -> None:
    """Compare a batch with what lies between its offsets; what compaction took may be missing."""
    before, end = query.at(-2).positions, query.at(-1)
    for index, part in enumerate(log.parts):
        name, found = PartitionName("t", index), offsets(rows, index)
        if name not in end.positions:
            assert found == []
            continue
        start, until = before[name] if name in before else end.begins[name], end.positions[name].key
        assert until <= (part.stable() if level is IsolationLevel.READ_COMMITTED else part.mark)
        wanted = part.visible(level, start.key, until)
        assert found == [offset for offset in wanted if offset not in part.removed or offset in found]


def run(seed: int, root: Path) -> None:
    log = LiveLog(root, seed)
    rng, topic = log.rng, LiveTopic(log)
    limits = rng.choice([{}, {"max_messages": 5}, {"max_offsets": 7}, {"max_bytes": 300}])
    level = rng.choice(list(IsolationLevel))
    query = query_of(log, level, **limits)

    def read_some(most: int) -> None:
        for _ in range(most):
            rows = query.next()
            if rows is None:
                return
            check_batch(log, query, rows, level)
            assert query.read(len(query.batches) - 1) == rows

    for _ in range(60):
        log.step()
        match rng.randrange(8):
            case 0 | 1:
                read_some(2)
            case 2:
                query.open()
            case 3 if len(log.parts) < 4 and rng.random() < 0.1:
                log.add_partition()
            case 4 if query.batches:  # a batch that is replayed later shows the same, but for what compaction took
                index = rng.randrange(len(query.batches))
                assert topic.left(query.read(index)) == topic.left(query.batches[index])
    log.finish()
    query.open()
    read_some(1000)
    rows = [row for batch in query.batches for row in batch]
    for index, part in enumerate(log.parts):
        found, wanted = offsets(rows, index), part.visible(level, 0, part.writer.end)
        assert [at for at in wanted if at not in part.removed] == offsets(topic.left(rows), index)
        assert len(set(found)) == len(found)
        assert set(found) <= set(wanted)
    if level is IsolationLevel.READ_COMMITTED:
        seen = [{row.number for row in batch} - {PLAIN} for batch in query.batches]
        assert sum(map(len, seen)) == len(set().union(*seen)), "a transaction lies in two batches"


@pytest.mark.parametrize("seed", mostly_long([0, 1], 0))
def test_stream_reads_each_row_once(seed: int, tmp_path: Path) -> None:
    """Follow a random history in batches, with restarts and replays, while segments roll, move and are compacted."""
    run(seed, tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger.*not a number above 0"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "'minOffsetsPerTrigger' is 9"),
        ({"maxTriggerDelay": "5m"}, "means nothing"),
        ({"minMessagesPerTrigger": "3", "maxTriggerDelay": "soon"}, "maxTriggerDelay.*not a duration"),
        ({"endingOffsets": "latest"}, "batch queries only"),
    ],
)
def test_limits_that_cant_be_are_refused(tmp_path: Path, options: dict[str, str], said: str) -> None:
    """Say limits that contradict each other, or are none."""
    log = LiveLog(tmp_path, 1, partitions=1)
    with pytest.raises(InvalidArgumentError, match=said):
        ForeignOptions.parse({"path": log.path, "topic": "t", **options}, STREAM)


def test_shares_follow_what_partitions_have() -> None:
    """Divide a limit by offsets: none that has something gets nothing, none more than it has."""

    def ends(tops: list[int], most: int) -> list[int]:
        positions = [Position.from_key(top) for top in tops]
        return [end.key for end in by_offsets([Position.from_key(0)] * len(tops), positions, most)]

    assert ends([100, 50, 0], 30) == [20, 10, 0]
    assert ends([1000, 1], 10) == [9, 1]
    assert ends([5, 5], 10) == [5, 5]


@pytest.mark.parametrize("level", list(IsolationLevel))
@pytest.mark.parametrize("case", mostly_long(["txn", "compact", "delete-records", "tiered"], "txn", "delete-records"))
def test_batches_together_are_what_the_consumer_returned(case: str, level: IsolationLevel, tmp_path: Path) -> None:
    """Read what real brokers wrote in small batches."""
    folder = unpack(case, tmp_path)
    path = ",".join(str(of) for of in (folder / "log", folder / "remote") if of.is_dir())
    for topic in sorted({name.topic for name in partitions(folder)}):
        options = {"path": f"kafka:{path}", "topic": topic, "startingOffsets": "earliest", "consistentCut": "false"}
        given = ForeignOptions.parse({**options, "isolationLevel": level.value, "maxMessagesPerTrigger": "37"}, STREAM)
        found: dict[int, list[int]] = {}
        written = Written(given.target, "partition", "offset")
        query = Query(written, given.limits, given.selection, **{n: getattr(given.request, n) for n in _ASKED})
        while (rows := query.next()) is not None:
            assert len(rows) <= 37 + len(query.at(-1).positions)
            for partition, offset in rows:
                found.setdefault(partition, []).append(offset)
        for name in partitions(folder):
            if name.topic == topic:
                assert found.get(name.partition, []) == [row[0] for row in expected(folder, name, level.value)]
