"""A Kafka log in place: log directories of brokers, their backups, and remote tiers, all of one cluster.

Layouts, told by names alone:
- a broker's: ``<topic>-<partition>/<base offset>.log``, with the checkpoints of all partitions beside the folders;
- ``LocalTieredStorage``: ``<topic>-<partition>-<topic id>/<base offset>-<segment id>.log``;
- Aiven's plugin: ``<topic>-<topic id>/<partition>/<base offset>-<segment id>.log``, with a manifest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.kafka.checkpoints import (
    CLEANED,
    HIGH_WATERMARK,
    LOG_START,
    META_PROPERTIES,
    PARTITION_METADATA,
    parse_offsets,
    parse_properties,
    parse_topic_id,
)
from txn_source.foreign.kafka.partition import KafkaPartition
from txn_source.foreign.kafka.partition_folders import (
    BROKER_FILE,
    ID,
    REMOTE_FILE,
    Folder,
    PartitionFolders,
    files_of,
    subfolders,
    text_of,
)
from txn_source.foreign.kafka.segment_list import SegmentList
from txn_source.model.errors import InvalidArgumentError, LogNotFoundError, TopicNotFoundError

_TOPIC = r"[A-Za-z0-9._-]{1,249}"
_BROKER_FOLDER = re.compile(rf"(?P<topic>{_TOPIC})-(?P<partition>[0-9]{{1,10}})")
_TIERED_FOLDER = re.compile(rf"(?P<topic>{_TOPIC})-(?P<partition>[0-9]{{1,10}})-(?P<id>{ID})")
_AIVEN_FOLDER = re.compile(rf"(?P<topic>{_TOPIC})-(?P<id>{ID})")
_TIERED_ROOT = "kafka-tiered-storage"
_OF_A_BROKER = (META_PROPERTIES, HIGH_WATERMARK, LOG_START, CLEANED)
_LAST = (1 << 31) - 1
_NAMED = 5


@dataclass(slots=True)
class _Found:
    """What was found of a partition: on brokers' disks, and by topic id in remote tiers."""

    local: list[Folder] = field(default_factory=list)
    remote: dict[str, list[tuple[Folder, bool]]] = field(default_factory=dict)
    """True: as Aiven's plugin lays it out."""


class KafkaLog:
    """Partitions that lie in some folders. What is there is listed once; ``partition`` lists its own files each time.

    Raises:
        LogNotFoundError: a folder isn't there, or none of them has a partition.
        InvalidArgumentError: the folders are of several clusters.
    """

    def __init__(self, folders: Sequence[Folder], *, trust_indexes: bool = True) -> None:
        self._folders = list(folders)
        self._trust = trust_indexes
        if not self._found:
            below = [folder.path for root in self._folders for folder in subfolders(root) if _has_partitions(folder)]
            named = f": {', '.join(below[:_NAMED])}" if below else ", a copy of one, or a folder of remote segments"
            raise LogNotFoundError(
                f"No partition of Kafka lies in {', '.join(folder.path for folder in folders)}.",
                f"Name a broker's log directory (log.dirs){named}.",
            )
        if len(self.cluster_ids) > 1:
            raise InvalidArgumentError(
                f"The folders are of several clusters: {', '.join(sorted(self.cluster_ids))}.",
                "Name folders of one cluster.",
            )

    @cached_property
    def cluster_ids(self) -> set[str]:
        """The ids in the folders' ``meta.properties``: one, or none where there is no such file."""
        texts = (text_of(folder, META_PROPERTIES) for folder in self._folders)
        ids = (parse_properties(text).get("cluster.id") for text in texts if text is not None)
        return {cluster for cluster in ids if cluster}

    @property
    def identity(self) -> str | None:
        """The cluster's id; None if no folder tells it."""
        return next(iter(self.cluster_ids), None)

    def partitions(self) -> list[PartitionName]:
        """Return all partitions, in order; those of Kafka's own topics are among them."""
        return sorted(self._found)

    def partition(self, name: PartitionName) -> KafkaPartition:
        """List the files of a partition.

        Raises:
            TopicNotFoundError: there is none of that name.
            InvalidArgumentError: remote segments of several topics of that name are there, and no disk tells which.
        """
        found = self._found.get(name)
        if found is None:
            topics = sorted({other.topic for other in self._found})
            raise TopicNotFoundError(f"There is no partition {name}.", f"There are topics {', '.join(topics)}.")
        ids = {topic_id for folder in found.local if (topic_id := self._topic_id(folder)) is not None}
        if not ids:
            ids = set(found.remote)
        if len(ids) > 1:
            raise InvalidArgumentError(
                f"Partition {name} is there for topics of that name with ids {', '.join(sorted(ids))}.",
                "Name only folders of one of them: the topic was deleted and made again.",
            )
        folders = PartitionFolders(
            tuple(found.local),
            tuple(at for topic_id in ids for at in found.remote.get(topic_id, ())),
            any(name in offsets for offsets in self._checkpoints(CLEANED)),
        )
        topic_id = next(iter(ids), None)
        segments, snapshots = folders.listed(_Anew(tuple(self._folders), name, topic_id))
        marks, starts = self._checkpoints(HIGH_WATERMARK), self._checkpoints(LOG_START)
        return KafkaPartition(
            name,
            segments,
            snapshots,
            max((offsets[name] for offsets in starts if name in offsets), default=None),
            max((offsets[name] for offsets in marks if name in offsets), default=None),
            topic_id,
            self._trust,
        )

    def _checkpoints(self, name: str) -> list[dict[PartitionName, int]]:
        texts = (text_of(folder, name) for folder in self._folders)
        return [offsets for text in texts if text is not None if (offsets := parse_offsets(text)) is not None]

    @staticmethod
    def _topic_id(folder: Folder) -> str | None:
        text = text_of(folder, PARTITION_METADATA)
        return None if text is None else parse_topic_id(text)

    @cached_property
    def _found(self) -> dict[PartitionName, _Found]:
        found: dict[PartitionName, _Found] = {}
        for root in self._folders:
            is_brokers = any(info.base_name in _OF_A_BROKER for info in files_of(root))
            for folder in subfolders(root):
                if folder.name == _TIERED_ROOT:
                    for inner in subfolders(folder):
                        _sort_in(found, inner)
                elif is_brokers or not _has_partitions(folder):
                    _sort_in(found, folder)
        return found


@dataclass(frozen=True, slots=True)
class _Anew:
    """Lists the segments of a partition again: a broker may have moved them, into folders that weren't there."""

    folders: tuple[Folder, ...]
    name: PartitionName
    topic_id: str | None

    def __call__(self) -> SegmentList | None:
        """Return what is there now; None if it is another topic, or nothing."""
        try:
            partition = KafkaLog(self.folders).partition(self.name)
        except (LogNotFoundError, TopicNotFoundError):
            return None
        return partition.segments if partition.topic_id == self.topic_id else None


def _has_partitions(folder: Folder) -> bool:
    """True if a folder is no partition, but has some: a broker's log directory may have a partition's name."""
    if any(BROKER_FILE.fullmatch(info.base_name) for info in files_of(folder)):
        return False
    return any(_BROKER_FOLDER.fullmatch(inner.name) for inner in subfolders(folder))


def _sort_in(found: dict[PartitionName, _Found], folder: Folder) -> None:
    """Note a folder as what its name says; where that can mean several things, what is in it decides."""
    name = folder.name
    broker, tiered, aiven = (of.fullmatch(name) for of in (_BROKER_FOLDER, _TIERED_FOLDER, _AIVEN_FOLDER))
    if sum(match is not None for match in (broker, aiven)) > 1 or (tiered and aiven):
        files = [info.base_name for info in files_of(folder)]
        broker = broker if any(BROKER_FILE.fullmatch(file) for file in files) else None
        tiered = tiered if any(REMOTE_FILE.fullmatch(file) for file in files) else None
        aiven = None if broker or tiered else aiven
    if any(match is not None and int(match["partition"]) > _LAST for match in (broker, tiered)):
        return  # no partition has such a number
    if broker:
        partition = PartitionName(broker["topic"], int(broker["partition"]))
        found.setdefault(partition, _Found()).local.append(folder)
    elif tiered:
        partition = PartitionName(tiered["topic"], int(tiered["partition"]))
        found.setdefault(partition, _Found()).remote.setdefault(tiered["id"], []).append((folder, False))
    elif aiven:
        for inner in subfolders(folder):
            number = inner.name
            if number.isdecimal() and int(number) <= _LAST:
                partition = PartitionName(aiven["topic"], int(number))
                found.setdefault(partition, _Found()).remote.setdefault(aiven["id"], []).append((inner, True))
