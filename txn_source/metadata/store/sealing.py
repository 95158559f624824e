"""Keeping the rows of closed ledgers once more as Arrow pages (``pages.py``)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from sqlalchemy import Connection, bindparam, insert, literal_column, update

from txn_source.metadata.store import pages
from txn_source.metadata.store.tables import decision_pages, entry_pages, transaction_partitions
from txn_source.model.position import MAX_ENTRY_ID, Position
from txn_source.storage.arrays import numbers_in

_SEAL_FROM_ROWS = 1_000
"""Fewer rows are as quick to read from the database."""


def seal(connection: Connection, partition_id: int, closed: Mapping[int, int]) -> None:
    """Keep the rows of ledgers that were just closed as pages, where they are many.

    ``closed`` are numbers of entries by ledger; there are no more decisions than entries.
    """
    for ledger_id, entry_count in closed.items():
        if entry_count < _SEAL_FROM_ROWS:
            continue
        start, end = Position(ledger_id, 0).key, Position(ledger_id, MAX_ENTRY_ID).key
        while len(rows := pages.entry_rows(connection, partition_id, start, end)) >= _SEAL_FROM_ROWS:
            table = pages.to_table(rows[: pages.PAGE_ROWS], pages.ENTRY_COLUMNS)
            first, last = rows[0][0], rows[: pages.PAGE_ROWS][-1][0]
            values = {"partition_id": partition_id, "first_position": first, "last_position": last}
            connection.execute(insert(entry_pages).values(values | {"data": _write(table)}))
            start = last + 1
        start = Position(ledger_id, 0).key
        while len(rows := pages.decision_rows(connection, partition_id, start, end)) >= _SEAL_FROM_ROWS:
            table = pages.to_table(rows[: pages.PAGE_ROWS], pages.DECISION_COLUMNS)
            first, last = rows[0][2], rows[: pages.PAGE_ROWS][-1][2]
            lowest = int(numbers_in(table["first_position"]).min())
            values = {"partition_id": partition_id, "first_marker": first, "last_marker": last}
            values["min_first_position"] = lowest
            connection.execute(insert(decision_pages).values(values | {"data": _write(table)}))
            connection.execute(_SEAL, {"of_partition": partition_id, "first": first, "last": last})
            start = last + 1


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


_SEAL = (
    update(transaction_partitions)
    .where(
        transaction_partitions.c.partition_id == bindparam("of_partition"),
        transaction_partitions.c.marker_position.between(bindparam("first"), bindparam("last")),
        transaction_partitions.c.sealed == literal_column("0"),
    )
    .values(sealed=1)
)
