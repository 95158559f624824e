"""What a log offers to whoever plans a read of it, and to who reads: six calls, for our own log and for others'.

1. ``look``: the partitions of a selection with their bounds, at one moment.
2. ``resolve``: given places and times to positions.
3. ``cut``: ends at which whole transactions are read.
4. ``split``: the parts that tasks read.
5. ``read``: the rows of such parts; how many they are; how far a number of messages reaches.
6. ``describe``: how the log names partitions and positions.

Bounds, levels and what is visible are the model's; which files there are, and what an entry is, the log's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from txn_source.model.bounds import Bounds
from txn_source.model.copies import CopiesRead
from txn_source.model.errors import DataLossError, TxnLogError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import MessageId, Position, PositionRange
from txn_source.model.values import dataclass
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
        """What tells the topic from another one of its name before or after it; None: nothing does, or needs to."""

    def has_lost(self, at: Position) -> bool:
        """True if messages are gone that lay at a position or behind it, below the log's start."""

    def trace(self, at: Position) -> Mapping[str, Any]:
        """Return what a stream is to keep with a position that it has come to, as JSON; empty: nothing.

        ``end`` is ``log`` in it where nothing was left to read: if all files of the topic are gone then, none is lost.
        """

    def again(self, begin: Kept, end: Kept, level: IsolationLevel) -> tuple[PositionRange, list[str]]:
        """Return what is still there of a batch that a stream has planned, and in words what isn't.

        Args:
            begin: where it begins; None: at the log's start, where the partition was new.
            end: where it ends, exclusive.
            level: at which it is read.
        """


class Look(Protocol):
    """The partitions of a selection at one moment, in the order of the selection."""

    @property
    def partitions(self) -> Sequence[Any]:
        """A ``SourcePartition`` each; the log that made them knows more of them."""

    @property
    def payload(self) -> pa.Schema:
        """The columns that the topics have in common, or all that can be asked for."""

    @property
    def decisions(self) -> int:
        """How many transactions had ended then, where the log counts them; else 0."""

    @property
    def identity(self) -> str | None:
        """What tells the log from another one that lies there before or after it; None: nothing does."""


L = TypeVar("L", bound=Look)
Task = Sequence[Any]
"""Parts that one task reads, in order: small values, which can be pickled. Their log knows what they are."""


class OffsetText(Protocol):
    """How a checkpoint has an offset."""

    def to_json(self, offset: StreamOffset) -> dict[str, Any]:
        """Return the offset as a checkpoint keeps it."""

    def from_json(self, value: Any) -> StreamOffset:
        """Return the offset that a checkpoint holds, or raise INVALID_ARGUMENT."""


@dataclass(frozen=True, slots=True)
class Description:
    """How a kind of log names things."""

    kind: str
    """``txnlog``, ``kafka``, ``pulsar``."""
    label: Callable[[Name], str]
    """Returns a partition's name for people."""
    shown: Callable[[Place], int | str]
    """Returns a place as texts have it: Kafka's positions are numbers."""
    offsets: OffsetText
    """How checkpoints have the offsets of streams."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A position that somebody's place stands for."""

    position: Position
    lost: TxnLogError | None = None
    """What lies before it and was asked for is gone: what to raise, unless the read goes on without it."""


@dataclass(frozen=True, slots=True)
class FoundCut:
    """Ends at a cut, in the order of the partitions, and what the log can't promise of them."""

    ends: list[Position]
    untold: str | None = None


def lost(label: str, happened: str) -> DataLossError:
    """Return what a stream raises that can't go on without leaving something out."""
    return DataLossError(
        f"{label} {happened}.",
        'Begin a new query with a new checkpoint, or set .option("failOnDataLoss", "false") to go on without.',
    )


class Rows(Protocol):
    """Reads parts of a log in one way."""

    @property
    def copies_read(self) -> CopiesRead | None:
        """Which copies were taken so far; None where the log doesn't tell its copies apart."""

    def read(self, parts: Iterable[Any], /) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the level shows, in the order of the parts."""

    def take(self, of: Any, within: PositionRange, messages: int, size: int) -> tuple[Position, int, int]:
        """Return where so many messages or bytes of a partition end at most, at least one entry, and how many of both
        lie before it."""


class LogSource(Protocol[L]):
    """A log that is read. ``L`` is how it looks at itself."""

    def describe(self) -> Description:
        """Return how it names things."""

    def look(self, of: Selection | L) -> L:
        """Return the partitions that a selection takes, or the very same ones of an earlier look, as they are now.

        Raises:
            TopicNotFoundError: there is no such topic or partition, or it was made anew.
        """

    def resolve(
        self, look: L, places: Mapping[Name, Position | AtTime | AsOf | Kept], level: IsolationLevel
    ) -> Mapping[Name, Resolved | None]:
        """Return the positions that places stand for to a reader of a level, of those partitions that have one; None:
        it sees no message of that time yet.

        Raises:
            OutOfRangeError: a position at which no reader can ever stand, or a time before a topic was made.
        """

    def cut(
        self,
        look: L,
        ranges: Sequence[PositionRange],
        *,
        inside: Mapping[Name, MessageId] | None = None,
        whole: bool = True,
        from_cut: bool = False,
        upward: bool = False,
    ) -> FoundCut:
        """Return the largest cut at or below the ends of ranges, but not below their starts.

        Every transaction that lies wholly at or above the starts is then seen whole, or not at all.

        Args:
            look: the partitions.
            ranges: what is to be read of each.
            inside: the messages before which ranges are to end inside of entries. The ranges end before these entries;
                their ends at a cut are behind them, unless a transaction begins there.
            whole: False: no cut is wanted, only the entries of ``inside``.
            from_cut: the starts are a cut, too.
            upward: return the smallest cut at or above the ends instead; the starts are a cut.
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
        """Return tasks that read ranges of partitions of a look, which lie below the level's bound.

        With ``as_of_ends`` transactions have the status that they had when the log ended where the ranges do, where the
        log doesn't count its decisions.

        Raises:
            DataLossError: a part of a range is gone. ``fail_on_data_loss=False`` leaves it out, with a warning.
        """

    def read(self, columns: pa.Schema, request: ReadRequest, decisions: int) -> Rows:
        """Return what reads tasks, with the decisions that their look knew."""
