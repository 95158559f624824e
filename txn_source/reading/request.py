"""The topics of a read, and how to read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.read_priority import ReadPriority
from txn_source.reading.filters import Filters
from txn_source.reading.places import Inside, Name, Side

MAX_PARTITION_BYTES = 128 << 20
_NO_FILTERS = Filters()
_FROM_EARLIEST, _TO_LATEST = Side(EARLIEST), Side(LATEST)


@dataclass(frozen=True, slots=True)
class Selection:
    """The topics of a read: exactly one of the first three fields is given."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    """A regular expression that the whole name matches; topics that come to match it are read, too."""
    partitions: tuple[Name, ...] | None = None
    several: bool = True
    """True if a list or a pattern names the topics, even if only one exists: the columns must not depend on that."""
    if_there: bool = False
    """True: a topic that doesn't exist is left out. False: it is an error."""
    columns: Sequence[str] | None = None
    """The payload columns that must be the same in all topics; None: all of them."""

    @classmethod
    def of(cls, topics: str | Sequence[str], columns: Sequence[str] | None = None) -> Selection:
        """Return the selection of a topic by its name, or of several."""
        if isinstance(topics, str):
            return cls((topics,), several=False, columns=columns)
        return cls(tuple(topics), columns=columns)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """How to read a selection."""

    isolation_level: IsolationLevel = IsolationLevel.READ_COMMITTED
    start: Side = _FROM_EARLIEST
    end: Side = _TO_LATEST
    consistent_cut: bool = True
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_partition_bytes: int = MAX_PARTITION_BYTES
    read_priority: ReadPriority | None = None
    """None: each topic's own."""
    as_of_us: int | None = None
    """End where read_committed ended at this time (microseconds since 1970), instead of at ``end``."""
    began: Side | None = None
    """The starts of partitions when ``end`` was made, if several reads share it; None: they don't."""
    filters: Filters = _NO_FILTERS
    """Rows for which one of these isn't true may be left out."""
    limit: int | None = None
    """This many rows suffice, whichever they are; None: all rows."""

    @property
    def cuts(self) -> bool:
        """True if the read must end at a cut."""
        return self.consistent_cut and self.isolation_level is IsolationLevel.READ_COMMITTED

    def inside(self, name: Name) -> Inside | None:
        """Return the start and end of a partition's range inside entries; None: both lie between entries."""
        start, end = self.start.inside(name), self.end.inside(name)
        return None if start is None and end is None else Inside(start, end)

    def pinned(self) -> ReadRequest:
        """Return the request for tasks, which have ranges of their own."""
        return replace(self, start=_FROM_EARLIEST, end=_TO_LATEST, as_of_us=None, began=None)


def check_as_of(level: IsolationLevel, has_end: bool) -> None:
    """Raise INVALID_ARGUMENT for a read as of a time that has another end, or is read_uncommitted."""
    if level is not IsolationLevel.READ_COMMITTED or has_end:
        what = "has an end of its own" if has_end else f"is {level}"
        raise InvalidArgumentError(
            f"The read asks for what was committed at a time, and {what}.",
            "Leave out the end, or the time; a read as of a time is read_committed.",
        )
