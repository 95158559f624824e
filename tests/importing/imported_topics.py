"""What an import should have brought: rows of both logs side by side, and histories over several partitions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import txn_source
from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.histories import random_record
from tests.foreign.kafka.partition_writer import PartitionWriter, Producer
from txn_source import IsolationLevel
from txn_source.foreign.foreign_log import ForeignPartition
from txn_source.model.position import PositionRange

Row = tuple[Any, ...]


def target_rows(log: txn_source.Log, topic: str, partition: int, level: IsolationLevel) -> list[Row]:
    """Return key, value, event time and properties of a partition's messages."""
    columns = ["__partition", "key", "value", "__event_time", "__properties"]
    rows = log.scan(topic, isolation_level=level, columns=columns, consistent_cut=False).read_all().to_pylist()
    return [
        (row["key"], row["value"], row["__event_time"], dict(row["__properties"] or ()))
        for row in rows
        if row["__partition"] == partition
    ]


def source_rows(partition: ForeignPartition, of: PositionRange, level: IsolationLevel, columns: Sequence[str]) -> Any:
    """Return columns of what a level shows of a range of the source."""
    decisions = partition.decisions(of)
    return [
        tuple(row.values())
        for unit in partition.units(of, 1 << 20)
        for batch in partition.read(unit, level, decisions, columns)
        for row in batch.to_pylist()
    ]


class ApartWriter(PartitionWriter):
    """A partition with producers of its own: what they do elsewhere has nothing to do with this."""

    def send(
        self, records: list[Record], producer_id: int = -1, *, transactional: bool = False, codec: str = "none"
    ) -> int:
        return super().send(records, self._own(producer_id), transactional=transactional, codec=codec)

    def end_transaction(self, producer_id: int, *, commit: bool) -> int:
        return super().end_transaction(self._own(producer_id), commit=commit)

    def _own(self, producer_id: int) -> int:
        return producer_id if producer_id < 0 else producer_id + 1000 * self.partition


def write_shared_transactions(rng: random.Random, root: Path, partitions: int = 3, count: int = 40) -> list[list[Row]]:
    """Write a topic ``t`` with transactions over its partitions, each with an epoch of its own, and overlapping.

    Return of each partition key and value of its messages, with producer, epoch and outcome of their transactions.
    """
    writers = [PartitionWriter(root, partition=index) for index in range(partitions)]
    rows: list[list[Row]] = [[] for _ in writers]
    began: dict[int, tuple[int, bool, set[int]]] = {}
    for number in range(count):
        producer = rng.randrange(4)
        epoch, commit, touched = began.setdefault(producer, (number, rng.random() < 0.6, set()))
        for index in rng.sample(range(partitions), rng.randint(1, partitions)):
            records = [random_record(rng) for _ in range(rng.choice([1, 3]))]
            writers[index].producers.setdefault(producer, Producer()).epoch = epoch
            writers[index].send(records, producer, transactional=True)
            rows[index] += [(record.key, record.value, producer, epoch, commit) for record in records]
            touched.add(index)
        if rng.random() < 0.5:
            for index in touched:
                writers[index].end_transaction(producer, commit=commit)
            del began[producer]
    for producer, (_, commit, touched) in began.items():
        for index in touched:
            writers[index].end_transaction(producer, commit=commit)
    for writer in writers:
        writer.flush()
        writer.snapshot()
    return rows
