"""Which entries of a slice another reader takes straight from their files, and what is left for this one.

The rules stay here: what is handed over is visible at the read's level, is read as a whole, and comes with its checksum
and with all that metadata columns need. The other reader checks, decodes and hands on. Where it fails, this one reads
the same rows, and tries the other copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from txn_source.client.reading.copy_fallback import runs_of
from txn_source.client.reading.slice_reader import Decided, SliceReader
from txn_source.metadata.stub.metadata_stub import EntryPage
from txn_source.model.packing import Slice
from txn_source.model.position import PositionRange, entry_of, ledger_of
from txn_source.model.read_priority import ReadPriority
from txn_source.model.values import dataclass
from txn_source.model.visibility import IntArray
from txn_source.storage.arrays import numbers_in
from txn_source.storage.segment_store import has_own_schemas

LEAST_ROWS = 50
"""Entries with fewer messages on average are better joined here."""
ENTRIES_MAX = 262_144
"""So many entries are handed over for one read: they travel with its plan."""
ENTRY_COLUMNS = (
    "file", "offset", "length", "crc32c", "messages", "position", "ledger_id", "entry_id", "publish_time_us",
    "base_sequence", "producer", "txn", "status",
)  # fmt: skip
"""Numbers of an entry, in this order; the last three are places in the run's texts, -1 for null."""


_SMALL = f"entries of less than {LEAST_ROWS} messages"


@dataclass(frozen=True, slots=True)
class EntryRun:
    """Neighbouring entries of hot copies, all of whose messages are read, in order."""

    piece: Slice
    """The same rows, for this reader."""
    files: Sequence[Path]
    texts: Sequence[str]
    entries: IntArray
    """A row for each entry, with ``ENTRY_COLUMNS``."""


@dataclass(frozen=True, slots=True)
class Left:
    """A slice that is left for this reader, and why."""

    piece: Slice
    why: str


Part: TypeAlias = EntryRun | Left


def divide(reader: SliceReader, pieces: Sequence[Slice], entries_max: int = ENTRIES_MAX) -> list[Part]:
    """Return parts that have together the rows of some slices, in order.

    Raises:
        UnavailableError: the metadata can't be asked. What is wrong with the slices themselves is left for their reader
            to say.
    """
    found: list[Part] = []
    for piece in pieces:
        for part in _parts(reader, piece, entries_max):
            before = found[-1] if found else None
            if isinstance(part, EntryRun):
                entries_max -= len(part.entries)
            elif isinstance(before, Left) and before.why == part.why and _touch(before.piece, part.piece):
                reach = PositionRange(before.piece.range.start, part.piece.range.end)
                cost = before.piece.cost_bytes + part.piece.cost_bytes
                found[-1] = Left(replace(before.piece, range=reach, cost_bytes=cost), part.why)
                continue
            found.append(part)
    return found


def _touch(first: Slice, second: Slice) -> bool:
    return first.partition_id == second.partition_id and first.range.end == second.range.start and not second.skip


def _parts(reader: SliceReader, piece: Slice, entries_max: int) -> Iterator[Part]:
    access = reader.access
    if not isinstance(access.root, Path):
        yield Left(piece, "hot copies in an object store")
        return
    if piece.skip:
        yield Left(piece, "begins inside an entry")
        return
    decided = reader.decided(piece)
    at = piece.range.start
    while at < piece.range.end:
        listed = access.metadata.list_copies(piece.partition_id, PositionRange(at, piece.range.end))
        before = at
        if listed.ledgers and listed.ledgers[0].ledger_id == at.ledger_id:
            priority = reader.read_priority or listed.priority or ReadPriority.TIERED_FIRST
            for run in runs_of(piece, at, listed.ledgers, priority, {}):
                of_run = replace(piece, range=run.range)
                if run.tiered is not None:
                    yield Left(of_run, "in objects")
                else:
                    yield from _hot(reader, of_run, decided, entries_max)
                at = run.range.end
        if at == before:
            yield Left(replace(piece, range=PositionRange(at, piece.range.end)), "no copy")
            return


def _hot(reader: SliceReader, piece: Slice, decided: Decided, entries_max: int) -> Iterator[Part]:
    """Yield the entries of a slice whose ledgers are all read from their hot copies."""
    stub = reader.access.metadata
    ledgers = stub.list_ledgers(piece.partition_id, piece.range)
    entries, messages = (int(numbers_in(ledgers[name]).sum()) for name in ("entries", "messages"))
    if messages < LEAST_ROWS // 2 * entries:  # of which some are markers
        yield Left(piece, _SMALL)
        return
    seen, rest = reader.seen(piece, decided), piece.range.start
    for page in stub.list_entries(piece.partition_id, piece.range):
        every = {name: numbers_in(page.entries[name]) for name in page.entries.column_names}
        keep = seen(every, page.producers)
        columns = every if keep.all() else {name: column[keep] for name, column in every.items()}
        of_page = replace(piece, range=PositionRange(rest, page.end))
        rest = page.end
        if not len(columns["position"]):
            continue
        used = np.unique(columns["segment_id"]).tolist()
        if columns["messages"].mean() < LEAST_ROWS:
            yield Left(of_page, _SMALL)
        elif len(columns["position"]) > entries_max:
            yield Left(of_page, f"more than {ENTRIES_MAX:,} entries")
        elif page.roots.keys() & set(used):
            yield Left(of_page, "hot copies in other roots")
        elif any(has_own_schemas(page.segments[number]) for number in used):
            yield Left(of_page, "entries of several partitions in a file")
        else:
            entries_max -= len(columns["position"])
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
