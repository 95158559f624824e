"""Another log's history: entries of many transactions, their ends, and how far it has come, in one step.

How far an import has come is a text that only the importer reads. It is kept with the topic and changed together with
what it speaks of, so an import that was stopped anywhere goes on exactly there. A batch says which text it goes on
from: of two importers of a topic only one can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from txn_source.metadata.store import topics, transactions
from txn_source.metadata.store.appends import Append, Write, check_copies, write_all
from txn_source.metadata.store.tables import policies
from txn_source.model.errors import InvalidArgumentError, ProducerFencedError, TopicNotFoundError, TxnLogError
from txn_source.model.imported import KEPT_OPEN_MS, ImportedBatch, ImportedTopic, TxnRef
from txn_source.model.transaction import TxnId

_NAME = "import"
"""In the place of a policy's name; there is none of that name."""


def progress_of(connection: Connection, topic_id: int) -> str:
    """Return how far the import of a topic has come; empty: none has begun."""
    query = select(policies.c.value).where(policies.c.scope == f"topic:{topic_id}", policies.c.name == _NAME)
    return str(connection.execute(query).scalar_one_or_none() or "")


def import_batch(
    connection: Connection, batch: ImportedBatch, now_us: int, configured: Mapping[str, Any]
) -> dict[int, int]:
    """Register a batch, or nothing of it; return the ledger that each partition with entries has come to.

    ``configured`` are the broker's policies.

    Raises:
        ProducerFencedError: a topic's import has gone on from where this batch begins.
        TopicNotFoundError: a topic was deleted, even if there is one of its name again.
        TransactionEndedError: an open transaction isn't open.
        UnavailableError: some of it has too few copies.
    """
    for of in batch.topics:
        _advance(connection, of)
    begun = transactions.begin_open(connection, batch.begun, KEPT_OPEN_MS, now_us // 1000)

    def number(txn: TxnRef) -> int:
        return transactions.number_of(txn) if isinstance(txn, TxnId) else begun[txn]

    _check_open(connection, [number(txn) for txn, _ in batch.ends] + [number(txn) for txn in batch.kept])
    writes = []
    for one in batch.writes:
        producer = batch.topics[one.topic].producer
        append = Append(producer.producer_id, producer.epoch, one.entries)
        writes.append(Write([append], None if one.txn is None else number(one.txn)))
    tails = {}
    for one, done in zip(batch.writes, write_all(connection, writes, now_us, configured), strict=True):
        if isinstance(done, TxnLogError):
            raise done
        check_copies(done)
        if done.repeated:
            raise InvalidArgumentError(
                "Entries of the import are stored already.", "Open a new producer for each import."
            )
        for entry, position in zip(one.entries, done.appended[0].positions, strict=True):
            tails[entry.partition_id] = position.ledger_id
    transactions.end_all(connection, [(number(txn), commit) for txn, commit in batch.ends], now_us)
    kept = [number(txn) for txn in batch.kept]
    transactions.keep_open(connection, kept, KEPT_OPEN_MS, now_us // 1000)
    return tails


def _check_open(connection: Connection, txns: Iterable[int]) -> None:
    wanted = list(txns)
    if len(set(wanted)) < len(wanted):
        raise InvalidArgumentError("A transaction ends twice, or ends and is kept.", "Name each once.")
    found = transactions.still_open(connection, wanted)
    for txn in wanted:
        if txn not in found:
            transactions.check_open(connection, txn)


def _advance(connection: Connection, of: ImportedTopic) -> None:
    """Note how far a topic has come, if it had come where the batch says."""
    if topics.find(connection, of.topic).topic_id != of.topic_id:
        raise TopicNotFoundError(
            f"Topic {of.topic.short!r} was deleted, and made again, after its import had begun.",
            "Run the import again.",
        )
    if progress_of(connection, of.topic_id) != of.expected:
        raise ProducerFencedError(
            f"Another import into topic {of.topic.short!r} has gone on meanwhile.",
            "Let that one come to its end. What it did is not done twice.",
        )
    scope = f"topic:{of.topic_id}"
    connection.execute(delete(policies).where(policies.c.scope == scope, policies.c.name == _NAME))
    connection.execute(insert(policies).values(scope=scope, name=_NAME, value=of.progress))
