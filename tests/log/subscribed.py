"""Streams that follow subscription ``s`` of topic ``t``, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from txn_source import (
    IsolationLevel,
    Log,
    MessageId,
)
from txn_source.client.places import Offsets
from txn_source.client.reading.request import ReadRequest
from txn_source.client.stream_offset import StreamOffset
from txn_source.client.streaming.batch_limits import StreamLimits
from txn_source.client.streaming.stream import StreamedTopics, TopicStream
from txn_source.client.streaming.stream_subscription import StreamSubscription
from txn_source.model.message_ranges import index_of, position_of
from txn_source.model.position import LATEST
from txn_source.model.topic_name import TopicName


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
    ) -> TopicStream:
        asked = None if level is None else IsolationLevel.parse(level)
        held = StreamSubscription(log.metadata, TopicName.parse("t"), "s", asked)
        self.held.append(held)
        return TopicStream(
            log.access,
            StreamedTopics(["t"], None, None),
            ReadRequest(start=Offsets.parse(start, LATEST), **request),
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
    found = {place[1]: offset.next_message(place) for place in offset.positions}
    return {index: at for index, at in found.items() if at is not None}
