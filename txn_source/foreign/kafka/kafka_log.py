"""A Kafka log in place: log directories of brokers, their backups, and remote tiers, all of one cluster.

Layouts, told by names alone:
- a broker's: ``<topic>-<partition>/<base offset>.log``, with the checkpoints of all partitions beside the folders;
- ``LocalTieredStorage``: ``<topic>-<partition>-<topic id>/<base offset>-<segment id>.log``;
- Aiven's plugin: ``<topic>-<topic id>/<partition>/<base offset>-<segment id>.log``, with a manifest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow.fs as fs

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.kafka.aiven import AivenFiles
from txn_source.foreign.kafka.checkpoints import (
    HIGH_WATERMARK,
    LOG_START,
    META_PROPERTIES,
    PARTITION_METADATA,
    parse_offsets,
    parse_properties,
    parse_topic_id,
)
from txn_source.foreign.kafka.partition import KafkaPartition
from txn_source.foreign.kafka.producer_states import SnapshotFile
from txn_source.foreign.kafka.segment_list import SegmentList
from txn_source.foreign.kafka.segments import PlainFiles, Segment, read_file
from txn_source.model.errors import InvalidArgumentError, LogNotFoundError, TopicNotFoundError

_ID = r"[A-Za-z0-9_-]{22}"
_TOPIC = r"[A-Za-z0-9._-]{1,249}"
_BROKER_FOLDER = re.compile(rf"(?P<topic>{_TOPIC})-(?P<partition>[0-9]{{1,10}})")
_TIERED_FOLDER = re.compile(rf"(?P<topic>{_TOPIC})-(?P<partition>[0-9]{{1,10}})-(?P<id>{_ID})")
_AIVEN_FOLDER = re.compile(rf"(?P<topic>{_TOPIC})-(?P<id>{_ID})")
_BROKER_FILE = re.compile(r"(?P<base>[0-9]{20})\.(?P<kind>log|index|timeindex|txnindex|snapshot)")
_REMOTE_FILE = re.compile(
    rf"(?P<base>[0-9]{{20}})-(?P<segment>{_ID})"
    r"\.(?P<kind>log|index|timeindex|txnindex|snapshot|leader_epoch_checkpoint|indexes|rsm-manifest)"
)
_TIERED_ROOT = "kafka-tiered-storage"


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a file system."""

    system: fs.FileSystem
    path: str


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
            raise LogNotFoundError(
                f"No partition of Kafka lies in {', '.join(folder.path for folder in folders)}.",
                "Name a broker's log directory (log.dirs), a copy of one, or a folder of remote segments.",
            )
        if len(self.cluster_ids) > 1:
            raise InvalidArgumentError(
                f"The folders are of several clusters: {', '.join(sorted(self.cluster_ids))}.",
                "Name folders of one cluster.",
            )

    @cached_property
    def cluster_ids(self) -> set[str]:
        """The ids in the folders' ``meta.properties``: one, or none where there is no such file."""
        texts = (_text(folder, META_PROPERTIES) for folder in self._folders)
        ids = (parse_properties(text).get("cluster.id") for text in texts if text is not None)
        return {cluster for cluster in ids if cluster}

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
        segments: list[Segment] = []
        snapshots: list[SnapshotFile] = []
        for folder in found.local:
            some, states = _local(folder)
            segments += some
            snapshots += states
        for topic_id in ids:
            for folder, aiven in found.remote.get(topic_id, ()):
                segments += _remote(folder, aiven)
        marks, starts = self._checkpoints(HIGH_WATERMARK), self._checkpoints(LOG_START)
        return KafkaPartition(
            name,
            SegmentList(segments),
            snapshots,
            max((offsets[name] for offsets in starts if name in offsets), default=None),
            max((offsets[name] for offsets in marks if name in offsets), default=None),
            next(iter(ids), None),
            self._trust,
        )

    def _checkpoints(self, name: str) -> list[dict[PartitionName, int]]:
        texts = (_text(folder, name) for folder in self._folders)
        return [offsets for text in texts if text is not None if (offsets := parse_offsets(text)) is not None]

    @staticmethod
    def _topic_id(folder: Folder) -> str | None:
        text = _text(folder, PARTITION_METADATA)
        return None if text is None else parse_topic_id(text)

    @cached_property
    def _found(self) -> dict[PartitionName, _Found]:
        found: dict[PartitionName, _Found] = {}
        for root in self._folders:
            for folder in _subfolders(root):
                if folder.path.rsplit("/", 1)[-1] == _TIERED_ROOT:
                    for inner in _subfolders(folder):
                        _sort_in(found, inner)
                else:
                    _sort_in(found, folder)
        return found


def _sort_in(found: dict[PartitionName, _Found], folder: Folder) -> None:
    """Note a folder as what its name says; where that can mean several things, what is in it decides."""
    name = folder.path.rsplit("/", 1)[-1]
    broker, tiered, aiven = (of.fullmatch(name) for of in (_BROKER_FOLDER, _TIERED_FOLDER, _AIVEN_FOLDER))
    if sum(match is not None for match in (broker, aiven)) > 1 or (tiered and aiven):
        files = [info.base_name for info in _listed(folder)]
        broker = broker if any(_BROKER_FILE.fullmatch(file) for file in files) else None
        tiered = tiered if any(_REMOTE_FILE.fullmatch(file) for file in files) else None
        aiven = None if broker or tiered else aiven
    if broker:
        partition = PartitionName(broker["topic"], int(broker["partition"]))
        found.setdefault(partition, _Found()).local.append(folder)
    elif tiered:
        partition = PartitionName(tiered["topic"], int(tiered["partition"]))
        found.setdefault(partition, _Found()).remote.setdefault(tiered["id"], []).append((folder, False))
    elif aiven:
        for inner in _subfolders(folder):
            number = inner.path.rsplit("/", 1)[-1]
            if number.isdecimal():
                partition = PartitionName(aiven["topic"], int(number))
                found.setdefault(partition, _Found()).remote.setdefault(aiven["id"], []).append((inner, True))


def _listed(folder: Folder) -> list[fs.FileInfo]:
    infos: list[fs.FileInfo] = folder.system.get_file_info(fs.FileSelector(folder.path, allow_not_found=True))
    return infos


def _subfolders(folder: Folder) -> Iterator[Folder]:
    try:
        infos = folder.system.get_file_info(fs.FileSelector(folder.path))
    except FileNotFoundError:
        raise LogNotFoundError(f"There is no folder {folder.path}.", "Check the path.") from None
    except OSError as error:
        raise LogNotFoundError(f"{folder.path} can't be listed: {error}.", "Check that it may be read.") from None
    for info in sorted(infos, key=lambda info: info.path):
        if info.type == fs.FileType.Directory:
            yield Folder(folder.system, info.path)


def _local(folder: Folder) -> tuple[list[Segment], list[SnapshotFile]]:
    """Return the segments of a folder of a broker, and the snapshots in it. What is being deleted is left out."""
    files: dict[int, dict[str, fs.FileInfo]] = {}
    for info in _listed(folder):
        if match := _BROKER_FILE.fullmatch(info.base_name):
            files.setdefault(int(match["base"]), {})[match["kind"]] = info
    segments, snapshots = [], []
    for base, kinds in files.items():
        if "snapshot" in kinds:
            snapshots.append(SnapshotFile(base, folder.system, kinds["snapshot"].path))
        if "log" in kinds:
            segments.append(_plain(folder, base, kinds, remote=False))
    return segments, snapshots


def _remote(folder: Folder, aiven: bool) -> list[Segment]:
    """Return the remote segments of a folder. A copy that has no log, or of Aiven's no manifest, was never finished."""
    files: dict[tuple[int, str], dict[str, fs.FileInfo]] = {}
    for info in _listed(folder):
        if match := _REMOTE_FILE.fullmatch(info.base_name):
            files.setdefault((int(match["base"]), match["segment"]), {})[match["kind"]] = info
    segments = []
    for (base, _), kinds in files.items():
        if "log" in kinds and aiven and "rsm-manifest" in kinds:
            manifest, indexes = kinds["rsm-manifest"].path, kinds.get("indexes")
            source = AivenFiles(folder.system, kinds["log"].path, manifest, None if indexes is None else indexes.path)
            segments.append(Segment(base, source, folder.path, True, kinds["log"].size))
        elif "log" in kinds and not aiven:
            segments.append(_plain(folder, base, kinds, remote=True))
    return segments


def _plain(folder: Folder, base: int, kinds: dict[str, fs.FileInfo], *, remote: bool) -> Segment:
    others = {kind: info.path for kind, info in kinds.items() if kind != "log"}
    if not remote:
        others.pop("snapshot", None)  # it is the state at the beginning, and not of one segment alone
    return Segment(base, PlainFiles(folder.system, kinds["log"].path, others), folder.path, remote, kinds["log"].size)


def _text(folder: Folder, name: str) -> str | None:
    data = read_file(folder.system, f"{folder.path.rstrip('/')}/{name}")
    return None if data is None else data.decode(errors="replace")
