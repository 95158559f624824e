"""What a job wrote, and who it is: all of it is registered and committed at once."""

from __future__ import annotations

from collections.abc import Iterable

from txn_source.model.entry import NewEntry, OpenedProducer
from txn_source.model.topic_name import TopicName
from txn_source.model.values import dataclass

CONTENT_MASK = (1 << 63) - 1
"""Hashes of rows are kept below 2^63."""


def joined_content(contents: Iterable[int]) -> int:
    """Return the content of all rows together, of parts of which each has one."""
    parts = list(contents)
    if any(content >= 0 for content in parts):
        return sum(parts) & CONTENT_MASK
    return ~(sum(~content for content in parts) & CONTENT_MASK)


@dataclass(frozen=True, slots=True)
class TopicBatch:
    """What a job wrote to one topic; ``owner`` is the producer that a batch job with a transactional id began as."""

    topic: TopicName
    topic_id: int
    entries: tuple[NewEntry, ...]
    owner: OpenedProducer | None = None
    content: int = 0
    """Of a hash of the rows, below 2^63, the complement, ``~hash``: it depends neither on their order nor on how they
    lie in files. From 0 on: nothing is known, or a sum that earlier releases made, which tells little."""


@dataclass(frozen=True, slots=True)
class AppVersion:
    """A batch job's own number, from 0, for what it writes; a topic takes none at or below its last one."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True)
class Sink:
    """Who writes: ``query_id`` is a stream's, None for a batch job; ``run_id`` changes with each start of a query."""

    query_id: str | None
    batch_id: int
    producer_name: str
    transactional_id: str | None
    run_id: str | None = None
    app: AppVersion | None = None
