"""What is noted of an import's batch behind its entries (``storage/batch_notes.py``)."""

from __future__ import annotations

from txn_source.model.imported import ImportedBatch, PlacedImport, TxnRef
from txn_source.model.kinds import ABORTED, COMMITTED
from txn_source.model.transaction import TxnId
from txn_source.model.visibility import NO_TXN
from txn_source.storage.batch_notes import BatchPart


def parts_of(batch: ImportedBatch, placed: PlacedImport, number: int) -> list[BatchPart]:
    """Return a part for each topic; ``number`` counts the batches of the import's run.

    A service of an older release doesn't tell positions; then nothing is noted.
    """
    if len(placed.positions) != sum(len(of.entries) for of in batch.writes):
        return []

    def number_of(txn: TxnRef | None) -> int:
        if txn is None:
            return NO_TXN
        return txn.least_sig_bits if isinstance(txn, TxnId) else placed.begun[txn]

    rows: list[dict[str, list[tuple[int, ...]]]] = [{} for _ in batch.topics]
    at = 0
    for of, time_us in zip(batch.writes, placed.publish_times_us, strict=True):
        txn = number_of(of.txn)
        for entry in of.entries:
            row = (entry.partition_id, entry.offset, entry.length, entry.crc32c, entry.base_sequence, entry.messages)
            mine = rows[of.topic].setdefault(entry.segment, [])
            mine.append((*row, placed.positions[at].key, time_us, txn))
            at += 1
    ends = tuple((number_of(txn), COMMITTED if committed else ABORTED) for txn, committed in batch.ends)
    return [
        BatchPart(
            topic.topic_id,
            topic.producer.producer_id,
            {"name": topic.producer.name, "epoch": topic.producer.epoch},
            of_topic,
            ends,
            {"i": (number, topic.progress)},
        )
        for topic, of_topic in zip(batch.topics, rows, strict=True)
    ]
