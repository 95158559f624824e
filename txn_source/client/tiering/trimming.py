"""Deleting whole ledgers from the start of a topic's partitions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from txn_source.client.access import Access
from txn_source.client.places import parse_side
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.client.tiering.deletion import delete_doomed_files
from txn_source.model.isolation import IsolationLevel
from txn_source.model.policies import given_policies
from txn_source.model.position import EARLIEST, Position
from txn_source.model.retention import Trimmed
from txn_source.model.topic_name import TopicName
from txn_source.reading.ranges import positions_of
from txn_source.reading.request import ReadRequest, Selection


def trim(
    access: Access,
    topic: TopicName,
    before: Any,
    older_than: float | timedelta | str | None,
    keep_bytes: int | str | None,
) -> list[Trimmed]:
    """Delete ledgers for any of the reasons given, or as the retention policies say; see ``Log.trim``."""
    if before is None and older_than is None and keep_bytes is None:
        done = access.metadata.trim_topic(topic, {}, None, None, apply_retention=True)
    else:
        limits = {"retention_age": older_than, "retention_bytes": keep_bytes}
        parsed = given_policies({name: value for name, value in limits.items() if value is not None})
        older_than_ms = None if older_than is None else int(parsed["retention_age"] * 1000)
        positions = {} if before is None else _positions(access, topic, before)
        done = access.metadata.trim_topic(topic, positions, older_than_ms, parsed.get("retention_bytes"))
    delete_doomed_files(access)
    return done


def _positions(access: Access, topic: TopicName, at: Any) -> dict[int, Position]:
    """Return the positions that a value stands for, by partition index."""
    source = resolve(access.metadata, Selection.of(str(topic)))
    request = ReadRequest(IsolationLevel.READ_UNCOMMITTED, parse_side(at, EARLIEST))
    starts = positions_of(OwnLog(access), source, request.start, request)
    return {p.view.index: start for p, start in zip(source.partitions, starts, strict=True)}
