"""Which ledgers lie in a folder or bucket, of either offloader, and which of a topic's objects are the right ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as fs

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.pulsar.data_object import DataObject
from txn_source.foreign.pulsar.ledger_index import LedgerIndex, parse_index
from txn_source.foreign.pulsar.managed_ledger import ListedLedger
from txn_source.foreign.pulsar.map_file import MapFile
from txn_source.foreign.pulsar.raw_entries import EntrySource, ObjectFile, damaged
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
_PARTITION = re.compile(r"(.+)-partition-([0-9]+)")
_THREADS = 8
_LARGEST_INDEX = 64 << 20


@dataclass(frozen=True, slots=True)
class OffloadedLedger:
    """An offloaded ledger: its object, and what is known without reading its entries.

    ``data`` is the path of the data object, None where only the index is there; ``index`` is None for a MapFile.
    """

    ledger_id: int
    uuid: str
    topic: str
    entries: int
    bytes: int
    data: str | None
    index: LedgerIndex | None

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
class Listing:
    """All ledgers of a place, by topic, and what there couldn't be read, by ledger."""

    ledgers: dict[str, list[OffloadedLedger]]
    unreadable: dict[int, TxnLogError]


@dataclass(frozen=True, slots=True)
class TopicLedgers:
    """A topic's ledgers in their order; ``lost`` are those that should be there and aren't, as ledger and entries.

    ``next_ledger`` is the first one that isn't offloaded, None if that isn't known.
    """

    ledgers: tuple[OffloadedLedger, ...]
    lost: tuple[tuple[int, int], ...] = ()
    next_ledger: int | None = None


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
    tasks: list[tuple[int, str, str]] = []
    for path in sorted(sizes):
        if (found := _OBJECT.fullmatch(path)) and found[3]:
            tasks.append((int(found[2]), found[1], path))
        elif found := _MAP_FILE.fullmatch(path):
            tasks.append((int(found[1]), found[2], path))
    if not tasks:
        raise LogNotFoundError(
            f"{folder} has no ledgers that Pulsar offloaded.", "Give the folder or the prefix that Pulsar offloaded to."
        )
    listing = Listing({}, {})

    def opened(task: tuple[int, str, str]) -> OffloadedLedger | TxnLogError:
        try:
            return _opened(system, *task, sizes)
        except TxnLogError as error:
            return error

    with ThreadPoolExecutor(_THREADS) as pool:
        for (ledger_id, _, _), ledger in zip(tasks, pool.map(opened, tasks), strict=True):
            if isinstance(ledger, TxnLogError):
                listing.unreadable[ledger_id] = ledger
            else:
                listing.ledgers.setdefault(ledger.topic, []).append(ledger)
    return listing


def _opened(system: fs.FileSystem, ledger_id: int, uuid: str, path: str, sizes: dict[str, int]) -> OffloadedLedger:
    """Return a ledger by its index object, or by its MapFile."""
    if ledger_id > MAX_LEDGER_ID:
        raise LogVersionError(f"{path} has ledger {ledger_id}.", f"Only ledgers up to {MAX_LEDGER_ID} can be read.")
    size = sizes[path]
    if _MAP_FILE.fullmatch(path):
        file = MapFile(ObjectFile(system, path), size)
        topic = topic_of(file.ledger.managed_ledger, path)
        return OffloadedLedger(ledger_id, uuid, topic, file.entries, size, path, None)
    if size > _LARGEST_INDEX:
        raise damaged(path, f"it has {size} bytes, too many for an index")
    index = parse_index(ObjectFile(system, path).read(0, size), path)
    topic = topic_of(index.ledger.managed_ledger, path)
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
    return f"{domain}://{'/'.join(folders)}/{unquote(name)}"


def partition_of(topic: str) -> PartitionName:
    """Return which partition a managed ledger's topic is; that of a topic without partitions is -1."""
    found = _PARTITION.fullmatch(topic)
    return PartitionName(found[1], int(found[2])) if found else PartitionName(topic, -1)


def in_order(topic: str, ledgers: Iterable[OffloadedLedger], listed: Sequence[ListedLedger] | None) -> TopicLedgers:
    """Return a topic's ledgers in their order.

    Args:
        topic: its full name, for errors.
        ledgers: all that are there.
        listed: those of the managed ledger, if they are known. What it doesn't list was trimmed, or is left of an
            offload that failed, and doesn't count.

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
        return TopicLedgers(tuple(found), tuple(lost))
    for entry in listed:
        if entry.uuid is None:
            if entry.entries or entry is listed[-1]:
                return TopicLedgers(tuple(found), tuple(lost), entry.ledger_id)
            continue
        right = [c for c in by_id.get(entry.ledger_id, ()) if c.uuid == entry.uuid and c.data is not None]
        if right:
            found.append(right[0])
        else:
            lost.append((entry.ledger_id, entry.entries))
    return TopicLedgers(tuple(found), tuple(lost))
