"""What a consumer gets next: a stretch of entries with something in it that its level shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from txn_source.metadata.store import copies, pages, views
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.pages import Page
from txn_source.model.isolation import IsolationLevel
from txn_source.model.kinds import ABORTED
from txn_source.model.message_ranges import MessageRange, message_key
from txn_source.model.position import Position, PositionRange
from txn_source.model.subscription import Cursor
from txn_source.model.topic import PartitionView
from txn_source.model.visibility import visible

STRETCH_BYTES = 64 << 20
STRETCH_ENTRIES = 10_000
_LOOKS = 20
"""So many pages without anything visible are passed over in one go."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Entries of one partition in a range, of which a consumer gets the messages in ``wanted``.

    ``messages`` is how many these are, or, where only a tiered copy knows the entries, may be. ``page`` and ``aborted``
    are the entries, and the aborted transactions among them, where the database knows them.
    """

    partition_id: int
    range: PositionRange
    wanted: tuple[MessageRange, ...]
    messages: int
    page: Page | None
    aborted: pa.Table | None
    redeliveries: int = 0


def next_stretch(
    connection: Connection,
    view: PartitionView,
    level: IsolationLevel,
    start: Position,
    cursor: Cursor,
    most: int,
    decisions: int,
    end: Position | None = None,
    since: Position | None = None,
    *,
    durable: bool = True,
) -> tuple[Stretch | None, Position]:
    """Return what comes next at or above a position, and where to look after it.

    What was trimmed before it was handed out is handed out by its range alone, without entries: the consumer finds
    nothing there and says what is lost. Where nothing was lost, at the end of the last trimmed ledger, it isn't.

    Args:
        connection: a transaction.
        view: the partition as it sees it.
        level: what the consumer sees.
        start: the next entry to hand out.
        cursor: what needs not be handed out.
        most: messages; one entry is always handed out, however many it has.
        decisions: how many transactions have ended.
        end: look no further, exclusive; None is the level's bound.
        since: where the stretch before ended, if that is below ``start``: nothing visible lies between, and whoever
            gets the next message acknowledges that with it.
        durable: True if nothing is trimmed that the subscription shows and has not acknowledged.
    """
    bound = view.bounds.upper(level) if end is None else end
    low = view.bounds.log_start
    if not durable and start < low and not view.lost_nothing(start):
        lost = _wanted(cursor, start, low)
        if lost:
            return Stretch(view.partition_id, PositionRange(start, low), lost, 1, None, None), low
    start = at = max(start, low)
    since = start if since is None else max(min(since, start), view.bounds.log_start)
    for _ in range(_LOOKS):
        if at >= bound:
            break
        of = PositionRange(at, bound)
        until = copies.hot_until(connection, view.partition_id, of)
        if until is None:
            ledger_end, messages = views.ledger_end(connection, view.partition_id, at.ledger_id)
            reach = PositionRange(start, min(bound, ledger_end))
            wanted = _wanted(cursor, since, reach.end)
            if wanted:
                return Stretch(view.partition_id, reach, wanted, max(1, messages), None, None), reach.end
            since = start = at = reach.end
            continue
        page = pages.entry_page(
            connection, view.partition_id, PositionRange(at, until), min(max(1, most), STRETCH_ENTRIES)
        )
        page_end = until if page.next_start is None else Position.from_key(page.next_start)
        aborted = pages.decision_page(
            connection, view.partition_id, PositionRange(at, page_end), aborted_only=True, up_to=decisions
        ).table
        taken, messages = _take(page.table, of, level, aborted, most)
        if not taken:
            at = page_end
            continue
        if taken < page.table.num_rows:
            page_end = Position.from_key(page.table["position"][taken - 1].as_py()).plus(1)
        reach = PositionRange(start, page_end)
        wanted = _wanted(cursor, since, reach.end)
        if wanted:
            acknowledged = sum(r.messages for r in cursor.ranges.within(message_key(start), wanted[-1].end))
            page = Page(page.table.slice(0, taken), None)
            return (
                Stretch(view.partition_id, reach, wanted, max(1, messages - acknowledged), page, aborted),
                page_end,
            )
        since = start = at = page_end
    return None, at


def _take(entries: pa.Table, of: PositionRange, level: IsolationLevel, aborted: pa.Table, most: int) -> tuple[int, int]:
    """Return how many entries to hand out from the first on, the last one visible; and their visible messages."""
    positions, txns, messages, lengths = (
        entries[name].to_numpy() for name in ("position", "txn", "messages", "length")
    )
    hidden = aborted["txn"].to_numpy()[aborted["state"].to_numpy() == ABORTED]
    seen = np.flatnonzero(visible(positions, txns, np.zeros(len(positions), np.bool_), of, level, hidden))
    if not len(seen):
        return 0, 0
    count_to, bytes_to = np.cumsum(messages[seen]), np.cumsum(lengths[seen])
    fit = min(int(np.searchsorted(count_to, most, "right")), int(np.searchsorted(bytes_to, STRETCH_BYTES, "right")))
    last = max(1, fit) - 1
    whole = last == len(seen) - 1
    return len(positions) if whole else int(seen[last]) + 1, int(count_to[last])


def _wanted(cursor: Cursor, start: Position, end: Position) -> tuple[MessageRange, ...]:
    return tuple(cursor.wanted(message_key(start), message_key(end)))
