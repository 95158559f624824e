"""Reading slices: filtered, joined and given their metadata columns, whichever copy the entries come from.

``scan`` and Spark's tasks run this same code. What a slice yields depends on the slice, the isolation level and the
pinned number of decisions alone, so a retried task reads the same rows.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.reading.batch_assembly import Assembly, EntryColumns
from txn_source.client.reading.copy_fallback import CopyReader, Part
from txn_source.client.reading.skipping import EntriesKnown, of_partition
from txn_source.client.reading.source import ReadPartition
from txn_source.model.copies import CopiesRead
from txn_source.model.door import passes, translated
from txn_source.model.errors import SegmentUnreadableError, TxnLogError, UnavailableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.kinds import ABORTED, COMMITTED, OPEN, STATES
from txn_source.model.packing import Slice, stripes
from txn_source.model.position import Position, PositionRange
from txn_source.model.read_priority import ReadPriority
from txn_source.model.transaction import id_of
from txn_source.model.visibility import NO_TXN, IntArray, visible
from txn_source.reading.filters import Columns, Filters, Seen
from txn_source.reading.request import ReadRequest
from txn_source.storage.arrays import array_of, numbers_in, texts_of
from txn_source.storage.untrusted import check_rows


@dataclass(frozen=True, slots=True)
class SliceReader:
    """Reads slices as record batches of ``schema`` (payload and metadata columns) with about 64k rows each.

    ``read_priority`` is the read's own, None for each topic's. ``copies_read`` tells which copies were taken.
    """

    access: Access
    schema: pa.Schema
    isolation_level: IsolationLevel
    decisions: int
    read_priority: ReadPriority | None = None
    fail_on_data_loss: bool = True
    filters: Filters = field(default_factory=Filters)
    limit: int | None = None
    copies_read: CopiesRead = field(default_factory=CopiesRead)
    checked: bool = True
    """False: a row may point beyond its data, and the caller checks each."""

    @classmethod
    def of(cls, access: Access, schema: pa.Schema, request: ReadRequest, decisions: int) -> SliceReader:
        """Return what reads slices as a request says, with the decisions that its plan knew."""
        return cls(
            access,
            schema,
            request.isolation_level,
            decisions,
            request.read_priority,
            request.fail_on_data_loss,
            request.filters,
            None if request.filters else request.limit,  # how many rows the filters leave isn't known here
        )

    def read(self, slices: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
        """Yield what a reader of the level sees of the slices, in order, up to the limit, and without some of what the
        filters leave out. After an exception every later call raises."""
        return _Batches(self._read(slices) if self.limit is None else self._first(slices, self.limit))

    def _first(self, slices: Iterable[Slice], missing: int) -> Generator[pa.RecordBatch]:
        """Yield so many rows."""
        with closing(self._read(slices)) as batches:
            while missing and (batch := next(batches, None)) is not None:
                yield batch.slice(0, missing)
                missing -= min(missing, batch.num_rows)

    def _read(self, slices: Iterable[Slice]) -> Generator[pa.RecordBatch]:
        assembly = Assembly(self.schema)
        last: Slice | None = None
        at_once = self.access.segments.is_remote and self.limit is None and len(assembly.stored) > 0
        try:
            with self._copies(assembly.stored) as copies:
                for pieces in stripes(slices) if at_once else ([piece] for piece in slices):
                    for piece, part, decided in self._parts_of(copies, pieces):
                        last = piece
                        if part.entries:
                            for batch in self._add(piece, part, decided, assembly):
                                yield self._sound(batch, last)
        except TxnLogError:
            for batch in assembly.finish():  # the rows before the failure
                yield self._sound(batch, last)
            raise
        for batch in assembly.finish():
            yield self._sound(batch, last)

    def _sound(self, rows: pa.RecordBatch, upto: Slice | None) -> pa.RecordBatch:
        """Return the rows, or raise SEGMENT_UNREADABLE if a value points beyond its data.

        ``upto``: the slice that the last row is of; None: no slice was read.
        """
        if self.checked:
            try:
                check_rows(rows)
            except pa.ArrowException as error:
                where = "" if upto is None else f", up to {upto.range.end} of {upto.topic}-partition-{upto.partition},"
                raise SegmentUnreadableError(
                    f"Messages that were read{where} can't be shown: {' '.join(str(error).split())}. Their checksums"
                    " are right, so they were written like that.",
                    "Read the other positions, or subscribe: a consumer gets every other message.",
                ) from error
        return rows

    def _parts_of(self, copies: CopyReader, pieces: Sequence[Slice]) -> Iterator[tuple[Slice, Part, Decided]]:
        """Yield the parts of slices, one after the other; but first each says what it will read."""
        begun = []
        for piece in pieces:
            decided = self.decided(piece)
            parts = copies.read(piece, self.seen(piece, decided), announced=len(pieces) > 1)
            first = [part for part in islice(parts, 1) if part.entries] if len(pieces) > 1 else []
            begun.append((piece, decided, chain(first, parts)))
        for piece, decided, parts in begun:
            for part in parts:
                yield piece, part, decided

    def visible_entries(self, piece: Slice) -> Iterator[Part]:
        """Yield the entries that a reader of the level sees of a slice, without their messages."""
        decided = self.decided(piece)
        with self._copies(pa.schema([])) as copies:
            yield from copies.read(piece, self.seen(piece, decided))

    def take(self, of: ReadPartition, within: PositionRange, messages: int, size: int) -> tuple[Position, int, int]:
        """Return where so many messages or bytes that the reader sees end, and how many of both lie before it.

        That is the next entry that is seen, not the position behind the last one: so nothing is left over that would
        be a batch without messages, and the end doesn't lie in a ledger that is no longer needed and may be trimmed.
        """
        piece = Slice(of.topic.short, of.view.index, of.view.partition_id, within, 0)
        taken, taken_bytes, full = 0, 0, False
        for part in self.visible_entries(piece):
            positions, beyond = part.columns["position"], 0
            if not full:
                rows_to = taken + np.cumsum(part.columns["messages"])
                bytes_to = taken_bytes + np.cumsum(part.columns["length"])
                reached = (rows_to >= messages) | (bytes_to >= size)
                full = bool(reached.any())
                beyond = int(np.argmax(reached)) + 1 if full else len(positions)
                taken, taken_bytes = int(rows_to[beyond - 1]), int(bytes_to[beyond - 1])
            if beyond < len(positions):
                return Position.from_key(int(positions[beyond])), taken, taken_bytes
        return within.end, taken, taken_bytes

    def _copies(self, stored: pa.Schema) -> CopyReader:
        return CopyReader(
            self.access,
            stored,
            self.read_priority,
            fail_on_data_loss=self.fail_on_data_loss,
            report=self.copies_read,
        )

    def seen(self, piece: Slice, decided: Decided) -> Seen:
        """Return the function that tells which entries of a slice are visible and may be wanted."""
        partition = of_partition(piece.topic, piece.partition)
        known = (decided.aborted, decided.committed) if "__txn_status" in self.schema.names else None

        def seen(
            columns: Mapping[str, IntArray], producers: Mapping[int, str], payload: Columns | None = None
        ) -> npt.NDArray[np.bool_]:
            markers = np.zeros(len(columns["position"]), dtype=np.bool_)  # both kinds of copies leave markers out
            level = self.isolation_level
            found = visible(columns["position"], columns["txn"], markers, piece.range, level, decided.aborted)
            if self.filters:
                found &= self.filters.keep(EntriesKnown(partition, columns, producers, known, payload))
            return found

        return seen

    def decided(self, piece: Slice) -> Decided:
        """Return the transactions of a slice that the read knows as ended, as far as it needs them."""
        status = "__txn_status" in self.schema.names
        committed_only = self.isolation_level is IsolationLevel.READ_COMMITTED
        if not committed_only and not status:
            return Decided(_NONE, _NONE)
        table = self.access.metadata.list_decisions(
            piece.partition_id, piece.range, aborted_only=not status, decisions=self.decisions
        )
        txns, states = numbers_in(table["txn"]), numbers_in(table["state"])
        return Decided(txns[states != COMMITTED], txns[states == COMMITTED])

    def _add(self, piece: Slice, part: Part, decided: Decided, assembly: Assembly) -> Iterator[pa.RecordBatch]:
        columns = part.columns
        assembly.start_page(
            EntryColumns(
                topic=piece.topic,
                partition=piece.partition,
                positions=columns["position"],
                publish_times=columns["publish_time_us"],
                base_sequences=columns["base_sequence"],
                producers=self.producers(columns["producer_id"], part.producers),
                txn_ids=self.txn_ids(columns["txn"]),
                txn_statuses=self.statuses(columns["txn"], decided),
            )
        )
        messages, sizes = columns["messages"], columns["length"]
        at_start = part.entries > 0 and columns["position"][0] == piece.range.start.key
        skip = piece.skip if at_start else 0
        if not part.stored:
            yield from assembly.add(0, None, messages, np.zeros_like(messages), skip)
        firsts = [first for first, _ in part.stored]
        for (_, stored), (first, last) in zip(part.stored, pairwise([*firsts, part.entries]), strict=True):
            yield from assembly.add(first, stored, messages[first:last], sizes[first:last], skip if first == 0 else 0)
        yield from assembly.end_page()

    def producers(self, ids: npt.NDArray[np.int64], names: Mapping[int, str]) -> pa.Array | None:
        """Return the producer's name of each entry; None if the read doesn't have that column."""
        if "__producer_name" not in self.schema.names:
            return None
        known = np.array(sorted(names), np.int64)
        return texts_of([names[int(i)] for i in known]).take(array_of(np.searchsorted(known, ids)))

    def txn_ids(self, txns: npt.NDArray[np.int64]) -> pa.Array | None:
        """Return the transaction's id of each entry; None if the read doesn't have that column."""
        if "__txn_id" not in self.schema.names:
            return None
        different, numbers = np.unique(txns, return_inverse=True)  # most entries of a page have a few between them
        names = texts_of([None if txn == NO_TXN else str(id_of(txn)) for txn in different.tolist()])
        return names.take(array_of(numbers))

    def statuses(self, txns: npt.NDArray[np.int64], decided: Decided) -> pa.Array | None:
        """Return the transaction's status for each entry; None if the read doesn't have that column."""
        if "__txn_status" not in self.schema.names:
            return None
        codes = np.where(
            np.isin(txns, decided.aborted), ABORTED, np.where(np.isin(txns, decided.committed), COMMITTED, OPEN)
        )
        names = texts_of([*(state.value for state in STATES), None])
        return names.take(array_of(np.where(txns == NO_TXN, len(STATES), codes)))


class _Batches(Iterator[pa.RecordBatch]):
    """Batches of a generator that say again that they have failed.

    A generator has ended once an exception went through it, whatever that was: whoever asked it again would take what
    came so far for all there is.
    """

    def __init__(self, batches: Generator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._failure: TxnLogError | None = None

    def __next__(self) -> pa.RecordBatch:
        if self._failure is not None:
            raise self._failure
        try:
            batch = next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            raised = translated(error, "read()") if isinstance(error, Exception) and not passes(error) else error
            if isinstance(raised, TxnLogError):
                self._failure = type(raised)(raised.fact, raised.remedy)  # without the frames that the first one holds
            else:
                self._failure = UnavailableError(
                    f"The read was ended by {error!r:.200} before it had come to its end.",
                    "Read again with a new load() or scan().",
                )
            self._batches.close()
            try:
                if raised is error:
                    raise
                raise raised from error
            finally:
                del raised  # in a cycle with its traceback it would keep what an interrupt has left open
        return batch


_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Decided:
    """Of the transactions that touch a slice, those whose end is known, by number."""

    aborted: npt.NDArray[np.int64]
    committed: npt.NDArray[np.int64]
