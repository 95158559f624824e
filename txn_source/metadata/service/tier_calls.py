"""The service's calls about tiers: copies, offloads, deletion, trimming."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol.enums import TIER
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import copy_changes, policies, topic_changes, topics, views
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.trimming import trim
from txn_source.model.copies import Tier
from txn_source.model.position import Position
from txn_source.model.retention import CopyPolicies, TrimLimits
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName
from txn_source.storage.object_names import is_object_of


class TierCalls:
    """Calls about the copies of ledgers; ``configuration`` are the broker's policies."""

    def __init__(self, work: UnitOfWork, configuration: Mapping[str, Any]) -> None:
        self._work = work
        self._configuration = configuration

    def ListOffloadable(self, request: pb.ListOffloadableRequest) -> pb.ListOffloadableResponse:
        now_us = self._work.now_us()
        response = pb.ListOffloadableResponse(now_ms=now_us // 1000)
        with self._work.read() as connection:
            topic_id = topics.find(connection, TopicName.parse(request.topic)).topic_id
            is_idle = bool(topic_changes.idle(connection, topic_id, now_us // 1000))
        if is_idle:
            self._work.write(lambda connection: topic_changes.close_idle(connection, topic_id, now_us))
        with self._work.read() as connection:
            for view in _partitions(connection, request.topic):
                for ledger in copy_changes.offloadable(connection, view, view.bounds.last_stable):
                    response.ledgers.append(convert.offloadable_to_wire(ledger))
        return response

    def BeginOffload(self, request: pb.BeginOffloadRequest) -> pb.BeginOffloadResponse:
        def begin(connection: Connection) -> pb.BeginOffloadResponse:
            topic = topics.of_partition(connection, request.partition_id)
            view = None
            if topic is not None:
                of_topic = views.partition_views(connection, [topic.topic_id])[topic.topic_id]
                [view] = [p for p in of_topic if p.partition_id == request.partition_id]

            def is_its_own(uri: str) -> bool:
                assert topic is not None
                assert view is not None
                in_force = policies.in_force(connection, topic.name, topic.topic_id, self._configuration)
                return is_object_of(uri, in_force["offload_uri"].value, topic.name, view.index, request.ledger_id)

            copy_id = copy_changes.begin(
                connection, view, request.ledger_id, request.uri, is_its_own, self._work.now_ms()
            )
            return pb.BeginOffloadResponse(copy_id=copy_id)

        return self._work.once(request, pb.BeginOffloadResponse, begin)

    def CompleteOffload(self, request: pb.CompleteOffloadRequest) -> pb.CompleteOffloadResponse:
        copy = convert.tiered_from_wire(request.copy)
        accepted = self._work.write(
            lambda connection: copy_changes.complete(connection, request.copy_id, copy, self._work.now_ms())
        )
        return pb.CompleteOffloadResponse(accepted=accepted)

    def AbandonOffload(self, request: pb.AbandonOffloadRequest) -> pb.AbandonOffloadResponse:
        self._work.write(lambda connection: copy_changes.abandon(connection, request.copy_id, self._work.now_ms()))
        return pb.AbandonOffloadResponse()

    def DeleteCopies(self, request: pb.DeleteCopiesRequest) -> pb.DeleteCopiesResponse:
        tier = TIER.given(request.tier)

        def delete(connection: Connection) -> pb.DeleteCopiesResponse:
            now_ms = self._work.now_ms()
            found = _partitions(connection, request.topic)
            ledger_ids, count = list(request.ledger_ids), 0
            for partition in found:
                if tier is Tier.TIERED:
                    count += copy_changes.delete_tiered(connection, partition.partition_id, ledger_ids, now_ms)
                else:
                    count += copy_changes.delete_hot(connection, partition.partition_id, ledger_ids, now_ms)
                    copy_changes.purge(connection, partition.partition_id, now_ms)
            return pb.DeleteCopiesResponse(ledgers=count)

        return self._work.once(request, pb.DeleteCopiesResponse, delete)

    def TrimTopic(self, request: pb.TrimTopicRequest) -> pb.TrimTopicResponse:
        def trim_topic(connection: Connection) -> pb.TrimTopicResponse:
            now_ms = self._work.now_ms()
            topic = topics.find(connection, TopicName.parse(request.topic))
            if request.apply_retention:
                in_force = policies.in_force(connection, topic.name, topic.topic_id, self._configuration)
                limits = CopyPolicies.of(in_force).trim_limits(now_ms)
            else:
                closed_before_ms = now_ms - request.older_than_ms if request.HasField("older_than_ms") else None
                keep_bytes = request.keep_bytes if request.HasField("keep_bytes") else None
                limits = TrimLimits(None, closed_before_ms, keep_bytes)
            topic_changes.close_idle(connection, topic.topic_id, self._work.now_us(), limits.closed_before_ms)
            response = pb.TrimTopicResponse()
            for view in _partitions(connection, request.topic):
                before = Position.from_key(request.before[view.index]) if view.index in request.before else None
                done = trim(connection, view, replace(limits, before=before), now_ms)
                response.partitions.add(
                    partition=done.partition,
                    ledgers=done.ledgers,
                    messages=done.messages,
                    bytes=done.bytes,
                    log_start=done.log_start.key,
                    held_by=done.held_by,
                )
            return response

        return self._work.once(request, pb.TrimTopicResponse, trim_topic)

    def ListDoomedFiles(self, request: pb.ListDoomedFilesRequest) -> pb.ListDoomedFilesResponse:
        def doomed(connection: Connection) -> list[tuple[int, str]]:
            copy_changes.doom_forgotten(connection, self._work.now_ms())
            return copy_changes.doomed(connection)

        response = pb.ListDoomedFilesResponse()
        for doomed_id, uri in self._work.write(doomed):
            response.files.add(doomed_id=doomed_id, uri=uri)
        return response

    def ForgetDoomedFiles(self, request: pb.ForgetDoomedFilesRequest) -> pb.ForgetDoomedFilesResponse:
        self._work.write(
            lambda connection: copy_changes.forget(connection, list(request.doomed_ids), self._work.now_ms())
        )
        return pb.ForgetDoomedFilesResponse()


def _partitions(connection: Connection, topic: str) -> list[PartitionView]:
    topic_id = topics.find(connection, TopicName.parse(topic)).topic_id
    return views.partition_views(connection, [topic_id])[topic_id]
