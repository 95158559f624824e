"""What became of a job's files, noted behind their last entries, or apart from them: for ``txnlog rebuild``.

A task knows neither the producer nor the transaction that its entries will be of. The job's driver is told when all of
it is committed, and notes it. Nothing depends on that while there is a database, so what fails is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txn_source.client.access import Access
from txn_source.client.hot_roots import places_of
from txn_source.client.writing.apart import apart_in
from txn_source.client.writing.copied_segments import append_to_all
from txn_source.model.kinds import COMMITTED
from txn_source.model.spark_commit import CONTENT_MASK, PlacedBatch, Sink, TopicBatch
from txn_source.model.transaction import TxnId
from txn_source.storage.batch_notes import BatchPart, note_batch


def note_committed(
    access: Access, sink: Sink, batches: Sequence[TopicBatch], txn: TxnId, placed: Sequence[PlacedBatch]
) -> None:
    """Note where the entries of a job came to lie, and which batch of whom that was."""
    by_topic = {batch.topic_id: batch for batch in batches}
    messages = sum(entry.messages for batch in batches for entry in batch.entries)
    content = sum(batch.content for batch in batches) & CONTENT_MASK
    parts = []
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
        told: dict[str, Sequence[Any]] = {}
        if sink.query_id is not None:
            told["q"] = sink.query_id, sink.batch_id, messages, content, sink.run_id or "", sequence
        if sink.app is not None:
            mine = sum(entry.messages for entry in batch.entries)
            told["a"] = sink.app.app_id, sink.app.version, mine, batch.content
        ends = ((txn.least_sig_bits, COMMITTED),)
        parts.append(BatchPart(of.topic_id, of.producer_id, by, rows, ends, told))
    places = places_of(access)
    note_batch(parts, lambda path, note: append_to_all(places, path, note), apart_in(access))
