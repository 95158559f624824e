"""Which ledgers lie in a folder or bucket, of either offloader, and which of a topic's objects are the right ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.fs as fs

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.pulsar.data_object import DataObject
from txn_source.foreign.pulsar.ledger_index import LedgerIndex, parse_index, streamed_ledgers
from txn_source.foreign.pulsar.managed_ledger import ListedLedger
from txn_source.foreign.pulsar.map_file import MapFile, UnfinishedError, is_unfinished
from txn_source.foreign.pulsar.raw_entries import EntrySource, ObjectFile, damaged, threads_for
from txn_source.foreign.pulsar.summary_cache import INDEXES
from txn_source.model.errors import (
    InvalidArgumentError,
    LogNotFoundError,
    LogVersionError,
    SegmentUnreadableError,
    TxnLogError,
)
from txn_source.model.position import MAX_LEDGER_ID
from txn_source.storage.object_store import reason

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OBJECT = re.compile(rf"(?:^|.*/)({_UUID})-ledger-([0-9]+)(-index)?")
_MAP_FILE = re.compile(rf"(?:^|.*/)([0-9]+)-({_UUID})/data")
_FOLDER = re.compile(r"(?:^|.*/)([^/]+/[^/]+/persistent/[^/]+)")
"""A managed ledger's folder of the filesystem offloader."""
_STREAMED = re.compile(rf"(?:^|.*/){_UUID}-index")
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,8})")
_LARGEST_INDEX = 64 << 20


@dataclass(frozen=True, slots=True)
class OffloadedLedger:
    """An offloaded ledger: its object, and what is known without reading its entries.

    ``topic`` is empty where the index doesn't name it. ``data`` is the path of the data object, None where only the
    index is there; ``index`` is None for a MapFile. ``modified`` is when the data was written (ns), by the store's
    clock; 0 if it doesn't say.
    """

    ledger_id: int
    uuid: str
    topic: str
    entries: int
    bytes: int
    data: str | None
    index: LedgerIndex | None
    modified: int = 0

    def source(self, system: fs.FileSystem) -> EntrySource:
        """Return the ledger's entries; nothing of a data object is read yet."""
        assert self.data is not None
        file = ObjectFile(system, self.data)
        if self.index is None:
            return MapFile(file, self.bytes)
        if self.bytes != self.index.data_bytes:
            raise damaged(self.data, f"it has {self.bytes} bytes, and its index says {self.index.data_bytes}")
        return DataObject(file, self.index)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A ledger that can't be read, and why; ``folder`` is its topic's if it is a MapFile, else its topic isn't known.

    ``unfinished`` is true for a MapFile that is still being written.
    """

    error: TxnLogError
    folder: str | None = None
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """All ledgers of a place, by topic, and what there couldn't be read, by ledger."""

    ledgers: dict[str, list[OffloadedLedger]]
    unreadable: dict[int, Unreadable]
    unnamed: list[OffloadedLedger]
    """Those of which the index doesn't name the topic: old brokers wrote none."""

    def of_topic(self, topic: str, listed: Sequence[ListedLedger] | None) -> list[OffloadedLedger]:
        """Return a topic's ledgers; those without its name are the ones that its list has.

        Raises:
            InvalidArgumentError: there are some without a name, and the topic has no list.
        """
        named = self.ledgers.get(topic, [])
        if not self.unnamed:
            return named
        if listed is None:
            raise InvalidArgumentError(
                f"{self.unnamed[0].data or self.unnamed[0].uuid} doesn't say whose ledger it has, as old brokers wrote"
                f" it; it may be one of {topic}.",
                "Give the topic's list of ledgers (option managedLedgers, `pulsar-admin topics info-internal`).",
            )
        wanted = {(ledger.ledger_id, ledger.uuid) for ledger in listed}
        return [*named, *(ledger for ledger in self.unnamed if (ledger.ledger_id, ledger.uuid) in wanted)]

    def unfinished(self, topic: str, listed: Sequence[ListedLedger] | None) -> int | None:
        """Return the last ledger of a topic if it is being written; raise the error of one that can't be read.

        Pulsar offloads in order, so what isn't whole before a later ledger is damaged.
        """
        ledgers = self.ledgers.get(topic, [])
        folders = {_folder_of_topic(ledger.data) for ledger in ledgers if ledger.index is None and ledger.data}
        last = max((ledger.ledger_id for ledger in ledgers), default=-1)
        writing = None
        for ledger_id, unreadable in sorted(self.unreadable.items()):
            if listed is not None:
                if ledger_id in {ledger.ledger_id for ledger in listed}:
                    raise unreadable.error
            elif unreadable.folder is None or unreadable.folder in folders:
                if not unreadable.unfinished or ledger_id < last:
                    raise unreadable.error
                writing = ledger_id if writing is None else writing
        return writing


@dataclass(frozen=True, slots=True)
class TopicLedgers:
    """A topic's ledgers in their order; ``lost`` are those that should be there and aren't, as ledger and entries.

    ``next_ledger`` is the first one that isn't offloaded, None if that isn't known. ``listed`` is true if the managed
    ledger's own list said all this.
    """

    ledgers: tuple[OffloadedLedger, ...]
    lost: tuple[tuple[int, int], ...] = ()
    next_ledger: int | None = None
    listed: bool = False

    def is_unfinished(self, system: fs.FileSystem, ledger: OffloadedLedger) -> bool:
        """True if a ledger that ends too early is one that is being written: a topic's last MapFile."""
        last = not self.listed and ledger == self.ledgers[-1]
        return last and ledger.index is None and ledger.data is not None and is_unfinished(system, ledger.data)

    def without_last(self) -> TopicLedgers:
        """Return the ledgers before the last one, which isn't offloaded yet."""
        return replace(self, ledgers=self.ledgers[:-1], next_ledger=self.ledgers[-1].ledger_id)


def list_ledgers(system: fs.FileSystem, folder: str) -> Listing:
    """Return the ledgers that lie below a folder.

    Raises:
        LogNotFoundError: there are none.
        SegmentUnreadableError: the place doesn't answer.
    """
    try:
        infos = system.get_file_info(fs.FileSelector(folder, recursive=True))
    except FileNotFoundError:
        raise LogNotFoundError(f"{folder} isn't there.", "Give the folder that Pulsar offloaded to.") from None
    except (OSError, pa.ArrowException) as error:
        raise SegmentUnreadableError(
            f"{folder} can't be listed: {reason(error)}.", "Check the place and the credentials, then try again."
        ) from None
    sizes = {info.path: info.size for info in infos if info.type is fs.FileType.File}
    times = {info.path: info.mtime_ns or 0 for info in infos if info.type is fs.FileType.File}
    tasks: list[tuple[int, str, str]] = []
    listing = Listing({}, {}, [])
    for path in sorted(sizes):
        if (found := _OBJECT.fullmatch(path)) and found[3]:
            tasks.append((int(found[2]), found[1], path))
        elif found := _MAP_FILE.fullmatch(path):
            tasks.append((int(found[1]), found[2], path))
        elif _STREAMED.fullmatch(path):
            listing.unreadable.update(_streamed(system, path, sizes[path]))
    if not tasks and not listing.unreadable:
        raise LogNotFoundError(
            f"{folder} has no ledgers that Pulsar offloaded.", "Give the folder or the prefix that Pulsar offloaded to."
        )

    def opened(task: tuple[int, str, str]) -> OffloadedLedger | TxnLogError:
        try:
            return _opened(system, *task, sizes, times[task[2]])
        except TxnLogError as error:
            return error

    with ThreadPoolExecutor(threads_for(system)) as pool:
        for (ledger_id, _, path), ledger in zip(tasks, pool.map(opened, tasks), strict=True):
            if isinstance(ledger, TxnLogError):
                of_topic = _folder_of_topic(path) if _MAP_FILE.fullmatch(path) else None
                unfinished = isinstance(ledger, UnfinishedError) and is_unfinished(system, path)
                listing.unreadable[ledger_id] = Unreadable(ledger, of_topic, unfinished)
            else:
                ledger = replace(ledger, modified=times.get(ledger.data or "", 0))
                (listing.ledgers.setdefault(ledger.topic, []) if ledger.topic else listing.unnamed).append(ledger)
    return listing


def _folder_of_topic(data: str) -> str:
    return data.rsplit("/", 2)[0]


def _streamed(system: fs.FileSystem, path: str, size: int) -> dict[int, Unreadable]:
    """Return the ledgers of which the streaming offloader's index says that it has parts, each refused."""
    if size > _LARGEST_INDEX:
        return {}
    try:
        found = streamed_ledgers(ObjectFile(system, path).read(0, size))
    except TxnLogError as error:
        return {-1: Unreadable(error)}
    refused = LogVersionError(
        f"{path} was written by Pulsar's streaming offloader.", "Only the ledger-based offloader's can be read."
    )
    return dict.fromkeys(found, Unreadable(refused))


def _opened(
    system: fs.FileSystem, ledger_id: int, uuid: str, path: str, sizes: dict[str, int], modified: int
) -> OffloadedLedger:
    """Return a ledger by its index object, or by its MapFile."""
    if ledger_id > MAX_LEDGER_ID:
        raise LogVersionError(f"{path} has ledger {ledger_id}.", f"Only ledgers up to {MAX_LEDGER_ID} can be read.")
    size = sizes[path]
    if _MAP_FILE.fullmatch(path):
        file = MapFile(ObjectFile(system, path), size)
        folder = _FOLDER.fullmatch(_folder_of_topic(path))
        topic = topic_of(file.ledger.managed_ledger or (folder and folder[1]), path)
        return OffloadedLedger(ledger_id, uuid, topic, file.entries, size, path, None)
    if size > _LARGEST_INDEX:
        raise damaged(path, f"it has {size} bytes, too many for an index")
    index = INDEXES.get((path, size, modified), lambda: parse_index(ObjectFile(system, path).read(0, size), path))
    topic = "" if index.ledger.managed_ledger is None else topic_of(index.ledger.managed_ledger, path)
    data = path.removesuffix("-index")
    return OffloadedLedger(
        ledger_id, uuid, topic, index.ledger.entries, sizes.get(data, 0), data if data in sizes else None, index
    )


def topic_of(managed_ledger: str | None, uri: str) -> str:
    """Return the full name of the topic that a managed ledger, ``tenant/namespace/persistent/name``, belongs to."""
    parts = (managed_ledger or "").split("/")
    if len(parts) not in (4, 5) or not all(parts):
        raise damaged(uri, f"its ledger belongs to {managed_ledger!r}, which is no topic")
    *folders, domain, name = parts
    return f"{domain}://{'/'.join(folders)}/{unquote_plus(name)}"


def partition_of(topic: str) -> PartitionName:
    """Return which partition a managed ledger's topic is; that of a topic without partitions is -1."""
    found = _PARTITION.fullmatch(topic)
    return PartitionName(found[1], int(found[2])) if found else PartitionName(topic, -1)


def in_order(
    topic: str,
    ledgers: Iterable[OffloadedLedger],
    listed: Sequence[ListedLedger] | None,
    unfinished: int | None = None,
) -> TopicLedgers:
    """Return a topic's ledgers in their order.

    Args:
        topic: its full name, for errors.
        ledgers: all that are there.
        listed: those of the managed ledger, if they are known. What it doesn't list was trimmed, or is left of an
            offload that failed, and doesn't count.
        unfinished: the ledger behind all others that is being written, if one is.

    Raises:
        InvalidArgumentError: a ledger has two objects, and nothing tells which is the right one.
    """
    by_id: dict[int, list[OffloadedLedger]] = {}
    for ledger in ledgers:
        by_id.setdefault(ledger.ledger_id, []).append(ledger)
    found: list[OffloadedLedger] = []
    lost: list[tuple[int, int]] = []
    if listed is None:
        for ledger_id, candidates in sorted(by_id.items()):
            candidates = [c for c in candidates if c.data is not None] or candidates[:1]
            if len(candidates) > 1:
                raise InvalidArgumentError(
                    f"Ledger {ledger_id} of {topic} has {len(candidates)} objects:"
                    f" {', '.join(sorted(c.uuid for c in candidates))}.",
                    "Give the list of its ledgers (`pulsar-admin topics info-internal`), which says which one counts.",
                )
            if candidates[0].data is None:
                lost.append((ledger_id, candidates[0].entries))
            else:
                found.append(candidates[0])
        return TopicLedgers(tuple(found), tuple(lost), unfinished)
    for entry in listed:
        if entry.uuid is None:
            if entry.entries or entry is listed[-1]:
                return TopicLedgers(tuple(found), tuple(lost), entry.ledger_id, listed=True)
            continue
        right = [c for c in by_id.get(entry.ledger_id, ()) if c.uuid == entry.uuid and c.data is not None]
        if right:
            found.append(right[0])
        else:
            lost.append((entry.ledger_id, entry.entries))
    return TopicLedgers(tuple(found), tuple(lost), listed=True)
