"""Calls about ranges of partitions: ledgers, where to cut, how much there is. And the tables about the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import pyarrow as pa

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol.enums import ISOLATION_LEVEL
from txn_source.metadata.stub.transport import Transport
from txn_source.model.errors import InternalError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange
from txn_source.model.topic_name import TopicName

_RANGES_AT_ONCE = 10_000


class Piece(NamedTuple):
    """A piece of a range: its stored bytes, and the publish times of its first and last message, if they are known."""

    range: PositionRange
    bytes: int
    times_us: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class CountedRange:
    """How many messages lie in a range, without its part in some ledgers, which only their objects know."""

    messages: int
    ledger_ids: tuple[int, ...]


class RangeStub:
    """The calls."""

    _transport: Transport

    def list_ledgers(self, partition_id: int, of: PositionRange, *, times: bool = False) -> pa.Table:
        """Return the ledgers that a range touches, ascending.

        Columns, all int64: ledger_id, entries (markers among them), messages, bytes, created_at_ms; closed_at_ms,
        offloaded_at_ms and hot_deleted_at_ms, -1 where that has not come; purged (1: its entries are no longer listed).
        With ``times`` also first_publish_time_us and last_publish_time_us, -1 where they aren't known or there are no
        messages.
        """
        while True:
            tables: list[pa.Table] = []
            follows, named = True, -1
            for answer in self.pages("ListLedgers", pb.ListLedgersRequest, partition_id, of, times=times):
                table = convert.table_from_wire(answer.ledgers)
                # A page begins with the ledger that the one before has named, unless that was trimmed meanwhile.
                follows = not tables or (len(table) > 0 and table["ledger_id"][0].as_py() == named)
                if not follows:
                    break
                tables.append(table)
                named = Position.from_key(answer.next_start).ledger_id
            if follows:
                return pa.concat_tables(tables)

    def list_ledgers_of(self, ranges: Sequence[tuple[int, PositionRange]], *, times: bool = False) -> list[pa.Table]:
        """Return the ledgers that each range touches, by partition id: ``list_ledgers`` of many, in few calls."""
        found: list[pa.Table] = []
        while len(found) < len(ranges):
            left = ranges[len(found) : len(found) + _RANGES_AT_ONCE]
            request = pb.ListLedgersOfRangesRequest(times=times)
            for partition_id, of in left:
                request.ranges.add(partition_id=partition_id, start=of.start.key, end=of.end.key)
            answer = self._transport.call("ListLedgersOfRanges", request)
            if not answer.counts:  # one of them alone has more than a page
                found.append(self.list_ledgers(*left[0], times=times))
                continue
            table = convert.table_from_wire(answer.ledgers)
            ends = list(accumulate(answer.counts, initial=0))
            if len(ends) > len(left) + 1 or ends[-1] != len(table):
                raise incomplete(f"{len(table)} ledgers of {len(left)} ranges, and counts of {ends[-1]}")
            found += [table.slice(start, end - start) for start, end in pairwise(ends)]
        return found

    def split_range(self, partition_id: int, of: PositionRange, target_bytes: int) -> list[Piece]:
        """Cut a range at entries into pieces of about so many bytes."""
        request = pb.SplitRangeRequest(
            partition_id=partition_id, start=of.start.key, end=of.end.key, target_bytes=target_bytes
        )
        answer = self._transport.call("SplitRange", request)
        if len(answer.piece_bytes) != len(answer.cuts) + 1:
            raise incomplete(f"{len(answer.cuts)} cuts and {len(answer.piece_bytes)} pieces")
        cuts = [of.start, *(Position.from_key(cut) for cut in answer.cuts), of.end]
        times = list(zip(answer.first_times_us, answer.last_times_us, strict=False))
        told = times if len(times) == len(answer.piece_bytes) else [None] * len(answer.piece_bytes)
        return [
            Piece(PositionRange(start, end), size, known)
            for (start, end), size, known in zip(pairwise(cuts), answer.piece_bytes, told, strict=True)
        ]

    def count_range(self, partition_id: int, of: PositionRange, level: IsolationLevel) -> CountedRange | None:
        """Return how many messages a reader of a level sees in a range; None if the ledger it starts in is gone.

        The range must end at or below the level's bound.
        """
        request = pb.CountRangeRequest(
            partition_id=partition_id,
            start=of.start.key,
            end=of.end.key,
            isolation_level=ISOLATION_LEVEL.to_wire(level),
        )
        answer = self._transport.call("CountRange", request)
        return None if answer.lost else CountedRange(answer.messages, tuple(answer.ledger_ids))

    def read_table(self, name: str, topic: TopicName | None) -> pa.Table:
        """Return a table about the log, as of one moment (``LOG_TABLES``)."""
        request = pb.ReadTableRequest(table=name, topic=None if topic is None else str(topic))
        tables: list[pa.Table] = []
        more = True
        while more:
            answer = self._transport.call("ReadTable", request)
            tables.append(convert.table_from_wire(answer.rows))
            request.next, request.decisions, more = answer.next, answer.decisions, answer.has_more
        return pa.concat_tables(tables)

    def pages(
        self, method: str, request: Callable[..., Any], partition_id: int, of: PositionRange, **extra: object
    ) -> Iterator[Any]:
        """Make a call for page after page of a range."""
        start, more = of.start.key, True
        while more:
            answer = self._transport.call(
                method, request(partition_id=partition_id, start=start, end=of.end.key, **extra)
            )
            yield answer
            start, more = answer.next_start, answer.has_more


def incomplete(what: str) -> InternalError:
    """Return the error for an answer that lacks something."""
    return InternalError(
        f"The metadata service answered with {what}.", "Check that client and service are of the same release."
    )
