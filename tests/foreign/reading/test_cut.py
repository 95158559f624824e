"""Reads of several partitions end at a consistent cut, as a plain search over all transactions finds it."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.partition_writer import PartitionWriter, Producer
from tests.log.reading import told_by
from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.source import ForeignSource
from txn_source.foreign.target import ForeignTarget
from txn_source.model.position import LATEST, Position
from txn_source.reading.places import Side
from txn_source.reading.plan import plan
from txn_source.reading.request import ReadRequest, Selection
from txn_source.spark.catalog.foreign_calls import ForeignCatalogCalls

PARTITIONS = 3


@dataclass
class Txn:
    """Offsets of its data and of its marker by partition."""

    number: int
    producer: int
    data: dict[int, list[int]] = field(default_factory=dict)
    markers: dict[int, int] = field(default_factory=dict)
    committed: bool = False


@dataclass
class History:
    """Partitions that producers write to; each transaction has an epoch of its own, but for those of version 0."""

    rng: random.Random
    root: Path
    own_epochs: bool = True
    writers: list[PartitionWriter] = field(default_factory=list)
    txns: list[Txn] = field(default_factory=list)

    def write(self, steps: int) -> None:
        size = self.rng.choice([600, 4096])
        self.writers = [PartitionWriter(self.root, partition=p, segment_bytes=size) for p in range(PARTITIONS)]
        opened: dict[int, Txn] = {}
        ending: list[tuple[Txn, int]] = []
        epochs: dict[int, int] = {}
        for _ in range(steps):
            if ending and self.rng.random() < 0.5:
                self._mark(*ending.pop(self.rng.randrange(len(ending))))
                continue
            producer = self.rng.randrange(4)
            if any(txn.producer == producer for txn, _ in ending):
                continue
            txn = opened.get(producer)
            if txn is not None and self.rng.random() < 0.3:
                txn.committed = self.rng.random() < 0.7
                ending += [(txn, p) for p in txn.data]
                del opened[producer]
                epochs[producer] = epochs.get(producer, 0) + self.own_epochs
                continue
            if txn is None:
                txn = opened[producer] = Txn(len(self.txns), producer)
                self.txns.append(txn)
            p = self.rng.randrange(PARTITIONS)
            self.writers[p].producers.setdefault(producer, Producer()).epoch = epochs.get(producer, 0)
            text = str(txn.number).encode()
            records = [Record(None, text, 1_750_000_000_000) for _ in range(self.rng.choice([1, 3]))]
            base = self.writers[p].send(records, producer, transactional=True)
            txn.data.setdefault(p, []).extend(range(base, base + len(records)))
        for writer in self.writers:
            writer.flush()
            writer.snapshot()
        lines = [f"t {p} {writer.end}" for p, writer in enumerate(self.writers)]
        for name in ("replication-offset", "log-start-offset"):
            zero = [f"t {p} 0" for p in range(PARTITIONS)]
            text = "\n".join(["0", str(PARTITIONS), *(lines if name.startswith("r") else zero), ""])
            (self.root / f"{name}-checkpoint").write_text(text)

    def _mark(self, txn: Txn, p: int) -> None:
        writer = self.writers[p]
        if not self.own_epochs:
            writer.producers[txn.producer].epoch -= 1  # which end_transaction raises
        txn.markers[p] = writer.end_transaction(txn.producer, commit=txn.committed)

    def last_stable(self, p: int) -> int:
        firsts = [txn.data[p][0] for txn in self.txns if p in txn.data and p not in txn.markers]
        return min(firsts, default=self.writers[p].end)

    def cut(self, ends: list[int]) -> list[int]:
        """Lower ends until no transaction that committed on any partition is cut in two."""
        ends = list(ends)
        torn = True
        while torn:
            torn = False
            for txn in self.txns:
                if not (txn.committed and txn.markers):
                    continue
                above = any(data[-1] >= ends[p] for p, data in txn.data.items())
                for p, data in txn.data.items():
                    if above and data[0] < ends[p]:
                        ends[p] = data[0]
                        torn = True
        return ends


def planned_ends(root: Path, end: Side) -> list[int]:
    source = ForeignSource(ForeignTarget.parse(f"kafka:{root}"))
    found = dict(plan(source, source.look(Selection(("t",))), ReadRequest(end=end)).ranges)
    return [found[PartitionName("t", p)].end.key for p in range(PARTITIONS)]


def check(seed: int, root: Path) -> None:
    rng = random.Random(seed)
    history = History(rng, root)
    history.write(rng.choice([10, 60, 200]))
    stable = [history.last_stable(p) for p in range(PARTITIONS)]
    for path in sorted(root.rglob("*.snapshot")):
        if seed % 3 == 0 and rng.random() < 0.5:
            path.unlink()
    assert planned_ends(root, Side(LATEST)) == history.cut(stable), seed
    for _ in range(3):
        ends = [rng.randrange(end + 1) for end in stable]
        points = {PartitionName("t", p): Position.from_key(end) for p, end in enumerate(ends)}
        assert planned_ends(root, Side(LATEST, points)) == history.cut(ends), (seed, ends)


@pytest.mark.parametrize("seed", range(4))
def test_reads_end_at_the_largest_cut(seed: int, tmp_path: Path) -> None:
    """Read random histories up to what is stable, and up to offsets anywhere."""
    check(seed, tmp_path / "log")


def test_cut_that_cannot_be_told_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Transactions of a producer that share an epoch can't be told apart on another partition: the plan says so."""
    rng = random.Random(7)
    history = History(rng, tmp_path / "log", own_epochs=False)
    history.write(120)
    stable = [history.last_stable(p) for p in range(PARTITIONS)]
    assert any(end < writer.end for end, writer in zip(stable, history.writers, strict=True))
    with caplog.at_level(logging.WARNING):
        assert planned_ends(history.root, Side(LATEST)) == stable
    assert [said.partition(":")[0] for said in told_by("reading", caplog)] == ["no consistent cut"]
    bounds = ForeignCatalogCalls(ForeignTarget.parse(f"kafka:{history.root}")).outlook(
        {"path": f"kafka:{history.root}", "topic": "t"}
    )["bounds"]
    assert "; no consistent cut: transactions across the end" in bounds
