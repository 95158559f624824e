"""A topic's tiered objects as an Iceberg table, which then shows exactly what read_committed shows up to a cut.

The cut is the largest one at or below the ends of what is offloaded without a gap. An object that lies wholly below it
is registered as it is. Where the cut divides a ledger, the rows below it are written to a file of the table's own,
which gives way to the object once the cut has passed it: so no transaction is torn, and none holds back more than
itself.

Each run looks at the table, and only then at the log, and changes the table in one step, if nobody else has changed it
since. So what a run adds is no older than what is there, a run that was killed has changed nothing or everything, and
of two at once one begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from txn_source.client.access import Access
from txn_source.client.ledgers import copies_of, ledgers_of
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.client.tiering.iceberg_table import CUT, Owner, ShownTable, check_types, location, open_catalog
from txn_source.client.tiering.object_columns import object_schema, offloaded_schema
from txn_source.model.copies import TieredCopy
from txn_source.model.errors import DataLossError, InvalidArgumentError, SegmentUnreadableError, UnavailableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST, Position, PositionRange
from txn_source.model.topic import Topic
from txn_source.model.topic_name import TopicName
from txn_source.reading.places import Cut, Side
from txn_source.reading.plan import plan
from txn_source.reading.request import ReadRequest, Selection
from txn_source.storage.schema import deserialize_schema
from txn_source.storage.tiered import read_footer

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class IcebergReport:
    """What an export did: the files it added and removed, and what the table shows now.

    ``snapshot_id`` is the table's current one, None if nothing was ever exported; ``cut`` is up to where it shows the
    topic, as ``scan(topic, end=...)`` takes it. ``waiting`` ledgers have messages above the cut.
    """

    table: str
    snapshot_id: int | None
    cut: str
    added: int
    removed: int
    rows: int
    waiting: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A ledger below the cut, or as much of it as is; ``copy`` if its object is to be registered as it is."""

    partition: int
    range: PositionRange
    copy: TieredCopy | None

    @property
    def name(self) -> str:
        """Tells a file of the table's own from those of other parts."""
        return f"txnlog-{self.partition}-{self.range.start.ledger_id}-{self.range.end.entry_id}"


def export_iceberg(access: Access, name: TopicName, catalog: Any, table: str) -> IcebergReport:
    """Bring an Iceberg table up to date; ``Log.export_iceberg`` has the arguments' meaning and the errors."""
    opened = open_catalog(catalog)
    lost: DataLossError | SegmentUnreadableError | None = None
    for _ in range(_ATTEMPTS):
        try:
            done = _Export(access, name, table).run(opened)
        except (
            DataLossError,
            SegmentUnreadableError,
        ) as error:  # an object may have gone meanwhile
            lost = error
            continue
        if done is not None:
            return done
    raise lost or UnavailableError(
        f"The Iceberg table {table} was changed by others {_ATTEMPTS} times while it was exported to.", "Try again."
    )


class _Export:
    """One attempt."""

    def __init__(self, access: Access, name: TopicName, table: str) -> None:
        self._access = access
        self._name = name
        self._table = table
        [view] = access.metadata.get_view([name]).topics
        self._topic: Topic = view.topic
        payload = deserialize_schema(self._topic.schema)
        self._columns, self._schema = offloaded_schema(payload), object_schema(payload)

    def run(self, catalog: Any) -> IcebergReport | None:
        """Return what was done; None if somebody else changed the table meanwhile."""
        check_types(self._schema)
        owner = Owner(self._access.metadata.get_log().log_id, str(self._topic.name), self._topic.topic_id)
        shown = ShownTable.open(catalog, self._table, self._schema, owner)
        cut, parts, waiting = self._look()
        kept: set[str] = set()
        added: list[DataFile] = []
        written: list[str] = []
        try:
            for part in parts:
                there = self._there(part, shown.files)
                if there is not None:
                    kept.add(there)
                elif (file := self._file(part, shown)) is not None:
                    added.append(file)
                    written += [file.file_path] if part.copy is None else []
            removed = [file for path, file in shown.files.items() if path not in kept]
            rows = sum(file.record_count for file in (*added, *(shown.files[path] for path in kept)))
            if not added and not removed and (shown.cut is not None or not parts):
                return IcebergReport(self._table, shown.snapshot_id, shown.cut or cut.json(), 0, 0, rows, waiting)
        except BaseException:
            shown.discard(written)
            raise
        committed = shown.change(added, removed, {CUT: cut.json()})  # one that is interrupted may have counted
        if committed is None:
            shown.discard(written)
            return None
        return IcebergReport(self._table, committed, cut.json(), len(added), len(removed), rows, waiting)

    def _look(self) -> tuple[Cut, list[_Part], int]:
        """Return the cut, what lies below it, and how many ledgers have messages above it."""
        stub = self._access.metadata
        [view] = stub.get_view([self._name]).topics
        if view.topic.topic_id != self._topic.topic_id:
            raise InvalidArgumentError(
                f"Topic {self._name.short!r} was deleted and made anew while it was exported.", "Export it again."
            )
        copies = {
            partition.index: {
                ledger.ledger_id: ledger.tiered
                for ledger in copies_of(self._access.metadata, partition)
                if ledger.tiered is not None
            }
            for partition in view.partitions
        }
        ledgers = {partition.index: ledgers_of(stub, partition) for partition in view.partitions}
        ends = {}
        for partition in view.partitions:
            end = partition.bounds.log_start
            for ledger in ledgers[partition.index]:
                if not ledger.closed or ledger.ledger_id not in copies[partition.index]:
                    end = Position(ledger.ledger_id, 0)
                    break
            ends[partition.partition_id] = max(end, partition.bounds.log_start)
        cut = stub.find_cut(ends)
        parts, waiting = [], 0
        for partition in view.partitions:
            until = cut[partition.partition_id]
            for ledger in ledgers[partition.index]:
                start, end = Position(ledger.ledger_id, 0), Position(ledger.ledger_id, ledger.entries)
                reach = PositionRange(start, min(end, until))
                if reach.end > start:
                    whole = copies[partition.index][ledger.ledger_id] if reach.end == end else None
                    parts.append(_Part(partition.index, reach, whole))
                waiting += bool(ledger.messages) and reach.end < end
        at = {(self._topic.name, p.index): cut[p.partition_id] for p in view.partitions}
        return Cut(at, IsolationLevel.READ_COMMITTED), parts, waiting

    def _there(self, part: _Part, files: Mapping[str, DataFile]) -> str | None:
        """Return where the table already has a part."""
        if part.copy is not None:
            path = location(part.copy.uri, self._access.root)
            return path if path in files else None
        return next((path for path in files if f"/{part.name}-" in path), None)

    def _file(self, part: _Part, shown: ShownTable) -> DataFile | None:
        """Return the file for a part that the table doesn't have; None if it has no rows."""
        if part.copy is None:
            rows = self._rows(part)
            return shown.write_file(part.name, rows, self._schema) if rows else None
        footer = read_footer(self._access.root, part.copy)
        if footer.rows == 0:
            return None
        if _shows_aborted(footer.metadata):
            raise InvalidArgumentError(
                f"The object of ledger {part.range.start.ledger_id} (partition {part.partition}) has aborted messages"
                " in it: an older release wrote it.",
                "Delete the offloaded copies (`txnlog topics delete-offloaded`) and offload again, then export.",
            )
        return shown.object_file(part.copy.uri, self._access.root)

    def _rows(self, part: _Part) -> list[pa.RecordBatch]:
        """Read a part, whatever copy can be read; never more than a ledger."""
        source = resolve(self._access.metadata, Selection.of(f"{self._name}-partition-{part.partition}"))
        start, end = (
            Side(default, {(self._topic.name, part.partition): at})
            for default, at in ((EARLIEST, part.range.start), (LATEST, part.range.end))
        )
        log = OwnLog(self._access)
        planned = plan(log, source, ReadRequest(start=start, end=end, consistent_cut=False))
        batches = planned.reader(log, select_columns(source.payload, self._columns.names)).read(planned.parts)
        return [pa.RecordBatch.from_arrays(batch.columns, schema=self._schema) for batch in batches if batch.num_rows]


def _shows_aborted(metadata: pq.FileMetaData) -> bool:
    """True if an object has, or may have, rows of aborted transactions: their status is the smallest there is."""
    for group in range(metadata.num_row_groups):
        column = next(
            c for c in map(metadata.row_group(group).column, range(metadata.num_columns))
            if c.path_in_schema == "__txn_status"
        )  # fmt: skip
        found = column.statistics
        if found is None or (found.min == "aborted" if found.has_min_max else found.null_count < column.num_values):
            return True
    return False
