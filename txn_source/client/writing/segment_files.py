"""The segments that a writer has open: one for each partition and set of columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from txn_source.client.writing.partitions import Partitions
from txn_source.client.writing.uploads import Safe, Upload
from txn_source.model.entry import NewEntry
from txn_source.model.roots import ONE_COPY
from txn_source.storage.segment import SegmentWriter, segment_path

_Key = tuple[int, tuple[str, ...]]


class SegmentFiles:
    """Appends entries to the segments of one topic, opening and closing them as needed.

    1. ``append`` writes an entry, to a new segment where the partition has come to another ledger, or where an error
       left the open one broken or closed: that is never written to again.
    2. ``start`` makes safe what was appended since the last time. An entry may be registered after that, not before.

    What was appended before an error is not vouched for: it is to be appended once more.
    """

    copies = ONE_COPY
    linger_s = 0.0

    def __init__(
        self,
        root: Path,
        topic_id: int,
        partitions: Partitions,
        producer_id: int,
        max_open: int,
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Prepare to write below a folder; no file is made yet. ``open_files`` has the others."""
        self._root = root
        self._topic_id = topic_id
        self._partitions = partitions
        self._producer_id = producer_id
        self._max_open = max_open
        self._note = note
        self._open: dict[_Key, tuple[int, SegmentWriter]] = {}
        """With each segment the ledger that it was opened for."""
        self._unsynced: dict[SegmentWriter, None] = {}

    def append(self, partition: int, base_sequence: int, batch: pa.RecordBatch) -> NewEntry:
        """Write a batch as one entry, which is safe only after ``start``.

        Raises:
            StorageWriteError: the file can't be made or written.
        """
        segment = self._segment(partition, batch.schema)
        self._unsynced[segment] = None
        partition_id = self._partitions.ids[partition]
        at = segment.append(batch)
        return NewEntry(partition_id, base_sequence, batch.num_rows, segment.path, at.offset, at.length, at.crc32c)

    def start(self) -> Upload:
        """Return when all that was appended since the last time would survive a power cut: nothing is to be waited for.

        A broken segment is left out: whoever wrote to it was not told of an entry.
        """
        for segment in list(self._unsynced):
            if not segment.broken and not segment.closed:
                segment.sync()
            del self._unsynced[segment]
        return Safe()

    def close(self) -> None:
        """Close all of them; the next entries go to new ones."""
        for _, segment in self._open.values():
            segment.close()
        self._open = {}
        self._unsynced = {}

    def _segment(self, partition: int, schema: pa.Schema) -> SegmentWriter:
        """Return the segment for a partition's next entry."""
        key = (partition, tuple(schema.names))
        ledger_id = self._partitions.ledgers[partition]
        found = self._open.get(key)
        if found is not None:
            opened_for, segment = found
            if opened_for == ledger_id and not segment.broken and not segment.closed:
                return segment
            segment.close()
        elif len(self._open) >= self._max_open:
            self._make_room()
        path = segment_path(self._topic_id, partition, ledger_id, self._producer_id)
        self._note(path)
        segment = SegmentWriter(self._root, path, schema)
        self._open[key] = (ledger_id, segment)
        return segment

    def _make_room(self) -> None:
        _, oldest = self._open.pop(next(iter(self._open)))
        try:
            if not oldest.broken and not oldest.closed:
                oldest.sync()  # it may have been written to just now
        finally:
            oldest.close()
