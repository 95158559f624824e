"""Writes a partition's folder as a broker does: segments, their indexes, snapshots of producers, and checkpoints."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

import crc32c

from tests.foreign.kafka.batch_writer import ABORT, COMMIT, Batch, Record, encode_batch

TOPIC_ID = "WOgonVTsST6cSWjH7qZHsw"


@dataclass
class Producer:
    """What a broker keeps of a producer."""

    epoch: int = 0
    last_sequence: int = -1
    last_offset: int = -1
    timestamp: int = -1
    coordinator_epoch: int = -1
    txn_first: int = -1


@dataclass
class PartitionWriter:
    """A partition that is written to; ``close`` leaves its files as a clean stop does."""

    root: Path
    topic: str = "t"
    partition: int = 0
    segment_bytes: int = 4096
    index_interval: int = 256
    end: int = 0
    producers: dict[int, Producer] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    _log: bytearray = field(default_factory=bytearray)
    _index: bytearray = field(default_factory=bytearray)
    _times: bytearray = field(default_factory=bytearray)
    _txns: bytearray = field(default_factory=bytearray)
    _since: int = 0
    _newest: tuple[int, int] = (-1, 0)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        (self.folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
        (self.folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        self.bases.append(0)

    @staticmethod
    def fresh_producer() -> Producer:
        return Producer()

    @property
    def folder(self) -> Path:
        return self.root / f"{self.topic}-{self.partition}"

    def append(self, batch: Batch) -> int:
        """Append a batch at the log's end, and return its base offset."""
        batch = replace(batch, base_offset=self.end)
        data = encode_batch(batch)
        if self._log and len(self._log) + len(data) > self.segment_bytes:
            self.roll()
        last = self.end + max(len(batch.records), 1) - 1
        if batch.last_offset is not None:
            last = batch.last_offset
        newest = max((record.timestamp for record in batch.records), default=0)
        if self._since > self.index_interval:
            self._index += struct.pack(">ii", last - self.bases[-1], len(self._log))
            if self._newest[0] >= 0:
                self._times += struct.pack(">qi", self._newest[0], self._newest[1] - self.bases[-1])
            self._since = 0
        if newest > self._newest[0]:
            self._newest = newest, last
        self._since += len(data)
        self._log += data
        self._remember(batch, last, newest)
        self.end = last + 1
        return batch.base_offset

    def send(
        self, records: list[Record], producer_id: int = -1, *, transactional: bool = False, codec: str = "none"
    ) -> int:
        """Append records of a producer as one batch."""
        state = self.producers.get(producer_id, Producer())
        sequence = -1 if producer_id < 0 else state.last_sequence + 1
        epoch = -1 if producer_id < 0 else state.epoch
        return self.append(Batch(0, tuple(records), codec, producer_id, epoch, sequence, transactional))

    def end_transaction(self, producer_id: int, *, commit: bool) -> int:
        """Append a marker; its epoch is one above that of the data, as with version 2 of transactions."""
        state = self.producers.setdefault(producer_id, Producer())
        return self.append(Batch(0, (), "none", producer_id, state.epoch + 1, control=COMMIT if commit else ABORT))

    def _remember(self, batch: Batch, last: int, newest: int) -> None:
        if batch.producer_id < 0:
            return
        state = self.producers.setdefault(batch.producer_id, Producer())
        state.epoch = batch.producer_epoch
        state.timestamp = newest
        if batch.control is None:
            state.last_offset = last
            state.last_sequence += len(batch.records)
            if batch.transactional and state.txn_first < 0:
                state.txn_first = self.end
            return
        first, state.txn_first = state.txn_first, -1
        state.coordinator_epoch = 0
        state.last_sequence = -1
        if first >= 0 and batch.control == ABORT:
            others = [other.txn_first for other in self.producers.values() if other.txn_first >= 0]
            stable = min(others, default=last + 1)
            self._txns += struct.pack(">hqqqq", 0, batch.producer_id, first, last, stable)

    def roll(self) -> None:
        """Begin a new segment."""
        self.flush()
        self._index, self._times, self._txns, self._log = bytearray(), bytearray(), bytearray(), bytearray()
        self._since, self._newest = 0, (-1, 0)
        self.bases.append(self.end)
        self.snapshot()

    def snapshot(self) -> None:
        """Write the state of the producers at the log's end."""
        entries = b"".join(
            struct.pack(
                ">qhiqiqiq",
                producer,
                state.epoch,
                state.last_sequence,
                state.last_offset,
                0,
                state.timestamp,
                state.coordinator_epoch,
                state.txn_first,
            )
            for producer, state in self.producers.items()
        )
        checked = struct.pack(">i", len(self.producers)) + entries
        data = struct.pack(">hI", 1, crc32c.crc32c(checked)) + checked
        (self.folder / f"{self.end:020}.snapshot").write_bytes(data)

    def flush(self) -> None:
        """Write the files of the last segment: its log is appended to, as others may read it."""
        times = bytes(self._times)
        if self._newest[0] >= 0:
            times += struct.pack(">qi", self._newest[0], self._newest[1] - self.bases[-1])
        name = self.folder / f"{self.bases[-1]:020}"
        with name.with_suffix(".log").open("ab") as file:
            file.write(self._log[file.tell() :])
        replace_file(name.with_suffix(".index"), self._index)
        replace_file(name.with_suffix(".timeindex"), times)
        if self._txns:
            replace_file(name.with_suffix(".txnindex"), self._txns)

    def close(self, high_watermark: int | None = None, log_start: int = 0) -> None:
        """Write all that a clean stop writes."""
        self.flush()
        self.snapshot()
        mark = self.end if high_watermark is None else high_watermark
        for name, offset in (("replication-offset", mark), ("log-start-offset", log_start)):
            (self.root / f"{name}-checkpoint").write_text(f"0\n1\n{self.topic} {self.partition} {offset}\n")


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that who reads it meanwhile finds it as it was or as it is."""
    fresh = path.with_name(path.name + ".tmp")
    fresh.write_bytes(data)
    fresh.replace(path)
