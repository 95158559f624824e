"""The text files of a log directory: offsets of its partitions, and who it and they are."""

from __future__ import annotations

from collections.abc import Mapping

from txn_source.foreign.foreign_log import PartitionName

LOG_START, HIGH_WATERMARK = "log-start-offset-checkpoint", "replication-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
"""Up to where compaction has come; only what was ever compacted is in it."""
LEADER_EPOCHS_FILE = "leader-epoch-checkpoint"
META_PROPERTIES, PARTITION_METADATA = "meta.properties", "partition.metadata"
_VERSION = "0"


def parse_offsets(text: str) -> dict[PartitionName, int] | None:
    """Return the offset of each partition; None if the file isn't whole, or of another version."""
    lines = text.splitlines()  # a broker on Windows ends them with CRLF
    if len(lines) < 2 or lines[0].strip() != _VERSION or not lines[1].strip().isdecimal():
        return None
    rows = [line.rsplit(" ", 2) for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]):
        return None
    offsets = {}
    for row in rows:
        if len(row) != 3 or not row[1].isdecimal() or not row[2].isdecimal():
            return None
        offsets[PartitionName(row[0], int(row[1]))] = int(row[2])
    return offsets


def parse_leader_epochs(text: str) -> list[tuple[int, int]] | None:
    """Return epochs and the offset at which each began, ascending; None if the file isn't whole."""
    lines = text.splitlines()  # a broker on Windows ends them with CRLF
    if len(lines) < 2 or lines[0].strip() != _VERSION or not lines[1].strip().isdecimal():
        return None
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != int(lines[1]) or any(len(row) != 2 or not all(map(str.isdecimal, row)) for row in rows):
        return None
    epochs = [(int(epoch), int(offset)) for epoch, offset in rows]
    return epochs if epochs == sorted(set(epochs)) else None


def parse_properties(text: str) -> Mapping[str, str]:
    """Return the properties of ``meta.properties``: ``cluster.id`` and others."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}


def parse_topic_id(text: str) -> str | None:
    """Return the topic's id from ``partition.metadata``, 22 letters; None if it says none."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "topic_id" and value.strip():
            return value.strip()
    return None
