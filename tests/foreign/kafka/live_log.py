"""A Kafka topic that grows as under a live broker: it rolls, tiers, trims and compacts while it is read."""

from __future__ import annotations

import itertools
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.foreign.kafka.batch_writer import Record
from tests.foreign.kafka.partition_writer import TOPIC_ID, PartitionWriter, replace_file
from txn_source.foreign.kafka.batch_headers import BatchHeaders, find_batches
from txn_source.model.isolation import IsolationLevel

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
PLAIN = -1


@dataclass
class Part:
    """A partition: what is written to it, and what a reader may see of it."""

    writer: PartitionWriter
    mark: int = 0
    start: int = 0
    rows: list[tuple[int, int]] = field(default_factory=list)
    """Offset and number of the transaction."""
    removed: set[int] = field(default_factory=set)
    """What compaction took."""
    markers: dict[int, tuple[int, bool]] = field(default_factory=dict)
    tiered: set[int] = field(default_factory=set)

    def stable(self) -> int:
        """The first offset of the first transaction without a marker below the high watermark; else that."""
        ended = {txn for txn, (at, _) in self.markers.items() if at < self.mark}
        firsts = [at for at, txn in self.rows if txn != PLAIN and txn not in ended and at < self.mark]
        return max(min(firsts, default=self.mark), self.start)

    def visible(self, level: IsolationLevel, start: int, end: int) -> list[int]:
        """Return the offsets of a range that a level shows."""
        aborted = {txn for txn, (_, commit) in self.markers.items() if not commit}
        hidden = aborted if level is IsolationLevel.READ_COMMITTED else set()
        return [at for at, txn in self.rows if start <= at < end and txn not in hidden]


class LiveLog:
    """A topic ``t`` with transactions of some producers over its partitions."""

    def __init__(self, root: Path, seed: int, partitions: int = 2, segment_bytes: int = 700) -> None:
        self.root = root / "log"
        self.remote = root / "remote"
        self.remote.mkdir(parents=True)
        self.segment_bytes = segment_bytes
        self.rng = random.Random(seed)
        self.parts: list[Part] = []
        self.number = 0
        self.open: dict[int, tuple[int, set[int]]] = {}
        """By producer its transaction, and the partitions that it wrote to."""
        self.ending: list[tuple[int, int, int, bool]] = []
        """Markers to come: partition, producer, transaction, commit."""
        self.epochs: dict[int, int] = {}
        for _ in range(partitions):
            self.add_partition()
        (self.root / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER}\n")
        self.publish()

    @property
    def path(self) -> str:
        return f"kafka:{self.root},{self.remote}"

    def add_partition(self) -> None:
        self.parts.append(Part(PartitionWriter(self.root, "t", len(self.parts), self.segment_bytes)))
        self.publish()

    def publish(self) -> None:
        """Write what a broker has written now, but for the end of the last batch's successor."""
        for part in self.parts:
            part.writer.flush()
        self._checkpoint("replication-offset", [part.mark for part in self.parts])
        self._checkpoint("log-start-offset", [part.start for part in self.parts])
        compacted = {index: part.start for index, part in enumerate(self.parts) if part.removed}
        lines = "".join(f"t {index} {at}\n" for index, at in compacted.items())
        replace_file(self.root / "cleaner-offset-checkpoint", f"0\n{len(compacted)}\n{lines}".encode())

    def _checkpoint(self, name: str, offsets: list[int]) -> None:
        lines = "".join(f"t {index} {at}\n" for index, at in enumerate(offsets))
        replace_file(self.root / f"{name}-checkpoint", f"0\n{len(offsets)}\n{lines}".encode())

    def step(self) -> None:
        """Do one thing that producers, coordinators or brokers do."""
        actions = [self.send_plain, self.send_txn, self.send_txn, self.end_txn, self.write_marker, self.write_marker]
        self.rng.choice([*actions, self.move_mark, self.move_mark, self.tier, self.drop_local, self.compact])()
        self.publish()

    def send_plain(self) -> None:
        part = self.rng.choice(self.parts)
        at = part.writer.send([Record(b"k", b"%d" % PLAIN)] * self.rng.choice([1, 3]), 100)
        part.rows += [(offset, PLAIN) for offset in range(at, part.writer.end)]

    def send_txn(self) -> None:
        producer = self.rng.randrange(3)
        if any(waiting[1] == producer for waiting in self.ending):
            return
        if producer not in self.open:
            self.number += 1
            self.epochs[producer] = self.epochs.get(producer, -1) + 1
            self.open[producer] = self.number, set()
        txn, touched = self.open[producer]
        index = self.rng.randrange(len(self.parts))
        part = self.parts[index]
        part.writer.producers.setdefault(producer, type(part.writer).fresh_producer()).epoch = self.epochs[producer]
        at = part.writer.send([Record(b"k", b"%d" % txn)] * self.rng.choice([1, 2, 9]), producer, transactional=True)
        part.rows += [(offset, txn) for offset in range(at, part.writer.end)]
        touched.add(index)

    def end_txn(self) -> None:
        if self.open:
            producer = self.rng.choice(sorted(self.open))
            txn, touched = self.open.pop(producer)
            commit = self.rng.random() < 0.6
            self.ending += [(index, producer, txn, commit) for index in sorted(touched)]

    def write_marker(self) -> None:
        if self.ending:
            index, producer, txn, commit = self.ending.pop(self.rng.randrange(len(self.ending)))
            part = self.parts[index]
            part.markers[txn] = part.writer.end_transaction(producer, commit=commit), commit
            self.epochs[producer] = max(self.epochs[producer], part.writer.producers[producer].epoch)

    def move_mark(self) -> None:
        part = self.rng.choice(self.parts)
        part.mark = self.rng.choice([part.writer.end, self.rng.randint(part.mark, part.writer.end)])

    def finish(self) -> None:
        """End all transactions, and let everything be read."""
        while self.open:
            self.end_txn()
        while self.ending:
            self.write_marker()
        for part in self.parts:
            part.mark = part.writer.end
        self.publish()

    def closed(self, part: Part) -> list[int]:
        """Return the segments of a broker's folder that may be tiered or compacted, by base offset."""
        bases = part.writer.bases
        ends = dict(itertools.pairwise(bases))
        return [base for base, end in ends.items() if end <= part.stable() and self._file(part, base).exists()]

    def _file(self, part: Part, base: int, kind: str = "log") -> Path:
        return part.writer.folder / f"{base:020}.{kind}"

    def tier(self) -> None:
        """Copy a segment to the remote tier, its log last."""
        index = self.rng.randrange(len(self.parts))
        part = self.parts[index]
        bases = [base for base in self.closed(part) if base not in part.tiered]
        if not bases or part.removed:
            return
        base, folder = bases[0], self.remote / f"t-{index}-{TOPIC_ID}"
        folder.mkdir(exist_ok=True)
        name = folder / f"{base:020}-{self.rng.randrange(10**9):022}"
        following = part.writer.bases[part.writer.bases.index(base) + 1]
        shutil.copy(self._file(part, following, "snapshot"), name.with_suffix(".snapshot"))
        shutil.copy(part.writer.folder / "leader-epoch-checkpoint", name.with_suffix(".leader_epoch_checkpoint"))
        for kind in ("index", "timeindex", "txnindex", "log"):
            if self._file(part, base, kind).exists():
                shutil.copy(self._file(part, base, kind), name.with_suffix(f".{kind}"))
        part.tiered.add(base)

    def drop_local(self) -> None:
        """Delete the first segment of a broker's folder that is in the remote tier."""
        part = self.rng.choice(self.parts)
        bases = self.closed(part)
        if bases and bases[0] in part.tiered:
            for kind in ("log", "index", "timeindex", "txnindex", "snapshot"):
                self._file(part, bases[0], kind).unlink(missing_ok=True)

    def trim(self, part: Part, upto: int) -> None:
        """Delete the segments that end at or below an offset, everywhere: the log begins at the next one."""
        index = self.parts.index(part)
        bases = part.writer.bases
        for base, end in list(itertools.pairwise(bases)):
            if end > upto:
                break
            for path in [*part.writer.folder.glob(f"{base:020}.*"), *self.remote.glob(f"t-{index}-*/{base:020}-*")]:
                path.unlink()
            part.start = end
        self.publish()

    def compact(self) -> None:
        """Put one segment without some plain records in the place of two."""
        part = self.rng.choice(self.parts)
        bases = [base for base in self.closed(part) if base not in part.tiered]
        if len(bases) < 2 or part.tiered or self.rng.random() < 0.5:
            return
        first, second = bases[0], bases[1]
        kept = b""
        for base in (first, second):
            data = self._file(part, base).read_bytes()
            begins = np.array(find_batches(data).begins, np.int64)
            headers = BatchHeaders.at(np.frombuffer(data, np.uint8), begins)
            for index, begin in enumerate(begins.tolist()):
                if headers["producer_id"][index] == 100 and self.rng.random() < 0.5:
                    lost = range(int(headers["base_offset"][index]), int(headers.last_offsets[index]) + 1)
                    part.removed |= set(lost)
                else:
                    kept += data[begin : begin + int(headers.sizes[index])]
        merged = b"".join(
            self._file(part, base, "txnindex").read_bytes()
            for base in (first, second)
            if self._file(part, base, "txnindex").exists()
        )
        swapped = self._file(part, first, "log.swap")
        replace_file(swapped, kept)
        for base in (first, second):
            for kind in ("log", "index", "timeindex", "txnindex"):
                self._file(part, base, kind).unlink(missing_ok=True)
        swapped.rename(self._file(part, first))
        if merged:
            replace_file(self._file(part, first, "txnindex"), merged)
        part.removed.add(-1)
        part.writer.bases.remove(second)
