"""Reading the pieces of a plan, as batches of the wanted columns."""

from __future__ import annotations

import functools
import logging
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa

from txn_source.foreign.foreign_log import ForeignLog, ForeignPartition, PartitionName
from txn_source.foreign.reading.pieces import Piece
from txn_source.foreign.reading.topics import SeenPartition, label
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import (
    DataLossError,
    InvalidArgumentError,
    SegmentUnreadableError,
    TopicNotFoundError,
    TxnLogError,
)
from txn_source.model.position import Position, PositionRange
from txn_source.reading.request import ReadRequest
from txn_source.storage.arrays import array_of

_log = logging.getLogger(__name__)
_THREADS = min(os.cpu_count() or 1, 4)
_PART_BYTES = 4 << 20
_MOVED = (DataLossError, InvalidArgumentError, TopicNotFoundError)
"""Errors of a partition whose files have changed since they were listed."""


class PieceReader:
    """Reads pieces of one log at one level.

    Args:
        target: the log.
        columns: the wanted columns, in order, with their types.
        request: how to read.
        log: the open log; None: the first piece opens it.
    """

    copies_read = None

    def __init__(
        self, target: ForeignTarget, columns: pa.Schema, request: ReadRequest, log: ForeignLog | None = None
    ) -> None:
        self._target = target
        self._schema = columns
        self._request = request
        self._log = log
        rules = target.rules
        self._constants = {name: rules.constants[name] for name in columns.names if name in rules.constants}
        self._stored = [name for name in columns.names if name not in self._constants]
        self._asked = self._stored or [rules.cheapest]
        self._partitions: dict[PartitionName, ForeignPartition] = {}

    def read(self, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of pieces, in their order.

        Raises:
            SegmentUnreadableError: stored data are damaged. ``fail_on_data_loss=False`` leaves them out.
            DataLossError: stored data are gone; likewise.
        """
        for piece in pieces:
            try:
                yield from self._piece(piece)
            except (DataLossError, SegmentUnreadableError) as error:
                if self._request.fail_on_data_loss:
                    raise
                self._skipped(error)

    def count(self, pieces: Iterable[Piece]) -> int:
        """Return the number of rows of pieces, from headers where these suffice."""
        rows = 0
        for piece in pieces:
            found = self._counted(piece) if self._request.fail_on_data_loss else None
            rows += sum(batch.num_rows for batch in self.read([piece])) if found is None else found
        return rows

    def take(self, of: SeenPartition, within: PositionRange, messages: int, size: int) -> tuple[Position, int, int]:
        """Return the end of a range's beginning of so many records and bytes at most, and how many it has.

        Markers don't count; records of aborted transactions do.
        """
        taken = of.partition.take(within, messages, size)
        return taken.end, taken.rows, taken.bytes

    def _counted(self, piece: Piece) -> int | None:
        try:
            return self._partition(piece).count(piece.unit, self._request.isolation_level, piece.decisions)
        except _MOVED:  # the reader lists the log anew
            return None

    def read_ahead(self, pieces: Iterable[Piece]) -> Iterator[pa.RecordBatch]:
        """Yield the same rows; threads read a few small parts ahead, and stop when the caller stops."""
        if not self._request.fail_on_data_loss:
            yield from self.read(pieces)
            return
        parts = (part for piece in pieces for part in self._parts(piece))
        ahead: deque[Future[list[pa.RecordBatch]]] = deque()
        with ThreadPoolExecutor(_THREADS) as pool:
            try:
                while True:
                    for part in islice(parts, _THREADS + 1 - len(ahead)):
                        ahead.append(pool.submit(list, self._piece(part)))
                    if not ahead:
                        return
                    yield from ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()

    def _parts(self, piece: Piece) -> Iterator[Piece]:
        for unit in self._partition(piece).units(piece.unit.of, _PART_BYTES):
            unit = replace(unit, inside=piece.unit.inside)
            yield replace(piece, unit=unit, decisions=piece.decisions.needed(unit.of))

    def _piece(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """Read one piece; if its files have moved and no row was yielded yet, list the log anew."""
        for again in (True, False):
            begun = False
            try:
                for batch in self._batches(piece):
                    begun = True
                    yield self._finished(batch, piece.name)
                return
            except _MOVED:
                if begun or not again:
                    raise
                self._partitions.clear()
                _opened.cache_clear()
                self._log = _opened(os.getpid(), self._target)

    def _batches(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        partition = self._partition(piece)
        skipped = None if self._request.fail_on_data_loss else self._skipped
        level = self._request.isolation_level
        return partition.read(piece.unit, level, piece.decisions, self._asked, skipped)

    def _partition(self, piece: Piece) -> ForeignPartition:
        found = self._partitions.get(piece.name)
        if found is None:
            if self._log is None:
                self._log = _opened(os.getpid(), self._target)
            found = self._partitions[piece.name] = self._log.partition(piece.name)
        if piece.identity is not None and found.identity not in (None, piece.identity):
            raise DataLossError(
                f"{label(piece.name)} was deleted and made again since the read was planned.",
                "Plan the read anew.",
            )
        return found

    def _finished(self, batch: pa.RecordBatch, name: PartitionName) -> pa.RecordBatch:
        """Return the wanted columns in order, with those that are constant in the partition."""
        if not self._constants:
            return batch
        values: dict[str, str | int] = {"topic": name.topic, "partition": name.partition}
        stored = dict(zip(self._asked, batch.columns, strict=True))
        arrays = [
            _constant(field.type, values[self._constants[field.name]], batch.num_rows)
            if field.name in self._constants
            else stored[field.name]
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _skipped(self, error: TxnLogError) -> None:
        _log.warning("left out: %s (failOnDataLoss=false)", error.fact)


@functools.lru_cache(4)
def _opened(_process: int, target: ForeignTarget) -> ForeignLog:
    """Return a log as this process listed it first, since tasks of one query follow each other."""
    return target.open()


@functools.lru_cache(8)
def _repeated(kind: pa.DataType, value: str | int, rows: int) -> pa.Array:
    if isinstance(value, int):
        return array_of(np.full(rows, value, np.int32))
    data = value.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(ends), pa.py_buffer(data * rows)])


def _constant(kind: pa.DataType, value: str | int, rows: int) -> pa.Array:
    """Return a column with one value, as a slice of a longer one that is kept."""
    return _repeated(kind, value, max(1 << 16, 1 << max(rows - 1, 1).bit_length())).slice(0, rows)
