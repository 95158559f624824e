"""Streams over a Kafka topic that grows, rolls, moves, is trimmed and compacted under them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.live_log import CLUSTER, PLAIN, LiveLog
from tests.foreign.kafka.samples import expected, partitions, unpack
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.reading.options import STREAM, ForeignOptions
from txn_source.foreign.reading.reader import PieceReader
from txn_source.foreign.source import ForeignSource
from txn_source.model.errors import DataLossError, InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position
from txn_source.reading.limits import by_offsets
from txn_source.reading.stream import Stream
from txn_source.reading.stream_offset import StreamOffset

COLUMNS = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("__txn_status", pa.string())])
Rows = dict[int, list[tuple[int, str | None]]]


def stream_of(given: ForeignOptions, clock: Callable[[], float] = lambda: 0.0) -> Stream[Any]:
    """Return a new stream of what options name."""
    return Stream(ForeignSource(given.target), given.selection, given.request, given.limits, clock=clock)


class Query:
    """A query with a checkpoint, which is planned by a new stream each time it is opened."""

    def __init__(self, log: LiveLog, **options: str) -> None:
        self.log = log
        self.options = {"path": log.path, "topic": "t", "startingOffsets": "earliest", **options}
        self.offsets: list[dict[str, object]] = []
        self.open()

    def open(self) -> None:
        given = ForeignOptions.parse(self.options, STREAM)
        self.stream, self.texts = stream_of(given), ForeignSource(given.target).describe().offsets
        self.target = given.target
        if not self.offsets:
            self.offsets.append(self.texts.to_json(self.stream.initial()))

    def at(self, index: int) -> StreamOffset:
        return self.texts.from_json(json.loads(json.dumps(self.offsets[index])))

    def next(self) -> Rows | None:
        """Read the next batch; None if there is none."""
        start = self.at(-1)
        end = self.stream.latest(start)
        if end is start:
            return None
        self.offsets.append(self.texts.to_json(end))
        return self.read(len(self.offsets) - 2)

    def read(self, index: int) -> Rows:
        planned = self.stream.plan(self.at(index), self.at(index + 1))
        reader = PieceReader(self.target, COLUMNS, planned.request)
        rows: Rows = {}
        for task in planned.tasks:
            for batch in reader.read(task):
                for row in batch.to_pylist():
                    rows.setdefault(row["partition"], []).append((row["offset"], row["__txn_status"]))
        return rows


def check_batch(log: LiveLog, query: Query, rows: Rows, level: IsolationLevel) -> None:
    """Compare a batch with what lies between its offsets; what compaction took may be missing."""
    before, after = query.at(-2).positions, query.at(-1).positions
    for index, part in enumerate(log.parts):
        name = PartitionName("t", index)
        if name not in after:
            assert index not in rows
            continue
        start = before[name].key if name in before else query.at(-1).begins[name].key
        assert after[name].key <= (part.stable() if level is IsolationLevel.READ_COMMITTED else part.mark)
        wanted = part.visible(level, start, after[name].key)
        found = [offset for offset, _ in rows.get(index, [])]
        assert found == [offset for offset in wanted if offset not in part.removed or offset in set(found)]


def whole_transactions(log: LiveLog, batches: list[Rows]) -> None:
    """Each committed transaction lies in one batch."""
    seen: dict[int, set[int]] = {}
    for number, rows in enumerate(batches):
        for index, part in enumerate(log.parts):
            txns = dict(part.rows)
            for offset, _ in rows.get(index, []):
                seen.setdefault(txns[offset], set()).add(number)
    assert all(len(numbers) == 1 for txn, numbers in seen.items() if txn != PLAIN), seen


def run(seed: int, root: Path) -> None:
    log = LiveLog(root, seed)
    rng = log.rng
    limits = rng.choice(
        [{}, {"maxMessagesPerTrigger": "5"}, {"maxOffsetsPerTrigger": "7"}, {"maxBytesPerTrigger": "300"}]
    )
    level = rng.choice(list(IsolationLevel))
    query = Query(log, isolationLevel=level.value, **limits)
    batches: list[Rows] = []

    def read_some(most: int) -> None:
        for _ in range(most):
            rows = query.next()
            if rows is None:
                return
            check_batch(log, query, rows, level)
            batches.append(rows)
            assert query.read(len(query.offsets) - 2) == rows

    for _ in range(60):
        log.step()
        match rng.randrange(8):
            case 0 | 1:
                read_some(2)
            case 2:
                query.open()
            case 3 if len(log.parts) < 4 and rng.random() < 0.1:
                log.add_partition()
            case 4 if batches:  # a batch that is replayed later shows the same, but for what compaction took
                index = rng.randrange(len(batches))
                gone = {(i, at) for i, part in enumerate(log.parts) for at in part.removed}
                for i, found in batches[index].items():
                    again = query.read(index).get(i, [])
                    assert [row for row in found if (i, row[0]) not in gone] == [
                        row for row in again if (i, row[0]) not in gone
                    ]
    log.finish()
    query.open()
    read_some(1000)
    for index, part in enumerate(log.parts):
        found = [offset for rows in batches for offset, _ in rows.get(index, [])]
        wanted = part.visible(level, 0, part.writer.end)
        assert [at for at in wanted if at not in part.removed] == [at for at in found if at not in part.removed]
        assert len(set(found)) == len(found)
        assert set(found) <= set(wanted)
    if level is IsolationLevel.READ_COMMITTED:
        whole_transactions(log, batches)


@pytest.mark.parametrize("seed", [0, 1])
def test_stream_reads_each_row_once(seed: int, tmp_path: Path) -> None:
    """Follow a random history in batches, with restarts and replays, while segments roll, move and are compacted."""
    run(seed, tmp_path)


def grown(root: Path, records: int = 30, **options: str) -> tuple[LiveLog, Query]:
    """Return a topic with one partition of plain records, all readable, and a query that has read the first ten."""
    log = LiveLog(root, 1, partitions=1, segment_bytes=400)
    query = Query(log, **options)
    write(log, 10)
    assert query.next() is not None
    write(log, records - 10)
    return log, query


def write(log: LiveLog, records: int) -> None:
    part = log.parts[0]
    for _ in range(records):
        part.rows.append((part.writer.send([Record(b"k", b"v")], 100), PLAIN))
    log.finish()


def read_all(query: Query) -> list[int]:
    found = []
    while (rows := query.next()) is not None:
        found += [offset for offset, _ in rows.get(0, [])]
    return found


def test_retention_that_is_faster_is_data_loss(tmp_path: Path) -> None:
    """Trim what wasn't read: it is told, or left out with a warning; and a planned batch can't be replayed whole."""
    log, query = grown(tmp_path)
    log.trim(log.parts[0], 20)
    start = log.parts[0].start
    with pytest.raises(DataLossError, match=rf"t-0 begins at {start}: \[10, {start}\) is gone"):
        query.next()
    with pytest.raises(DataLossError, match=r"of a batch that was planned is gone"):
        query.read(0)
    query.options["failOnDataLoss"] = "false"
    query.open()
    assert query.read(0) == {}
    assert read_all(query) == list(range(start, 30))


def test_topic_that_was_made_again_is_refused(tmp_path: Path) -> None:
    """Delete the topic and make it again: its id tells, even though the new one has more offsets."""
    log, query = grown(tmp_path)
    (log.parts[0].writer.folder / "partition.metadata").write_text("version: 0\ntopic_id: " + "B" * 22)
    with pytest.raises(DataLossError, match=f"t-0 was deleted and made again: its topic's id is {'B' * 22} now"):
        query.next()
    query.options["failOnDataLoss"] = "false"
    query.open()
    assert read_all(query) == list(range(30))


def test_topic_that_is_gone_is_data_loss(tmp_path: Path) -> None:
    """Delete the only topic; then there is another one."""
    log, query = grown(tmp_path)
    log.parts[0].writer.folder.rename(log.root / "u-0")
    with pytest.raises(DataLossError, match=r"read up to \{\"t\": \{\"0\": 10\}\} is gone.*no topic 't'"):
        query.next()
    (log.root / "u-0").rename(tmp_path / "elsewhere")
    with pytest.raises(DataLossError, match="is gone"):
        query.next()


def test_another_cluster_is_refused(tmp_path: Path) -> None:
    """Put the folders of another cluster in place of those that the checkpoint is of."""
    log, query = grown(tmp_path)
    (log.root / "meta.properties").write_text("version=1\ncluster.id=another\n")
    for fail in ("true", "false"):
        query.options["failOnDataLoss"] = fail
        query.open()
        with pytest.raises(InvalidArgumentError, match=f"log with id {CLUSTER}.*id another"):
            query.next()
        with pytest.raises(InvalidArgumentError, match="id another"):
            query.read(0)


def test_log_that_is_shorter_than_what_was_read_is_data_loss(tmp_path: Path) -> None:
    """Restore an older state of the folder: the checkpoint is ahead of it, and goes on when it is reached again."""
    log, query = grown(tmp_path)
    assert len(read_all(query)) == 20
    bases = log.parts[0].writer.bases
    files = {path: path.read_bytes() for path in log.parts[0].writer.folder.glob(f"{bases[-1]:020}.*")}
    for path in files:
        path.unlink()
    with pytest.raises(DataLossError, match=rf"t-0 ends at {bases[-1]}, and was read up to 30"):
        query.next()
    query.options["failOnDataLoss"] = "false"
    query.open()
    assert query.next() is None
    log.publish()
    write(log, 3)
    assert read_all(query) == [30, 31, 32]


def test_another_level_needs_a_new_checkpoint(tmp_path: Path) -> None:
    """Start a query again at another isolation level."""
    _, query = grown(tmp_path)
    query.options["isolationLevel"] = "read_uncommitted"
    query.open()
    with pytest.raises(InvalidArgumentError, match="at read_committed, and this one is at read_uncommitted"):
        query.next()
    assert [offset for offset, _ in query.read(0)[0]] == list(range(10))


def test_checkpoint_of_kafkas_connector_is_taken(tmp_path: Path) -> None:
    """Go on from the offsets that the connector left."""
    _, query = grown(tmp_path)
    query.offsets.append({"t": {"0": 17}})
    assert read_all(query) == list(range(17, 30))


@pytest.mark.parametrize("value", [None, [], {"t": 3}, {"t": {"0": -1}}, {"t": {"0": "x"}}, {"t": {"0": 1}, "$log": 2}])
def test_what_is_no_offset_is_refused(tmp_path: Path, value: object) -> None:
    """Read a checkpoint that is another query's."""
    _, query = grown(tmp_path)
    with pytest.raises(InvalidArgumentError, match="is not an offset of a stream"):
        query.texts.from_json(value)


def test_new_partitions_are_read_from_their_beginning(tmp_path: Path) -> None:
    """Add a partition: its first batch says where it begins; one that was trimmed already is data loss."""
    log, query = grown(tmp_path)
    log.add_partition()
    log.parts[1].writer.send([Record(b"k", b"v")] * 3)
    log.finish()
    rows = query.next()
    assert rows is not None
    assert [offset for offset, _ in rows[1]] == [0, 1, 2]
    log.add_partition()
    part = log.parts[2]
    for _ in range(20):
        part.writer.send([Record(b"k", b"v")])
    log.finish()
    log.trim(part, 10)
    with pytest.raises(DataLossError, match=rf"t-2 is new, and begins at {part.start} already"):
        query.next()


def test_target_of_available_now_stays(tmp_path: Path) -> None:
    """Freeze, and let the log and its partitions grow: what came later is another run's."""
    log, query = grown(tmp_path, maxOffsetsPerTrigger="7")
    query.stream.freeze()
    write(log, 5)
    log.add_partition()
    log.parts[1].writer.send([Record(b"k", b"v")])
    log.finish()
    assert read_all(query) == list(range(7, 30))
    query.open()
    assert query.next() is not None


def test_first_batch_begins_where_it_did_when_it_is_replayed(tmp_path: Path) -> None:
    """Kill a query that began at latest in its first batch: Spark asks anew where it began, and has its end alone."""
    log = LiveLog(tmp_path, 1, partitions=2)
    write(log, 4)
    query = Query(log, startingOffsets="latest")
    write(log, 3)
    rows = query.next()
    assert rows
    write(log, 2)
    query.offsets[0] = Query(log, startingOffsets="latest").offsets[0]
    query.open()
    assert query.read(0) == rows
    later = query.next()
    assert later
    assert query.read(1) == later


def test_least_number_of_records_is_waited_for(tmp_path: Path) -> None:
    """A batch waits for more, and for so long only."""
    log = LiveLog(tmp_path, 1, partitions=1)
    now = [0.0]
    options = {"minMessagesPerTrigger": "5", "maxTriggerDelay": "10s", "path": log.path, "topic": "t"}
    given = ForeignOptions.parse({**options, "startingOffsets": "earliest"}, STREAM)
    stream = stream_of(given, lambda: now[0])
    start = stream.initial()
    write(log, 4)
    assert stream.latest(start) is start
    now[0] = 10.0
    assert stream.latest(start).positions == {PartitionName("t", 0): Position.from_key(4)}
    assert stream.latest(start) is start
    write(log, 1)
    assert stream.latest(start).positions == {PartitionName("t", 0): Position.from_key(5)}


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
@pytest.mark.parametrize("case", ["txn", "compact", "delete-records", "tiered"])
def test_batches_together_are_what_the_consumer_returned(case: str, level: IsolationLevel, tmp_path: Path) -> None:
    """Read what real brokers wrote in small batches."""
    folder = unpack(case, tmp_path)
    path = ",".join(str(of) for of in (folder / "log", folder / "remote") if of.is_dir())
    for topic in sorted({name.topic for name in partitions(folder)}):
        options = {"path": f"kafka:{path}", "topic": topic, "startingOffsets": "earliest", "consistentCut": "false"}
        given = ForeignOptions.parse({**options, "isolationLevel": level.value, "maxMessagesPerTrigger": "37"}, STREAM)
        stream = stream_of(given)
        found: dict[int, list[int]] = {}
        end = stream.initial()
        while True:
            start, end = end, stream.latest(end)
            if end is start:
                break
            planned = stream.plan(start, end)
            reader = PieceReader(given.target, COLUMNS, planned.request)
            rows = [row for task in planned.tasks for batch in reader.read(task) for row in batch.to_pylist()]
            assert len(rows) <= 37 + len(end.positions)
            for row in rows:
                found.setdefault(row["partition"], []).append(row["offset"])
        for name in partitions(folder):
            if name.topic == topic:
                assert found.get(name.partition, []) == [row[0] for row in expected(folder, name, level.value)]
