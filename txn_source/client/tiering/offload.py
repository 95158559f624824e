"""Offloading: a closed ledger becomes one object, which is written, checked and only then registered.

It has what read_committed sees. The messages of aborted transactions go before it into a second file, which shares its
name and so its fate.

Whoever is interrupted leaves an object that nobody knows of but the list of offloads under way; it is deleted when
another offload of the ledger is complete, or after an hour. Two at once do no harm: the first to complete wins, and
the other one's object is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txn_source.client.access import Access
from txn_source.client.reading.slice_reader import Decided, SliceReader
from txn_source.client.tiering.deletion import delete_object
from txn_source.client.tiering.object_columns import object_schema, offloaded_schema
from txn_source.model.copies import TieredCopy
from txn_source.model.errors import (
    DataLossError,
    InternalError,
    InvalidArgumentError,
    SegmentUnreadableError,
    StorageWriteError,
    TxnLogError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.kinds import ABORT_MARKER, ABORTED, ABORTED_DATA, ALL_DECISIONS, COMMIT_MARKER, DATA
from txn_source.model.ledger import ClosedLedger, OffloadableLedger
from txn_source.model.packing import Slice
from txn_source.model.position import Position, PositionRange
from txn_source.model.read_priority import ReadPriority
from txn_source.model.topic import Topic
from txn_source.model.topic_name import TopicName
from txn_source.model.visibility import hidden
from txn_source.reading.filters import Seen
from txn_source.storage.arrays import array_of, numbers_in
from txn_source.storage.object_names import aborted_uri, new_object_uri
from txn_source.storage.object_store import ObjectStore
from txn_source.storage.schema import deserialize_schema
from txn_source.storage.tiered import INDEX_SCHEMA, LedgerSummary, row_group_edges, write_tiered

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OffloadReport:
    """What an offload did: the ledgers that have a tiered copy now, and the bytes of their messages and of the objects.

    ``skipped`` were offloaded by somebody else meanwhile, or trimmed.
    """

    ledger_ids: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()
    messages: int = 0
    hot_bytes: int = 0
    tiered_bytes: int = 0

    def __add__(self, other: OffloadReport) -> OffloadReport:
        return OffloadReport(
            self.ledger_ids + other.ledger_ids,
            self.skipped + other.skipped,
            self.messages + other.messages,
            self.hot_bytes + other.hot_bytes,
            self.tiered_bytes + other.tiered_bytes,
        )


class Offloader:
    """Offloads ledgers of one topic to where its policies say."""

    def __init__(self, access: Access, topic: TopicName) -> None:
        self._access = access
        self._stub = stub = access.metadata
        self._store = ObjectStore(access.root)
        [view] = stub.get_view([topic]).topics
        self._topic: Topic = view.topic
        self._payload = deserialize_schema(self._topic.schema)
        self._log_id = stub.get_log().log_id
        policies = stub.policies_in_force(topic)
        self._folder: str | None = policies["offload_uri"].value
        self._level: int = policies["offload_compression_level"].value

    def offload(
        self, ledgers: Sequence[OffloadableLedger], progress: Callable[[OffloadableLedger], object] | None = None
    ) -> OffloadReport:
        """Offload ledgers, one after the other; what was done stays done if one fails.

        Args:
            ledgers: which, as ``list_offloadable`` gave them.
            progress: is told of each ledger that was offloaded, or skipped.

        Raises:
            SegmentUnreadableError: a hot copy can't be read; the ledgers behind it were offloaded all the same.
            StorageWriteError: the target can't be written; the ledgers behind were not tried.
        """
        report = OffloadReport()
        unreadable: SegmentUnreadableError | None = None
        for ledger in ledgers:
            try:
                report += self.offload_one(ledger)
            except SegmentUnreadableError as error:
                unreadable = unreadable or error
            if progress is not None:
                progress(ledger)
        if unreadable is not None:
            raise unreadable
        return report

    def offload_one(self, ledger: OffloadableLedger) -> OffloadReport:
        """Offload one ledger.

        Raises:
            StorageWriteError: the target can't be written. Nothing was registered.
            SegmentUnreadableError: the hot copy can't be read. Nothing was registered.
        """
        uri = self._uri(ledger)
        try:
            copy_id = self._stub.begin_offload(ledger.partition_id, ledger.ledger_id, uri)
        except InvalidArgumentError:
            if not self._is_gone(ledger):
                raise
            copy_id = None
        if copy_id is None:
            return OffloadReport(skipped=(ledger.ledger_id,))
        try:
            index, producers = self._index(ledger)
            if (pc.sum(index["messages"]).as_py() or 0) != ledger.messages:
                return self._gone_meanwhile(ledger, copy_id)
            copy, second = self._write(ledger, uri, index, self._summary(ledger, producers))
            accepted = self._stub.complete_offload(copy_id, copy)
        except BaseException as error:
            with suppress(TxnLogError):
                self._stub.abandon_offload(copy_id)
            if isinstance(error, StorageWriteError | SegmentUnreadableError | DataLossError) and self._is_gone(ledger):
                return OffloadReport(skipped=(ledger.ledger_id,))  # who did it deleted our files under our hands
            raise
        if not accepted:
            with suppress(OSError, pa.ArrowException):
                delete_object(self._store, uri)
            return OffloadReport(skipped=(ledger.ledger_id,))
        return OffloadReport((ledger.ledger_id,), (), ledger.messages, ledger.bytes, copy.size + second)

    def _write(
        self, ledger: OffloadableLedger, uri: str, index: pa.Table, summary: LedgerSummary
    ) -> tuple[TieredCopy, int]:
        """Write a ledger's object, and before it the second file if it has any; return the copy, and the size of that.

        If it fails, neither is left.
        """
        schema, aborted = object_schema(self._payload), None
        try:
            apart = index.filter(array_of(numbers_in(index["kind"]) == ABORTED_DATA))
            if apart.num_rows:
                own = apart.set_column(1, INDEX_SCHEMA.field(1), array_of(np.full(apart.num_rows, DATA, np.int8)))
                rows = self._row_groups(ledger, own, _AbortedReader, IsolationLevel.READ_UNCOMMITTED)
                aborted = write_tiered(self._store, aborted_uri(uri), schema, rows, own, summary, self._level)
            rows = self._row_groups(ledger, index, SliceReader, IsolationLevel.READ_COMMITTED)
            copy = write_tiered(self._store, uri, schema, rows, index, summary, self._level, aborted)
        except BaseException:
            if aborted is not None:
                with suppress(OSError, pa.ArrowException):
                    self._store.delete(aborted.uri)
            raise
        return copy, 0 if aborted is None else aborted.size

    def _is_gone(self, ledger: OffloadableLedger) -> bool:
        """Tell whether somebody else has offloaded the ledger, or trimmed it."""
        copies = self._stub.list_copies(ledger.partition_id, _range(ledger)).ledgers
        return not copies or copies[0].ledger_id != ledger.ledger_id or copies[0].tiered is not None

    def _gone_meanwhile(self, ledger: OffloadableLedger, copy_id: int) -> OffloadReport:
        copies = self._stub.list_copies(ledger.partition_id, _range(ledger)).ledgers
        if copies and copies[0].ledger_id == ledger.ledger_id and copies[0].hot:
            raise InternalError(
                f"Ledger {ledger.ledger_id} has other entries than its {ledger.messages} messages.", "Please report it."
            )
        self._stub.abandon_offload(copy_id)  # somebody offloaded it and deleted the hot copy, or trimmed it
        return OffloadReport(skipped=(ledger.ledger_id,))

    def _uri(self, ledger: OffloadableLedger) -> str:
        return new_object_uri(self._folder, self._topic.name, ledger.partition, ledger.ledger_id)

    def _index(self, ledger: OffloadableLedger) -> tuple[pa.Table, dict[int, str]]:
        """Return the ledger's entries, markers among them, and its producers' names."""
        of = _range(ledger)
        decided = self._stub.list_decisions(ledger.partition_id, of, aborted_only=False, decisions=ALL_DECISIONS)
        aborted = numbers_in(decided["txn"])[numbers_in(decided["state"]) == ABORTED]
        producers: dict[int, str] = {}
        tables = []
        for page in self._stub.list_entries(ledger.partition_id, of):
            producers |= page.producers
            rows = page.entries
            tables.append(
                _index_table(
                    numbers_in(rows["position"]) - of.start.key,
                    np.where(hidden(numbers_in(rows["txn"]), aborted), ABORTED_DATA, DATA).astype(np.int8),
                    rows["messages"], rows["length"], rows["txn"], rows["producer_id"], rows["base_sequence"],
                    rows["publish_time_us"],
                )
            )  # fmt: skip
        markers = numbers_in(decided["marker_position"])
        decided = decided.filter(array_of(markers < of.end.key))
        kinds = np.where(numbers_in(decided["state"]) == ABORTED, ABORT_MARKER, COMMIT_MARKER).astype(np.int8)
        none = np.zeros(decided.num_rows, np.int64)
        ids = numbers_in(decided["marker_position"]) - of.start.key
        tables.append(_index_table(ids, kinds, none, none, decided["txn"], none, none, none))
        return pa.concat_tables(tables).sort_by("entry_id"), producers

    def _row_groups(
        self, ledger: OffloadableLedger, index: pa.Table, reader_type: type[SliceReader], level: IsolationLevel
    ) -> Iterator[pa.Table]:
        """Yield the ledger's rows that are ``DATA`` in an index, which is what the reader sees, by row groups."""
        data = index.filter(array_of(numbers_in(index["kind"]) == DATA))
        messages = numbers_in(data["messages"])
        rows_to = np.concatenate(([0], np.cumsum(messages)))
        sizes = iter(np.diff(rows_to[row_group_edges(messages, numbers_in(data["bytes"]))]).tolist())
        piece = Slice(self._topic.name.short, ledger.partition, ledger.partition_id, _range(ledger), ledger.bytes)
        reader = reader_type(
            self._access, offloaded_schema(self._payload), level, ALL_DECISIONS, ReadPriority.BOOKKEEPER_FIRST
        )
        waiting: list[pa.RecordBatch] = []
        missing = next(sizes, 0)
        for batch in reader.read([piece]):
            rest = batch
            while missing and rest.num_rows >= missing:
                table = pa.Table.from_batches([*waiting, rest.slice(0, missing)])
                yield table.rename_columns(object_schema(self._payload).names)
                rest, waiting, missing = rest.slice(missing), [], next(sizes, 0)
            if rest.num_rows:
                waiting.append(rest)
                missing -= rest.num_rows

    def _summary(self, ledger: OffloadableLedger, producers: dict[int, str]) -> LedgerSummary:
        return LedgerSummary(
            log_id=self._log_id,
            topic=str(self._topic.name),
            partition=ledger.partition,
            ledger=ClosedLedger.of(ledger),
            producers=producers,
        )


class _AbortedReader(SliceReader):
    """Reads what read_committed doesn't see."""

    def seen(self, piece: Slice, decided: Decided) -> Seen:
        seen = super().seen(piece, decided)
        return lambda columns, *known: seen(columns, *known) & hidden(columns["txn"], decided.aborted)


def _range(ledger: OffloadableLedger) -> PositionRange:
    return PositionRange(Position(ledger.ledger_id, 0), ledger.end)


def _index_table(*columns: pa.ChunkedArray | np.ndarray[Any, Any]) -> pa.Table:
    arrays = [
        array_of(numbers_in(c) if isinstance(c, pa.ChunkedArray) else c).cast(f.type)
        for c, f in zip(columns, INDEX_SCHEMA, strict=True)
    ]
    return pa.table(arrays, schema=INDEX_SCHEMA)
