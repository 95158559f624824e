"""The service's calls that change topics."""

from __future__ import annotations

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import copy_changes, new_partitions, policy_changes, root_changes, topic_changes, topics
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.database import note_change
from txn_source.model.policies import OF_COPIES
from txn_source.model.topic_name import TopicName
from txn_source.storage.schema import checked_schema


class TopicCalls:
    """Calls that make, change and delete topics."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def CreateTopic(self, request: pb.CreateTopicRequest) -> pb.CreateTopicResponse:
        name = TopicName.parse(request.name)
        limits = convert.limits_from_wire(request.policies)
        schema = checked_schema(request.schema) if request.HasField("schema") else None

        def create(connection: Connection) -> pb.CreateTopicResponse:
            topic = topic_changes.create(connection, name, request.partitions, schema, limits, self._work.now_ms())
            policy_changes.set_for_new_topic(connection, topic.topic_id, dict(request.layered_policies))
            if not OF_COPIES.isdisjoint(request.layered_policies):
                root_changes.check_new_topic(connection, name, topic.topic_id, self._work.configuration)
            return pb.CreateTopicResponse(topic=convert.topic_to_wire(topic))

        return self._work.once(request, pb.CreateTopicResponse, create)

    def UpdateTopic(self, request: pb.UpdateTopicRequest) -> pb.UpdateTopicResponse:
        name = TopicName.parse(request.name)

        def update(connection: Connection) -> pb.UpdateTopicResponse:
            topic = topics.find(connection, name)
            added = new_partitions.add_partitions(connection, topic, request.partitions, self._work.now_ms())
            return pb.UpdateTopicResponse(added=added)

        return self._work.once(request, pb.UpdateTopicResponse, update)

    def DeleteTopic(self, request: pb.DeleteTopicRequest) -> pb.DeleteTopicResponse:
        name = TopicName.parse(request.name)

        def delete_topic(connection: Connection) -> pb.DeleteTopicResponse:
            topic_id = topics.find(connection, name).topic_id
            copy_changes.doom_tiered_of_topic(connection, topic_id, self._work.now_ms())
            policy_changes.remove_topic(connection, topic_id)
            topic_changes.remove(connection, topic_id, self._work.now_ms())
            note_change(connection, topic_id)
            return pb.DeleteTopicResponse(topic_id=topic_id)

        return self._work.once(request, pb.DeleteTopicResponse, delete_topic)

    def RollLedger(self, request: pb.RollLedgerRequest) -> pb.RollLedgerResponse:
        name = TopicName.parse(request.name)
        index = request.partition if request.HasField("partition") else None

        def roll(connection: Connection) -> pb.RollLedgerResponse:
            closed = topic_changes.roll(connection, name, index, self._work.now_us())
            return pb.RollLedgerResponse(closed_ledger_ids=closed)

        return self._work.once(request, pb.RollLedgerResponse, roll)
