"""Groups: what a producer gathered under one transaction, from ``send`` until the service has registered it."""

from __future__ import annotations

import enum
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from txn_source.client.writing.batch_buffer import Buffer
from txn_source.client.writing.receipts import Receipt
from txn_source.client.writing.routed_batch import RoutedBatch
from txn_source.client.writing.transaction import Transaction
from txn_source.client.writing.uploads import Upload
from txn_source.model.entry import NewEntry
from txn_source.model.errors import TxnLogError
from txn_source.model.position import Position
from txn_source.model.transaction import TxnId

Owner: TypeAlias = "Transaction | TxnId | None"
"""Whose messages they are: a transaction's, in the hands of this process or known by its id; None: plain ones."""


class Forgotten(enum.Enum):
    """In the place of a transaction that its program has dropped."""

    TRANSACTION = enum.auto()


@dataclass(slots=True, eq=False)
class Group:
    """What was gathered under one transaction (None: plain), until it is registered.

    Its life goes in steps. Each is one assignment, so an interrupt comes before it or after it, and whoever comes next
    goes on from there:

    1. gathered: messages are added to ``buffers``, and to ``runs`` when the buffer changes;
    2. cut: ``cut`` has the entries with their sequences, and nothing is added any more;
    3. under way, if its bytes take a while to be safe: ``under_way`` says where they will lie, and what to wait for. If
       they can't be written for now it is only cut again;
    4. written: ``entries`` says where their bytes lie, which are synced. The service is sent just these until it has
       answered, since it knows a repeat by its content;
    5. registered: ``receipt`` has the ids.
       If it has too few copies it stays until it has them (``needs_copies``). Or ``failed`` says why it is lost, and it
       never gets any further.
    """

    owner: Owner | weakref.ref[Transaction]
    """Weak while its transaction asks to be begun and committed in one call: see ``txn``."""
    buffers: dict[int, Buffer] = field(default_factory=dict)
    runs: list[tuple[Buffer, int, int]] = field(default_factory=list)
    """Messages in a row for one buffer: the buffer, how many it had before, and the turn, which counts over all groups
    of the producer. A run ends where the next one of its buffer begins."""
    cut: list[tuple[int, int, pa.RecordBatch]] | None = None
    """Partition, base sequence and messages of each entry."""
    under_way: tuple[list[NewEntry], Upload] | None = None
    entries: list[NewEntry] | None = None
    receipt: Receipt | None = None
    needs_copies: bool = False
    """It is registered, and has too few copies to be acknowledged: it is asked about until it has them."""
    failed: TxnLogError | None = None
    _undo: tuple[list[tuple[Buffer, int]], int] | None = None
    """While batches are being taken: how many messages the buffers had before, and how many runs there were."""

    @property
    def txn(self) -> Owner | Forgotten:
        """Whose messages they are. ``Forgotten``: of a transaction that can't be committed, nor asked about, any more:
        nobody has it, and nobody was told its id."""
        if isinstance(self.owner, weakref.ref):
            return self.owner() or Forgotten.TRANSACTION
        return self.owner

    @property
    def messages(self) -> int:
        """How many messages were taken."""
        return sum(buffer.messages for buffer in self.buffers.values())

    def take(self, batches: Sequence[RoutedBatch], turn: int) -> None:
        """Take batches whose buffers are there, all of them or none; their runs get the turns after ``turn``.

        If it is interrupted, ``roll_back`` must be called before anything else.
        """
        touched = {self.buffers[partition] for batch in batches for partition, _ in batch.parts}
        self._undo = ([(buffer, buffer.messages) for buffer in touched], len(self.runs))
        for batch in batches:
            for partition, start in batch.runs:
                turn += 1
                buffer = self.buffers[partition]
                self.runs.append((buffer, buffer.messages + start, turn))
            for partition, rows in batch.parts:
                self.buffers[partition].add_batch(rows)
        self._undo = None

    def roll_back(self) -> None:
        """Undo ``take`` if it didn't come to its end."""
        if self._undo is not None:
            counts, runs = self._undo
            for buffer, messages in counts:
                buffer.cut_back(messages)
            del self.runs[runs:]
            self._undo = None

    def receipt_of(self, positions: Sequence[Position]) -> Receipt:
        """Return the receipt for entries that got these positions."""
        assert self.cut is not None
        entries = [(p, batch.num_rows, at.key) for (p, _, batch), at in zip(self.cut, positions, strict=True)]
        runs = np.array([(buffer.partition, start, turn) for buffer, start, turn in self.runs], dtype=np.int64)
        return Receipt(entries, runs, {partition: buffer.messages for partition, buffer in self.buffers.items()})
