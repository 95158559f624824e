"""The tail of a partition: positions are assigned here, and ledgers rolled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from txn_source.metadata.store.database import note_change
from txn_source.metadata.store.pages import seal
from txn_source.metadata.store.tables import entries, ledgers, partitions, topics
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.kinds import DATA
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.position import Position

_OPTIONAL = ("txn", "producer_id", "base_sequence", "segment_id", "offset", "crc32c")


@dataclass(slots=True)
class Tail:
    """The open ledger of one partition inside one write transaction.

    1. ``load`` reads it, and rolls it if it is too old.
    2. ``place`` assigns the next position, rolling when the ledger is full.
    3. ``store`` writes what changed. Rows of entries are inserted there, all at once.
    4. ``seal`` makes pages of the ledgers that were closed, once all that belongs to them is written.
    """

    partition_id: int
    topic_id: int
    limits: LedgerLimits
    now_ms: int  # by the clock, which ages go by
    now_us: int  # the publish time of what is placed, which never goes back
    last_publish_time_us: int
    ledger_id: int
    entries: int
    messages: int
    bytes: int
    messages_before: int
    bytes_before: int
    created_at_ms: int
    last_data_time_us: int | None
    rows: list[dict[str, Any]]
    closed: list[int]

    @classmethod
    def load(cls, connection: Connection, partition_id: int, now_us: int, topic_id: int | None = None) -> Tail:
        """Read the tail; publish times never go back inside a partition, even if the clock does (``timekeeping.py``).

        Raises:
            InvalidArgumentError: the partition isn't one of the topic of that id (None: of any).
        """
        row = connection.execute(_TAIL, {"partition_id": partition_id}).first()
        if row is None or topic_id not in (None, row.topic_id):
            raise InvalidArgumentError(
                f"Partition id {partition_id} is not one of the topic's.",
                "Use a partition of the producer's own topic.",
            )
        tail = cls(
            partition_id=partition_id,
            topic_id=row.topic_id,
            limits=limits_of(row),
            now_ms=now_us // 1000,
            now_us=max(now_us, row.partition_publish_time_us),
            last_publish_time_us=row.partition_publish_time_us,
            ledger_id=row.ledger_id,
            entries=row.entries,
            messages=row.messages,
            bytes=row.bytes,
            messages_before=row.messages_before,
            bytes_before=row.bytes_before,
            created_at_ms=row.created_at_ms,
            last_data_time_us=row.last_publish_time_us,
            rows=[],
            closed=[],
        )
        tail._roll_if_full(connection)
        return tail

    @property
    def end(self) -> Position:
        """The next position to be assigned."""
        return Position(self.ledger_id, self.entries)

    def place(self, connection: Connection, kind: int, messages: int, length: int, **columns: Any) -> Position:
        """Assign the next position to an entry and return it."""
        position = self.end
        row: dict[str, Any] = dict.fromkeys(_OPTIONAL)
        row |= columns
        row |= {
            "partition_id": self.partition_id,
            "position": position.key,
            "kind": kind,
            "messages": messages,
            "messages_before": self.messages_before + self.messages,
            "bytes_before": self.bytes_before + self.bytes,
            "publish_time_us": self.now_us,
            "length": length,
        }
        self.rows.append(row)
        self.entries += 1
        self.messages += messages
        self.bytes += length
        self.last_publish_time_us = self.now_us
        if kind == DATA:
            self.last_data_time_us = self.now_us
        self._roll_if_full(connection)
        return position

    def store(self, connection: Connection) -> None:
        """Write the entries and the new state of partition and ledger."""
        note_change(connection, self.topic_id)
        if self.rows:
            connection.execute(insert(entries), self.rows)
            self.rows = []
        self._store_ledger(connection, closed_at_ms=None)
        connection.execute(
            _STORE_PARTITION,
            {
                "id": self.partition_id,
                "open_ledger_id": self.ledger_id,
                "last_publish_time_us": self.last_publish_time_us,
            },
        )

    def seal(self, connection: Connection) -> None:
        """Keep what belongs to the ledgers that were closed as pages."""
        seal(connection, self.partition_id, self.closed)
        self.closed = []

    def roll(self, connection: Connection) -> int | None:
        """Close the open ledger and open the next one; return the closed one's id, None if it was empty (kept open)."""
        if self.entries == 0:
            return None
        closed = self.ledger_id
        self.closed.append(closed)
        self._store_ledger(connection, closed_at_ms=self.now_ms)
        self.messages_before += self.messages
        self.bytes_before += self.bytes
        self.ledger_id = open_ledger(
            connection, self.partition_id, self.now_ms, self.messages_before, self.bytes_before
        )
        self.entries = self.messages = self.bytes = 0
        self.created_at_ms = self.now_ms
        self.last_data_time_us = None
        return closed

    def _roll_if_full(self, connection: Connection) -> None:
        if self.limits.full(self.entries, self.bytes, self.now_ms - self.created_at_ms):
            self.roll(connection)

    def _store_ledger(self, connection: Connection, closed_at_ms: int | None) -> None:
        connection.execute(
            _STORE_LEDGER,
            {
                "id": self.ledger_id,
                "entries": self.entries,
                "messages": self.messages,
                "bytes": self.bytes,
                "last_publish_time_us": self.last_data_time_us,
                "closed_at_ms": closed_at_ms,
            },
        )


# Built once: for statements as short as these, building one costs as much as running it.
_TAIL = (
    select(
        topics.c.topic_id,
        partitions.c.last_publish_time_us.label("partition_publish_time_us"),
        topics.c.ledger_max_entries,
        topics.c.ledger_max_bytes,
        topics.c.ledger_max_age_ms,
        ledgers,
    )
    .join_from(partitions, ledgers, ledgers.c.ledger_id == partitions.c.open_ledger_id)
    .join(topics, topics.c.topic_id == partitions.c.topic_id)
    .where(partitions.c.partition_id == bindparam("partition_id"))
    .with_for_update(of=partitions)  # SQLite has its write lock already and leaves this out
)
_STORE_PARTITION = (
    update(partitions)
    .where(partitions.c.partition_id == bindparam("id"))
    .values({name: bindparam(name) for name in ("open_ledger_id", "last_publish_time_us")})
)
_STORE_LEDGER = (
    update(ledgers)
    .where(ledgers.c.ledger_id == bindparam("id"))
    .values({n: bindparam(n) for n in ("entries", "messages", "bytes", "last_publish_time_us", "closed_at_ms")})
)


def limits_of(row: Row[Any]) -> LedgerLimits:
    """Return the limits in a row that holds a topic's policies."""
    return LedgerLimits(row.ledger_max_entries, row.ledger_max_bytes, row.ledger_max_age_ms)


def open_ledger(
    connection: Connection, partition_id: int, now_ms: int, messages_before: int = 0, bytes_before: int = 0
) -> int:
    """Insert an open, empty ledger and return its id, which is larger than every one before it."""
    result = connection.execute(
        insert(ledgers).values(
            partition_id=partition_id,
            messages_before=messages_before,
            bytes_before=bytes_before,
            created_at_ms=now_ms,
        )
    )
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])
