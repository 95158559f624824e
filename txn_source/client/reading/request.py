"""How a source is to be read."""

from __future__ import annotations

from dataclasses import dataclass

from txn_source.client.places import Offsets
from txn_source.client.reading.filters import Filters
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.read_priority import ReadPriority

MAX_PARTITION_BYTES = 128 << 20
_NO_FILTERS = Filters()
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
    filters: Filters = _NO_FILTERS
    """Rows for which one of these isn't true may be left out."""
    limit: int | None = None
    """So many rows suffice, any of those that are read; None: all are wanted."""


def check_as_of(level: IsolationLevel, has_end: bool) -> None:
    """Raise INVALID_ARGUMENT for a read as of a time that has another end, or shows what wasn't committed."""
    if level is not IsolationLevel.READ_COMMITTED or has_end:
        what = "has an end of its own" if has_end else f"is {level}"
        raise InvalidArgumentError(
            f"The read asks for what was committed at a time, and {what}.",
            "Leave out the end, or the time; a read as of a time is read_committed.",
        )
