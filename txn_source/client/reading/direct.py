"""Entries and row groups that other readers take straight from files, and the slices that are left for this one.

The rules stay here: each row of a part that is handed over is visible at the read's level, and the read wants it. The
part comes with checksums; the other reader checks and decodes it. If that fails, this reader reads the same rows and
tries the other copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from txn_source.client.reading.copy_fallback import runs_of
from txn_source.client.reading.direct_objects import Left, ObjectRun, row_groups
from txn_source.client.reading.outlook import share_of
from txn_source.client.reading.slice_reader import Decided, SliceReader
from txn_source.client.reading.window import each
from txn_source.metadata.stub.metadata_stub import EntryPage
from txn_source.model.packing import Slice
from txn_source.model.position import PositionRange, entry_of, ledger_of
from txn_source.model.read_priority import ReadPriority
from txn_source.model.visibility import IntArray
from txn_source.storage.arrays import numbers_in
from txn_source.storage.segment_store import has_own_schemas

LEAST_ROWS = 50
"""Entries with fewer messages on average stay here, where they are joined to larger batches."""
ENTRIES_MAX = 262_144
"""Most entries that are handed over for one read, inclusive: they travel with its plan."""
ENTRY_COLUMNS = (
    "file", "offset", "length", "crc32c", "messages", "position", "ledger_id", "entry_id", "publish_time_us",
    "base_sequence", "producer", "txn", "status",
)  # fmt: skip
"""Numbers of an entry, in this order; the last three are places in the run's texts, -1 for null."""
_FEW = 16
"""Of so many slices (inclusive) each is looked at, of more only large ones: a look costs two or three calls of the
service, which the task would make otherwise, beside others."""
_LEAST_BYTES = 4 << 20
_SUMMED = ("entries", "messages", "bytes")
_COPIES = ("hot_deleted_at_ms", "offloaded_at_ms")


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Neighbouring entries of hot copies, all of whose messages are read, in order."""

    piece: Slice
    """The same rows, for this reader."""
    files: Sequence[Path]
    texts: Sequence[str]
    entries: IntArray
    """A row for each entry, with ``ENTRY_COLUMNS``."""


Part: TypeAlias = EntryRun | ObjectRun | Left


@dataclass(frozen=True, slots=True)
class _Look:
    """The metadata's answer about a slice."""

    why: str | None = None
    """The reason to leave the whole slice to this reader."""
    hot: str | None = None
    """The reason to leave its hot copies to this reader."""
    hot_only: bool = False
    """True: none of its ledgers has a tiered copy."""


def divide(
    reader: SliceReader, tasks: Sequence[Sequence[Slice]], no_entries: str | None = None, no_objects: str | None = None
) -> list[list[Part]]:
    """Return for each task the parts that have its rows, in its order.

    ``no_entries`` and ``no_objects`` are reasons why no entries, or no row groups, are handed over; None: they are.

    Raises:
        UnavailableError: the service doesn't answer. Faults of a slice are left for its reader to report.
    """
    pieces = [piece for task in tasks for piece in task]
    looks = list(_looks(reader, pieces, no_entries))

    def parts(number: int) -> list[Part]:
        return list(_parts(reader, pieces[number], looks[number], no_objects))

    numbers = range(len(pieces))
    local = reader.access.metadata.service is not None  # threads would only wait for each other
    found = map(parts, numbers) if local else each(parts, numbers)
    return [[part for _ in task for part in next(found)] for task in tasks]


def _looks(reader: SliceReader, pieces: Sequence[Slice], no_entries: str | None) -> Iterator[_Look]:
    """Yield what the metadata says of each slice; it is one call of the service."""
    if not isinstance(reader.access.root, Path):
        yield from [_Look("hot copies in an object store")] * len(pieces)
        return
    tables = reader.access.metadata.list_ledgers_of([(piece.partition_id, piece.range) for piece in pieces])
    entries_left = ENTRIES_MAX
    for piece, ledgers in zip(pieces, tables, strict=True):
        columns = {name: numbers_in(ledgers[name]) for name in _SUMMED + _COPIES}
        share = share_of(ledgers, piece.range)
        entries, messages, size = (int((columns[name] * share).sum()) for name in _SUMMED)
        if piece.skip:
            yield _Look("begins inside an entry")
            continue
        if len(pieces) > _FEW and size < _LEAST_BYTES:
            yield _Look(f"less than {_LEAST_BYTES >> 20} MiB of one of many partitions")
            continue
        few_rows = messages < LEAST_ROWS // 2 * entries  # markers count as entries: the average may be twice as large
        hot = no_entries or (_small() if few_rows else None)
        if hot is None and entries > entries_left:
            hot = f"more than {ENTRIES_MAX:,} entries"
        elif hot is None:
            entries_left -= entries
        begins = len(ledgers) > 0 and ledgers["ledger_id"][0].as_py() == piece.range.start.ledger_id
        yield _Look(hot=hot, hot_only=begins and all((columns[name] < 0).all() for name in _COPIES))


def _small() -> str:
    return f"entries of less than {LEAST_ROWS} messages"


def _parts(reader: SliceReader, piece: Slice, look: _Look, no_objects: str | None) -> Iterator[Part]:
    if look.why is not None:
        yield Left(piece, look.why)
        return
    if look.hot_only and look.hot is not None:
        yield Left(piece, look.hot)
        return
    decided = reader.decided(piece)
    if look.hot_only:
        yield from _hot(reader, piece, decided)
        return
    at = piece.range.start
    while at < piece.range.end:
        listed = reader.access.metadata.list_copies(piece.partition_id, PositionRange(at, piece.range.end))
        before = at
        if listed.ledgers and listed.ledgers[0].ledger_id == at.ledger_id:
            priority = reader.read_priority or listed.priority or ReadPriority.TIERED_FIRST
            for run in runs_of(piece, at, listed.ledgers, priority, {}):
                of_run = replace(piece, range=run.range)
                if run.tiered is not None:
                    yield from [Left(of_run, no_objects)] if no_objects else row_groups(reader, of_run, run.tiered)
                elif look.hot is not None:
                    yield Left(of_run, look.hot)
                else:
                    yield from _hot(reader, of_run, decided)
                at = run.range.end
        if at == before:
            yield Left(replace(piece, range=PositionRange(at, piece.range.end)), "no copy")
            return


def _hot(reader: SliceReader, piece: Slice, decided: Decided) -> Iterator[Part]:
    """Yield the entries of a slice whose ledgers are all read from their hot copies."""
    seen, rest = reader.seen(piece, decided), piece.range.start
    for page in reader.access.metadata.list_entries(piece.partition_id, piece.range):
        every = {name: numbers_in(page.entries[name]) for name in page.entries.column_names}
        keep = seen(every, page.producers)
        columns = every if keep.all() else {name: column[keep] for name, column in every.items()}
        of_page = replace(piece, range=PositionRange(rest, page.end))
        rest = page.end
        if not len(columns["position"]):
            continue
        used = np.unique(columns["segment_id"]).tolist()
        if columns["messages"].mean() < LEAST_ROWS:
            yield Left(of_page, _small())
        elif page.roots.keys() & set(used):
            yield Left(of_page, "hot copies in other roots")
        elif any(has_own_schemas(page.segments[number]) for number in used):
            yield Left(of_page, "entries of several partitions in a file")
        else:
            yield _run(reader, of_page, page, columns, decided)
    if rest < piece.range.end:
        yield Left(replace(piece, range=PositionRange(rest, piece.range.end)), "no copy")


def _run(
    reader: SliceReader, piece: Slice, page: EntryPage, columns: Mapping[str, IntArray], decided: Decided
) -> EntryRun:
    ids, files = np.unique(columns["segment_id"], return_inverse=True)
    root = Path(str(reader.access.root))
    texts: list[str] = []
    named = {
        "producer": reader.producers(columns["producer_id"], page.producers),
        "txn": reader.txn_ids(columns["txn"]),
        "status": reader.statuses(columns["txn"], decided),
    }
    made = {
        "file": files,
        "ledger_id": ledger_of(columns["position"]),
        "entry_id": entry_of(columns["position"]),
        **{name: _places(values, texts, len(files)) for name, values in named.items()},
    }
    every = {**columns, **made}
    entries = np.stack([every[name] for name in ENTRY_COLUMNS], axis=1).astype("<i8")
    return EntryRun(piece, [root / page.segments[number] for number in ids.tolist()], texts, entries)


def _places(values: pa.Array | None, texts: list[str], count: int) -> IntArray:
    """Return the place of each value in a list of texts, to which new ones are added; -1 for null."""
    if values is None:
        return np.full(count, -1)
    different = values.dictionary_encode()
    first = len(texts)
    texts.extend(different.dictionary.to_pylist())
    return numbers_in(different.indices.fill_null(-1 - first).cast(pa.int64())) + first
