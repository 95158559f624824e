"""How transactions ended, as far as storage tells.

In this order: the marker in an offloaded ledger, what their writers have noted, and the topic's description: what it
calls stable was decided, and it lists what was aborted. Others are undecided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from txn_source.metadata.store.lost_future import GAP
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.kinds import ABORT_MARKER, ABORTED, COMMITTED
from txn_source.model.transaction import id_of
from txn_source.upkeep.rebuild_sources import FoundTopic
from txn_source.upkeep.segment_scan import NO_TXN

_SHOWN = 5


class Undecided(StrEnum):
    """What becomes of transactions whose end nobody has noted."""

    REFUSE = "refuse"
    ABORT = "abort"
    COMMIT = "commit"

    @classmethod
    def parse(cls, value: str) -> Undecided:
        """Return what a text names."""
        if value in list(cls):
            return cls(value)
        raise InvalidArgumentError(f"What is undecided can't be {value!r}.", f"Use {', '.join(cls)}.")


@dataclass(slots=True)
class Decisions:
    """COMMITTED or ABORTED by transaction; ``undecided`` are those that were decided here."""

    states: dict[int, int] = field(default_factory=dict)
    undecided: dict[int, int] = field(default_factory=dict)
    """With the messages that each has."""


def decide(topics: Iterable[FoundTopic], undecided: Undecided) -> Decisions:
    """Find out how all transactions ended, and give those that are known by nothing but their entries a number.

    Raises:
        InvalidArgumentError: some are undecided, and are to be refused.
    """
    topics = list(topics)
    _number_unnumbered(topics)
    endings: dict[int, int] = {}
    for topic in topics:
        endings |= topic.segments.endings
    for topic in topics:
        endings |= _described(topic)
    for topic in topics:
        for placed in topic.placed.values():
            endings |= {
                txn: ABORTED if kind == ABORT_MARKER else COMMITTED for txn, (_, kind) in placed.markers.items()
            }
    found = Decisions()
    for topic in topics:
        for placed in topic.placed.values():
            for txn, (_, _, messages, _) in placed.traces.items():
                if txn in endings:
                    found.states[txn] = endings[txn]
                else:
                    found.undecided[txn] = found.undecided.get(txn, 0) + messages
    if found.undecided and undecided is Undecided.REFUSE:
        shown = ", ".join(f"{id_of(txn)} ({count} messages)" for txn, count in sorted(found.undecided.items())[:_SHOWN])
        raise InvalidArgumentError(
            f"Nobody has noted how {len(found.undecided)} transactions ended: {shown}.",
            "Say what is to become of them: --undecided abort, or --undecided commit.",
        )
    state = COMMITTED if undecided is Undecided.COMMIT else ABORTED
    found.states |= dict.fromkeys(found.undecided, state)
    return found


def _described(topic: FoundTopic) -> dict[int, int]:
    found = {}
    for partition_id, of in topic.described.partitions.items():
        placed = topic.placed.get(partition_id)
        if placed is None:
            continue
        aborted = {int(txn) for txn, _, _ in of.get("aborted", ())}
        for txn, first in placed.told_firsts.items():  # a place that was worked out says nothing
            if first < int(of.get("last_stable", 0)):
                found[txn] = ABORTED if txn in aborted else COMMITTED
        found |= dict.fromkeys(aborted, ABORTED)
    return found


def _number_unnumbered(topics: list[FoundTopic]) -> None:
    """Give transactions whose numbers their writers didn't know yet new ones: what a producer wrote last is one.

    They lie behind a gap: those that were given out and left nothing have numbers, too.
    """
    highest = max((t for topic in topics for t in _numbers(topic)), default=-1) + GAP
    numbers: dict[tuple[int, int], int] = {}
    for topic in topics:
        unnumbered = {
            (entry.segment, entry.offset)
            for entry in topic.segments.left.values()
            if entry.in_txn and entry.txn == NO_TXN
        }
        for placed in topic.placed.values():
            rows = placed.rows
            for at in np.flatnonzero((rows["txn"] == NO_TXN) & (rows["segment"] >= 0)).tolist():
                if (int(rows["segment"][at]), int(rows["offset"][at])) in unnumbered:
                    of = (topic.described.topic_id, int(rows["producer_id"][at]))
                    if of not in numbers:
                        highest += 1
                        numbers[of] = highest
                    rows["txn"][at] = numbers[of]


def _numbers(topic: FoundTopic) -> Iterable[int]:
    yield from topic.segments.endings
    yield from (int(txn) for of in topic.described.partitions.values() for txn, _, _ in of.get("aborted", ()))
    for placed in topic.placed.values():
        if len(placed.rows["txn"]):
            yield int(placed.rows["txn"].max())
