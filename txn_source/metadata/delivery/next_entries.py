"""What a consumer gets next: a batch of entries with something in it that its level shows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from txn_source.metadata.delivery.topic_snapshot import HotEntries, TopicSnapshot
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import MessageRange, message_key
from txn_source.model.position import Position, PositionRange
from txn_source.model.subscription import Cursor
from txn_source.model.topic import PartitionView

_BATCH_BYTES = 64 << 20
_LOOKS = 20
"""So many pages without anything visible are passed over in one go."""


@dataclass(frozen=True, slots=True)
class EntryBatch:
    """Entries of one partition in a range, of which a consumer gets the messages in ``wanted``.

    ``messages`` is how many these are, or, where only a tiered copy knows the entries, may be. ``entries`` and
    ``aborted`` are the entries, and the aborted transactions among them, where the database knows them.
    ``redeliveries`` is that of ``metadata/store/deliveries.py``.
    """

    partition_id: int
    range: PositionRange
    wanted: tuple[MessageRange, ...]
    messages: int
    entries: pa.Table | None = None
    aborted: pa.Table | None = None
    redeliveries: int = 0


@dataclass(frozen=True, slots=True)
class ReadCursor:
    """How far a partition has been read for a consumer.

    ``position`` is the next entry to look at. ``delivered_to`` (at or below it) is where the last batch ended: nothing
    visible lies between, and whoever gets the next batch acknowledges that with it.
    """

    position: Position
    delivered_to: Position

    @classmethod
    def at(cls, position: Position) -> ReadCursor:
        """Begin at a position."""
        return cls(position, position)

    def passed(self, end: Position) -> ReadCursor:
        """Go on behind entries of which none is visible; ``end`` is exclusive."""
        return ReadCursor(end, self.delivered_to)

    def delivered(self, end: Position) -> ReadCursor:
        """Go on behind entries that were delivered, or acknowledged before; ``end`` is exclusive."""
        return ReadCursor(end, end)

    def from_start(self, log_start: Position) -> ReadCursor:
        """Leave out what was trimmed."""
        return ReadCursor(max(self.position, log_start), max(self.delivered_to, log_start))


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """What a subscription reads of a partition in one database transaction, below ``bound`` (exclusive).

    What is in ``acknowledged`` is left out. ``durable`` False: what wasn't acknowledged may have been trimmed.
    """

    snapshot: TopicSnapshot
    view: PartitionView
    level: IsolationLevel
    bound: Position
    acknowledged: Cursor
    durable: bool = True

    def wanted(self, start: Position, end: Position) -> tuple[MessageRange, ...]:
        """Return what is not acknowledged of ``[start, end)``."""
        return tuple(self.acknowledged.wanted(message_key(start), message_key(end)))


def next_batch(reading: PartitionReading, cursor: ReadCursor, most: int) -> tuple[EntryBatch | None, ReadCursor]:
    """Return the next batch of at most so many messages, and the cursor behind it; one entry at least, if there is one.

    Without a batch the cursor is where to look next: at the bound, or behind many entries of which none is visible.

    What was trimmed before it was delivered is delivered by its range alone, without entries: the consumer finds
    nothing there and says what is lost. Where nothing was lost, at the end of the last trimmed ledger, it isn't.
    """
    partition_id, low = reading.view.partition_id, reading.view.bounds.log_start
    if not reading.durable and cursor.position < low and not reading.view.lost_nothing(cursor.position):
        lost = reading.wanted(cursor.position, low)
        if lost:
            return EntryBatch(partition_id, PositionRange(cursor.position, low), lost, 1), cursor.delivered(low)
    cursor = cursor.from_start(low)
    for _ in range(_LOOKS):
        if cursor.position >= reading.bound:
            break
        of = PositionRange(cursor.position, reading.bound)
        found = reading.snapshot.entries(partition_id, of, most)
        if found is None:
            ledger_end, messages = reading.snapshot.ledger_end(partition_id, cursor.position.ledger_id)
            end, entries, aborted = min(reading.bound, ledger_end), None, None
        else:
            taken, messages = _take(found, reading.level, most)
            if not taken:
                cursor = cursor.passed(found.range.end)
                continue
            end, entries, aborted = found.range.end, found.table, found.aborted
            if taken < entries.num_rows:
                end = Position.from_key(entries["position"][taken - 1].as_py()).plus(1)
                entries = entries.slice(0, taken)
        wanted = reading.wanted(cursor.delivered_to, end)
        if wanted:
            if entries is not None:
                known = reading.acknowledged.ranges.within(message_key(cursor.position), wanted[-1].end)
                messages -= sum(r.messages for r in known)
            batch_range = PositionRange(cursor.position, end)
            batch = EntryBatch(partition_id, batch_range, wanted, max(1, messages), entries, aborted)
            return batch, cursor.delivered(end)
        cursor = cursor.delivered(end)
    return None, cursor


def _take(found: HotEntries, level: IsolationLevel, most: int) -> tuple[int, int]:
    """Return how many entries to deliver from the first on, the last one visible; and their visible messages."""
    seen = found.visible(level)
    count = len(seen.rows)
    if not count:
        return 0, 0
    last = count - 1
    if seen.messages[last] > most or seen.bytes[last] > _BATCH_BYTES:
        fits = min(seen.messages.searchsorted(most, "right"), seen.bytes.searchsorted(_BATCH_BYTES, "right"))
        last = max(1, int(fits)) - 1
    return found.table.num_rows if last == count - 1 else int(seen.rows[last]) + 1, int(seen.messages[last])
