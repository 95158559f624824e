"""Which ledgers of a read another Parquet reader can take whole, from their objects, and which are left for this one.

A ledger is handed over if all of it is inside the read and decided, its tiered copy is the one to be read first, and
that is one file with just what the level sees. What another reader takes has no second copy to fall back to: so each
object's end is looked at here, and a ledger whose object is missing or damaged is left.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import ReadPartition, Source
from txn_source.client.reading.window import each
from txn_source.model.copies import LedgerCopies, Tier, TieredCopy
from txn_source.model.errors import SegmentUnreadableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange
from txn_source.model.read_priority import ReadPriority
from txn_source.model.values import dataclass
from txn_source.reading.ranges import ranges_of
from txn_source.reading.request import ReadRequest
from txn_source.storage.object_root import Root, located
from txn_source.storage.object_uri import parts_of

_LOCAL = ("", "file")
_HADOOP = ("hdfs", "viewfs")
_PATTERN = set("{}[]*?\\")
"""Hadoop takes a path with one of these for a pattern."""
_OLDER = "their objects are of an older release, with aborted messages in them"
_APART = "aborted messages lie in second files"
_NO_OBJECT = "they have no object"
_HOT_FIRST = "their hot copies are read first"
_IN_PART = "they are open, not decided, or only in part inside the read"


@dataclass(frozen=True, slots=True)
class NativeObject:
    """An object that has the rows of one ledger, all of which are read.

    ``location`` is its URI as Hadoop takes it, and ``size`` its bytes.
    """

    topic: str
    partition: int
    ledger_id: int
    location: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class NativeSplit:
    """A read in two parts, which have no row in common and together all of them."""

    objects: tuple[NativeObject, ...]
    """What another reader may take; none of them is empty."""
    rest: tuple[tuple[ReadPartition, PositionRange], ...]
    """What is left."""
    left: Mapping[str, int]
    """Why ledgers are left, with how many."""

    @property
    def ranges(self) -> str:
        """The rest as the source's option ``ranges`` takes it."""
        found: dict[str, dict[str, list[list[str]]]] = {}
        for partition, reach in self.rest:
            of_topic = found.setdefault(str(partition.topic), {})
            of_topic.setdefault(str(partition.view.index), []).append([str(reach.start), str(reach.end)])
        return json.dumps(found)

    def __str__(self) -> str:
        rows = sum(found.rows for found in self.objects)
        why = "".join(f"; {count} ledgers are not: {reason}" for reason, count in self.left.items())
        return f"{len(self.objects)} objects with {rows} rows are read natively{why}"


def native_split(access: Access, source: Source, request: ReadRequest) -> NativeSplit:
    """Divide a read: its ends are those of this moment, and both parts keep to them.

    Raises:
        InvalidArgumentError, OutOfRangeError, DataLossError: as planning the read would.
    """
    reaches = ranges_of(OwnLog(access), source, request)
    reads = [(p, reach) for p, reach in zip(source.partitions, reaches, strict=True) if not reach.empty]
    tables = access.metadata.list_ledgers_of([(p.view.partition_id, reach) for p, reach in reads])
    found = [_ledgers(access, p, reach, table) for (p, reach), table in zip(reads, tables, strict=True)]
    whole = [(each_one.copies, each_one.priority) for of in found for each_one in of if each_one.whole]
    answers = each(lambda of: _native(access, of[0], request.read_priority or of[1], request.isolation_level), whole)
    objects: list[NativeObject] = []
    rest: list[tuple[ReadPartition, PositionRange]] = []
    left: Counter[str] = Counter()
    for (partition, reach), ledgers in zip(reads, found, strict=True):
        waiting = reach.start  # from here on nothing was handed over
        for ledger in ledgers:
            answer = next(answers) if ledger.whole else _IN_PART
            if isinstance(answer, str):
                left[answer] += 1
                continue
            location, copy, rows = answer
            if rows:
                topic, index = partition.topic.short, partition.view.index
                objects.append(NativeObject(topic, index, ledger.range.start.ledger_id, location, rows, copy.size))
            if waiting < ledger.range.start:
                rest.append((partition, PositionRange(waiting, ledger.range.start)))
            waiting = ledger.range.end
        if waiting < reach.end:
            rest.append((partition, PositionRange(waiting, reach.end)))
    return NativeSplit(tuple(objects), tuple(rest), dict(left))


def location_of(root: Root, uri: str) -> tuple[str | None, str]:
    """Return an object's URI as Hadoop takes it; None with the reason if a JVM may not open it by any.

    A path is not escaped in it: Hadoop takes all that follows the authority as it is.
    """
    scheme, authority, path, parameters = parts_of(located(root, uri))
    if scheme in _LOCAL:
        path, base = os.path.abspath(path), "file://"
    elif scheme in _HADOOP and not parameters:
        base = f"{scheme}://{authority}"
    else:
        return None, f"Spark is not known to open {scheme}:// as they are stored"
    if _PATTERN & set(path) or not path.isascii() or not path.isprintable():
        return None, "Hadoop may take their paths for others"
    return base + path, ""


@dataclass(frozen=True, slots=True)
class _Ledger:
    """A ledger that a read touches, with its copies; ``range`` ends where the next one begins."""

    range: PositionRange
    whole: bool
    """Closed, decided, and all of it is read."""
    copies: LedgerCopies | None
    priority: ReadPriority | None
    """The topic's."""


def _ledgers(access: Access, partition: ReadPartition, reach: PositionRange, table: pa.Table) -> list[_Ledger]:
    ids, entries, closed = (table[name].to_pylist() for name in ("ledger_id", "entries", "closed_at_ms"))
    copies, priority = _copies(access, partition, reach)
    ends = [*(Position(ledger_id, 0) for ledger_id in ids[1:]), reach.end]
    found = []
    for ledger_id, count, closed_at, behind in zip(ids, entries, closed, ends, strict=True):
        begin, end = Position(ledger_id, 0), Position(ledger_id, count)
        if max(begin, reach.start) >= min(end, reach.end):
            continue  # nothing of it is read
        whole = reach.start <= begin and end <= min(reach.end, partition.view.bounds.last_stable) and closed_at >= 0
        found.append(_Ledger(PositionRange(begin, behind), whole, copies.get(ledger_id), priority))
    return found


def _native(
    access: Access, copies: LedgerCopies | None, priority: ReadPriority | None, level: IsolationLevel
) -> tuple[str, TieredCopy, int] | str:
    """Return location, copy and rows of a ledger's object, or why it is not to be handed over."""
    from txn_source.storage.tiered import checked_footer  # with Parquet, which a read of hot ledgers doesn't need

    if copies is None or copies.tiered is None:
        return _NO_OBJECT
    if copies.in_order(priority or ReadPriority.TIERED_FIRST)[0] is not Tier.TIERED:
        return _HOT_FIRST
    location, why = location_of(access.root, copies.tiered.uri)
    if location is None:
        return why
    try:
        footer = checked_footer(access.root, copies.tiered)
    except SegmentUnreadableError as error:
        return error.fact
    if not footer.committed_only:
        return _OLDER
    if level is not IsolationLevel.READ_COMMITTED and footer.aborted is not None:
        return _APART
    return location, copies.tiered, footer.rows


def _copies(
    access: Access, partition: ReadPartition, reach: PositionRange
) -> tuple[dict[int, LedgerCopies], ReadPriority | None]:
    """Return the copies of the ledgers that a range touches, by ledger, and the topic's priority."""
    found: dict[int, LedgerCopies] = {}
    at, priority = reach.start, None
    while at < reach.end:
        listed = access.metadata.list_copies(partition.view.partition_id, PositionRange(at, reach.end))
        if not listed.ledgers:
            break
        found |= {copies.ledger_id: copies for copies in listed.ledgers}
        at, priority = Position(listed.ledgers[-1].ledger_id + 1, 0), listed.priority
    return found, priority
