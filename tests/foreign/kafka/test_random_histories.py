"""Writes random histories of producers as a broker would, and reads them as a log of plain rules does."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow.fs as fs
import pytest

from tests.foreign.kafka.batch_writer import CODECS, Record
from tests.foreign.kafka.partition_writer import PartitionWriter
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.kafka.kafka_log import KafkaLog
from txn_source.foreign.kafka.partition import KafkaPartition
from txn_source.foreign.kafka.partition_folders import Folder
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange

Row = tuple[int, bytes | None, bytes | None, str | None]
PLAIN = -1


@dataclass
class NaiveLog:
    """Rows with the number of their transaction, and of each transaction where it begins and how and where it ended."""

    rows: list[tuple[int, bytes | None, bytes | None, int]] = field(default_factory=list)
    firsts: dict[int, int] = field(default_factory=dict)
    markers: dict[int, tuple[int, bool]] = field(default_factory=dict)

    def last_stable(self, mark: int) -> int:
        """The first offset of the first transaction without a marker below the high watermark; else that."""
        ended = {txn for txn, (at, _) in self.markers.items() if at < mark}
        return min([first for txn, first in self.firsts.items() if txn not in ended and first < mark], default=mark)

    def visible(self, level: IsolationLevel, start: int, end: int, mark: int) -> list[Row]:
        """Return the rows of a range that a level sees, with how their transactions ended below the high watermark."""
        seen = []
        for offset, key, value, txn in self.rows:
            at, committed = self.markers.get(txn, (mark, False))
            status = None if txn == PLAIN else "open" if at >= mark else "committed" if committed else "aborted"
            if start <= offset < end and not (level is IsolationLevel.READ_COMMITTED and status == "aborted"):
                seen.append((offset, key, value, status))
        return seen


def write_history(rng: random.Random, writer: PartitionWriter, steps: int) -> NaiveLog:
    """Let producers send, commit and abort at random; some transactions stay open, some markers end nothing."""
    naive = NaiveLog()
    open_txns: dict[int, int] = {}
    number = 0
    for _ in range(steps):
        producer = rng.randrange(5)
        if rng.random() < 0.3:
            commit = rng.random() < 0.5
            at = writer.end_transaction(producer, commit=commit)
            if producer in open_txns:
                naive.markers[open_txns.pop(producer)] = at, commit
            continue
        plain = rng.random() < 0.3 and producer not in open_txns
        records = [random_record(rng) for _ in range(rng.choice([1, 1, 2, 5, 40]))]
        base = writer.send(
            records,
            rng.choice([-1, 100]) if plain else producer,
            transactional=not plain,
            codec=rng.choice(CODECS),
        )
        if not plain and producer not in open_txns:
            number += 1
            open_txns[producer] = number
            naive.firsts[number] = base
        txn = PLAIN if plain else open_txns[producer]
        naive.rows += [(base + index, record.key, record.value, txn) for index, record in enumerate(records)]
    return naive


def random_record(rng: random.Random) -> Record:
    key, value = (rng.choice([None, b"", rng.randbytes(rng.choice([1, 9, 63, 64, 200]))]) for _ in range(2))
    headers = [(b"h", rng.choice([None, b"", rng.randbytes(8)])) for _ in range(rng.choice([0, 0, 0, 1, 3]))]
    return Record(key, value, 1_750_000_000_000 + rng.randrange(-100, 100_000), headers)


def read(partition: KafkaPartition, level: IsolationLevel, of: PositionRange) -> list[Row]:
    columns = ("offset", "key", "value", "__txn_status")
    decisions = partition.decisions(of)
    return [
        tuple(row[name] for name in columns)
        for unit in partition.units(of, 2048)
        for batch in partition.read(unit, level, decisions, columns)
        for row in batch.to_pylist()
    ]


def check(seed: int, root: Path) -> None:
    """Write a history, damage what isn't needed, and read some ranges of it at both levels."""
    rng = random.Random(seed)
    writer = PartitionWriter(root, segment_bytes=rng.choice([600, 4096, 1 << 20]))
    naive = write_history(rng, writer, rng.choice([3, 40, 120]))
    mark = rng.choice([writer.end, rng.randrange(writer.end + 1)])
    writer.close(mark)
    for path in sorted(root.rglob("*.*index")) + sorted(root.rglob("*.snapshot")):
        if rng.random() < seed % 3 * 0.4:
            path.unlink()
    trust = rng.random() < 0.5
    partition = KafkaLog([Folder(fs.LocalFileSystem(), str(root))], trust_indexes=trust).partition(
        PartitionName("t", 0)
    )
    bounds = partition.bounds()
    assert (bounds.log_end.key, bounds.high_watermark.key) == (writer.end, mark)
    assert bounds.last_stable.key == naive.last_stable(mark)
    for level in IsolationLevel:
        end = bounds.upper(level).key
        cuts = sorted({0, end, *(rng.randrange(end + 1) for _ in range(2))})
        rows = []
        for low, high in pairwise(cuts):
            of = PositionRange(Position.from_key(low), Position.from_key(high))
            found = read(partition, level, of)
            assert found == naive.visible(level, low, high, mark), (seed, level, low, high)
            rows += found
        assert rows == naive.visible(level, 0, end, mark)


@pytest.mark.parametrize("seed", range(4))
def test_random_history_reads_as_the_rules_say(seed: int, tmp_path: Path) -> None:
    """Compare rows, statuses and bounds; two in three histories have lost indexes and snapshots."""
    check(seed, tmp_path / "log")
