"""How a source is to be read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from txn_source.client.places import Offsets
from txn_source.client.reading.filters import Filters
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST, Position, PositionRange
from txn_source.model.read_priority import ReadPriority
from txn_source.model.topic_name import TopicName
from txn_source.model.values import dataclass

MAX_PARTITION_BYTES = 128 << 20
_NO_FILTERS = Filters()
Ranges = Mapping[tuple[TopicName, int], Sequence[PositionRange]]
_FROM_EARLIEST, _TO_LATEST = Offsets(EARLIEST), Offsets(LATEST)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """How to read a source."""

    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    start: Offsets = _FROM_EARLIEST
    end: Offsets = _TO_LATEST
    consistent_cut: bool = True
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_partition_bytes: int = MAX_PARTITION_BYTES
    read_priority: ReadPriority | None = None
    """None: each topic's own."""
    as_of_us: int | None = None
    """End where read_committed would have ended at this time, instead of at ``end``."""
    began: Offsets | None = None
    """Where partitions began when ``end`` was made for several reads; None: there are no others."""
    ranges: Ranges | None = None
    """Just these ranges of partitions, in place of ``start``, ``end`` and ``as_of_us``, and without a cut of them: they
    are parts of one that was made before."""
    filters: Filters = _NO_FILTERS
    """Rows for which one of these isn't true may be left out."""
    limit: int | None = None
    """So many rows suffice, any of those that are read; None: all are wanted."""


def parse_ranges(text: str) -> Ranges:
    """Return the ranges in JSON such as ``{"orders": {"0": [["12:0", "14:7"]]}}``, or raise INVALID_ARGUMENT."""
    try:
        return {
            (TopicName.parse(topic), int(index)): [PositionRange(*map(Position.parse, pair)) for pair in pairs]
            for topic, partitions in json.loads(text).items()
            for index, pairs in partitions.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidArgumentError(
            f"{text!r:.80} are no ranges of partitions ({error}).", "Leave it to txn_source.spark.read."
        ) from None


def check_as_of(level: IsolationLevel, has_end: bool) -> None:
    """Raise INVALID_ARGUMENT for a read as of a time that has another end, or shows what wasn't committed."""
    if level is not IsolationLevel.READ_COMMITTED or has_end:
        what = "has an end of its own" if has_end else f"is {level}"
        raise InvalidArgumentError(
            f"The read asks for what was committed at a time, and {what}.",
            "Leave out the end, or the time; a read as of a time is read_committed.",
        )
