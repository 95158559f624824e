"""What became of a job's files, noted behind their last entries: for ``txnlog rebuild``.

A task knows neither the producer nor the transaction that its entries will be of. The job's driver is told when all of
it is committed, and notes it. Nothing depends on that while there is a database, so what fails is left.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.model.kinds import COMMITTED
from txn_source.model.spark_commit import PlacedBatch, Sink, TopicBatch
from txn_source.model.transaction import TxnId
from txn_source.storage.entry_notes import NOTE_VERSION, append_note
from txn_source.storage.segment_store import has_own_schemas


def note_committed(
    access: Access, sink: Sink, batches: Sequence[TopicBatch], txn: TxnId, placed: Sequence[PlacedBatch]
) -> None:
    """Note where the entries of a job came to lie, in those of its files that can grow."""
    if not isinstance(access.root, Path):
        return
    by_topic = {batch.topic_id: batch for batch in batches}
    for of in placed:
        batch = by_topic[of.topic_id]
        rows: dict[str, list[tuple[int, ...]]] = {}
        sequence = of.first_sequence
        for entry, position in zip(batch.entries, of.positions, strict=True):
            row = (entry.partition_id, entry.offset, entry.length, entry.crc32c, sequence, entry.messages)
            rows.setdefault(entry.segment, []).append((*row, position.key, of.publish_time_us, txn.least_sig_bits))
            sequence += entry.messages
        by: dict[str, Any] = {"name": sink.transactional_id or sink.producer_name, "epoch": of.epoch}
        if sink.transactional_id is not None:
            by["transactional_id"] = sink.transactional_id
        note = {"v": NOTE_VERSION, "w": of.producer_id, "by": by, "e": [(txn.least_sig_bits, COMMITTED)]}
        for path, of_path in rows.items():
            if not has_own_schemas(path):
                text = json.dumps({**note, "r": {"": of_path}}, separators=(",", ":"))
                with suppress(OSError, pa.ArrowException):
                    append_note(access.root, path, text.encode())
