"""Random histories of producers, written as a broker would, and a log of plain rules that says what is in them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.foreign.kafka.batch_writer import CODECS, Record
from tests.foreign.kafka.partition_writer import PartitionWriter
from txn_source.foreign.kafka.partition import KafkaPartition
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import PositionRange

Row = tuple[int, bytes | None, bytes | None, str | None]
PLAIN = -1


@dataclass
class NaiveLog:
    """Rows with the number of their transaction, and of each transaction where it begins and how and where it ended."""

    rows: list[tuple[int, bytes | None, bytes | None, int]] = field(default_factory=list)
    firsts: dict[int, int] = field(default_factory=dict)
    markers: dict[int, tuple[int, bool]] = field(default_factory=dict)

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
