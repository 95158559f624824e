"""Counts rows by the headers of batches, and compares with the rows that a read yields."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.foreign.kafka.samples import log_of, partitions, unpack
from tests.selection import mostly_long
from txn_source.foreign.foreign_log import Decisions, PartitionName, TransactionSpans
from txn_source.foreign.kafka.partition import KafkaPartition
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange


def check(partition: KafkaPartition, level: IsolationLevel, start: int, end: int) -> int:
    """Compare the count of a range with its rows, and return it."""
    of = PositionRange(Position.from_key(start), Position.from_key(end))
    decisions = partition.decisions(of)
    rows = sum(batch.num_rows for batch in partition.read(of, level, decisions, ["offset"]))
    assert partition.count(of, level, decisions) == rows, (partition.name, level, start, end)
    return rows


@pytest.mark.parametrize("case", mostly_long(["txn", "compact"], "txn"))
def test_counts_are_the_rows(case: str, tmp_path: Path) -> None:
    """Whole partitions at both levels, and ranges that cut batches."""
    folder, rng = unpack(case, tmp_path), random.Random(case)
    log = log_of(folder)
    for name in partitions(folder):
        partition = log.partition(name)
        bounds = partition.bounds()
        for level in IsolationLevel:
            start, end = bounds.log_start.key, bounds.upper(level).key
            check(partition, level, start, end)
            for _ in range(5):
                check(partition, level, *sorted((rng.randint(start, end), rng.randint(start, end))))


def test_wrong_aborted_transactions_are_told(tmp_path: Path) -> None:
    """They may come from an index, which has no checksum: a count holds them against the markers, as a read does."""
    folder = unpack("txn", tmp_path)
    partition = log_of(folder).partition(PartitionName("txn", 0))
    bounds = partition.bounds()
    of = PositionRange(bounds.log_start, bounds.last_stable)
    sound = partition.decisions(of)
    for index in range(len(sound.aborted)):
        names = sound.aborted.names.copy()
        names[index] ^= 1
        wrong = Decisions(TransactionSpans(names, sound.aborted.firsts, sound.aborted.markers), sound.undecided)
        for answer in (partition.count, lambda *args: list(partition.read(*args, ["offset"]))):
            with pytest.raises(SegmentUnreadableError, match="a transaction index denies it"):
                answer(of, IsolationLevel.READ_COMMITTED, wrong)


def test_damage_that_is_seen_is_told(tmp_path: Path) -> None:
    """A small batch is read with its header: if it is damaged, a count isn't one row less, but says so."""
    folder = unpack("plain", tmp_path)
    [path] = (folder / "log" / "plain-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    partition = log_of(folder).partition(PartitionName("plain", 0))
    of = PositionRange(Position.from_key(0), partition.bounds().last_stable)
    with pytest.raises(SegmentUnreadableError, match="its checksum is wrong"):
        partition.count(of, IsolationLevel.READ_COMMITTED, partition.decisions(of))
