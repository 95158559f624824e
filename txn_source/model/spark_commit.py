"""What a job wrote, and who it is: all of it is registered and committed at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txn_source.model.entry import NewEntry, OpenedProducer
from txn_source.model.topic_name import TopicName

CONTENT_MASK = (1 << 63) - 1
"""Hashes of rows are kept below 2^63."""


def joined_content(contents: Iterable[int]) -> int:
    """Return the content of a write from the contents of its parts."""
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
    """``~hash`` of the rows' hash, which is below 2^63 and independent of their order and of the files. A value from 0
    on is no hash: it is unknown (0), or a weak sum of an earlier release."""


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
