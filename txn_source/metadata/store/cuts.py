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
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from txn_source.metadata.store.dialects import dialect_of
from txn_source.metadata.store.prepared import Prepared
from txn_source.metadata.store.views import gone
from txn_source.model import cut
from txn_source.model.cut import Ranges
from txn_source.model.errors import DataLossError
from txn_source.model.kinds import COMMITTED
from txn_source.model.position import Position, PositionRange, lost_nothing
from txn_source.model.topic_name import TopicName

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


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
        self._statements = _statements(connection.dialect.name)
        found = self._statements.log_starts.rows(connection, {"of": json.dumps([[p] for p in of])})
        _check_there(found, of)
        self._log_starts = {row[0]: int(row[1]) for row in found}
        self._floors = {p: max(at, starts[p] if starts else 0) for p, at in self._log_starts.items()}

    def lowest_above(self, ranges: Ranges, bounds: Mapping[int, int]) -> dict[int, int]:
        found = self._ask(self._statements.begun, self._statements.lowest_above, ranges, bounds)
        return {p: max(first, self._floors[p]) for p, first in found.items()}

    def lowest_cut(self, ranges: Ranges, bounds: Mapping[int, int]) -> dict[int, int]:
        found = self._ask(self._statements.decided, self._statements.lowest_cut, self._from_first(ranges), bounds)
        return {p: max(first, self._floors[p]) for p, first in found.items()}

    def highest_below(self, ranges: Ranges, bounds: Mapping[int, int]) -> dict[int, int]:
        return self._ask(self._statements.decided, self._statements.highest_below, self._from_first(ranges), bounds)

    def _from_first(self, ranges: Ranges) -> Ranges:
        """Let ranges that begin at the log's start take what was trimmed in part, too."""
        return {p: (0 if low <= self._log_starts.get(p, 0) else low, high) for p, (low, high) in ranges.items()}

    def _ask(self, clock: Prepared, query: Prepared, ranges: Ranges, bounds: Mapping[int, int]) -> dict[int, int]:
        """Ask for transactions in ranges, without those that, by a count, lie on one side of all bounds."""
        looked_at = [
            [p, low, high, self._floors[p]] for p, (low, high) in ranges.items() if self._floors.get(p, high) < high
        ]
        limits = json.dumps([[p, bound, self._floors[p]] for p, bound in bounds.items() if p in self._floors])
        if not looked_at:
            return {}
        [(count,)] = clock.rows(self._connection, {"bounds": limits})
        if count is None:
            return {}
        given = {"ranges": json.dumps(looked_at), "bounds": limits, "count": count}
        return {row[0]: row[1] for row in query.rows(self._connection, given) if row[1] is not None}


def _check_there(found: Sequence[tuple[Any, ...]], bounds: Mapping[int, int]) -> None:
    """Raise an error if what lies at or above a bound was trimmed, or deleted with its topic, since it was looked at.

    The transactions that it belonged to are no longer known to lie there, so what they wrote elsewhere would be seen
    without it.
    """
    if len(found) < len(bounds):
        raise gone(f"Partition {min(bounds.keys() - {row[0] for row in found})} (its id)")
    for partition_id, log_start, trimmed_end, index, name in found:
        if bounds[partition_id] >= log_start:
            continue
        bound = Position.from_key(bounds[partition_id])
        if not lost_nothing(Position.from_key(trimmed_end), bound):
            lost = PositionRange(bound, Position.from_key(log_start))
            raise DataLossError(
                f"Partition {index} of topic {TopicName.parse(name).short!r} has lost {lost}: it was"
                " trimmed while the read was planned.",
                "Plan the read again with a new load() or scan().",
            )


@dataclass(frozen=True, slots=True)
class _Statements:
    """What is asked, in the SQL of one database."""

    log_starts: Prepared
    begun: Prepared
    """Transactions that had not begun when the last one below its bound began on any partition lie wholly above the
    bounds: so many had begun by then."""
    decided: Prepared
    """Those that had been decided by then lie wholly below them; a partition that has nothing above its bound is left
    out."""
    lowest_above: Prepared
    lowest_cut: Prepared
    highest_below: Prepared


@cache
def _statements(database: str) -> _Statements:
    of = dialect_of(database)
    bounds = f"WITH bounds AS MATERIALIZED ({of.rows('bounds', ('partition_id', 'bound', 'floor'))})"
    given = f"{bounds}, ranges AS MATERIALIZED ({of.rows('ranges', ('partition_id', 'low', 'high', 'floor'))})"
    newest_below = f"""
        SELECT here.%s FROM transaction_partitions AS here
        WHERE here.partition_id = bounds.partition_id AND here.state = {COMMITTED}
        AND here.first_position < bounds.bound
        ORDER BY here.first_position DESC LIMIT 1"""
    # The joins' order, and "+", keep SQLite to looking only at rows that a transaction has, not for one on each
    # partition.
    others = f"""{of.IN_ORDER} transaction_partitions AS there ON there.txn = looked_at.txn
        JOIN bounds ON bounds.partition_id = +there.partition_id"""
    return _Statements(
        log_starts=Prepared(
            "SELECT p.partition_id, p.log_start, p.trimmed_end, p.partition_index, topics.name"
            " FROM partitions AS p JOIN topics ON topics.topic_id = p.topic_id"
            f" WHERE p.partition_id IN ({of.rows('of', ('partition_id',))})"
        ),
        begun=Prepared(f"{bounds} SELECT MAX(({newest_below % 'begun'})) FROM bounds"),
        decided=Prepared(f"""{bounds}
            SELECT MIN(COALESCE(({newest_below % "decided"}), 0)) FROM bounds WHERE EXISTS (
                SELECT 1 FROM transaction_partitions AS above WHERE above.partition_id = bounds.partition_id
                AND above.state = {COMMITTED} AND above.last_position >= bounds.bound
            )"""),
        lowest_above=Prepared(f"""{given}
            SELECT there.partition_id, MIN(there.first_position)
            FROM (
                SELECT DISTINCT here.txn FROM ranges {of.IN_ORDER} transaction_partitions AS here
                ON here.partition_id = ranges.partition_id AND here.state = {COMMITTED} AND here.txn < :count
                AND here.last_position >= ranges.low AND here.last_position < ranges.high
            ) AS looked_at
            {others}
            WHERE {of.LARGER}(there.first_position, bounds.floor) < bounds.bound
            AND there.last_position >= bounds.floor
            GROUP BY there.partition_id"""),
        lowest_cut=Prepared(f"""{given}
            SELECT ranges.partition_id, (
                SELECT here.first_position FROM transaction_partitions AS here
                WHERE here.partition_id = ranges.partition_id AND here.state = {COMMITTED} AND here.decision > :count
                AND here.first_position >= ranges.low AND here.first_position < ranges.high
                AND here.last_position >= ranges.floor AND EXISTS (
                    SELECT 1 FROM transaction_partitions AS there
                    JOIN bounds ON bounds.partition_id = +there.partition_id
                    WHERE there.txn = here.txn AND there.last_position >= bounds.bound
                )
                ORDER BY here.first_position LIMIT 1
            ) FROM ranges"""),
        highest_below=Prepared(f"""{given}
            SELECT there.partition_id, MAX(there.last_position)
            FROM (
                SELECT DISTINCT here.txn FROM ranges {of.IN_ORDER} transaction_partitions AS here
                ON here.partition_id = ranges.partition_id AND here.state = {COMMITTED} AND here.decision > :count
                AND here.first_position >= ranges.low AND here.first_position < ranges.high
                AND here.last_position >= ranges.floor
            ) AS looked_at
            {others}
            WHERE there.last_position >= bounds.bound
            GROUP BY there.partition_id"""),
    )
