"""What a rebuild made, and what it could not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from txn_source.model.position import Position
from txn_source.model.transaction import id_of
from txn_source.model.values import dataclass
from txn_source.upkeep.rebuild_decisions import Decisions
from txn_source.upkeep.rebuild_sources import FoundTopic

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class RebuiltTopic:
    """What became of a topic: counts of what is known exactly, and of what isn't."""

    name: str
    partitions: int
    messages: int
    entries: int
    transactions: int
    without_receipt: int
    """Entries whose writer had no chance to note their positions: they were placed by order and time."""
    at_the_end: int
    """Those of them that lie at the end: they may never have been acknowledged."""
    left_out: int
    """Entries for which there was no position, of jobs that nobody noted to be committed, or of an older release."""
    unknown_positions: tuple[str, ...] = ()
    """Positions of which nothing is known, of each partition the first ones: markers, or entries that are lost."""
    lost: tuple[str, ...] = ()
    """Entries whose segment is missing."""


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What was made, and what could not be known."""

    log_id: str
    database: str
    topics: tuple[RebuiltTopic, ...]
    undecided: dict[str, int] = field(default_factory=dict)
    """Transactions whose end nobody had noted, with their messages."""
    notes: tuple[str, ...] = ()
    """What else could not be known, a sentence each."""


def report_of(
    log_id: str, target: object, found: Sequence[FoundTopic], decisions: Decisions, notes: list[str]
) -> RebuildReport:
    """Say what was made, and what could not be known."""
    topics = []
    for topic in found:
        placed = topic.placed.values()
        name = topic.described.name.short
        holes = _shown(topic, {partition_id: of.holes() for partition_id, of in topic.placed.items()})
        lost = _shown(topic, topic.lost)
        jobs = sum(len(entries) for entries in topic.jobs.values())
        dropped = sum(len(of.dropped) for of in placed)
        topics.append(
            RebuiltTopic(
                name,
                len(topic.placed),
                sum(int(of.rows["messages"].sum()) for of in placed),
                sum(len(of.rows["position"]) for of in placed),
                len({txn for of in placed for txn in of.traces}),
                sum(of.moved + of.appended for of in placed),
                sum(of.appended for of in placed),
                dropped + jobs + topic.strange,
                holes,
                lost,
            )
        )
        if jobs:
            notes.append(f"Topic {name}: {jobs} entries of jobs are left out: nobody noted that they were committed.")
        if topic.segments.unnoted:
            notes.append(
                f"Topic {name}: {len(topic.segments.unnoted)} segments of an older release are left out, since nothing"
                f" says where their entries lie: {', '.join(topic.segments.unnoted[:3])}."
            )
        notes += [
            f"{path} is left out: it has the bytes of another file." for path in topic.segments.misplaced[:_SHOWN]
        ]
        notes += [
            f"{path}: bytes {start} to {end} are damaged." for path, start, end in topic.segments.damaged[:_SHOWN]
        ]
    notes.append(
        "What streaming queries, numbered jobs and imports have done is known from the segments that are there: a batch"
        " that left none is stored again if it is repeated."
    )
    if not any("subscriptions" in t.described.text and t.described.text["subscriptions"] for t in found):
        notes.append("Subscriptions are known as of the last maintenance: none.")
    return RebuildReport(
        log_id, str(target), tuple(topics),
        {str(id_of(txn)): count for txn, count in sorted(decisions.undecided.items())}, tuple(notes),
    )  # fmt: skip


def _shown(topic: FoundTopic, keys: Mapping[int, Sequence[int]]) -> tuple[str, ...]:
    """Return the first positions of each partition."""
    return tuple(
        f"{topic.indexes[partition_id]}/{Position.from_key(key)}"
        for partition_id, of in keys.items()
        for key in of[:_SHOWN]
    )
