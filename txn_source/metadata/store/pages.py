"""Entries and decided transactions of a range, as Arrow tables, a page at a time.

Rows of the open ledger come from the database row by row. When a ledger with many of them is closed, they are sealed:
its data entries, and the decisions whose markers lie in it, are kept once more as Arrow pages, which cost a reader a
hundredth of the rows. Neither changes any more. The decisions of a ledger are what Kafka keeps as a segment's
transaction index: an aborted transaction is listed where its marker is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, bindparam, func, insert, literal_column, select, update

from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.metadata.store.tables import (
    decision_pages,
    entries,
    entry_pages,
    is_in,
    producers,
    segments,
    transaction_partitions,
)
from txn_source.model.kinds import ABORTED, DATA
from txn_source.model.position import MAX_ENTRY_ID, Position, PositionRange
from txn_source.model.visibility import NO_TXN, needed
from txn_source.storage.arrays import array_of, numbers_in

PAGE_ROWS = 50_000
_MAX_KEY = (1 << 63) - 1
_SEAL_FROM_ROWS = 1_000
"""Fewer rows are as quick to read from the database."""

_ENTRY_COLUMNS = (
    "position",
    "messages",
    "txn",
    "producer_id",
    "base_sequence",
    "publish_time_us",
    "segment_id",
    "offset",
    "length",
    "crc32c",
)
_DECISION_COLUMNS = ("txn", "first_position", "marker_position", "state", "decision")


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a big answer; ``next_start`` is where to go on, None on the last page."""

    table: pa.Table
    next_start: int | None


def entry_page(connection: Connection, partition_id: int, of: PositionRange, limit: int = PAGE_ROWS) -> Page:
    """Return a page of the data entries of a range, ascending, of so many entries at most."""
    start, end = of.start.key, of.end.key
    of_page = {"partition_id": partition_id, "start": start, "end": end}
    sealed = next((_SealedPage(*row) for row in _ENTRY_PAGE.rows(connection, of_page)), None)
    if sealed is None or sealed.first > start:
        rows_end = end if sealed is None else sealed.first
        rows = _entry_rows(connection, partition_id, start, rows_end, limit)
        if rows or sealed is None:
            table = to_table(rows[:limit], _ENTRY_COLUMNS)
            if len(rows) > limit:
                return Page(table, rows[limit][0])
            return Page(table, rows_end if rows_end < end else None)
    assert sealed is not None
    table = _read(sealed.data)
    positions = numbers_in(table["position"])
    first, last = (int(np.searchsorted(positions, bound)) for bound in (start, end))
    if last - first > limit:
        return Page(table.slice(first, limit), int(positions[first + limit]))
    table = table.slice(first, last - first)
    after = sealed.last + 1
    return Page(table, after if after < end else None)


def decision_page(
    connection: Connection, partition_id: int, of: PositionRange, *, aborted_only: bool, up_to: int
) -> Page:
    """Return the decided transactions that a read of a range needs (``model/visibility.py``).

    Pages go on by marker: ``next_start`` is the marker to go on from. Decisions after the first ``up_to`` of the log
    are left out.
    """
    start, end = of.start.key, of.end.key
    tables: list[pa.Table] = []
    while sum(table.num_rows for table in tables) < PAGE_ROWS:
        of_page = {"partition_id": partition_id, "start": start, "end": end}
        sealed = next((_SealedPage(*row) for row in _DECISION_PAGE.rows(connection, of_page)), None)
        rows_end = _MAX_KEY if sealed is None else sealed.first
        rows = _decision_rows(connection, partition_id, start, rows_end, end, aborted_only=aborted_only)
        tables.append(to_table(rows[:PAGE_ROWS], _DECISION_COLUMNS))
        if len(rows) > PAGE_ROWS:
            return Page(_needed(tables, up_to), rows[PAGE_ROWS][2])
        if sealed is None:
            return Page(_needed(tables, up_to), None)
        table = _read(sealed.data)
        keep = needed(numbers_in(table["first_position"]), numbers_in(table["marker_position"]), start, end)
        if aborted_only:
            keep &= numbers_in(table["state"]) == ABORTED
        tables.append(table.filter(array_of(keep)))
        start = sealed.last + 1
    return Page(_needed(tables, up_to), start)


def seal(connection: Connection, partition_id: int, closed: Mapping[int, int]) -> None:
    """Keep the rows of ledgers that were just closed as pages, where they are many.

    ``closed`` are numbers of entries by ledger; there are no more decisions than entries.
    """
    for ledger_id, entry_count in closed.items():
        if entry_count < _SEAL_FROM_ROWS:
            continue
        start, end = Position(ledger_id, 0).key, Position(ledger_id, MAX_ENTRY_ID).key
        while len(rows := _entry_rows(connection, partition_id, start, end)) >= _SEAL_FROM_ROWS:
            table = to_table(rows[:PAGE_ROWS], _ENTRY_COLUMNS)
            first, last = rows[0][0], rows[:PAGE_ROWS][-1][0]
            values = {"partition_id": partition_id, "first_position": first, "last_position": last}
            connection.execute(insert(entry_pages).values(values | {"data": _write(table)}))
            start = last + 1
        start = Position(ledger_id, 0).key
        while len(rows := _decision_rows(connection, partition_id, start, end)) >= _SEAL_FROM_ROWS:
            table = to_table(rows[:PAGE_ROWS], _DECISION_COLUMNS)
            first, last = rows[0][2], rows[:PAGE_ROWS][-1][2]
            lowest = int(numbers_in(table["first_position"]).min())
            values = {"partition_id": partition_id, "first_marker": first, "last_marker": last}
            values["min_first_position"] = lowest
            connection.execute(insert(decision_pages).values(values | {"data": _write(table)}))
            connection.execute(_SEAL, {"of_partition": partition_id, "first": first, "last": last})
            start = last + 1


def names_in(connection: Connection, page: Page) -> tuple[dict[int, str], dict[int, str]]:
    """Return the paths of the segments and the names of the producers that a page of entries refers to, by id."""
    return (
        dict(_PATHS.rows(connection, _different(page.table["segment_id"]))),
        dict(_NAMES.rows(connection, _different(page.table["producer_id"]))),
    )


def to_table(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> pa.Table:
    """Return rows of integers as an Arrow table."""
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    return pa.table([array_of(np.array(column, np.int64)) for column in columns], names=list(names))


def _entry_rows(
    connection: Connection, partition_id: int, start: int, end: int, limit: int = PAGE_ROWS
) -> Sequence[tuple[Any, ...]]:
    """Return the data entries in ``[start, end)``, one more than the limit if there are more."""
    of = {"partition_id": partition_id, "start": start, "end": end, "most": limit + 1}
    return _ENTRIES.rows(connection, of)


def _decision_rows(
    connection: Connection,
    partition_id: int,
    start: int,
    end: int,
    first_before: int = _MAX_KEY,
    *,
    aborted_only: bool = False,
) -> Sequence[tuple[Any, ...]]:
    """Return markers in ``[start, end)`` that no page has, of transactions that began before a position; one more than
    a page if there are more."""
    of = {"partition_id": partition_id, "start": start, "end": end, "first_before": first_before, "most": PAGE_ROWS + 1}
    return (_ABORTED if aborted_only else _DECISIONS).rows(connection, of)


@dataclass(frozen=True, slots=True)
class _SealedPage:
    """A sealed page: the positions of its first and last row, and the rows."""

    first: int
    last: int
    data: bytes


# Compiled once: a page of a few entries would take less time than its statements.
_ENTRY_PAGE = Prepared(
    select(entry_pages.c.first_position, entry_pages.c.last_position, entry_pages.c.data)
    .where(
        entry_pages.c.partition_id == bindparam("partition_id"),
        entry_pages.c.last_position >= bindparam("start"),
        entry_pages.c.first_position < bindparam("end"),
    )
    .order_by(entry_pages.c.last_position)
    .limit(1)
)
_DECISION_PAGE = Prepared(
    select(decision_pages.c.first_marker, decision_pages.c.last_marker, decision_pages.c.data)
    .where(
        decision_pages.c.partition_id == bindparam("partition_id"),
        decision_pages.c.last_marker >= bindparam("start"),
        decision_pages.c.min_first_position < bindparam("end"),
    )
    .order_by(decision_pages.c.last_marker)
    .limit(1)
)
_ENTRIES = Prepared(
    select(*[func.coalesce(entries.c.txn, NO_TXN) if n == "txn" else entries.c[n] for n in _ENTRY_COLUMNS])
    .where(
        entries.c.partition_id == bindparam("partition_id"),
        entries.c.position >= bindparam("start"),
        entries.c.position < bindparam("end"),
        entries.c.kind == literal_column(str(DATA)),
    )
    .order_by(entries.c.position)
    .limit(bindparam("most"))
)
_ALL_DECISIONS = (
    select(*(transaction_partitions.c[name] for name in _DECISION_COLUMNS))
    .where(
        transaction_partitions.c.partition_id == bindparam("partition_id"),
        transaction_partitions.c.sealed == literal_column("0"),  # as the index has it
        needed(
            transaction_partitions.c.first_position,
            transaction_partitions.c.marker_position,
            bindparam("start"),
            bindparam("first_before"),
        ),
        transaction_partitions.c.marker_position < bindparam("end"),
    )
    .order_by(transaction_partitions.c.marker_position)
    .limit(bindparam("most"))
)
_DECISIONS = Prepared(_ALL_DECISIONS)
_ABORTED = Prepared(_ALL_DECISIONS.where(is_in(transaction_partitions.c.state, ABORTED)))
_PATHS = Lookup(
    lambda names: select(segments.c.segment_id, segments.c.path).where(
        segments.c.segment_id.in_([bindparam(name) for name in names])
    )
)
_NAMES = Lookup(
    lambda names: select(producers.c.producer_id, producers.c.name).where(
        producers.c.producer_id.in_([bindparam(name) for name in names])
    )
)
_SEAL = (
    update(transaction_partitions)
    .where(
        transaction_partitions.c.partition_id == bindparam("of_partition"),
        transaction_partitions.c.marker_position.between(bindparam("first"), bindparam("last")),
        transaction_partitions.c.sealed == literal_column("0"),
    )
    .values(sealed=1)
)


def _needed(tables: Sequence[pa.Table], up_to: int) -> pa.Table:
    table = pa.concat_tables(tables)
    keep = numbers_in(table["decision"]) <= up_to
    if not keep.all():  # mostly they are all needed, and filtering loads a large part of pyarrow
        table = table.filter(array_of(keep))
    return table.drop_columns(["decision"])


def _different(ids: pa.ChunkedArray) -> list[int]:
    different: list[int] = np.unique(numbers_in(ids)).tolist()
    return different


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _read(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
