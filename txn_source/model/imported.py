"""A part of another log's history on its way into this one."""

from __future__ import annotations

from dataclasses import dataclass

from txn_source.model.entry import NewEntry, OpenedProducer
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TxnId

KEPT_OPEN_MS = 7 * 24 * 60 * 60 * 1000
"""So long an import that was stopped may wait until it goes on, if transactions were open where it stopped."""


@dataclass(frozen=True, slots=True)
class ImportedTopic:
    """A topic that is imported: who writes to it, and how far the import had come, and has come with the batch."""

    topic: TopicName
    topic_id: int
    producer: OpenedProducer
    expected: str
    progress: str


TxnRef = TxnId | int
"""An open transaction's id, or the number, from 0, of one that is begun with the batch."""


@dataclass(frozen=True, slots=True)
class ImportedEntries:
    """Entries in a row of one transaction (None: plain); ``topic`` counts the batch's topics from 0."""

    topic: int
    txn: TxnRef | None
    entries: tuple[NewEntry, ...]


@dataclass(frozen=True, slots=True)
class ImportedBatch:
    """What is registered in one step: entries in their order, then ends of transactions, and the new progress."""

    topics: tuple[ImportedTopic, ...]
    begun: int
    writes: tuple[ImportedEntries, ...]
    ends: tuple[tuple[TxnRef, bool], ...]
    """True: it is committed."""
    kept: tuple[TxnId, ...]
    """Those that stay open until the import goes on."""
