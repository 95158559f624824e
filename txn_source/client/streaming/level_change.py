"""Another isolation level on a stream's checkpoint: when the stream may go on at it.

To read_uncommitted always: all that was shown is decided, and that level promises no whole transactions. What was
aborted below the offset stays left out.

To read_committed only where the offset is a consistent cut of what is decided: no transaction that has messages below
it is open, and no committed one has messages on both sides. Else the messages of a transaction would come in two
halves, the first one before anybody knew how it ends.

Trimming may have taken one side of a transaction out of the service's memory. One that was decided after the offset was
taken has its marker above the offset on each partition, so it is known as long as the stream itself has lost nothing.
Of those that were decided before, none may lie above the offset if a partition was trimmed: that is so where the last
batch had no limit.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from txn_source.client.reading.source import Source
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.kinds import COMMITTED
from txn_source.model.position import MAX_ENTRY_ID, MAX_LEDGER_ID, MessageId, Position, PositionRange
from txn_source.reading.places import by_topic
from txn_source.reading.stream_offset import StreamOffset
from txn_source.storage.arrays import numbers_in

_log = logging.getLogger(__name__)
_BEYOND = Position(MAX_LEDGER_ID, MAX_ENTRY_ID)


def check_change(
    stub: MetadataStub, source: Source, start: StreamOffset, starts: Sequence[Position], level: IsolationLevel
) -> None:
    """Raise INVALID_ARGUMENT if a stream that has come to ``start`` at its level must not go on at another one.

    An offset that doesn't tell its level is taken for one of read_uncommitted.

    Args:
        stub: the service.
        source: what the stream takes, as it is now.
        start: the offset.
        starts: where each partition of the source begins; the offset's positions, and the start of those that are new.
        level: to go on at.
    """
    if start.level is level:
        return
    if level is IsolationLevel.READ_UNCOMMITTED:
        _log.warning("the stream was %s up to %s, and goes on read_uncommitted", start.level, text_of(start))
        return
    why = _why_not(stub, source, start, starts)
    if why is not None:
        stable = {
            p.view.partition_id: min(at, p.view.bounds.last_stable)
            for p, at in zip(source.partitions, starts, strict=True)
        }
        cut = stub.find_cut(stable)
        begin = {(p.topic, p.view.index): cut[p.view.partition_id] for p in source.partitions}
        raise InvalidArgumentError(
            f"The checkpoint was read at {start.level or 'an unknown level'} up to {text_of(start)}, and the query asks"
            f" for read_committed, but {why}.",
            "Go on at read_uncommitted, and change the level when it has caught up while no transaction is open; or"
            " begin a new query with a new checkpoint, which sees whole transactions from"
            f" .option(\"startingOffsets\", '{json.dumps(by_topic(begin))}') on.",
        )
    _log.warning("the stream was read_uncommitted up to %s, and goes on read_committed", text_of(start))


def _why_not(stub: MetadataStub, source: Source, start: StreamOffset, starts: Sequence[Position]) -> str | None:
    taken = {(p.topic, p.view.index) for p in source.partitions}
    left_out = start.positions.keys() - taken
    if left_out:
        topic, index = min(left_out)
        return f"it doesn't take partition {index} of topic {topic.short!r}, which the checkpoint has"
    for place in sorted(taken & start.positions.keys()):
        first = start.next(place)
        if isinstance(first, MessageId):
            return f"message {first} is in the middle of what one producer wrote"
    for partition, at in zip(source.partitions, starts, strict=True):
        stable = partition.view.bounds.last_stable
        if at > stable:
            return f"a transaction is open whose messages from {stable} of {partition.label} on were shown"
    cut = stub.find_cut({p.view.partition_id: at for p, at in zip(source.partitions, starts, strict=True)})
    for partition, at in zip(source.partitions, starts, strict=True):
        if cut[partition.view.partition_id] < at:
            return (
                f"of a committed transaction the messages from {cut[partition.view.partition_id]} of {partition.label}"
                " on were shown, and others would come now"
            )
    if len(source.partitions) < 2 or not any(p.view.trimmed_end.ledger_id for p in source.partitions):
        return None
    for partition, at in zip(source.partitions, starts, strict=True):
        above = PositionRange(at, _BEYOND)
        found = stub.list_decisions(
            partition.view.partition_id, above, aborted_only=False, decisions=start.decisions
        )  # fmt: skip
        if (numbers_in(found["state"]) == COMMITTED).any():
            return (
                f"transactions that were committed before lie above it, on {partition.label}, and what they wrote below"
                " it may have been trimmed"
            )
    return None


def text_of(offset: StreamOffset) -> str:
    """Return the positions of an offset as text for people."""
    return json.dumps(by_topic(offset.positions))
