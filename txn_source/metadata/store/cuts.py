"""What the database knows of committed transactions, for moving the bounds of a read to a consistent cut.

A transaction that bounds cut in two has an entry on either side of them. So it is enough to look at those on one side:
above the bounds, which is little where they are the logs' ends; or between them and a cut that is known, which is
what a stream's batch has in it, however much lies behind.

The database looks at them, one covering index entry and the transaction's other rows for each, and returns one row for
each partition: a row costs more on its way through Python than in all that is done with it here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, TextClause, text

from txn_source.model import cut
from txn_source.model.cut import Ranges
from txn_source.model.errors import DataLossError, TopicNotFoundError
from txn_source.model.kinds import COMMITTED
from txn_source.model.position import Position, PositionRange, lost_nothing
from txn_source.model.topic_name import TopicName


def lower_to_cut(
    connection: Connection, bounds: Mapping[int, int], starts: Mapping[int, int] | None = None
) -> dict[int, int]:
    """Return the largest consistent cut at or below exclusive bounds, keys by partition id.

    ``starts`` are a cut below the bounds, if one is known.

    Raises:
        TopicNotFoundError: a partition is gone.
        DataLossError: a partition has lost what lies above its bound, so that nobody can tell which bounds are a cut.
    """
    return cut.lower_to_cut(_Traces(connection, bounds, starts), bounds, starts)


def raise_to_cut(connection: Connection, starts: Mapping[int, int], bounds: Mapping[int, int]) -> dict[int, int]:
    """Return the smallest consistent cut at or above exclusive bounds; ``starts`` are a cut below them."""
    return cut.raise_to_cut(_Traces(connection, bounds, starts), bounds, starts)


class _Traces:
    """What is left of committed transactions on the partitions of a read (``cut.CommittedSpans``).

    What lies below a partition's floor isn't there: the log's start, or where the read starts if that is known. The
    rest of a transaction begins at the floor then.
    """

    def __init__(self, connection: Connection, of: Mapping[int, int], starts: Mapping[int, int] | None) -> None:
        self._connection = connection
        found = connection.execute(_LOG_STARTS, {"of": json.dumps(list(of))}).all()
        _check_there(found, of)
        self._log_starts = {row.partition_id: int(row.log_start) for row in found}
        self._floors = {p: max(at, starts[p] if starts else 0) for p, at in self._log_starts.items()}

    def lowest_above(self, ranges: Ranges, bounds: Mapping[int, int]) -> dict[int, int]:
        found = self._ask(_BEGUN, _LOWEST_ABOVE, ranges, bounds)
        return {p: max(first, self._floors[p]) for p, first in found.items()}

    def lowest_cut(self, ranges: Ranges, bounds: Mapping[int, int]) -> dict[int, int]:
        found = self._ask(_DECIDED, _LOWEST_CUT, self._from_first(ranges), bounds)
        return {p: max(first, self._floors[p]) for p, first in found.items()}

    def highest_below(self, ranges: Ranges, bounds: Mapping[int, int]) -> dict[int, int]:
        return self._ask(_DECIDED, _HIGHEST_BELOW, self._from_first(ranges), bounds)

    def _from_first(self, ranges: Ranges) -> Ranges:
        """Let ranges that begin at the log's start take what was trimmed in part, too."""
        return {p: (0 if low <= self._log_starts.get(p, 0) else low, high) for p, (low, high) in ranges.items()}

    def _ask(self, clock: TextClause, query: TextClause, ranges: Ranges, bounds: Mapping[int, int]) -> dict[int, int]:
        """Ask for transactions in ranges, without those that, by a count, lie on one side of all bounds."""
        looked_at = [
            [p, low, high, self._floors[p]] for p, (low, high) in ranges.items() if self._floors.get(p, high) < high
        ]
        limits = json.dumps([[p, bound, self._floors[p]] for p, bound in bounds.items() if p in self._floors])
        if not looked_at:
            return {}
        count = self._connection.execute(clock, {"bounds": limits}).scalar()
        if count is None:
            return {}
        given = {"ranges": json.dumps(looked_at), "bounds": limits, "count": count}
        return {row[0]: row[1] for row in self._connection.execute(query, given) if row[1] is not None}


def _check_there(found: Sequence[Row[Any]], bounds: Mapping[int, int]) -> None:
    """Raise an error if what lies at or above a bound was trimmed, or deleted with its topic, since it was looked at.

    The transactions that it belonged to are no longer known to lie there, so what they wrote elsewhere would be seen
    without it.
    """
    if len(found) < len(bounds):
        gone = min(bounds.keys() - {row.partition_id for row in found})
        raise TopicNotFoundError(
            f"Partition {gone} (its id) is gone: its topic was deleted while the read was planned.",
            "Plan the read again with a new load() or scan().",
        )
    for row in found:
        if bounds[row.partition_id] >= row.log_start:
            continue
        bound, log_start = Position.from_key(bounds[row.partition_id]), Position.from_key(row.log_start)
        if not lost_nothing(Position.from_key(row.trimmed_end), bound):
            lost = PositionRange(bound, log_start)
            raise DataLossError(
                f"Partition {row.partition_index} of topic {TopicName.parse(row.name).short!r} has lost {lost}: it was"
                " trimmed while the read was planned.",
                "Plan the read again with a new load() or scan().",
            )


_LOG_STARTS = text(
    "SELECT p.partition_id, p.log_start, p.trimmed_end, p.partition_index, topics.name"
    " FROM partitions AS p JOIN topics ON topics.topic_id = p.topic_id"
    " WHERE p.partition_id IN (SELECT value FROM json_each(:of))"
)
_BOUNDS = """
    WITH bounds(partition_id, bound, floor) AS MATERIALIZED (
        SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')
        FROM json_each(:bounds)
    )"""
_GIVEN = f"""{_BOUNDS}, ranges(partition_id, low, high, floor) AS MATERIALIZED (
        SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
               json_extract(value, '$[3]')
        FROM json_each(:ranges)
    )"""
_NEWEST_BELOW = f"""
    SELECT here.%s FROM transaction_partitions AS here
    WHERE here.partition_id = bounds.partition_id AND here.state = {COMMITTED} AND here.first_position < bounds.bound
    ORDER BY here.first_position DESC LIMIT 1"""

# CROSS and "+" keep SQLite to an order that looks only at rows which a transaction has, not for one on each partition.

# Transactions that had not begun when the last one below its bound began on any partition lie wholly above the bounds.
_BEGUN = text(f"{_BOUNDS} SELECT MAX(({_NEWEST_BELOW % 'begun'})) FROM bounds")

# Those that had been decided by then lie wholly below them; a partition that has nothing above its bound is left out.
_DECIDED = text(f"""{_BOUNDS}
    SELECT MIN(COALESCE(({_NEWEST_BELOW % "decided"}), 0)) FROM bounds WHERE EXISTS (
        SELECT 1 FROM transaction_partitions AS above WHERE above.partition_id = bounds.partition_id
        AND above.state = {COMMITTED} AND above.last_position >= bounds.bound
    )""")

_LOWEST_ABOVE = text(f"""{_GIVEN}
    SELECT there.partition_id, MIN(there.first_position)
    FROM (
        SELECT DISTINCT here.txn FROM ranges CROSS JOIN transaction_partitions AS here
        ON here.partition_id = ranges.partition_id AND here.state = {COMMITTED} AND here.txn < :count
        AND here.last_position >= ranges.low AND here.last_position < ranges.high
    ) AS above
    CROSS JOIN transaction_partitions AS there ON there.txn = above.txn
    JOIN bounds ON bounds.partition_id = +there.partition_id
    WHERE MAX(there.first_position, bounds.floor) < bounds.bound AND there.last_position >= bounds.floor
    GROUP BY there.partition_id""")
_LOWEST_CUT = text(f"""{_GIVEN}
    SELECT ranges.partition_id, (
        SELECT here.first_position FROM transaction_partitions AS here
        WHERE here.partition_id = ranges.partition_id AND here.state = {COMMITTED} AND here.decision > :count
        AND here.first_position >= ranges.low AND here.first_position < ranges.high
        AND here.last_position >= ranges.floor AND EXISTS (
            SELECT 1 FROM transaction_partitions AS there JOIN bounds ON bounds.partition_id = +there.partition_id
            WHERE there.txn = here.txn AND there.last_position >= bounds.bound
        )
        ORDER BY here.first_position LIMIT 1
    ) FROM ranges""")
_HIGHEST_BELOW = text(f"""{_GIVEN}
    SELECT there.partition_id, MAX(there.last_position)
    FROM (
        SELECT DISTINCT here.txn FROM ranges CROSS JOIN transaction_partitions AS here
        ON here.partition_id = ranges.partition_id AND here.state = {COMMITTED} AND here.decision > :count
        AND here.first_position >= ranges.low AND here.first_position < ranges.high
        AND here.last_position >= ranges.floor
    ) AS below
    CROSS JOIN transaction_partitions AS there ON there.txn = below.txn
    JOIN bounds ON bounds.partition_id = +there.partition_id
    WHERE there.last_position >= bounds.bound
    GROUP BY there.partition_id""")
