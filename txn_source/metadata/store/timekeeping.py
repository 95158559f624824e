"""Time, as far as the log depends on it, and what is mended when the clock turns out to have been ahead.

Three kinds of time are stored. *Moments* of the machine's clock tell ages and deadlines. *Orders* (publish times, the
ends of transactions) are moments that never go back, so that a place can be found by time. *Measured* time grows by
what passed between two looks at the clock, but never by more than ``_MAX_STEP_MS`` at once, and never back; a clock
that jumps changes it hardly, so what must not be forgotten early goes by it.

Whoever writes looks at the clock if nobody did so in the last ``LOOK_EVERY_MS``, or if it shows less than somebody saw
before. Then it was ahead, and what was stored meanwhile lies in the future: those moments become the present one.
Orders stay where they are as long as the clock was ahead by less than ``_ORDER_KEPT_MS``, which passes by itself; else
they begin anew from the present. When somebody looked last is read in the same statement as what is due, so one service
learns at once what another one saw.
"""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from txn_source.metadata.store import producers, trimming
from txn_source.metadata.store.consumers import LEASE_MS
from txn_source.metadata.store.copy_changes import LEASE_MS as OFFLOAD_LEASE_MS
from txn_source.metadata.store.due import LOOK_EVERY_MS, Due, was_ahead
from txn_source.metadata.store.partition_tail import Tail
from txn_source.metadata.store.prepared import Prepared
from txn_source.metadata.store.tables import consumers, copies, doomed_files, ledgers, log_info, partitions
from txn_source.metadata.store.tables import transactions as transaction_table
from txn_source.model.kinds import OPEN

REQUEST_LIFETIME_MS = 3600 * 1000
"""Answers of calls are kept so long, in measured time."""
_LOOK_AFTER_MS = 3600 * 1000
"""Each service looks after what has ended so often, and with its first write."""
_MAX_STEP_MS = 600 * 1000
_ORDER_KEPT_MS = 3600 * 1000


class Timekeeping:
    """One service's looks at the clock."""

    def __init__(self) -> None:
        self.measured_ms = 0
        """Measured time, as of the last write that has begun."""
        self._looked_after_ms = 0
        self._forgotten_to_ms = 0

    def look(self, connection: Connection, due: Due, now_ms: int) -> bool:
        """Look at the clock, if it is time to, and mend what it shows to be wrong; return True if it was."""
        self.measured_ms = due.measured_ms
        if abs(now_ms - due.looked_at_ms) < LOOK_EVERY_MS:
            return False
        step_ms = min(max(0, now_ms - due.looked_at_ms), _MAX_STEP_MS) if due.looked_at_ms else 0
        self.measured_ms += step_ms
        _LOOKED.run(connection, {"now_ms": now_ms, "measured_ms": self.measured_ms})
        _FORGET.run(connection, {"before_ms": self.measured_ms - REQUEST_LIFETIME_MS})
        if self.measured_ms - self._looked_after_ms >= _LOOK_AFTER_MS:
            self._looked_after_ms = self.measured_ms
            producers.look_after(connection, self.measured_ms)
            self._forgotten_to_ms = trimming.forget_ended(connection, self._forgotten_to_ms, now_ms)
        if was_ahead(due, now_ms):
            _mend_moments(connection, now_ms)
            _mend_orders(connection, now_ms)
        return True


def _mend_moments(connection: Connection, now_ms: int) -> None:
    """Let ages and leases that began in the future begin now."""
    t = transaction_table.c
    of_ledgers = (ledgers.c[name] for name in ("created_at_ms", "closed_at_ms", "offloaded_at_ms", "hot_deleted_at_ms"))
    for column in (*of_ledgers, copies.c.begun_at_ms):
        connection.execute(update(column.table).where(column > now_ms).values({column.name: now_ms}))
    connection.execute(
        update(transaction_table)
        .where(t.state == OPEN, t.created_at_ms > now_ms)
        .values(created_at_ms=now_ms, deadline_ms=now_ms + t.timeout_ms)
    )
    for column, longest_ms in (
        (consumers.c.lease_until_ms, LEASE_MS),
        (doomed_files.c.forget_after_ms, OFFLOAD_LEASE_MS),
    ):
        latest_ms = now_ms + longest_ms
        connection.execute(update(column.table).where(column > latest_ms).values({column.name: latest_ms}))


def _mend_orders(connection: Connection, now_ms: int) -> None:
    """Let times that others are found by begin anew from the present, where they lie far in the future.

    The messages that were published then keep their time. Their ledgers end here, and are found by the present time,
    so that what is published from now on is found by its own.
    """
    far_ms, now_us = now_ms + _ORDER_KEPT_MS, now_ms * 1000
    ends = transaction_table.c.ended_at_ms
    connection.execute(update(transaction_table).where(ends > far_ms).values(ended_at_ms=now_ms))
    connection.execute(update(log_info).where(log_info.c.last_ended_at_ms > far_ms).values(last_ended_at_ms=now_ms))
    ahead = select(partitions.c.partition_id).where(partitions.c.last_publish_time_us > far_ms * 1000)
    for partition_id in connection.execute(ahead.order_by(partitions.c.partition_id)).scalars().all():
        tail = Tail.load(connection, partition_id, now_us)
        tail.roll(connection)
        tail.store(connection)
        tail.seal(connection)
        of_partition = ledgers.c.partition_id == partition_id
        connection.execute(
            update(ledgers)
            .where(of_partition, ledgers.c.last_publish_time_us > now_us)
            .values(last_publish_time_us=now_us)
        )
        connection.execute(
            update(partitions).where(partitions.c.partition_id == partition_id).values(last_publish_time_us=now_us)
        )


_LOOKED = Prepared("UPDATE log_info SET looked_at_ms = :now_ms, measured_ms = :measured_ms")
_FORGET = Prepared("DELETE FROM requests WHERE stored_at_ms < :before_ms")
