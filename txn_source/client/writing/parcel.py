"""Parcels: messages of one producer and one transaction, from ``send`` to their registration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from txn_source.client.writing.batch_buffer import Buffer
from txn_source.client.writing.message_ids import Receipt
from txn_source.client.writing.routing import RoutedBatch
from txn_source.client.writing.transaction import Transaction
from txn_source.client.writing.uploads import Upload, placed
from txn_source.model.entry import NewEntry
from txn_source.model.position import Position
from txn_source.model.transaction import TxnId

Owner: TypeAlias = "Transaction | TxnId | None"
"""Whose messages they are: a transaction's, in the hands of this process or known by its id; None: plain ones."""


@dataclass(slots=True, eq=False)
class Parcel:
    """Messages of one producer and one transaction (None: plain messages), until they are registered.

    A parcel goes through five states. After a failure that may pass, the next call continues from the current state:

    1. taking: ``buffers`` takes messages, and ``runs`` records each change of buffer;
    2. cut: ``cut`` has the entries with their sequences; the parcel takes no more messages;
    3. under way, if the upload takes time: ``under_way`` has the entries and the upload to wait for;
    4. written: ``entries`` has the places of the safe bytes. The producer sends exactly these until the service has
       answered, since the service recognizes a repetition by its content;
    5. registered: ``receipt`` has the ids. A parcel with too few copies stays until it has them (``needs_copies``).

    While a commit in one call registers it, a written parcel is lent to its transaction, and in no outbox.
    """

    txn: Owner
    buffers: dict[int, Buffer] = field(default_factory=dict)
    runs: list[tuple[Buffer, int, int]] = field(default_factory=list)
    """Runs of messages for one buffer: the buffer, its length before the run, and the turn, which counts the producer's
    runs. A run ends where the next run of its buffer begins."""
    cut: list[tuple[int, int, pa.RecordBatch]] | None = None
    """Partition, base sequence and messages of each entry."""
    under_way: tuple[list[NewEntry], Upload] | None = None
    entries: list[NewEntry] | None = None
    upload: Upload | None = None
    """That of the entries, which holds the bytes of those that lack copies."""
    receipt: Receipt | None = None
    needs_copies: bool = False

    @property
    def messages(self) -> int:
        """How many messages were taken."""
        return sum(buffer.messages for buffer in self.buffers.values())

    @property
    def waits(self) -> bool:
        """True if the entries are cut, and neither written nor under way."""
        return self.cut is not None and self.entries is None and self.under_way is None

    def take(self, batches: Sequence[RoutedBatch], turn: int) -> None:
        """Add batches to existing buffers; their runs get the turns after ``turn``.

        The last step adds a single part, so an interrupt before it leaves at most an empty run, which is harmless.
        """
        for batch in batches:
            for partition, start in batch.runs:
                turn += 1
                buffer = self.buffers[partition]
                self.runs.append((buffer, buffer.messages + start, turn))
            for partition, rows in batch.parts:
                self.buffers[partition].add_batch(rows)

    def place(self, entries: Sequence[NewEntry], upload: Upload) -> None:
        """Wait until entries are safe, and record where they are.

        Raises:
            TxnLogError: as ``Upload.wait``.
        """
        self.entries, self.upload = placed(entries, upload.wait()), upload

    def receipt_of(self, positions: Sequence[Position]) -> Receipt:
        """Return the receipt for entries that got these positions."""
        assert self.cut is not None
        entries = [(p, batch.num_rows, at.key) for (p, _, batch), at in zip(self.cut, positions, strict=True)]
        runs = np.array([(buffer.partition, start, turn) for buffer, start, turn in self.runs], dtype=np.int64)
        return Receipt(entries, runs, {partition: buffer.messages for partition, buffer in self.buffers.items()})
