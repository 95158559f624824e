"""``LogSource``: the six calls by which reads of a log are planned and carried out, for our own log and for others'.

1. ``look`` returns the partitions of a selection with their bounds, all of one moment.
2. ``resolve`` turns places and times into positions.
3. ``cut`` moves the ends of ranges so that no transaction is cut in two.
4. ``split`` divides ranges into tasks.
5. ``read`` returns a reader of such tasks, which also measures how far a number of messages reaches.
6. ``describe`` tells how the log names partitions and positions.

The model decides bounds, levels and visibility; the log knows its files and its entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from txn_source.model.bounds import Bounds
from txn_source.model.copies import CopiesRead
from txn_source.model.errors import DataLossError, TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import MessageId, Position, PositionRange
from txn_source.reading.places import AsOf, AtTime, Inside, Kept, Name, Place
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream_offset import StreamOffset


class SourcePartition(Protocol):
    """A partition as it was at the moment of a look."""

    @property
    def name(self) -> Name:
        """Its topic, as the log has topics, and its number."""

    @property
    def bounds(self) -> Bounds:
        """The four bounds."""

    @property
    def identity(self) -> str | None:
        """Distinguishes the topic from another one of the same name, earlier or later; None: unknown, or not needed."""

    def has_lost(self, at: Position) -> bool:
        """True if messages at or above a position, and below the log's start, are gone."""

    def trace(self, at: Position) -> Mapping[str, Any]:
        """Return facts that a checkpoint keeps beside a position, as JSON; empty: none.

        ``"end": "log"`` says that nothing was left to read: if all files of the topic are gone later, nothing is lost.
        """

    def again(self, begin: Kept, end: Kept, level: IsolationLevel) -> tuple[PositionRange, list[str]]:
        """Return the readable part of a batch that was planned before, and a text for each part that is gone.

        Args:
            begin: the batch's start, inclusive; without a position: the log's start, where the partition was new.
            end: the batch's end, exclusive.
            level: the batch's isolation level.
        """


class Look(Protocol):
    """The partitions of a selection at one moment, in the selection's order."""

    @property
    def partitions(self) -> Sequence[Any]:
        """``SourcePartition`` values; the log that made them may give them further attributes."""

    @property
    def payload(self) -> pa.Schema:
        """The columns that all topics have, or all columns that a read can name."""

    @property
    def decisions(self) -> int:
        """The number of transactions that had ended at that moment; 0 if the log doesn't count them."""

    @property
    def identity(self) -> str | None:
        """Distinguishes the log from another one at the same place, earlier or later; None: unknown."""


L = TypeVar("L", bound=Look)
Task = Sequence[Any]
"""Parts that one task reads, in order: small values that can be pickled, of a type of the log's own."""


class OffsetText(Protocol):
    """The text of offsets in checkpoints."""

    def to_json(self, offset: StreamOffset) -> dict[str, Any]:
        """Return an offset as JSON."""

    def from_json(self, value: Any) -> StreamOffset:
        """Return the offset that JSON of a checkpoint names, or raise INVALID_ARGUMENT."""


@dataclass(frozen=True, slots=True)
class Description:
    """Names of partitions and positions in a kind of log."""

    kind: str
    """``txnlog``, ``kafka``, ``pulsar``."""
    label: Callable[[Name], str]
    """Returns a partition's name for people."""
    shown: Callable[[Place], int | str]
    """Returns a place as text, or as the number that it is in Kafka."""
    offsets: OffsetText
    """The text of stream offsets in checkpoints."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The position that a place names."""

    position: Position
    lost: TxnLogError | None = None
    """The error to raise because messages before the position are gone, unless the read goes on without them."""


@dataclass(frozen=True, slots=True)
class Cutting:
    """How the ends of ranges are moved to a cut."""

    inside: Mapping[Name, MessageId] = field(default_factory=dict)
    """Messages inside entries before which ranges are to end. The given ranges end before these entries; the returned
    ends lie behind them, unless a transaction begins there."""
    whole: bool = True
    """False: move no end to a cut, only behind the entries of ``inside``."""
    from_cut: bool = False
    """The starts are a cut, too, so that one partition alone can be cut."""
    upward: bool = False
    """Return the smallest cut at or above the ends instead; the starts are a cut."""


@dataclass(frozen=True, slots=True)
class FoundCut:
    """Ends at a cut, in the order of the partitions; ``untold``: the promise that the log can't keep, or None."""

    ends: list[Position]
    untold: str | None = None


def lost(label: str, happened: str) -> DataLossError:
    """Return the error of a stream that can only go on by leaving messages out."""
    return DataLossError(
        f"{label} {happened}.",
        'Begin a new query with a new checkpoint, or set .option("failOnDataLoss", "false") to go on without.',
    )


class Rows(Protocol):
    """Reads parts of a log, at one level and with one choice of columns."""

    @property
    def copies_read(self) -> CopiesRead | None:
        """The copies that were read so far; None if the log has no tiers."""

    def read(self, parts: Iterable[Any], /) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the level shows, in the order of the parts."""

    def take(self, of: Any, within: PositionRange, messages: int, size: int) -> tuple[Position, int, int]:
        """Return the end of the longest beginning of a range that has at most so many messages and bytes, but one entry
        at least; and how many messages and bytes it has."""


class LogSource(Protocol[L]):
    """A log that is read. ``L`` is the type of its looks."""

    def describe(self) -> Description:
        """Return the names that the log uses."""

    def look(self, of: Selection | L) -> L:
        """Return the partitions of a selection, or those of an earlier look, with their present bounds.

        Raises:
            TopicNotFoundError: a topic or partition doesn't exist, or was deleted and made again.
        """

    def resolve(
        self, look: L, places: Mapping[Name, Position | AtTime | AsOf | Kept], level: IsolationLevel
    ) -> Mapping[Name, Resolved | None]:
        """Return the position of each place for a reader of a level; None: it sees no message of that time yet.

        Raises:
            OutOfRangeError: a position that the partition never had, or a time before a topic was made.
        """

    def cut(self, look: L, ranges: Sequence[PositionRange], how: Cutting) -> FoundCut:
        """Return the largest cut at or below the ends of the partitions' ranges, but not below their starts.

        A reader then sees each transaction that lies wholly at or above the starts whole, or not at all.
        """

    def split(
        self,
        look: L,
        wanted: Sequence[tuple[Any, PositionRange]],
        request: ReadRequest,
        *,
        inside: Mapping[Name, Inside] | None = None,
        as_of_ends: bool = False,
    ) -> Sequence[Task]:
        """Return tasks that read ranges of a look's partitions; the ranges lie below the level's bound.

        ``as_of_ends`` gives transactions the status that they had when the log ended at the ranges' ends; a log that
        counts its decisions ignores it.

        Raises:
            DataLossError: a part of a range is gone. ``fail_on_data_loss=False`` leaves it out, with a warning.
        """

    def read(self, columns: pa.Schema, request: ReadRequest, decisions: int) -> Rows:
        """Return a reader of tasks, which knows the decisions of their look."""
