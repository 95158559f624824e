"""What jobs wrote: files first, then everything is registered and committed in one database transaction.

A batch job is known by its request, which is answered as the first time for an hour. A streaming query is known by its
id for good: its last batch is registered once, however often it comes, and one before that never comes again. A batch
job may number its writes itself, as ``AppVersion``: then each topic takes a version once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, insert, select, update

from txn_source.metadata.store import owners, producers, topics, transactions
from txn_source.metadata.store.appends import Append, Write, check_copies, write
from txn_source.metadata.store.tables import app_versions, sink_producers, sinks
from txn_source.metadata.store.tables import producers as producer_rows
from txn_source.model.caller import Caller
from txn_source.model.entry import OpenedProducer
from txn_source.model.errors import (
    BatchRepeatedError,
    InvalidArgumentError,
    StaleSegmentError,
    TopicNotFoundError,
    shown,
)
from txn_source.model.spark_commit import AppVersion, Sink, TopicBatch, joined_content
from txn_source.model.transaction import EndReason

_TIMEOUT_MS = 60_000  # of a transaction that ends where it began
_RUNS_KEPT = 16
_NEWEST_CHECKPOINT = (
    "Go on with the newest checkpoint; if there is none, begin a new one behind the rows that are there."
)


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """What became of a batch."""

    txn: int | None
    """None: there was nothing to write."""
    repeated: bool
    """It had been committed before."""
    warnings: list[str]
    """What the writer's log should say."""


def commit_batch(
    connection: Connection,
    sink: Sink,
    batches: Sequence[TopicBatch],
    now_us: int,
    caller: Caller | None,
    configured: Mapping[str, Any],
) -> CommittedBatch:
    """Register and commit a caller's batch, unless that was done before; ``configured`` are the broker's policies.

    Raises:
        BatchRepeatedError: it was committed before, and can't come again now, or had another number of rows.
        TopicNotFoundError: a topic was deleted after the job began, even if there is one of its name again.
        ProducerFencedError: another producer took over the transactional id.
        UnavailableError: some of it has too few copies.
        PermissionDeniedError: the query, the application or the transactional id is another identity's.
    """
    if sink.query_id is not None:
        # A query is of no topic, so who administers those of this call has no right to it.
        of_query = None if caller is None else replace(caller, admin=caller.admin_of_all)
        owners.take(connection, owners.QUERY, sink.query_id, of_query, f"The query {shown(sink.query_id)}")
        said = _repetition(connection, sink.query_id, sink, batches)
        if said is not None:
            _end_tasks(connection, batches, caller)
            return CommittedBatch(None, True, said)
    for batch in batches:
        if topics.find(connection, batch.topic).topic_id != batch.topic_id:
            raise TopicNotFoundError(
                f"Topic {batch.topic.short!r} was deleted, and made again, after the job began to write to it.",
                "Run the job again.",
            )
    warnings: list[str] = []
    if sink.app is not None:
        new, warnings = _not_taken(connection, sink.app, batches, caller)
        _end_tasks(connection, [batch for batch in batches if batch not in new], caller)
        if len(new) < len(batches) and not new:
            return CommittedBatch(None, True, warnings)
        batches = new
    if not any(batch.entries for batch in batches):
        return CommittedBatch(None, False, warnings)
    txn = transactions.begin(connection, _TIMEOUT_MS, now_us // 1000)
    tasks: set[int] = set()
    for batch in batches:
        producer, sequence = _producer(connection, sink, batch, now_us, caller)
        numbered = []
        for entry in batch.entries:
            numbered.append(replace(entry, base_sequence=sequence))
            sequence += entry.messages
        tasks |= _tasks(connection, batch, caller)
        append = Append(producer.producer_id, producer.epoch, numbered)
        check_copies(write(connection, Write([append], txn, of_job=True), now_us, configured))
        if sink.query_id is not None:
            connection.execute(
                update(sink_producers)
                .where(sink_producers.c.query_id == sink.query_id, sink_producers.c.topic_id == batch.topic_id)
                .values(next_sequence=sequence)
            )
        else:
            tasks.add(producer.producer_id)
    producers.end(connection, tasks)
    transactions.end(connection, txn, commit=True, reason=EndReason.CLIENT, now_us=now_us)
    return CommittedBatch(txn, False, warnings)


def _tasks(connection: Connection, batch: TopicBatch, caller: Caller | None) -> set[int]:
    """Return the writers of a batch's files."""
    return producers.check_tasks(connection, batch.topic_id, {entry.segment for entry in batch.entries}, caller)


def _end_tasks(connection: Connection, left_out: Sequence[TopicBatch], caller: Caller | None) -> None:
    """End the writers of batches that are not registered: what they wrote is garbage."""
    with suppress(StaleSegmentError, InvalidArgumentError):  # which they have already, or their topic is another one
        producers.end(connection, {task for batch in left_out for task in _tasks(connection, batch, caller)})


def _repetition(connection: Connection, query_id: str, sink: Sink, batches: Sequence[TopicBatch]) -> list[str] | None:
    """Note a batch of a query; return None if it is new, else what is to be said of its repetition.

    Spark repeats the last batch of a query, as the first one of its next run, if it can't know that it was committed.
    Nothing else may come again: its rows would be dropped in silence, and they needn't be those that are there.
    """
    now = _Content.of(batches)
    mine = sinks.c.query_id == query_id
    known = connection.execute(select(sinks).where(mine)).first()
    if known is None:
        row = {"query_id": query_id, "batch_id": sink.batch_id, "runs": sink.run_id or "", **now.columns}
        connection.execute(insert(sinks).values(row))
        return None
    runs = known.runs.split()
    went_on = sink.run_id in runs
    if sink.run_id is not None and not went_on:
        runs = [*runs, sink.run_id][-_RUNS_KEPT:]
        connection.execute(update(sinks).where(mine).values(runs=" ".join(runs)))
    if sink.batch_id > known.batch_id:
        connection.execute(update(sinks).where(mine).values(batch_id=sink.batch_id, **now.columns))
        return None
    if sink.batch_id < known.batch_id:
        raise BatchRepeatedError(
            f"Query {query_id} comes with batch {sink.batch_id}, and has committed batch {known.batch_id} before: its"
            " checkpoint is older than what it has written.",
            _NEWEST_CHECKPOINT,
        )
    if went_on:
        raise BatchRepeatedError(
            f"Query {query_id} comes with batch {sink.batch_id} in the midst of a run, and another run has committed"
            " that one: two of its runs go on from one checkpoint, or from copies of it.",
            "Stop one of the two. " + _NEWEST_CHECKPOINT,
        )
    return now.differences(_Content(known.messages, known.content), f"Batch {sink.batch_id} of query {query_id}")


def _not_taken(
    connection: Connection, app: AppVersion, batches: Sequence[TopicBatch], caller: Caller | None
) -> tuple[list[TopicBatch], list[str]]:
    """Note a version of an application; return what its topics have not taken before, and what is to be said."""
    if not app.app_id or app.version < 0:
        raise InvalidArgumentError(
            f"Application {app.app_id!r} with version {app.version} can't be noted.",
            "Give a name that isn't empty, and a number from 0.",
        )
    new, warnings = [], []
    for batch in batches:
        key, what = f"{batch.topic_id}/{app.app_id}", f"The application {shown(app.app_id)}"
        owners.take(connection, owners.APPLICATION, key, caller, what, batch.topic_id)
        now = _Content.of([batch])
        mine = (app_versions.c.topic_id == batch.topic_id, app_versions.c.app_id == app.app_id)
        known = connection.execute(select(app_versions).where(*mine)).first()
        if known is None:
            row = {"topic_id": batch.topic_id, "app_id": app.app_id, "version": app.version, **now.columns}
            connection.execute(insert(app_versions).values(row))
        elif app.version > known.version:
            connection.execute(update(app_versions).where(*mine).values(version=app.version, **now.columns))
        elif app.version == known.version:
            what = f"Version {app.version} of application {app.app_id!r} for topic {batch.topic.short!r}"
            warnings += now.differences(_Content(known.messages, known.content), what)
            continue
        else:
            raise BatchRepeatedError(
                f"Topic {batch.topic.short!r} has taken version {known.version} of application {app.app_id!r}, and"
                f" version {app.version} comes, whose rows needn't be those that are there.",
                "Go on with the newest checkpoint, or number on from there; for other rows give another txnAppId.",
            )
        new.append(batch)
    return new, warnings


@dataclass(frozen=True, slots=True)
class _Content:
    """What a batch has: its number of rows, and their content as ``TopicBatch`` has it."""

    messages: int
    content: int

    @classmethod
    def of(cls, batches: Sequence[TopicBatch]) -> _Content:
        return cls(
            sum(entry.messages for batch in batches for entry in batch.entries),
            joined_content(batch.content for batch in batches if batch.entries),
        )

    @property
    def columns(self) -> dict[str, int]:
        return {"messages": self.messages, "content": self.content}

    def differences(self, committed: _Content, what: str) -> list[str]:
        """Return what is to be said of a repetition, or raise BATCH_REPEATED for one that has other rows."""
        if self.messages != committed.messages:
            raise BatchRepeatedError(
                f"{what} was committed with {committed.messages} rows, and comes again with {self.messages}.",
                "What was committed stays. " + _NEWEST_CHECKPOINT,
            )
        if self.content == committed.content:
            return []
        said = f"{what} was committed before, and comes again with other values in as many rows"
        if self.content < 0 and committed.content < 0:
            raise BatchRepeatedError(
                f"{said}.",
                "What was committed stays. For other rows give another txnAppId or txnVersion; a query has to give the"
                " same rows for a batch each time, without uuid() or rand(). " + _NEWEST_CHECKPOINT,
            )
        return [f"{said}, as far as an earlier release can tell: what was committed first stays."]


def _producer(
    connection: Connection, sink: Sink, batch: TopicBatch, now_us: int, caller: Caller | None
) -> tuple[OpenedProducer, int]:
    """Return who writes to a topic, and the sequence to go on from.

    A query stays the same producer, also over restarts, as long as its transactional id is the same: so a query that
    was fenced is refused until it is given another one.
    """
    if batch.owner is not None:
        return batch.owner, 0
    if sink.query_id is None:
        return _open(connection, sink, batch, now_us, caller), 0
    mine = (sink_producers.c.query_id == sink.query_id, sink_producers.c.topic_id == batch.topic_id)
    known = select(sink_producers, producer_rows.c.transactional_id).join(
        producer_rows, producer_rows.c.producer_id == sink_producers.c.producer_id
    )
    row = connection.execute(known.where(*mine)).first()
    if row is not None and row.transactional_id == sink.transactional_id:
        return OpenedProducer(row.producer_id, row.epoch, sink.producer_name), int(row.next_sequence)
    opened = _open(connection, sink, batch, now_us, caller)
    values = {"producer_id": opened.producer_id, "epoch": opened.epoch, "next_sequence": 0}
    if row is not None:
        connection.execute(update(sink_producers).where(*mine).values(values))
    else:
        new = {"query_id": sink.query_id, "topic_id": batch.topic_id, **values}
        connection.execute(insert(sink_producers).values(new))
    return opened, 0


def _open(connection: Connection, sink: Sink, batch: TopicBatch, now_us: int, caller: Caller | None) -> OpenedProducer:
    return producers.open_producer(
        connection, batch.topic_id, sink.transactional_id, sink.producer_name, now_us, caller
    )
