"""What storage still knows of a topic: its description, its segments, and the objects of offloaded ledgers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np

from txn_source.model.errors import InvalidArgumentError, SegmentUnreadableError
from txn_source.model.kinds import ABORTED_DATA, DATA
from txn_source.model.position import entry_of, key_of, ledger_of
from txn_source.model.topic_name import TopicName
from txn_source.model.values import dataclass
from txn_source.storage.apart_notes import topic_of_note
from txn_source.storage.object_names import may_be_object
from txn_source.storage.object_root import Root, root_at
from txn_source.storage.object_store import reason
from txn_source.storage.root_files import read_file
from txn_source.storage.segment import SegmentName
from txn_source.storage.segment_store import StoredSegment, segments_at
from txn_source.storage.tiered_summary import FoundObject, find_object
from txn_source.storage.topic_file import DELETION, VERSION, is_topic_file
from txn_source.upkeep.placing import ROWS, PlacedPartition
from txn_source.upkeep.reading_ahead import read_ahead
from txn_source.upkeep.segment_scan import COLUMNS, NO_SEGMENT, IntArray, LeftEntry, ScannedSegments, SegmentCopy

_MAIN = 0
"""The id of the log's own root."""


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic's description, as ``client/topic_description.py`` wrote it."""

    topic_id: int
    name: TopicName
    text: dict[str, Any]

    @property
    def is_going(self) -> bool:
        """True if its deletion was begun."""
        return bool(self.text.get(DELETION))

    @property
    def partitions(self) -> dict[int, dict[str, Any]]:
        """What is told of each partition, by id."""
        return {int(each["id"]): each for each in self.text["partitions"]}


@dataclass(slots=True)
class FoundTopic:
    """A topic, with all that was found of it; entries have their places."""

    described: DescribedTopic
    segments: ScannedSegments
    placed: dict[int, PlacedPartition] = field(default_factory=dict)
    indexes: dict[int, int] = field(default_factory=dict)
    """Of partitions, by id."""
    objects: dict[int, FoundObject] = field(default_factory=dict)
    """By ledger."""
    without_hot: set[int] = field(default_factory=set)
    """Ledgers of which there is the object alone."""
    lost: dict[int, list[int]] = field(default_factory=dict)
    """Positions of entries whose segment is missing, by partition."""
    strange: int = 0
    """Entries that say nothing of themselves, or are of no partition of the topic."""
    jobs: dict[int, list[LeftEntry]] = field(default_factory=dict)
    """Entries of jobs of which nobody noted that they were committed, by partition."""


@dataclass(frozen=True, slots=True)
class ListedRoot:
    """What lies among the segments of a root."""

    root: Root
    stored: tuple[StoredSegment, ...]

    @classmethod
    def of(cls, root: Root) -> ListedRoot:
        """List a root; OSError says why it can't be."""
        return cls(root, tuple(segments_at(root).stored()))

    @property
    def notes(self) -> dict[int, list[str]]:
        """Notes that lie apart, by topic."""
        found: dict[int, list[str]] = {}
        for each in self.stored:
            topic_id = topic_of_note(each.path)
            if topic_id is not None:
                found.setdefault(topic_id, []).append(each.path)
        return found


def list_topics(listed: ListedRoot) -> tuple[dict[int, DescribedTopic], list[str]]:
    """Return the topics that are described in a root, and which descriptions can't be read."""

    def described_at(path: str) -> DescribedTopic | str:
        try:
            return _parse(read_file(listed.root, path))
        except (ValueError, KeyError, TypeError, InvalidArgumentError) as error:
            return f"{path}: {error}"
        except OSError as error:
            return f"{path}: {reason(error)}"

    paths = sorted(each.path for each in listed.stored if is_topic_file(each.path))
    found = [one for _, one in read_ahead(paths, described_at, is_remote=not isinstance(listed.root, Path))]
    described = {one.topic_id: one for one in found if isinstance(one, DescribedTopic)}
    return described, [one for one in found if isinstance(one, str)]


def list_segments(
    main: ListedRoot, described: Iterable[DescribedTopic], told: Callable[[str], object]
) -> dict[int, list[SegmentCopy]]:
    """Return all segments by topic: those of the log's root, and of the roots that have copies of them."""
    roots = {_MAIN: main}
    for root_id, name, uri in {tuple(each): None for of in described for each in of.text.get("roots", ())}:
        try:
            at = root_at(uri)
            if isinstance(at, Path) and not at.is_dir():
                raise OSError("there is no such folder")
            roots[int(root_id)] = ListedRoot.of(at)
        except (OSError, InvalidArgumentError) as error:
            shown = uri.partition("?")[0]
            told(f"The root {name} can't be read here ({shown}: {reason(error)}): segments that lie there alone are"
                 " missing.")  # fmt: skip
    best: dict[str, SegmentCopy] = {}
    for root_id, listed in sorted(roots.items()):
        for found in listed.stored:
            known = best.get(found.path)
            if known is not None and known.size == found.size:
                best[found.path] = replace(known, roots=known.roots | 1 << root_id)
            elif known is None or known.size < found.size:
                best[found.path] = SegmentCopy(found.path, found.size, listed.root, 1 << root_id)
    segments: dict[int, list[SegmentCopy]] = {}
    for path, copy in best.items():
        name = SegmentName.parse(path)
        if name is not None:
            segments.setdefault(name.topic_id, []).append(copy)
    return segments


def find_topic(
    described: DescribedTopic,
    scanned: ScannedSegments,
    objects: Iterable[FoundObject],
    new_ledger: Callable[[], int],
) -> FoundTopic:
    """Find the places of a topic's entries.

    ``new_ledger`` gives an id for a ledger that nobody has known.
    """
    found = FoundTopic(described, scanned)
    found.indexes = {id_: int(each["index"]) for id_, each in described.partitions.items()}
    known = set(found.indexes.values())  # others were added since it was described
    found.indexes |= {id_: index for id_, index in scanned.partitions.items() if index not in known}
    by_index = {index: id_ for id_, index in found.indexes.items()}
    of_partition: dict[int, list[FoundObject]] = {}
    for each in objects:
        if each.summary.partition in by_index:
            of_partition.setdefault(by_index[each.summary.partition], []).append(each)
            found.objects[each.summary.ledger.ledger_id] = each
    receipts = scanned.receipts()
    left: dict[int, list[LeftEntry]] = {}
    for entry in scanned.left.values():
        left.setdefault(entry.partition_id, []).append(entry)
    of_each = receipts[:, COLUMNS.index("partition_id")]
    strange = ~np.isin(of_each, list(found.indexes))
    found.strange = int(strange.sum()) + sum(len(of) for id_, of in left.items() if id_ not in found.indexes)
    for partition_id in sorted(found.indexes):
        rows = receipts[of_each == partition_id]
        mine = {name: rows[:, at] for at, name in enumerate(COLUMNS)}
        _place(found, partition_id, mine, of_partition.get(partition_id, []), left.get(partition_id, []), new_ledger)
    scanned.release()
    return found


def find_objects(root: Root, paths: Iterable[str], told: Callable[[str], object]) -> dict[str, list[FoundObject]]:
    """Read the footers of objects, by the topic's name; of several of one ledger the last one is taken."""

    def object_at(path: str) -> FoundObject | SegmentUnreadableError:
        try:
            return find_object(root, path)
        except SegmentUnreadableError as error:
            return error

    newest: dict[tuple[str, int], FoundObject] = {}
    ours = [path for path in paths if may_be_object(path)]
    for _, found in read_ahead(ours, object_at, is_remote=not isinstance(root, Path)):
        if isinstance(found, SegmentUnreadableError):
            told(found.fact)
        else:
            newest[found.summary.topic, found.summary.ledger.ledger_id] = found
    by_topic: dict[str, list[FoundObject]] = {}
    for (topic, _), found in sorted(newest.items()):
        by_topic.setdefault(topic, []).append(found)
    return by_topic


def objects_below(root: Root) -> list[str]:
    """Return the paths below the root's own folder of objects, oldest first."""
    if not isinstance(root, Path):
        from txn_source.storage.object_requests import requests_for

        listed = requests_for(root.uri).listed("tiered")
        return [path for _, path in sorted((each.modified_at_s, each.path) for each in listed)]
    found = [(path.stat().st_mtime_ns, path) for path in (root / "tiered").rglob("ledger-*.parquet")]
    return [path.relative_to(root).as_posix() for _, path in sorted(found)]


def _parse(data: bytes) -> DescribedTopic:
    text = json.loads(data)
    if text["version"] != VERSION:
        raise ValueError(f"version {text['version']}; this release reads {VERSION}")
    for partition in text["partitions"]:
        int(partition["id"]), int(partition["index"]), int(partition["log_start"])
    return DescribedTopic(int(text["topic_id"]), TopicName.parse(text["name"]), text)


def _place(
    found: FoundTopic,
    partition_id: int,
    receipts: dict[str, IntArray],
    objects: list[FoundObject],
    left: list[LeftEntry],
    new_ledger: Callable[[], int],
) -> None:
    """Put together what is known of one partition."""
    of = found.described.partitions.get(partition_id, {})
    log_start = int(of.get("log_start", 0))
    order = np.argsort(receipts["position"], kind="stable")
    order = order[receipts["position"][order] >= log_start]
    there = order[receipts["segment"][order] != NO_SEGMENT]
    _, firsts = np.unique(receipts["position"][there], return_index=True)
    whole = there[firsts]
    nothing = np.zeros(len(whole), np.int64)
    rows = {name: receipts[name][whole] if name in receipts else nothing.copy() for name in ROWS}
    gone = np.setdiff1d(receipts["position"][order], rows["position"])
    known_writes = {(entry.producer_id, entry.base_sequence) for entry in left if not entry.of_job} & set(
        zip(receipts["producer_id"].tolist(), receipts["base_sequence"].tolist(), strict=True)
    )
    left = _last_tries([entry for entry in left if (entry.producer_id, entry.base_sequence) not in known_writes])
    for each in objects:
        if key_of(each.summary.ledger.ledger_id, 0) >= log_start:
            rows, left, gone = _with_object(found, rows, left, gone, each)
    if len(gone):
        in_ledgers = np.isin(ledger_of(gone), ledger_of(rows["position"]))
        found.lost[partition_id] = gone[in_ledgers].tolist()
    jobs = [entry for entry in left if entry.of_job]
    if jobs:
        found.jobs[partition_id] = jobs
    end = int(of.get("log_end", 0))
    ledgers = [ledger_of(end), ledger_of(log_start)]
    if len(rows["position"]):
        ledgers.append(ledger_of(int(rows["position"].max())))
    last = max(ledgers)
    known = entry_of(end) if last == ledger_of(end) else 0
    if last in found.objects:  # it is closed, and its object knows all of it
        last, known = new_ledger(), 0
    markers = {int(txn): int(marker) for txn, _, marker in of.get("aborted", ()) if int(marker) >= log_start}
    placed = PlacedPartition(rows, gone, last, known, markers)
    placed.place([entry for entry in left if not entry.of_job], {each.summary.ledger.ledger_id for each in objects})
    found.placed[partition_id] = placed


def _last_tries(left: list[LeftEntry]) -> list[LeftEntry]:
    """Leave out what a producer has written once more."""
    last: dict[tuple[int, ...], LeftEntry] = {}
    for entry in left:
        key: tuple[int, ...] = (entry.producer_id, entry.base_sequence)
        if entry.of_job:
            key = (0, entry.segment, entry.offset)
        if key not in last or last[key].at_us <= entry.at_us:
            last[key] = entry
    return list(last.values())


def _with_object(
    found: FoundTopic, rows: dict[str, IntArray], left: list[LeftEntry], gone: IntArray, of: FoundObject
) -> tuple[dict[str, IntArray], list[LeftEntry], IntArray]:
    """Add the entries of an offloaded ledger: its object knows all of them."""
    ledger_id = of.summary.ledger.ledger_id
    base = key_of(ledger_id, 0)
    index = {name: of.index[name].to_numpy().astype(np.int64) for name in of.index.column_names}
    count = len(index["entry_id"])
    kinds = np.where(index["kind"] == ABORTED_DATA, DATA, index["kind"])
    data = kinds == DATA
    new = {name: np.zeros(count, np.int64) for name in ROWS}
    new |= {"position": base + index["entry_id"], "kind": kinds, "messages": index["messages"]}
    new |= {"length": index["bytes"], "txn": index["txn"], "time_us": index["publish_time_us"]}
    new |= {"producer_id": index["producer_id"], "base_sequence": index["base_sequence"]}
    new["segment"] = np.full(count, NO_SEGMENT, np.int64)
    mine = ledger_of(rows["position"]) == ledger_id
    at = np.searchsorted(new["position"], rows["position"][mine])
    for name in ("segment", "offset", "crc32c"):
        new[name][at] = rows[name][mine]
    written = {(entry.producer_id, entry.base_sequence): entry for entry in left if not entry.of_job}
    for i in np.flatnonzero(data & (new["segment"] == NO_SEGMENT)).tolist():
        entry = written.get((int(new["producer_id"][i]), int(new["base_sequence"][i])))
        if entry is not None and entry.length == new["length"][i]:
            new["segment"][i], new["offset"][i], new["crc32c"][i] = entry.segment, entry.offset, entry.crc32c
            left = [other for other in left if other is not entry]
    if (new["segment"][data] == NO_SEGMENT).any():
        found.without_hot.add(ledger_id)
        new["segment"][:] = NO_SEGMENT
    joined = {name: np.concatenate((rows[name][~mine], new[name])) for name in ROWS}
    order = np.argsort(joined["position"], kind="stable")
    return {name: column[order] for name, column in joined.items()}, left, gone[ledger_of(gone) != ledger_id]
