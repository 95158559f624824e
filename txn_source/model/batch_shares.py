"""How one batch of a stream is divided over partitions, where it is limited by messages and bytes: pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txn_source.model.position import Position

UNLIMITED = 1 << 62
DEFAULT_DELAY_S = 15 * 60.0
"""So long a batch waits for as many messages as it is to have at least, as Kafka's ``maxTriggerDelay``."""
Take = Callable[[int, int, int], tuple[Position, int, int]]
"""Of the partition at an index: where at most about so many messages and bytes end, and how many of both these are."""


def shared_ends(
    starts: Sequence[Position],
    tops: Sequence[Position],
    max_messages: int | None,
    max_bytes: int | None,
    turn: int,
    take: Take,
) -> tuple[list[Position], int]:
    """Return an end (exclusive) for each partition, at or below its top, and the next turn.

    Each gets an equal share of what is left; what one doesn't use is the others'. They take turns in being first, so
    that a small limit starves none: ``turn`` is the place of the partition whose turn it is. The ends follow from the
    arguments, and what ``take`` gives, alone: whoever goes on from the same offset comes to the same ends.

    Args:
        starts: where each partition begins, inclusive.
        tops: where it ends at most, exclusive.
        max_messages: of all together; None: no limit.
        max_bytes: of all together; None: no limit.
        turn: an index of a partition; any if there are none.
        take: is asked of partitions with something to take, for one message and one byte at least.
    """
    messages = UNLIMITED if max_messages is None else max_messages
    size = UNLIMITED if max_bytes is None else max_bytes
    ends = list(starts)
    order = [(turn + i) % len(starts) for i in range(len(starts))]
    waiting = [i for i in order if starts[i] < tops[i]]
    for left, index in zip(range(len(waiting), 0, -1), waiting, strict=True):
        if messages <= 0 or size <= 0:
            break
        ends[index], taken, taken_bytes = take(index, max(1, messages // left), max(1, size // left))
        messages -= taken
        size -= taken_bytes
    return ends, (waiting[0] + 1) % len(starts) if waiting else turn
