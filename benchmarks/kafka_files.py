"""Writes large partitions as brokers do, quickly: one batch is encoded, and comes again at other offsets.

A batch's checksum doesn't cover its base offset, so that is all that changes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.foreign.kafka.batch_writer import ABORT, COMMIT, Batch, Record, encode_batch

TOPIC_ID = "WOgonVTsST6cSWjH7qZHsw"
ROWS = 1_000
"""In a batch."""
TIME = 1_750_000_000_000
_INDEX_EVERY = 4096


def records(value_bytes: int, headers: int = 0) -> list[Record]:
    """Return the records of a batch, with keys of 8 bytes and values that don't compress to nothing."""
    noise = os.urandom(value_bytes * ROWS // 2).hex().encode()
    named = [(b"header-%d" % number, b"text") for number in range(headers)]
    return [Record(b"%08d" % row, noise[row * value_bytes :][:value_bytes], TIME + row, named) for row in range(ROWS)]


def write_partition(
    root: Path, partition: int, batches: int, *, codec: str = "none", half_aborted: bool = False, segment: int = 1 << 30
) -> int:
    """Write a partition of topic ``t`` with so many batches, and return how many rows read_committed shows of it.

    With ``half_aborted`` each two batches are transactions, the second one of which is aborted.
    """
    folder = root / f"t-{partition}"
    folder.mkdir(parents=True)
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
    rows = records(120)
    if half_aborted:
        made = [_transaction(rows, codec, producer, commit=producer == 1) for producer in (1, 2)]
    else:
        made = [[(encode_batch(Batch(0, rows, codec)), ROWS)]]
    end = 0
    files: _Files | None = None
    for number in range(batches):
        of = made[number % len(made)]
        if files is None or files.size > segment:
            if files is not None:
                files.close()
            files = _Files(folder, end)
        first = end
        for data, offsets in of:
            files.append(data, end, offsets)
            end += offsets
        if half_aborted and number % 2:
            files.aborted(2, first, end - 1, end)
    if files is not None:
        files.close()
    (folder / f"{end:020}.snapshot").write_bytes(_no_producers())
    for name, offset in (("replication-offset", end), ("log-start-offset", 0)):
        _note(root / f"{name}-checkpoint", partition, offset)
    return ROWS * (batches - batches // 2 if half_aborted else batches)


def _transaction(rows: list[Record], codec: str, producer: int, *, commit: bool) -> list[tuple[bytes, int]]:
    data = Batch(0, rows, codec, producer, 0, 0, transactional=True)
    return [
        (encode_batch(data), ROWS),
        (encode_batch(Batch(0, (), "none", producer, 0, control=COMMIT if commit else ABORT)), 1),
    ]


class _Files:
    """The files of one segment."""

    def __init__(self, folder: Path, base: int) -> None:
        self._path = folder / f"{base:020}"
        self._log = self._path.with_suffix(".log").open("wb")
        self._base = base
        self.size = 0
        self._indexed = 0
        self._offsets: list[tuple[int, int]] = []
        self._txns = bytearray()

    def append(self, data: bytes, offset: int, offsets: int) -> None:
        if self.size - self._indexed > _INDEX_EVERY:
            self._offsets.append((offset + offsets - 1 - self._base, self.size))
            self._indexed = self.size
        self._log.write(struct.pack(">q", offset) + data[8:])
        self.size += len(data)

    def aborted(self, producer: int, first: int, last: int, stable: int) -> None:
        self._txns += struct.pack(">hqqqq", 0, producer, first, last, stable)

    def close(self) -> None:
        self._log.close()
        self._path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in self._offsets))
        times = struct.pack(">qi", TIME + ROWS - 1, 0)
        self._path.with_suffix(".timeindex").write_bytes(times)
        if self._txns:
            self._path.with_suffix(".txnindex").write_bytes(bytes(self._txns))


def _no_producers() -> bytes:
    import crc32c

    checked = struct.pack(">i", 0)
    return struct.pack(">hI", 1, crc32c.crc32c(checked)) + checked


def _note(path: Path, partition: int, offset: int) -> None:
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    lines.append(f"t {partition} {offset}")
    path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def write_empty_segments(root: Path, count: int) -> None:
    """Write a partition of many small segments of a batch each, as a planner meets them."""
    folder = root / "t-0"
    folder.mkdir(parents=True)
    data = encode_batch(Batch(0, records(120)[:10]))
    for base, path in _segments(folder, count):
        path.with_suffix(".log").write_bytes(struct.pack(">q", base) + data[8:])
        path.with_suffix(".index").write_bytes(b"")
        path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", TIME + 9, 9))
    for name, offset in (("replication-offset", count * 10), ("log-start-offset", 0)):
        _note(root / f"{name}-checkpoint", 0, offset)
    (folder / f"{count * 10:020}.snapshot").write_bytes(_no_producers())


def _segments(folder: Path, count: int) -> Iterator[tuple[int, Path]]:
    for number in range(count):
        yield number * 10, folder / f"{number * 10:020}"
