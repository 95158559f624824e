"""The tail of a partition: positions are assigned here, and ledgers rolled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select, update

from txn_source.metadata.store.conflicts import expect
from txn_source.metadata.store.database import note_change
from txn_source.metadata.store.inserts import Insert, NewRows
from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.metadata.store.sealing import seal
from txn_source.metadata.store.tables import entries, ledgers, partitions, topics
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
    index: int
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
    rows: list[dict[str, Any]] = field(default_factory=list)
    closed: dict[int, int] = field(default_factory=dict)  # ledgers, with their numbers of entries
    stored_ledger_id: int = field(init=False)  # what the database has, as far as this transaction knows
    stored_entries: int = field(init=False)

    def __post_init__(self) -> None:
        self.stored_ledger_id, self.stored_entries = self.ledger_id, self.entries

    @classmethod
    def load(cls, connection: Connection, partition_id: int, now_us: int) -> Tail:
        """Read the tail of a partition that is there."""
        return cls.load_all(connection, [partition_id], now_us)[partition_id]

    @classmethod
    def load_all(cls, connection: Connection, partition_ids: Iterable[int], now_us: int) -> dict[int, Tail]:
        """Read the tails of those of some partitions that are there.

        Publish times never go back inside a partition, even if the clock does (``timekeeping.py``).
        """
        found = {}
        for row in _TAILS.rows(connection, partition_ids):
            partition_id, index, topic_id, last_publish_time_us = row[:4]
            tail = cls(
                partition_id,
                index,
                topic_id,
                LedgerLimits(*row[4:7]),
                now_us // 1000,
                max(now_us, last_publish_time_us),
                last_publish_time_us,
                *row[7:],
            )
            tail._roll_if_full(connection)
            found[partition_id] = tail
        return found

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
        self.store_all(connection, [self])

    @staticmethod
    def store_all(connection: Connection, tails: Sequence[Tail]) -> None:
        """Write the entries and the new states of some partitions and their ledgers.

        Raises:
            ConflictError: one was changed by somebody else since it was loaded.
        """
        for tail in tails:
            note_change(connection, tail.topic_id)
        _ENTRIES.add(connection, [row for tail in tails for row in tail.rows])
        expect(_STORE_LEDGER.run_many(connection, [tail._ledger(closed_at_ms=None) for tail in tails]), len(tails))
        stored = [
            {
                "id": tail.partition_id,
                "stored": tail.stored_ledger_id,
                "open_ledger_id": tail.ledger_id,
                "last_publish_time_us": tail.last_publish_time_us,
            }
            for tail in tails
        ]
        expect(_STORE_PARTITION.run_many(connection, stored), len(tails))
        for tail in tails:
            tail.rows = []
            tail.stored_ledger_id, tail.stored_entries = tail.ledger_id, tail.entries

    def seal(self, connection: Connection) -> None:
        """Keep what belongs to the ledgers that were closed as pages."""
        seal(connection, self.partition_id, self.closed)
        self.closed = {}

    def roll(self, connection: Connection, *, even_if_empty: bool = False, late: bool = False) -> int | None:
        """Close the open ledger and open the next one; return the closed one's id.

        One that is empty is kept open, unless ``even_if_empty`` says otherwise; None is returned then. ``late``: it was
        closed with its last message, and nobody has noticed; its age counts from then.
        """
        if self.entries == 0 and not even_if_empty:
            return None
        closed = self.ledger_id
        self.closed[closed] = self.entries
        last_ms = self.now_ms if self.last_data_time_us is None or not late else self.last_data_time_us // 1000
        closed_at_ms = min(self.now_ms, max(self.created_at_ms, last_ms))
        expect(_STORE_LEDGER.run(connection, self._ledger(closed_at_ms=closed_at_ms)))
        self.messages_before += self.messages
        self.bytes_before += self.bytes
        following = NewLedger(self.partition_id, self.messages_before, self.bytes_before)
        self.ledger_id = open_ledgers(connection, [following], self.now_ms)[self.partition_id]
        self.entries = self.messages = self.bytes = self.stored_entries = 0
        self.created_at_ms = self.now_ms
        self.last_data_time_us = None
        return closed

    def _roll_if_full(self, connection: Connection) -> None:
        if self.limits.full(self.entries, self.bytes, self.now_ms - self.created_at_ms):
            self.roll(connection, late=True)

    def _ledger(self, closed_at_ms: int | None) -> dict[str, int | None]:
        return {
            "id": self.ledger_id,
            "stored": self.stored_entries,
            "entries": self.entries,
            "messages": self.messages,
            "bytes": self.bytes,
            "last_publish_time_us": self.last_data_time_us,
            "closed_at_ms": closed_at_ms,
        }


_TAILS = Lookup(
    lambda names: (
        select(
            partitions.c.partition_id,
            partitions.c.partition_index,
            partitions.c.topic_id,
            partitions.c.last_publish_time_us,
            topics.c.ledger_max_entries,
            topics.c.ledger_max_bytes,
            topics.c.ledger_max_age_ms,
            ledgers.c.ledger_id,
            ledgers.c.entries,
            ledgers.c.messages,
            ledgers.c.bytes,
            ledgers.c.messages_before,
            ledgers.c.bytes_before,
            ledgers.c.created_at_ms,
            ledgers.c.last_publish_time_us,
        )
        .join_from(partitions, ledgers, ledgers.c.ledger_id == partitions.c.open_ledger_id)
        .join(topics, topics.c.topic_id == partitions.c.topic_id)
        .where(partitions.c.partition_id.in_([bindparam(name) for name in names]))
    )
)
_ENTRIES = NewRows(entries)
_STORE_PARTITION = Prepared(
    update(partitions)
    .where(partitions.c.partition_id == bindparam("id"), partitions.c.open_ledger_id == bindparam("stored"))
    .values({name: bindparam(name) for name in ("open_ledger_id", "last_publish_time_us")})
)
_STORE_LEDGER = Prepared(
    update(ledgers)
    .where(
        ledgers.c.ledger_id == bindparam("id"),
        ledgers.c.entries == bindparam("stored"),
        ledgers.c.closed_at_ms.is_(None),
    )
    .values({n: bindparam(n) for n in ("entries", "messages", "bytes", "last_publish_time_us", "closed_at_ms")})
)


def limits_of(row: Row[Any]) -> LedgerLimits:
    """Return the limits in a row that holds a topic's policies."""
    return LedgerLimits(row.ledger_max_entries, row.ledger_max_bytes, row.ledger_max_age_ms)


@dataclass(frozen=True, slots=True)
class NewLedger:
    """An open, empty ledger of a partition, with the totals of all before it."""

    partition_id: int
    messages_before: int = 0
    bytes_before: int = 0


def open_ledgers(connection: Connection, new: Sequence[NewLedger], now_ms: int) -> dict[int, int]:
    """Insert ledgers, one of a partition; return their ids by partition. Each is larger than every one before it."""
    rows = [
        {"partition_id": ledger.partition_id, "messages_before": ledger.messages_before,
         "bytes_before": ledger.bytes_before, "created_at_ms": now_ms, **_EMPTY}
        for ledger in new
    ]  # fmt: skip
    return dict(_OPEN.rows(connection, rows))


_EMPTY = {"entries": 0, "messages": 0, "bytes": 0, "purged": 0}
_OPEN = Insert(
    ledgers,
    ("partition_id", "messages_before", "bytes_before", "created_at_ms", *_EMPTY),
    ("partition_id", "ledger_id"),
)
