"""Writes what was read to segments, and registers it batch by batch, each with how far the import has come."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.writing.batch_buffer import ENTRY_MAX_BYTES, ENTRY_MAX_ROWS, entry_sized
from txn_source.client.writing.entry_files import EntryFiles, open_files
from txn_source.client.writing.partitions import Partitions
from txn_source.client.writing.uploads import placed
from txn_source.model.entry import NewEntry, OpenedProducer
from txn_source.model.errors import StaleSegmentError, TxnLogError
from txn_source.model.imported import ImportedBatch, ImportedEntries, ImportedTopic, TxnRef
from txn_source.model.topic import TopicView
from txn_source.model.transaction import TxnId
from txn_source.model.visibility import NO_TXN
from txn_source.storage.schema import conform, deserialize_schema

BATCH_ROWS = 400_000
BATCH_BYTES = 64 << 20
BATCH_ENTRIES = 2_000
"""A batch is registered when so much waits."""
_MAX_OPEN = 128
_PRODUCER = "import"


@dataclass(slots=True)
class _Writer:
    """A topic's producer, and where its entries go."""

    view: TopicView
    producer: OpenedProducer
    partitions: Partitions
    files: EntryFiles
    schema: pa.Schema
    sequence: int = 0

    def numbered(self, entry: NewEntry) -> NewEntry:
        """Return an entry with the next sequence."""
        self.sequence += entry.messages
        return replace(entry, base_sequence=self.sequence - entry.messages)


@dataclass(slots=True)
class _Piece:
    """Messages in a row of one partition and transaction, which become an entry, or several if they are many."""

    topic: int
    partition: int
    group: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    written: tuple[NewEntry, ...] = ()
    """What others have written of it; then there are no batches."""

    def fits(self, batch: pa.RecordBatch) -> bool:
        if self.rows + batch.num_rows > ENTRY_MAX_ROWS or self.bytes + batch.nbytes > ENTRY_MAX_BYTES:
            return False
        return bool(self.batches and batch.schema.equals(self.batches[0].schema))


class BatchWriter:
    """Gathers messages, and writes them as one batch. Each import is a producer of its own for each topic."""

    def __init__(self, access: Access, views: Sequence[TopicView]) -> None:
        self._stub = access.metadata
        self._writers = []
        for view in views:
            opened, newest = access.metadata.open_producer(view.topic.name, None, _PRODUCER)
            known = Partitions(newest)
            files = open_files(access, newest.topic, known, opened.producer_id, _MAX_OPEN)
            self._writers.append(_Writer(newest, opened, known, files, deserialize_schema(newest.topic.schema)))
        self._pieces: list[_Piece] = []
        self._last: dict[tuple[int, int], _Piece] = {}
        """Files of the last batch that had entries."""
        self.rows = 0
        """How many messages wait."""
        self.bytes = 0

    @property
    def is_full(self) -> bool:
        """True if so much waits that it is to be registered."""
        return self.rows >= BATCH_ROWS or self.bytes >= BATCH_BYTES or len(self._pieces) >= BATCH_ENTRIES

    @property
    def groups(self) -> set[int]:
        """The transactions of what waits, by their numbers in the course."""
        return {piece.group for piece in self._pieces if piece.group != NO_TXN}

    def add(self, topic: int, partition: int, group: int, batch: pa.RecordBatch) -> None:
        """Take messages of a transaction by its number in the course; ``NO_TXN``: plain ones."""
        last = self._last.get((topic, partition))
        if last is None or last.group != group or not last.fits(batch):
            last = self._last[topic, partition] = _Piece(topic, partition, group)
            self._pieces.append(last)
        size = batch.nbytes
        last.batches.append(batch)
        last.rows += batch.num_rows
        last.bytes += size
        self.rows += batch.num_rows
        self.bytes += size

    def add_written(self, topic: int, partition: int, group: int, entries: tuple[NewEntry, ...]) -> None:
        """Take messages of a transaction that are entries of this import's producer already."""
        rows, size = sum(entry.messages for entry in entries), sum(entry.length for entry in entries)
        piece = self._last[topic, partition] = _Piece(topic, partition, group, [], rows, size, entries)
        self._pieces.append(piece)
        self.rows += rows
        self.bytes += size

    @property
    def owners(self) -> list[tuple[TopicView, OpenedProducer]]:
        """Each topic, and the producer that writes to it."""
        return [(writer.view, writer.producer) for writer in self._writers]

    def register(
        self,
        txns: dict[int, TxnRef],
        begun: int,
        ends: Sequence[tuple[TxnRef, bool]],
        kept: Sequence[TxnId],
        expected: Sequence[str],
        progress: Sequence[str],
    ) -> None:
        """Write all that waits and register it as one batch.

        Args:
            txns: by number in the course, what the target calls each transaction that waits.
            begun: how many of them begin with the batch.
            ends: what ends with it, committed or aborted.
            kept: what stays open.
            expected: of each topic how far it had come.
            progress: how far it has come with the batch.
        """
        try:
            self._register(txns, begun, ends, kept, expected, progress)
        except StaleSegmentError:  # a ledger was offloaded or trimmed while its segment was open
            for writer in self._writers:
                writer.files.close()
            self._register(txns, begun, ends, kept, expected, progress)
        self._pieces, self._last = [], {}
        self.rows = self.bytes = 0

    def close(self) -> None:
        """Close the files, and the producers."""
        for writer in self._writers:
            writer.files.close()
            with suppress(TxnLogError):
                self._stub.close_producer(writer.producer)

    def _register(
        self,
        txns: dict[int, TxnRef],
        begun: int,
        ends: Sequence[tuple[TxnRef, bool]],
        kept: Sequence[TxnId],
        expected: Sequence[str],
        progress: Sequence[str],
    ) -> None:
        found = [(piece, self._written(piece)) for piece in self._pieces]
        roots = [writer.files.start().wait() for writer in self._writers]
        writes = [
            ImportedEntries(piece.topic, txns.get(piece.group), tuple(placed(entries, roots[piece.topic])))
            for piece, entries in found
        ]
        topics = tuple(
            ImportedTopic(writer.view.topic.name, writer.view.topic.topic_id, writer.producer, before, now)
            for writer, before, now in zip(self._writers, expected, progress, strict=True)
        )
        batch = ImportedBatch(topics, begun, tuple(writes), tuple(ends), tuple(kept))
        tails = self._stub.import_batch(batch)
        for writer in self._writers:
            for index, partition in enumerate(writer.view.partitions):
                if partition.partition_id in tails:
                    writer.partitions.follow(index, tails[partition.partition_id])

    def _written(self, piece: _Piece) -> list[NewEntry]:
        writer = self._writers[piece.topic]
        if piece.written:
            return [writer.numbered(entry) for entry in piece.written]
        whole = pa.concat_batches(piece.batches) if len(piece.batches) > 1 else piece.batches[0]
        found = []
        for batch in entry_sized(conform(whole, writer.schema)):
            found.append(writer.files.append(piece.partition, writer.sequence, batch))
            writer.sequence += batch.num_rows
        return found
