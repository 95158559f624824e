"""Snapshots of transaction buffers from the topic that the brokers keep them in, where that is offloaded, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from txn_source.foreign.foreign_log import ForeignPartition
from txn_source.foreign.pulsar.managed_ledger import Snapshot, parse_snapshots
from txn_source.foreign.pulsar.snapshot_messages import TOPICS, decode_message
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import PositionRange

_UNIT_BYTES = 64 << 20


def system_topics(topic: str) -> tuple[str, ...]:
    """Return the full names of the topics that have snapshots of a topic's; none for these themselves."""
    namespace, _, name = topic.rpartition("/")
    return () if name.startswith(TOPICS) else tuple(f"{namespace}/{own}" for own in TOPICS)


def snapshots_in(partitions: Iterable[ForeignPartition]) -> dict[str, Snapshot]:
    """Return the newest snapshot of each topic; one whose segments aren't all there doesn't count."""
    parts: dict[tuple[str, Any], Mapping[str, Any]] = {}
    for partition in partitions:
        bounds = partition.bounds()
        whole = PositionRange(bounds.log_start, bounds.log_end)
        decided = partition.decisions(whole)
        for unit in partition.units(whole, _UNIT_BYTES):
            for batch in partition.read(unit, IsolationLevel.READ_UNCOMMITTED, decided, ["value"]):
                for data in batch.column(0).to_pylist():
                    found = decode_message(data) if data else None
                    if found is not None:
                        name = str(found["topicName"]), found.get("sequenceId")
                        parts[name] = max(found, parts.get(name, found), key=_covers)
    whole_ones = [part for part in parts.values() if _has_segments(part, parts)]
    return parse_snapshots(whole_ones)


def _covers(part: Mapping[str, Any]) -> tuple[int, int]:
    """Return up to where a snapshot knows all; the same for all segments, of which the last one written counts."""
    body = part.get("snapshot", part)
    return body.get("maxReadPositionLedgerId", 0), body.get("maxReadPositionEntryId", 0)


def _has_segments(part: Mapping[str, Any], parts: Mapping[tuple[str, Any], Mapping[str, Any]]) -> bool:
    return all((str(part["topicName"]), at["sequenceID"]) in parts for at in part.get("indexList") or ())
