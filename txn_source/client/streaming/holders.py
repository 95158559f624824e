"""Telling who holds a read_committed stream back: open transactions, each once, in the log of the process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from txn_source.client.reading.source import ReadPartition
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TransactionState, TxnId

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 10.0


class Holders:
    """Looks for open transactions, every few seconds at most, and remembers which ones it has told."""

    def __init__(self, stub: MetadataStub, clock: Callable[[], float]) -> None:
        self._stub = stub
        self._clock = clock
        self._told: set[TxnId] = set()
        self._told_at_s = -_LOOK_EVERY_S

    def tell(self, partitions: Sequence[ReadPartition]) -> None:
        """Log once for each open transaction that it keeps a read_committed reader of the partitions from going on."""
        bounds = {(p.topic, p.view.index): p.view.bounds for p in partitions}
        held = {place for place, b in bounds.items() if b.last_stable < b.high_watermark}
        now_s = self._clock()
        if not held or now_s - self._told_at_s < _LOOK_EVERY_S:
            return
        self._told_at_s = now_s
        for topic in sorted({topic for topic, _ in held}):
            for txn in self._stub.list_transactions(TransactionState.OPEN, topic):
                here = [p for p in txn.partitions if (TopicName.parse(p.topic), p.partition) in held]
                if here and txn.id not in self._told:
                    self._told.add(txn.id)
                    _log.warning(
                        "the stream waits for transaction %s, open for %.0f s, which holds back %d messages (%d bytes)"
                        " of %s; `txnlog transactions abort` ends it by force",
                        txn.id,
                        txn.age,
                        sum(p.held_back_messages for p in here),
                        sum(p.held_back_bytes for p in here),
                        ", ".join(f"{TopicName.parse(p.topic).short}-partition-{p.partition}" for p in here[:8]),
                    )
