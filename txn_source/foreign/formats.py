"""What a format says of itself, besides what its log and partitions do: names, columns, options, offsets as texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs as fs

from txn_source.foreign.foreign_log import ForeignLog, PartitionName
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.place_text import Parsed, PlaceText
from txn_source.model.position import Position
from txn_source.reading.places import Name, Place, Side
from txn_source.reading.request import Selection

Folder = tuple[fs.FileSystem, str]
"""A folder, or a bucket and a prefix, and its file system."""


class Format(Protocol):
    """A format. There is one object of each; it keeps nothing.

    Options come as Spark hands them over, by lower-case names.
    """

    name: str
    open_options: tuple[str, ...]
    """Names of options that ``open`` needs, as they are documented."""
    read_options: tuple[str, ...]
    """Names of further options of its own, of any kind of read."""
    batch_options: tuple[str, ...]
    """Of batch reads only."""
    constants: Mapping[str, str]
    """Columns that are the same in a whole partition, which a reader adds: ``topic`` or ``partition`` by name."""
    never_null: tuple[str, ...]
    """Columns that have no nulls."""
    cheapest: str
    """The column to ask for if only constants are wanted."""

    def open(self, places: Sequence[Folder], options: Mapping[str, str]) -> ForeignLog:
        """Return the log that lies in some places."""

    def is_internal(self, topic: str) -> bool:
        """True for topics of the system itself, which are read only if they are named."""

    def find(self, text: str, there: Sequence[PartitionName]) -> list[PartitionName]:
        """Return what a name means of the partitions that are there; none if it means nothing."""

    def written(self, topic: str) -> Sequence[str]:
        """Return the ways to write a topic's name, the shortest first; patterns match any of them."""

    def columns(self, log: ForeignLog, topics: Sequence[str]) -> pa.Schema:
        """Return all columns that can be asked for of topics."""

    def default_columns(
        self, columns: pa.Schema, choice: str, options: Mapping[str, str], *, several: bool
    ) -> Sequence[str]:
        """Return the names of the columns that a read has by itself.

        Args:
            columns: all that there are.
            choice: ``metadataColumns``: ``none``, ``default``, ``all``, or a list with commas.
            options: those of the read.
            several: several topics may be read.
        """

    def renamed(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return options with names that mean the same here instead of those of the format's own connector.

        Raises:
            InvalidArgumentError: they contradict each other, or mean what can't be.
        """

    def selection(self, options: Mapping[str, str]) -> Selection:
        """Return which topics a read names."""

    def side(self, options: Mapping[str, str], which: str, default: str) -> Side:
        """Return where a read starts (``starting``) or ends (``ending``) by its options, else ``default``."""

    def parse_side(self, value: Any, default: str) -> Side:
        """Return the side that a value of ``scan`` means, or a text of ``startingOffsets`` and ``endingOffsets``."""

    def offset(self, position: Position) -> int | Position:
        """Return a position as people have it: as a number where the format's positions are numbers."""

    def shown(self, place: Place) -> int | str:
        """Return a place as texts have it."""


def format_of(name: str) -> Format:
    """Return a format, which is loaded with its first use."""
    if name not in ("kafka", "pulsar"):
        raise InvalidArgumentError(f"There is no format {name!r}.", "Use kafka or pulsar.")
    found: Format = import_module(f"txn_source.foreign.{name}.format").FORMAT
    return found


def parse_side(
    value: Any, default: str, point: Callable[[Any], Place | str], partition: Callable[[str, int], Name], hint: str
) -> Side:
    """Return the side that a value means.

    Args:
        value: None, a ``Side``, a ``Cut``, or what ``PlaceText`` reads.
        default: what None, and partitions that aren't named, stand for.
        point: reads a position.
        partition: makes the name of one.
        hint: what to write instead of what can't be.
    """

    def bare(value: Any) -> Parsed:
        found = point(value)
        return Parsed(found) if isinstance(found, str) else Parsed(bare=found)

    return Side.parse(value, default, PlaceText(str, partition, point, bare, hint, cuts=True, least=-1))
