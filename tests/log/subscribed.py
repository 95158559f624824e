"""Streams that follow subscription ``s`` of topic ``t``, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from txn_source import (
    IsolationLevel,
    Log,
    MessageId,
)
from txn_source.client.places import parse_side
from txn_source.client.streaming.own_guard import own_stream
from txn_source.client.streaming.stream_subscription import StreamSubscription
from txn_source.model.message_ranges import index_of, position_of
from txn_source.model.position import LATEST, Position
from txn_source.model.topic_name import TopicName
from txn_source.reading.limits import StreamLimits
from txn_source.reading.places import Place
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream import Stream
from txn_source.reading.stream_offset import StreamOffset


@dataclass
class Streams:
    """Streams over the subscription ``s`` of topic ``t``; they are closed in the end."""

    held: list[StreamSubscription]

    def open(
        self,
        log: Log,
        *,
        level: str | None = None,
        start: Any = "latest",
        limits: StreamLimits | None = None,
        **request: Any,
    ) -> Stream[Any]:
        asked = None if level is None else IsolationLevel.parse(level)
        held = StreamSubscription(log.metadata, TopicName.parse("t"), "s", asked)
        self.held.append(held)
        return own_stream(
            log.access,
            Selection.of("t"),
            ReadRequest(start=parse_side(start, LATEST), **request),
            limits or StreamLimits(),
            lambda: 0.0,
            held,
        )

    def close(self) -> None:
        for held in self.held:
            held.close()


def marks(log: Log) -> dict[int, MessageId]:
    """Return where the subscription stands, by partition."""
    found = {p.partition: p.mark for p in log.subscription("t", "s").partitions}
    return {i: MessageId(position_of(m).ledger_id, position_of(m).entry_id, index_of(m)) for i, m in found.items()}


def ends(offset: StreamOffset) -> dict[int, MessageId]:
    """Return what comes after an offset in the same form."""
    return _ids({index: offset.next((topic, index)) for topic, index in offset.positions})


def begins(offset: StreamOffset) -> dict[int, MessageId]:
    """Return where the batch that ends at an offset begins, likewise."""
    return _ids({index: at for (_, index), at in offset.begins.items()})


def _ids(places: Mapping[int, Place | None]) -> dict[int, MessageId]:
    return {
        index: MessageId(at.ledger_id, at.entry_id) if isinstance(at, Position) else at
        for index, at in places.items()
        if at is not None
    }
