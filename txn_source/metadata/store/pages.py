"""Entries and decided transactions of a range, as Arrow tables, a page at a time.

Rows of the open ledger come from the database row by row. When a ledger with many of them is closed, they are sealed:
its data entries, and the decisions whose markers lie in it, are kept once more as Arrow pages, which cost a reader a
hundredth of the rows. Neither changes any more. The decisions of a ledger are what Kafka keeps as a segment's
transaction index: an aborted transaction is listed where its marker is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, Select, bindparam, func, insert, literal_column, select, update

from txn_source.metadata.store.tables import (
    decision_pages,
    entries,
    entry_pages,
    producers,
    segments,
    transaction_partitions,
)
from txn_source.model.kinds import ABORTED, DATA
from txn_source.model.position import MAX_ENTRY_ID, Position, PositionRange
from txn_source.model.visibility import NO_TXN

PAGE_ROWS = 50_000
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
    sealed = connection.execute(
        select(entry_pages)
        .where(
            entry_pages.c.partition_id == partition_id,
            entry_pages.c.last_position >= start,
            entry_pages.c.first_position < end,
        )
        .order_by(entry_pages.c.last_position)
        .limit(1)
    ).first()
    if sealed is None or sealed.first_position > start:
        rows_end = end if sealed is None else sealed.first_position
        rows = fetch(connection, _entry_rows(partition_id, start, rows_end, limit))
        if rows or sealed is None:
            table = to_table(rows[:limit], _ENTRY_COLUMNS)
            if len(rows) > limit:
                return Page(table, rows[limit][0])
            return Page(table, rows_end if rows_end < end else None)
    assert sealed is not None
    table = _read(sealed.data)
    positions = table["position"].to_numpy()
    first, last = (int(np.searchsorted(positions, bound)) for bound in (start, end))
    if last - first > limit:
        return Page(table.slice(first, limit), int(positions[first + limit]))
    table = table.slice(first, last - first)
    after = sealed.last_position + 1
    return Page(table, after if after < end else None)


def decision_page(
    connection: Connection, partition_id: int, of: PositionRange, *, aborted_only: bool, up_to: int
) -> Page:
    """Return the decided transactions that a read of a range needs: ``marker >= start and first < end``.

    Pages go on by marker: ``next_start`` is the marker to go on from. Decisions after the first ``up_to`` of the log
    are left out.
    """
    start, end = of.start.key, of.end.key
    tables: list[pa.Table] = []
    while sum(table.num_rows for table in tables) < PAGE_ROWS:
        sealed = connection.execute(
            select(decision_pages)
            .where(
                decision_pages.c.partition_id == partition_id,
                decision_pages.c.last_marker >= start,
                decision_pages.c.min_first_position < end,
            )
            .order_by(decision_pages.c.last_marker)
            .limit(1)
        ).first()
        rows_end = None if sealed is None else sealed.first_marker
        rows = fetch(connection, _decision_rows(partition_id, start, rows_end, end, aborted_only=aborted_only))
        tables.append(to_table(rows[:PAGE_ROWS], _DECISION_COLUMNS))
        if len(rows) > PAGE_ROWS:
            return Page(_needed(tables, up_to), rows[PAGE_ROWS][2])
        if sealed is None:
            return Page(_needed(tables, up_to), None)
        table = _read(sealed.data)
        keep = (table["marker_position"].to_numpy() >= start) & (table["first_position"].to_numpy() < end)
        if aborted_only:
            keep &= table["state"].to_numpy() == ABORTED
        tables.append(table.filter(pa.array(keep)))
        start = sealed.last_marker + 1
    return Page(_needed(tables, up_to), start)


def seal(connection: Connection, partition_id: int, ledger_ids: Iterable[int]) -> None:
    """Keep the rows of ledgers that were just closed as pages, where they are many."""
    for ledger_id in ledger_ids:
        start, end = Position(ledger_id, 0).key, Position(ledger_id, MAX_ENTRY_ID).key
        while len(rows := fetch(connection, _entry_rows(partition_id, start, end))) >= _SEAL_FROM_ROWS:
            table = to_table(rows[:PAGE_ROWS], _ENTRY_COLUMNS)
            first, last = rows[0][0], rows[:PAGE_ROWS][-1][0]
            values = {"partition_id": partition_id, "first_position": first, "last_position": last}
            connection.execute(insert(entry_pages).values(values | {"data": _write(table)}))
            start = last + 1
        start = Position(ledger_id, 0).key
        while len(rows := fetch(connection, _decision_rows(partition_id, start, end))) >= _SEAL_FROM_ROWS:
            table = to_table(rows[:PAGE_ROWS], _DECISION_COLUMNS)
            first, last = rows[0][2], rows[:PAGE_ROWS][-1][2]
            lowest = int(table["first_position"].to_numpy().min())
            values = {"partition_id": partition_id, "first_marker": first, "last_marker": last}
            values["min_first_position"] = lowest
            connection.execute(insert(decision_pages).values(values | {"data": _write(table)}))
            connection.execute(_SEAL, {"of_partition": partition_id, "first": first, "last": last})
            start = last + 1


def names_in(connection: Connection, page: Page) -> tuple[dict[int, str], dict[int, str]]:
    """Return the paths of the segments and the names of the producers that a page of entries refers to, by id."""
    return (
        _names(connection, segments.c.segment_id, segments.c.path, page.table["segment_id"]),
        _names(connection, producers.c.producer_id, producers.c.name, page.table["producer_id"]),
    )


def fetch(connection: Connection, query: Select[Any]) -> Sequence[tuple[Any, ...]]:
    """Return plain tuples: a page has so many rows that SQLAlchemy's own would cost as much as the database."""
    result = connection.execute(query)
    assert result.cursor is not None
    rows: Sequence[tuple[Any, ...]] = result.cursor.fetchall()
    result.close()
    return rows


def to_table(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> pa.Table:
    """Return rows of integers as an Arrow table."""
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in names]
    return pa.table([pa.array(column, pa.int64()) for column in columns], names=list(names))


def _entry_rows(partition_id: int, start: int, end: int, limit: int = PAGE_ROWS) -> Select[Any]:
    columns = [func.coalesce(entries.c.txn, NO_TXN) if n == "txn" else entries.c[n] for n in _ENTRY_COLUMNS]
    return (
        select(*columns)
        .where(
            entries.c.partition_id == partition_id,
            entries.c.position >= start,
            entries.c.position < end,
            entries.c.kind == DATA,
        )
        .order_by(entries.c.position)
        .limit(limit + 1)
    )


def _decision_rows(
    partition_id: int, start: int, end: int | None, first_before: int | None = None, *, aborted_only: bool = False
) -> Select[Any]:
    """Markers in ``[start, end)`` that no page has, of transactions that began before a position."""
    t = transaction_partitions
    query = select(*(t.c[name] for name in _DECISION_COLUMNS)).where(
        t.c.partition_id == partition_id,
        t.c.sealed == literal_column("0"),  # as the index has it
        t.c.marker_position >= start,
    )
    if aborted_only:
        query = query.where(t.c.state == ABORTED)
    if end is not None:
        query = query.where(t.c.marker_position < end)
    if first_before is not None:
        query = query.where(t.c.first_position < first_before)
    return query.order_by(t.c.marker_position).limit(PAGE_ROWS + 1)


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
    return table.filter(pa.array(table["decision"].to_numpy() <= up_to)).drop_columns(["decision"])


def _names(connection: Connection, key: Any, name: Any, ids: pa.ChunkedArray) -> dict[int, str]:
    wanted = np.unique(ids.to_numpy()).tolist()
    found: dict[int, str] = {}
    for start in range(0, len(wanted), 1000):
        rows = connection.execute(select(key, name).where(key.in_(wanted[start : start + 1000])))
        found.update((int(row[0]), str(row[1])) for row in rows)
    return found


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _read(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
