"""Row groups of objects that another Parquet reader takes straight from their files; see ``direct``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from txn_source.client.reading.columns import STORED_AS
from txn_source.client.reading.skipping import RowGroups
from txn_source.client.reading.slice_reader import SliceReader
from txn_source.model.copies import TieredCopy
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.packing import Slice
from txn_source.model.position import Position, PositionRange
from txn_source.model.visibility import IntArray
from txn_source.storage.allowed_places import may_open
from txn_source.storage.object_root import Root, resolved
from txn_source.storage.object_uri import parts_of

if TYPE_CHECKING:
    from txn_source.storage.tiered import Footer

_LOCAL = ("", "file")
_PATTERN = set("{}[]*?\\")
"""Hadoop treats a path with one of these characters as a pattern."""
_IN_PART = "parts of row groups"


@dataclass(frozen=True, slots=True)
class Left:
    """A slice that this reader reads itself, and the reason."""

    piece: Slice
    why: str


@dataclass(frozen=True, slots=True)
class ObjectRun:
    """Neighbouring row groups of an object, all of whose rows are read, in order."""

    piece: Slice
    """The same rows, for this reader."""
    path: str
    start: int
    """The first byte of the row groups, inclusive."""
    end: int
    """Their end, exclusive."""
    size: int
    """The bytes of the file."""
    rows: int
    checks: IntArray
    """Checksums of the wanted columns and the footer: rows of offset, length and CRC-32C."""


def row_groups(reader: SliceReader, piece: Slice, copy: TieredCopy) -> Iterator[ObjectRun | Left]:
    """Yield the row groups that lie wholly in a slice of a ledger, and the other parts of the slice.

    Row groups that the read's filters exclude are skipped.
    """
    from txn_source.storage.tiered import read_footer  # it imports Parquet, which reads of hot ledgers don't need

    root = reader.access.root
    path = file_of(root, copy.uri)
    if path is None:
        yield Left(piece, "objects that are no files for Hadoop")
        return
    try:
        footer = read_footer(root, copy)
    except SegmentUnreadableError:  # its reader tries the other copy
        yield Left(piece, "damaged objects")
        return
    if (unfit := _unfit(reader, footer)) is not None:
        yield Left(piece, unfit)
        return
    keys = footer.entries["entry_id"] + Position(piece.range.start.ledger_id, 0).key
    low, high = np.searchsorted(keys, (piece.range.start.key, piece.range.end.key)).tolist()
    edges = footer.row_group_entries.tolist()
    whole = [group for group, (first, last) in enumerate(pairwise(edges)) if low <= first and last <= high]
    if not whole:
        yield from [Left(piece, _IN_PART)] if low < high else []
        return
    first, last = edges[whole[0]], edges[whole[-1] + 1]

    def at(edge: int) -> Position:
        return piece.range.end if edge == high else Position.from_key(int(keys[edge]))

    if low < first:
        yield Left(replace(piece, range=PositionRange(piece.range.start, at(first))), _IN_PART)
    kept = _kept(reader, piece, footer, keys, whole)
    for groups in _neighbours(kept):
        reach = PositionRange(at(edges[groups[0]]), at(edges[groups[-1] + 1]))
        yield _run(replace(piece, range=reach), path, copy, footer, groups, reader.schema.names)
    if last < high:
        yield Left(replace(piece, range=PositionRange(at(last), piece.range.end)), _IN_PART)


def file_of(root: Root, uri: str) -> str | None:
    """Return the absolute path of an object; None if it is no local file, or Hadoop may read the path otherwise."""
    scheme, _, path, _ = parts_of(resolved(root, uri))
    path = os.path.abspath(path)
    plain = path.isascii() and path.isprintable() and not _PATTERN & set(path) and may_open(str(root), uri)
    return path if scheme in _LOCAL and plain else None


def _unfit(reader: SliceReader, footer: Footer) -> str | None:
    """Return the reason why no row group of an object may be handed over, or None."""
    if not footer.committed_only:
        return "objects of an older release"
    if reader.isolation_level is not IsolationLevel.READ_COMMITTED:
        if footer.aborted is not None:
            return "aborted messages in second files"
        if "__txn_status" in reader.schema.names:
            return "statuses at read_uncommitted"  # a repeated batch must show the statuses of its first run
    names = footer.metadata.schema.to_arrow_schema().names
    return "columns that differ in case only" if len({name.lower() for name in names}) < len(names) else None


def _kept(reader: SliceReader, piece: Slice, footer: Footer, keys: IntArray, groups: Sequence[int]) -> list[int]:
    """Return the row groups in which the filters may find a row."""
    if not reader.filters:
        return list(groups)
    seen, statistics = reader.seen(piece, reader.decided(piece)), RowGroups(footer.metadata)
    columns = footer.entries | {"position": keys, "length": footer.entries["bytes"]}
    kept = []
    for group in groups:
        inside = footer.inside[footer.row_groups[group] : footer.row_groups[group + 1]]
        some = {name: column[inside] for name, column in columns.items()}
        if seen(some, footer.summary.producers, statistics.of(group)).any():
            kept.append(group)
    return kept


def _neighbours(groups: Sequence[int]) -> list[list[int]]:
    """Return runs of consecutive numbers."""
    found: list[list[int]] = []
    for group in groups:
        if found and found[-1][-1] == group - 1:
            found[-1].append(group)
        else:
            found.append([group])
    return found


def _run(
    piece: Slice, path: str, copy: TieredCopy, footer: Footer, groups: Sequence[int], names: Sequence[str]
) -> ObjectRun:
    from txn_source.storage.tiered import chunks_of

    every = [chunk for group in groups for chunk in chunks_of(footer.metadata, group)]
    stored = [STORED_AS.get(name, name) for name in names]
    wanted = [chunk for group in groups for chunk in chunks_of(footer.metadata, group, stored)]
    end = (copy.size - copy.footer_bytes, copy.footer_bytes, copy.footer_crc32c)
    return ObjectRun(
        piece,
        path,
        min(start for start, _ in every),
        max(stop for _, stop in every),
        copy.size,
        sum(int(footer.metadata.row_group(group).num_rows) for group in groups),
        np.array([*footer.runs.within(wanted), end], np.int64),
    )
