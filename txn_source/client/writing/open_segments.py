"""The segments that a producer has open: one for each partition and set of columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from txn_source.client.writing.group import Group
from txn_source.model.entry import NewEntry
from txn_source.model.position import Position
from txn_source.model.topic import TopicView
from txn_source.storage.segment import SegmentWriter, segment_path

_MAX_OPEN = 128


class OpenSegments:
    """Stores groups. What an interrupt left broken or closed is replaced, never written to."""

    def __init__(self, root: Path, view: TopicView, producer_id: int) -> None:
        self._root = root
        self._topic_id = view.topic.topic_id
        self._producer_id = producer_id
        self._partition_ids = [p.partition_id for p in view.partitions]
        self._ledgers = [p.bounds.log_end.ledger_id for p in view.partitions]
        self._open: dict[tuple[int, tuple[str, ...]], tuple[int, SegmentWriter]] = {}

    def store(self, groups: Sequence[Group]) -> None:
        """Write the groups' bytes and sync them once for each segment; only then they have their ``entries``."""
        touched: dict[int, SegmentWriter] = {}
        stored: list[list[NewEntry]] = []
        for group in groups:
            assert group.cut is not None
            entries = []
            for partition, sequence, batch in group.cut:
                segment = self._segment(partition, batch.schema)
                touched[id(segment)] = segment
                at = segment.append(batch)
                partition_id = self._partition_ids[partition]
                entries.append(
                    NewEntry(partition_id, sequence, batch.num_rows, segment.path, at.offset, at.length, at.crc32c)
                )
            stored.append(entries)
        for segment in touched.values():
            if not segment.closed:
                segment.sync()
        for group, entries in zip(groups, stored, strict=True):
            group.entries = entries

    def follow(self, group: Group, positions: Sequence[Position]) -> None:
        """Take notice of the ledgers that a group's entries came to lie in; a new ledger gets a new segment."""
        assert group.cut is not None
        for (partition, _, _), position in zip(group.cut, positions, strict=True):
            self._ledgers[partition] = position.ledger_id

    def close(self) -> None:
        """Close all of them; the next entries go to new ones."""
        for _, segment in self._open.values():
            segment.close()
        self._open = {}

    def _segment(self, partition: int, schema: pa.Schema) -> SegmentWriter:
        key = (partition, tuple(schema.names))
        ledger_id = self._ledgers[partition]
        found = self._open.get(key)
        if found is not None:
            if found[0] == ledger_id and not found[1].broken and not found[1].closed:
                return found[1]
            found[1].close()
        elif len(self._open) >= _MAX_OPEN:
            _, oldest = self._open.pop(next(iter(self._open)))
            if not oldest.broken and not oldest.closed:
                oldest.sync()  # it may have been written to just now
            oldest.close()
        path = segment_path(self._topic_id, partition, ledger_id, self._producer_id)
        segment = SegmentWriter(self._root, path, schema)
        self._open[key] = (ledger_id, segment)
        return segment
