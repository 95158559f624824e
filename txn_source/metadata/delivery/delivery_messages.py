"""The message that delivers a batch: references, and what its reader would ask the service for first."""

from __future__ import annotations

from typing import Any

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.delivery.next_entries import EntryBatch
from txn_source.metadata.delivery.topic_snapshot import TopicSnapshot
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol import convert_subscriptions as sub_wire
from txn_source.metadata.store.deliveries import UNSURE
from txn_source.metadata.store.subscription_rows import Subscription
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import PositionRange


class DeliveryMessages:
    """Makes the messages of one look at a topic; those who get the same entries share what takes long."""

    def __init__(self, snapshot: TopicSnapshot) -> None:
        self._snapshot = snapshot
        self._answered: dict[tuple[int, PositionRange, IsolationLevel], pb.ConsumeResponse.Delivery] = {}
        self._made: dict[tuple[Any, ...], pb.ConsumeResponse] = {}

    def of(self, subscription: Subscription, batch: EntryBatch) -> pb.ConsumeResponse:
        """Return the message that delivers a batch in the subscription's epoch. Others get the same one: it is read."""
        level, numbers = subscription.isolation_level, (subscription.epoch, batch.messages, batch.redeliveries)
        key = (batch.partition_id, batch.range, batch.wanted, level, numbers, batch.entries is None)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = pb.ConsumeResponse(delivery=self._delivery(subscription, batch))
        return made

    def _delivery(self, subscription: Subscription, batch: EntryBatch) -> pb.ConsumeResponse.Delivery:
        delivery = pb.ConsumeResponse.Delivery(
            epoch=subscription.epoch,
            partition_id=batch.partition_id,
            start=batch.range.start.key,
            end=batch.range.end.key,
            wanted=[sub_wire.range_to_wire(r) for r in batch.wanted],
            messages=batch.messages,
            decisions=self._snapshot.decisions,
            redeliveries=abs(batch.redeliveries),
            unsure=batch.redeliveries == UNSURE,
        )
        if batch.entries is not None:
            delivery.MergeFrom(self._answers(subscription.isolation_level, batch))
        return delivery

    def _answers(self, level: IsolationLevel, batch: EntryBatch) -> pb.ConsumeResponse.Delivery:
        """Return the part that has the answers: copies, entries, aborted transactions."""
        key = (batch.partition_id, batch.range, level)
        if key not in self._answered:
            entries, aborted = batch.entries, batch.aborted
            assert entries is not None
            assert aborted is not None
            names = self._snapshot.names_in(batch.partition_id, entries)
            if level is not IsolationLevel.READ_COMMITTED:
                aborted = aborted.slice(0, 0)
            self._answered[key] = pb.ConsumeResponse.Delivery(
                copies=self._snapshot.copies_of(batch.partition_id, batch.range),
                entries=pb.ListEntriesResponse(
                    entries=convert.table_to_wire(entries),
                    next_start=batch.range.end.key,
                    segments=names.segments,
                    producers=names.producers,
                    segment_roots=names.roots,
                ),
                aborted=pb.ListDecisionsResponse(transactions=convert.table_to_wire(aborted)),
            )
        return self._answered[key]
