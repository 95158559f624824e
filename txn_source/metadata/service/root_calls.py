"""The service's calls about hot roots and the copies of segments in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import root_changes, roots, topics
from txn_source.metadata.store.connection import Connection
from txn_source.metadata.store.pages import to_table
from txn_source.metadata.store.root_changes import PAGE_SEGMENTS, RootChange
from txn_source.model.topic_name import TopicName
from txn_source.storage.object_root import root_at

_COLUMNS = ("position", "offset", "length", "crc32c")


class RootCalls:
    """Calls about roots; ``configuration`` are the broker's policies. Of the roots themselves nothing is looked at."""

    def __init__(self, work: UnitOfWork, configuration: Mapping[str, Any]) -> None:
        self._work = work
        self._configuration = configuration

    def AddRoot(self, request: pb.AddRootRequest) -> pb.AddRootResponse:
        root_at(request.uri)  # no URI has a secret in it

        def add(connection: Connection) -> pb.AddRootResponse:
            root = root_changes.add(connection, request.name, request.uri)
            return pb.AddRootResponse(root=convert.root_to_wire(root))

        return self._work.once(request, pb.AddRootResponse, add)

    def RemoveRoot(self, request: pb.RemoveRootRequest) -> pb.RemoveRootResponse:
        def remove(connection: Connection) -> pb.RemoveRootResponse:
            root_changes.remove(connection, request.name, self._configuration)
            return pb.RemoveRootResponse()

        return self._work.once(request, pb.RemoveRootResponse, remove)

    def ListHotSegments(self, request: pb.ListHotSegmentsRequest) -> pb.ListHotSegmentsResponse:
        with self._work.read_history() as connection:
            topic = topics.find(connection, TopicName.parse(request.topic))
            there = roots.all_roots(connection)
            wanted = roots.copies_of(connection, topic.name, topic.topic_id, self._configuration, there)
            found = root_changes.segment_page(connection, topic.topic_id, request.after_segment_id)
        return pb.ListHotSegmentsResponse(
            segments=[
                pb.HotSegment(segment_id=s.segment_id, path=s.path, roots=s.roots, end=s.end, entries=s.entries)
                for s in found[:PAGE_SEGMENTS]
            ],
            has_more=len(found) > PAGE_SEGMENTS,
            wanted=wanted.roots,
        )

    def ListSegmentEntries(self, request: pb.ListSegmentEntriesRequest) -> pb.ListSegmentEntriesResponse:
        with self._work.read_history() as connection:
            topic = topics.find(connection, TopicName.parse(request.topic))
            found = root_changes.segment_entries(connection, topic.topic_id, request.path)
        return pb.ListSegmentEntriesResponse(entries=convert.table_to_wire(to_table(found, _COLUMNS)))

    def ChangeSegmentRoots(self, request: pb.ChangeSegmentRootsRequest) -> pb.ChangeSegmentRootsResponse:
        changes = [RootChange(one.path, one.added, one.removed, one.end) for one in request.changes]

        def change(connection: Connection) -> pb.ChangeSegmentRootsResponse:
            topic = topics.find(connection, TopicName.parse(request.topic))
            root_changes.change(connection, topic.topic_id, changes)
            return pb.ChangeSegmentRootsResponse()

        return self._work.write(change)
