"""Topics of Pulsar's as an import takes them: key, value, properties and event time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.pulsar.entries import txn_bits
from txn_source.foreign.pulsar.partition import PulsarPartition
from txn_source.foreign.pulsar.pulsar_log import PulsarLog
from txn_source.importing.history import ABORTED, COMMITTED, UNDECIDED, Part, Parts, Rows, SourceTopic
from txn_source.model.bounds import Bounds
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import PositionRange, key_of
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TransactionState, TxnId
from txn_source.model.visibility import NO_TXN, IntArray
from txn_source.storage.arrays import numbers_in, truths_in
from txn_source.storage.schema import RAW_SCHEMA, stored_schema

_COLUMNS = ("key", "value", "__event_time", "__properties", "__ledger_id", "__entry_id", "__txn_id")
_UNIT_BYTES = 64 << 20
_BEYOND = (1 << 63) - 1
_LEAST_BITS = 47


def pulsar_topics(log: PulsarLog, names: Sequence[str]) -> list[SourceTopic]:
    """Return topics; a transaction's id is the same on all of their partitions."""
    found = []
    for name in names:
        full = str(TopicName.parse(name))
        of_topic = [partition for partition in log.partitions() if partition.topic == full]
        partitions = [log.partition(partition) for partition in of_topic or [PartitionName(full, -1)]]
        found.append(SourceTopic(name, f"pulsar:{full}", [PulsarSource(partition) for partition in partitions]))
    return found


class PulsarSource:
    """A partition of Pulsar's, or a topic without partitions."""

    def __init__(self, partition: PulsarPartition) -> None:
        self.index = max(partition.name.partition, 0)
        self._partition = partition
        partition.schema = None  # what is imported are bytes, whatever the source's options say

    def bounds(self) -> Bounds:
        return self._partition.bounds()

    def parts(self, of: PositionRange) -> Parts:
        rows: list[Part] = []
        for txn in self._partition.outcomes().all():
            if txn.first < 0 or txn.first >= of.end.key:
                continue
            marker = max(txn.marker, txn.last + 1)
            state = COMMITTED
            if txn.state is TransactionState.ABORTED:
                state = ABORTED
            elif txn.state is TransactionState.OPEN:
                marker = _BEYOND
                state = COMMITTED if txn.first < txn.open_from else UNDECIDED
            rows.append((txn.txn, txn.first, marker, max(txn.last, txn.first), state, txn_bits(txn.txn)))
        return Parts.of(rows)

    def rows(self, of: PositionRange) -> Iterator[Rows]:
        decisions = self._partition.decisions(of)
        for unit in self._partition.units(of, _UNIT_BYTES):
            for batch in self._partition.read(unit, IsolationLevel.READ_UNCOMMITTED, decisions, _COLUMNS):
                key, value, time, properties, ledger, entry, txn = batch.columns
                columns = [key, value]
                has_time = time.null_count < len(time)
                has_properties = len(properties.keys) > 0
                columns += [time] * has_time + [properties] * has_properties
                schema = stored_schema(RAW_SCHEMA, event_time=has_time, properties=has_properties)
                keys = key_of(numbers_in(ledger).astype(np.int64), numbers_in(entry).astype(np.int64))
                yield Rows(pa.RecordBatch.from_arrays(columns, schema=schema), keys, _numbers(txn))


def _numbers(txns: pa.Array) -> IntArray:
    """Return the numbers of transactions by their ids."""
    names = np.full(len(txns), NO_TXN, np.int64)
    if txns.null_count < len(txns):
        coded = txns.dictionary_encode()
        ids = [TxnId.parse(text) for text in coded.dictionary.to_pylist()]
        numbers = np.array([txn.most_sig_bits << _LEAST_BITS | txn.least_sig_bits for txn in ids], np.int64)
        there = truths_in(txns.is_valid())
        names[there] = numbers[numbers_in(coded.indices.filter(txns.is_valid()))]
    return names
