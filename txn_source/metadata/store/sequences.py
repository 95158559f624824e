"""Who appends, and what of it was stored before: a producer numbers its messages, and each number is stored once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select

from txn_source.metadata.store.prepared import Lookup
from txn_source.metadata.store.tables import CLOSED, IDLE, LOST, WRITING, entries, partitions, producers, segments
from txn_source.model.entry import NewEntry
from txn_source.model.errors import InvalidArgumentError, ProducerFencedError, TopicNotFoundError


@dataclass(slots=True)
class Writer:
    """A producer as its appends need it; ``end`` is where its stored sequences end, exclusive (None: it has none).

    ``partitions`` is how many its topic has.
    """

    producer_id: int
    topic_id: int
    epoch: int
    transactional_id: str | None
    purged_sequence: int
    newest_epoch: int | None
    last_sequence: int | None
    last_messages: int | None
    partitions: int
    ended: int
    seen_ms: int

    @property
    def end(self) -> int | None:
        return None if self.last_sequence is None else self.last_sequence + (self.last_messages or 0)

    def went_to(self, ordered: Sequence[NewEntry]) -> None:
        """Note entries that were placed."""
        last = ordered[-1]
        if self.last_sequence is None or last.base_sequence > self.last_sequence:
            self.last_sequence, self.last_messages = last.base_sequence, last.messages


def writers(connection: Connection, producer_ids: Iterable[int]) -> dict[int, Writer]:
    """Return those of some producers that are there, by id."""
    return {row[0]: Writer(*row) for row in _WRITERS.rows(connection, producer_ids)}


def checked(found: Mapping[int, Writer], producer_id: int, epoch: int) -> Writer:
    """Return a producer that is there, or raise what is wrong with it; ``check_newest`` says if it may append."""
    writer = found.get(producer_id)
    if writer is None:
        raise TopicNotFoundError(
            "The topic that this producer writes to was deleted.", "Open a new producer on a topic that exists."
        )
    if epoch != writer.epoch:
        raise InvalidArgumentError(
            f"Producer {producer_id} has epoch {writer.epoch}, not {epoch}.", "Use the one that it was opened with."
        )
    return writer


def check_newest(writer: Writer, *, of_job: bool = False) -> None:
    """Raise PRODUCER_FENCED if a newer producer has taken over from one, or it has ended.

    ``of_job``: its entries lie in files of other writers, so that its own end matters to none of them.
    """
    if writer.newest_epoch is not None and writer.epoch < writer.newest_epoch:
        raise ProducerFencedError(
            f"A newer producer with transactional id {writer.transactional_id!r} has taken over"
            f" (its epoch is {writer.newest_epoch}, this one's {writer.epoch}).",
            "Close this producer; only the newest one with that id may write.",
        )
    if of_job or writer.ended in (WRITING, IDLE):
        return
    said = {
        CLOSED: "was closed",
        LOST: "is of a time that the log has lost: it was put back to an earlier moment",
    }
    raise ProducerFencedError(f"Producer {writer.producer_id} {said[writer.ended]}.", "Open another one.")


def in_order(new: Sequence[NewEntry]) -> Sequence[NewEntry]:
    """Return entries by their sequences, or raise INVALID_ARGUMENT if one is there twice."""
    ordered = sorted(new, key=lambda entry: entry.base_sequence) if len(new) > 1 else new
    twice = next((b for a, b in pairwise(ordered) if a.base_sequence + a.messages > b.base_sequence), None)
    if twice is not None:
        raise InvalidArgumentError(
            f"Sequence {twice.base_sequence} of this producer is in the append more than once.",
            "Let each entry's sequences begin behind those of the one before.",
        )
    return ordered


def are_new(writer: Writer, ordered: Sequence[NewEntry]) -> bool:
    """True if entries lie above all that the producer ever stored, as they do unless an append is repeated."""
    lowest = ordered[0].base_sequence
    return lowest > writer.purged_sequence and (writer.end is None or lowest >= writer.end)


def stored_before(connection: Connection, writer: Writer, ordered: Sequence[NewEntry]) -> Mapping[int, Row[Any]] | None:
    """Return what is stored under the sequences of entries, by sequence; None if nothing is.

    Raises:
        InvalidArgumentError: something is, but not under all of them, or they cut stored entries.
    """
    lowest, end = ordered[0].base_sequence, ordered[-1].base_sequence + ordered[-1].messages
    of = {"producer_id": writer.producer_id, "lowest": lowest, "end": end, "most": len(ordered) + 2}
    found = {row.base_sequence: row for row in connection.execute(_STORED, of)}
    first = min(found, default=lowest)
    if first < lowest and first + found.pop(first).messages > lowest:
        raise InvalidArgumentError(
            f"Sequence {lowest} of this producer lies inside a stored entry, which begins at {first}.",
            "Repeat an append with exactly the entries of the first try, or use new sequences.",
        )
    missing = [entry.base_sequence for entry in ordered if entry.base_sequence not in found]
    if missing and missing[0] <= writer.purged_sequence:
        raise InvalidArgumentError(
            f"The sequences {lowest} to {end - 1} of this producer were stored so long ago that neither their"
            " positions nor what they were are known any more.",
            "If this repeats an append that was stored, nothing is lost: don't send it again.",
        )
    if not found:
        return None
    if missing or len(found) != len(ordered):
        raise InvalidArgumentError(
            f"Only some of the sequences {lowest} to {end - 1} of this producer are stored already.",
            "Repeat an append with exactly the entries of the first try, or use new sequences.",
        )
    return found


def check_same(
    connection: Connection, new: Sequence[NewEntry], found: Mapping[int, Row[Any]], of_txn: int | None
) -> None:
    """Raise INVALID_ARGUMENT unless entries, of a transaction or of none, are what is stored under their sequences."""
    ids = {row.segment_id for row in found.values()}
    paths = dict(_PATHS.rows(connection, ids))
    for entry in new:
        row = found[entry.base_sequence]
        stored = {
            "transaction": row.txn,
            "partition": row.partition_id,
            "segment": paths.get(row.segment_id),
            "offset": row.offset,
            "length": row.length,
            "checksum": row.crc32c,
            "messages": row.messages,
        }
        came = (of_txn, entry.partition_id, entry.segment, entry.offset, entry.length, entry.crc32c, entry.messages)
        other = [name for name, value in zip(stored, came, strict=True) if stored[name] != value]
        if other:
            raise InvalidArgumentError(
                f"Sequence {entry.base_sequence} of this producer is stored already, with other content: another"
                f" {', '.join(other)}.",
                "Repeat an append with exactly the entries of the first try, or use new sequences.",
            )


def _select_writers(names: Sequence[str]) -> Any:
    newer, last, size = producers.alias("newer"), entries.alias("last_entry"), entries.alias("last_size")
    newest = select(func.max(newer.c.epoch)).where(
        newer.c.topic_id == producers.c.topic_id, newer.c.transactional_id == producers.c.transactional_id
    )
    of = producers.c.producer_id
    partitions_there = select(func.max(partitions.c.partition_index) + 1).where(  # the end of an index
        partitions.c.topic_id == producers.c.topic_id
    )
    last_sequence = select(last.c.base_sequence).where(last.c.producer_id == of)
    last_messages = select(size.c.messages).where(size.c.producer_id == of)
    return select(
        producers.c.producer_id,
        producers.c.topic_id,
        producers.c.epoch,
        producers.c.transactional_id,
        producers.c.purged_sequence,
        newest.scalar_subquery(),
        last_sequence.order_by(last.c.base_sequence.desc()).limit(1).scalar_subquery(),
        last_messages.order_by(size.c.base_sequence.desc()).limit(1).scalar_subquery(),
        partitions_there.scalar_subquery(),
        producers.c.ended,
        producers.c.seen_ms,
    ).where(of.in_([bindparam(name) for name in names]))


_WRITERS = Lookup(_select_writers)
_PATHS = Lookup(
    lambda names: select(segments.c.segment_id, segments.c.path).where(
        segments.c.segment_id.in_([bindparam(name) for name in names])
    )
)
# Built once: for statements as short as these, building one costs as much as running it.
_BEFORE = (
    select(func.max(entries.c.base_sequence))
    .where(entries.c.producer_id == bindparam("producer_id"), entries.c.base_sequence < bindparam("lowest"))
    .scalar_subquery()
)
_STORED = (  # and the one before: it may reach into them
    select(entries)
    .where(
        entries.c.producer_id == bindparam("producer_id"),
        entries.c.base_sequence >= func.coalesce(_BEFORE, bindparam("lowest")),
        entries.c.base_sequence < bindparam("end"),
    )
    .order_by(entries.c.base_sequence)
    .limit(bindparam("most"))
)
