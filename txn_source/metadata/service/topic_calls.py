"""The service's calls about the log and its topics."""

from __future__ import annotations

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import copies, log, new_partitions, policies, topics
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.database import note_change
from txn_source.model.topic_name import TopicName, parse_namespace
from txn_source.storage.schema import checked_schema


class TopicCalls:
    """Calls about the log and its topics; ``storage_uri`` is where the log's segments lie."""

    def __init__(self, work: UnitOfWork, storage_uri: str) -> None:
        self._work = work
        self._storage_uri = storage_uri

    def GetLog(self, request: pb.GetLogRequest) -> pb.GetLogResponse:
        with self._work.read_history() as connection:
            info = log.read_info(connection)
        return pb.GetLogResponse(log_id=info.log_id, format_version=info.format_version, storage_uri=self._storage_uri)

    def CreateTopic(self, request: pb.CreateTopicRequest) -> pb.CreateTopicResponse:
        name = TopicName.parse(request.name)
        limits = convert.limits_from_wire(request.policies)
        schema = checked_schema(request.schema) if request.HasField("schema") else None

        def create(connection: Connection) -> pb.CreateTopicResponse:
            topic = topics.create(connection, name, request.partitions, schema, limits, self._work.now_ms())
            policies.set_for_new_topic(connection, topic.topic_id, dict(request.layered_policies))
            return pb.CreateTopicResponse(topic=convert.topic_to_wire(topic))

        return self._work.once(request, pb.CreateTopicResponse, create)

    def UpdateTopic(self, request: pb.UpdateTopicRequest) -> pb.UpdateTopicResponse:
        name = TopicName.parse(request.name)

        def update(connection: Connection) -> pb.UpdateTopicResponse:
            topic = topics.find(connection, name)
            added = new_partitions.add_partitions(connection, topic, request.partitions, self._work.now_ms())
            return pb.UpdateTopicResponse(added=added)

        return self._work.once(request, pb.UpdateTopicResponse, update)

    def ListTopics(self, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
        namespace = parse_namespace(request.namespace) if request.HasField("namespace") else None
        with self._work.read_history() as connection:
            return pb.ListTopicsResponse(names=topics.names(connection, namespace))

    def DeleteTopic(self, request: pb.DeleteTopicRequest) -> pb.DeleteTopicResponse:
        name = TopicName.parse(request.name)

        def delete_topic(connection: Connection) -> pb.DeleteTopicResponse:
            topic_id = topics.find(connection, name).topic_id
            copies.doom_tiered_of_topic(connection, topic_id, self._work.now_ms())
            policies.remove_topic(connection, topic_id)
            topics.remove(connection, topic_id)
            note_change(connection, topic_id)
            return pb.DeleteTopicResponse(topic_id=topic_id)

        return self._work.once(request, pb.DeleteTopicResponse, delete_topic)

    def RollLedger(self, request: pb.RollLedgerRequest) -> pb.RollLedgerResponse:
        name = TopicName.parse(request.name)
        index = request.partition if request.HasField("partition") else None

        def roll(connection: Connection) -> pb.RollLedgerResponse:
            closed = topics.roll(connection, name, index, self._work.now_us())
            return pb.RollLedgerResponse(closed_ledger_ids=closed)

        return self._work.once(request, pb.RollLedgerResponse, roll)
