"""Clocks: publish times in the future, and this machine's clock against the service's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from txn_source.metadata.store import checkup
from txn_source.model.topic_name import TopicName
from txn_source.upkeep.doctor.findings import Finding, finding
from txn_source.upkeep.doctor.subject import Subject

_AHEAD_S = 60.0
_DIFFERS_S = 5.0


def check_publish_times(subject: Subject) -> Iterator[Finding]:
    """Look for messages that were published in the future."""
    now_us = subject.now_ms * 1000
    for one in subject.look(lambda c: checkup.published_after(c, now_us + int(_AHEAD_S * 1e6))):
        topic = TopicName.parse(one.topic).short
        when = datetime.fromtimestamp(one.last_publish_time_us / 1e6, UTC).isoformat(timespec="seconds")
        ahead = (one.last_publish_time_us - now_us) / 1e6
        fact = f"The last message of partition {one.partition} of {topic} is published at {when}, {ahead:,.0f} s ahead."
        yield finding("clock-ahead", f"topic {topic}", fact, topic=topic, partition=one.partition, ahead_s=round(ahead))


def check_service_clock(subject: Subject) -> Iterator[Finding]:
    """Compare this machine's clock with the service's, which is read between two looks at this one."""
    before = subject.now_s
    there = subject.access.metadata.get_view([]).now_ms / 1000
    after = subject.now_s
    apart = max(before - there, there - after, 0.0)
    if apart > _DIFFERS_S:
        which = "ahead of" if there > after else "behind"
        fact = f"The service's clock is {apart:,.0f} s {which} this machine's."
        yield finding("clock-differs", "service", fact, apart_s=round(apart))
