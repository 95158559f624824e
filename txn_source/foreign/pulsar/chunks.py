"""Messages in several entries: which chunks make one up, by the rules of Pulsar's consumer.

A producer that lost its connection sends chunks again, and one that ended in between leaves some that nobody can use.
So a message is there when its chunks came in order from the first to the last one. Chunks that come twice are passed
over, a first one begins anew, and a gap gives the message up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chunk:
    """An entry that has a part of a message; ``place`` and ``stop`` are those of ``RawEntries``."""

    key: int
    uuid: bytes
    number: int
    count: int
    txn: int
    place: int
    stop: int = 0


def whole_messages(chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, ...]]:
    """Yield the chunks of each message that is whole, in the order of their last ones.

    Args:
        chunks: all chunks from the log's start on, in the log's order.
    """
    begun: dict[tuple[bytes, int], list[Chunk]] = {}
    for chunk in chunks:
        name = chunk.uuid, chunk.txn
        if chunk.number == 0:
            begun[name] = []
        parts = begun.get(name)
        if parts is None or chunk.number < len(parts):
            continue
        if chunk.number > len(parts):
            del begun[name]
            continue
        parts.append(chunk)
        if chunk.number == chunk.count - 1:
            yield tuple(begun.pop(name))
