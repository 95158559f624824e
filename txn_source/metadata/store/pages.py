"""Entries and decided transactions of a range, as Arrow tables, a page at a time.

Rows of the open ledger come from the database row by row. When a ledger with many of them is closed, they are sealed:
its data entries, and the decisions whose markers lie in it, are kept once more as Arrow pages, which cost a reader a
hundredth of the rows. Neither changes any more. The decisions of a ledger are what Kafka keeps as a segment's
transaction index: an aborted transaction is listed where its marker is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.model.kinds import ABORTED, DATA
from txn_source.model.position import PositionRange
from txn_source.model.visibility import NO_TXN, needed
from txn_source.storage.arrays import array_of, numbers_in

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

PAGE_ROWS = 50_000
_MAX_KEY = (1 << 63) - 1

ENTRY_COLUMNS = (
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
DECISION_COLUMNS = ("txn", "first_position", "marker_position", "state", "decision")


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
        rows = entry_rows(connection, partition_id, start, rows_end, limit)
        if rows or sealed is None:
            table = to_table(rows[:limit], ENTRY_COLUMNS)
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
        rows = decision_rows(connection, partition_id, start, rows_end, end, aborted_only=aborted_only)
        tables.append(to_table(rows[:PAGE_ROWS], DECISION_COLUMNS))
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


@dataclass(frozen=True, slots=True)
class Names:
    """What the ids in a page of entries stand for: paths of segments, names of producers; and of segments that aren't
    in the log's own root alone, the sets of the roots that have them."""

    segments: dict[int, str]
    producers: dict[int, str]
    roots: dict[int, int]


def names_in(connection: Connection, page: Page) -> Names:
    """Return what a page of entries refers to."""
    found = _PATHS.rows(connection, _different(page.table["segment_id"]))
    return Names(
        {row[0]: row[1] for row in found},
        dict(_NAMES.rows(connection, _different(page.table["producer_id"]))),
        {row[0]: row[2] for row in found if row[2] is not None},
    )


def to_table(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> pa.Table:
    """Return rows of integers as an Arrow table."""
    numbers = np.fromiter(chain.from_iterable(rows), np.int64).reshape(len(rows), len(names))
    return pa.table([array_of(column) for column in numbers.T], names=list(names))


def entry_rows(
    connection: Connection, partition_id: int, start: int, end: int, limit: int = PAGE_ROWS
) -> Sequence[tuple[Any, ...]]:
    """Return the data entries in ``[start, end)``, one more than the limit if there are more."""
    of = {"partition_id": partition_id, "start": start, "end": end, "most": limit + 1}
    return _ENTRIES.rows(connection, of)


def decision_rows(
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


_ENTRY_PAGE = Prepared(
    """
    SELECT first_position, last_position, data FROM entry_pages
    WHERE partition_id = :partition_id AND last_position >= :start AND first_position < :end
    ORDER BY last_position LIMIT 1"""
)
_DECISION_PAGE = Prepared(
    """
    SELECT first_marker, last_marker, data FROM decision_pages
    WHERE partition_id = :partition_id AND last_marker >= :start AND min_first_position < :end
    ORDER BY last_marker LIMIT 1"""
)
_ENTRIES = Prepared(
    f"""
    SELECT position, messages, COALESCE(txn, {NO_TXN}), producer_id, base_sequence, publish_time_us, segment_id,
        "offset", length, crc32c
    FROM entries
    WHERE partition_id = :partition_id AND position >= :start AND position < :end AND kind = {DATA}
    ORDER BY position LIMIT :most"""
)


def _decisions(condition: str = "") -> Prepared:
    """Return what finds decisions; those that are needed, see ``model/visibility.py``."""
    return Prepared(
        f"""
        SELECT txn, first_position, marker_position, state, decision FROM transaction_partitions
        WHERE partition_id = :partition_id AND sealed = 0 AND marker_position >= :start
        AND first_position < :first_before AND marker_position < :end {condition}
        ORDER BY marker_position LIMIT :most"""
    )


_DECISIONS = _decisions()
_ABORTED = _decisions(f"AND state = {ABORTED}")
_PATHS = Lookup(
    """
    SELECT segments.segment_id, path, roots
    FROM segments LEFT JOIN segment_copies ON segment_copies.segment_id = segments.segment_id
    WHERE segments.segment_id IN (:values)"""
)
_NAMES = Lookup("SELECT producer_id, name FROM producers WHERE producer_id IN (:values)")


def _needed(tables: Sequence[pa.Table], up_to: int) -> pa.Table:
    table = pa.concat_tables(tables)
    keep = numbers_in(table["decision"]) <= up_to
    if not keep.all():  # mostly they are all needed, and filtering loads a large part of pyarrow
        table = table.filter(array_of(keep))
    return table.drop_columns(["decision"])


def _different(ids: pa.ChunkedArray) -> set[int]:
    return set(numbers_in(ids).tolist())  # np.unique loads numpy.ma


def _read(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
