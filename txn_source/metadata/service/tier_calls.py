"""The service's calls about tiers and policies: copies, offloads, deletion, trimming."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message
from sqlalchemy import Connection, Row, select

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.store import copies, policies, topics, views
from txn_source.metadata.store.tables import partitions
from txn_source.metadata.store.tables import topics as topic_table
from txn_source.metadata.store.trimming import TrimLimits, trim
from txn_source.model.copies import Tier
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.policies import EffectivePolicy, Scope
from txn_source.model.position import Position, PositionRange
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName, parse_namespace
from txn_source.storage.object_names import is_object_of

R = TypeVar("R", bound=Message)
T = TypeVar("T")


class _Host(Protocol):
    """What these calls need of the service that they are part of."""

    _configuration: Mapping[str, Any]

    def _read(self) -> AbstractContextManager[Connection]: ...
    def _write(self, action: Callable[[Connection], T]) -> T: ...
    def _once(self, request: Any, response: type[R], action: Callable[[Connection], R]) -> R: ...
    def _now_ms(self) -> int: ...


class TierCalls:
    """Part of ``MetadataService``."""

    def ListCopies(self: _Host, request: pb.ListCopiesRequest) -> pb.ListCopiesResponse:
        of = PositionRange(Position.from_key(request.start), Position.from_key(request.end))
        with self._read() as connection:
            topic = _topic_of(connection, request.partition_id)
            if topic is None:
                return pb.ListCopiesResponse()
            found = copies.listing(connection, request.partition_id, of)
            in_force = _in_force(connection, topic, self._configuration)
        return pb.ListCopiesResponse(
            ledgers=[convert.copies_to_wire(c) for c in found],
            data_read_priority=str(in_force["data_read_priority"].value),
        )

    def ListOffloadable(self: _Host, request: pb.ListOffloadableRequest) -> pb.ListOffloadableResponse:
        response = pb.ListOffloadableResponse(now_ms=self._now_ms())
        with self._read() as connection:
            for view in _partitions(connection, request.topic):
                for ledger in copies.offloadable(connection, view, view.bounds.last_stable):
                    response.ledgers.append(convert.offloadable_to_wire(ledger))
        return response

    def BeginOffload(self: _Host, request: pb.BeginOffloadRequest) -> pb.BeginOffloadResponse:
        def begin(connection: Connection) -> pb.BeginOffloadResponse:
            topic = _topic_of(connection, request.partition_id)
            view = None
            if topic is not None:
                of_topic = views.partition_views(connection, [topic.topic_id])[topic.topic_id]
                [view] = [p for p in of_topic if p.partition_id == request.partition_id]

            def is_its_own(uri: str) -> bool:
                assert view is not None
                folder = _in_force(connection, topic, self._configuration)["offload_uri"].value
                return is_object_of(uri, folder, TopicName.parse(topic.name), view.index, request.ledger_id)

            copy_id = copies.begin(connection, view, request.ledger_id, request.uri, is_its_own, self._now_ms())
            return pb.BeginOffloadResponse(copy_id=copy_id)

        return self._once(request, pb.BeginOffloadResponse, begin)

    def CompleteOffload(self: _Host, request: pb.CompleteOffloadRequest) -> pb.CompleteOffloadResponse:
        copy = convert.tiered_from_wire(request.copy)
        accepted = self._write(lambda connection: copies.complete(connection, request.copy_id, copy, self._now_ms()))
        return pb.CompleteOffloadResponse(accepted=accepted)

    def AbandonOffload(self: _Host, request: pb.AbandonOffloadRequest) -> pb.AbandonOffloadResponse:
        self._write(lambda connection: copies.abandon(connection, request.copy_id, self._now_ms()))
        return pb.AbandonOffloadResponse()

    def DeleteCopies(self: _Host, request: pb.DeleteCopiesRequest) -> pb.DeleteCopiesResponse:
        if request.tier not in [tier.value for tier in Tier]:
            raise InvalidArgumentError(f"{request.tier!r} is not a tier.", f"Use {' or '.join(Tier)}.")

        def delete(connection: Connection) -> pb.DeleteCopiesResponse:
            now_ms = self._now_ms()
            found = _partitions(connection, request.topic)
            ledger_ids, count = list(request.ledger_ids), 0
            for partition in found:
                if request.tier == Tier.TIERED:
                    count += copies.delete_tiered(connection, partition.partition_id, ledger_ids, now_ms)
                else:
                    count += copies.delete_hot(connection, partition.partition_id, ledger_ids, now_ms)
                    copies.purge(connection, partition.partition_id, now_ms)
            return pb.DeleteCopiesResponse(ledgers=count)

        return self._once(request, pb.DeleteCopiesResponse, delete)

    def TrimTopic(self: _Host, request: pb.TrimTopicRequest) -> pb.TrimTopicResponse:
        def trim_topic(connection: Connection) -> pb.TrimTopicResponse:
            now_ms = self._now_ms()
            older_than_ms = request.older_than_ms if request.HasField("older_than_ms") else None
            keep_bytes = request.keep_bytes if request.HasField("keep_bytes") else None
            if request.apply_retention:
                topic = topics.find(connection, TopicName.parse(request.topic))
                in_force = _in_force(connection, topic, self._configuration)
                age, keep_bytes = (in_force[name].value for name in ("retention_age", "retention_bytes"))
                older_than_ms = None if age is None else int(age * 1000)
            closed_before_ms = None if older_than_ms is None else now_ms - older_than_ms
            response = pb.TrimTopicResponse()
            for view in _partitions(connection, request.topic):
                before = Position.from_key(request.before[view.index]) if view.index in request.before else None
                done = trim(connection, view, TrimLimits(before, closed_before_ms, keep_bytes), now_ms)
                response.partitions.add(
                    partition=done.partition,
                    ledgers=done.ledgers,
                    messages=done.messages,
                    bytes=done.bytes,
                    log_start=done.log_start.key,
                    held_by=done.held_by,
                )
            return response

        return self._once(request, pb.TrimTopicResponse, trim_topic)

    def ListDoomedFiles(self: _Host, request: pb.ListDoomedFilesRequest) -> pb.ListDoomedFilesResponse:
        def doomed(connection: Connection) -> Sequence[Row[Any]]:
            copies.doom_forgotten(connection, self._now_ms())
            return copies.doomed(connection)

        rows = self._write(doomed)
        response = pb.ListDoomedFilesResponse()
        for row in rows:
            response.files.add(doomed_id=row.doomed_id, uri=row.uri)
        return response

    def ForgetDoomedFiles(self: _Host, request: pb.ForgetDoomedFilesRequest) -> pb.ForgetDoomedFilesResponse:
        self._write(lambda connection: copies.forget(connection, list(request.doomed_ids), self._now_ms()))
        return pb.ForgetDoomedFilesResponse()

    def ChangePolicies(self: _Host, request: pb.ChangePoliciesRequest) -> pb.ChangePoliciesResponse:
        scope = _scope(request.scope)

        def change(connection: Connection) -> pb.ChangePoliciesResponse:
            policies.change(connection, scope, dict(request.set), list(request.remove))
            return pb.ChangePoliciesResponse()

        return self._once(request, pb.ChangePoliciesResponse, change)

    def GetPolicies(self: _Host, request: pb.GetPoliciesRequest) -> pb.GetPoliciesResponse:
        scope = _scope(request.scope)
        response = pb.GetPoliciesResponse()
        with self._read() as connection:
            for name, value in policies.set_in(connection, scope).items():
                response.set[name] = str(value)
            if scope.topic is None:
                if scope.namespace is None:
                    for name, value in self._configuration.items():
                        if name not in response.set:
                            response.set[name] = str(value)
                return response
            topic = topics.find(connection, scope.topic)
            in_force = _in_force(connection, topic, self._configuration)
        for name, policy in in_force.items():
            value = None if policy.value is None else str(policy.value)
            response.effective.add(name=name, value=value, source=policy.source)
        return response


def _partitions(connection: Connection, topic: str) -> list[PartitionView]:
    topic_id = topics.find(connection, TopicName.parse(topic)).topic_id
    return views.partition_views(connection, [topic_id])[topic_id]


def _topic_of(connection: Connection, partition_id: int) -> Any:
    return connection.execute(
        select(topic_table)
        .join(partitions, partitions.c.topic_id == topic_table.c.topic_id)
        .where(partitions.c.partition_id == partition_id)
    ).first()


def _in_force(connection: Connection, topic: Any, configured: Mapping[str, Any]) -> dict[str, EffectivePolicy]:
    return policies.in_force(connection, TopicName.parse(topic.name), topic.topic_id, configured)


def _scope(message: pb.PolicyScope) -> Scope:
    if message.HasField("topic") and message.HasField("namespace"):
        raise InvalidArgumentError("Both a topic and a namespace are named.", "Name one, or neither for the broker.")
    return Scope(
        TopicName.parse(message.topic) if message.HasField("topic") else None,
        parse_namespace(message.namespace) if message.HasField("namespace") else None,
    )
