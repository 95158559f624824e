"""Logs of a size that would take too long to write through the API: their metadata is inserted in bulk.

What is inserted is what the service would have stored; the benchmarks check the counts through the API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from crc32c import crc32c
from sqlalchemy import Connection, Table, insert, update

from txn_source.client.log import Log
from txn_source.metadata.store.opening import open_database
from txn_source.metadata.store.sealing import seal
from txn_source.metadata.store.tables import ledgers, partitions, segments
from txn_source.model.position import MAX_LEDGER_ID
from txn_source.storage.root import LogRoot
from txn_source.storage.segment import segment_path

_CHUNK = 50_000


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment in which one entry's bytes stand again and again."""

    segment_id: int
    first_offset: int
    length: int
    checksum: int

    def columns(self, index: int) -> dict[str, int]:
        """Return where the copy of that index lies."""
        return {
            "segment_id": self.segment_id,
            "offset": self.first_offset + index * self.length,
            "length": self.length,
            "crc32c": self.checksum,
        }


class Seeder:
    """Inserts rows into the metadata of an embedded log with one topic of one partition."""

    def __init__(self, log: Log, topic: str) -> None:
        self._root = log.root
        self._database = open_database(LogRoot.at(log.root).database_url)
        [view] = log.metadata.get_view([name for name in log.metadata.list_topics() if name.short == topic]).topics
        self.topic_id = view.topic.topic_id
        self.partition_id = view.partitions[0].partition_id
        self.first_ledger_id = view.partitions[0].bounds.log_end.ledger_id

    def insert(self, table: Table, rows: Iterable[dict[str, Any]]) -> None:
        """Insert rows in one transaction."""

        def insert_all(connection: Connection) -> None:
            for chunk in _chunks(rows):
                connection.execute(insert(table), chunk)

        self._database.write(insert_all)

    def set_ledger(self, **values: Any) -> None:
        """Change the row of the first ledger."""
        change = update(ledgers).where(ledgers.c.ledger_id == self.first_ledger_id).values(values)
        self._database.write(lambda connection: connection.execute(change))

    def change(self, table: Table, **values: int) -> None:
        """Change the only row of a table."""
        self._database.write(lambda connection: connection.execute(update(table).values(values)))

    def roll(
        self, total: int, ledger_entries: int, data_before: Callable[[int], int], messages: int, length: int
    ) -> None:
        """Divide the entries that were inserted into ledgers, all closed and sealed but the last.

        Args:
            total: entries, markers among them.
            ledger_entries: entries in each ledger.
            data_before: returns how many data entries lie before an entry.
            messages: in each data entry.
            length: bytes of each data entry.
        """
        edges = [*range(0, total, ledger_entries), total]
        ids = range(self.first_ledger_id, self.first_ledger_id + len(edges) - 1)
        rows = []
        for ledger_id, (start, end) in zip(ids, pairwise(edges), strict=True):
            first, count = data_before(start), data_before(end) - data_before(start)
            rows.append(
                {"ledger_id": ledger_id, "partition_id": self.partition_id, "entries": end - start,
                 "messages": count * messages, "bytes": count * length, "messages_before": first * messages,
                 "bytes_before": first * length, "last_publish_time_us": 1, "created_at_ms": 1,
                 "closed_at_ms": None if ledger_id == ids[-1] else 1}
            )  # fmt: skip
        self.set_ledger(**{k: v for k, v in rows[0].items() if k != "ledger_id"})
        self.insert(ledgers, rows[1:])
        self.change(partitions, open_ledger_id=ids[-1])
        closed = {row["ledger_id"]: row["entries"] for row in rows[:-1]}
        self._database.write(lambda connection: seal(connection, self.partition_id, closed))

    def segment(self, batch: pa.RecordBatch, copies: int) -> Segment:
        """Write a segment with an entry so many times, and register it."""
        path = segment_path(self.topic_id, 0, self.first_ledger_id, 0)
        header, entry = batch.schema.serialize().to_pybytes(), batch.serialize().to_pybytes()
        file = Path(self._root / path)
        file.parent.mkdir(parents=True)
        with file.open("wb") as out:
            out.write(header)
            for start in range(0, copies, 10_000):
                out.write(entry * min(10_000, copies - start))
        row = {"segment_id": 1, "topic_id": self.topic_id, "path": path, "partition_id": self.partition_id}
        self.insert(segments, [row | {"first_ledger_id": self.first_ledger_id, "last_ledger_id": MAX_LEDGER_ID}])
        return Segment(1, len(header), len(entry), crc32c(entry, crc32c(header)))

    def close(self) -> None:
        """Close the database."""
        self._database.close()


def _chunks(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    rest = iter(rows)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
