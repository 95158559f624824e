"""The service's calls of those who read: what may be seen, and where it lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol.enums import ISOLATION_LEVEL, READ_PRIORITY
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import copies, counts, cuts, log_identity, pages, policies, roots, topics, views
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.position import Position, PositionRange
from txn_source.model.topic_name import TopicName, parse_namespace


class ReadCalls:
    """Calls about topics, bounds, positions, ledgers and their copies, entries and decided transactions.

    ``storage_uri`` is where the log's segments lie, and ``configuration`` are the broker's policies.
    """

    def __init__(self, work: UnitOfWork, storage_uri: str, configuration: Mapping[str, Any]) -> None:
        self._work = work
        self._storage_uri = storage_uri
        self._configuration = configuration

    def GetLog(self, request: pb.GetLogRequest) -> pb.GetLogResponse:
        with self._work.read_history() as connection:
            info = log_identity.read_info(connection)
            there = roots.all_roots(connection)
        return pb.GetLogResponse(
            log_id=info.log_id,
            format_version=info.format_version,
            storage_uri=self._storage_uri,
            roots=[convert.root_to_wire(root) for root in there],
        )

    def ListTopics(self, request: pb.ListTopicsRequest) -> pb.ListTopicsResponse:
        namespace = parse_namespace(request.namespace) if request.HasField("namespace") else None
        with self._work.read_history() as connection:
            return pb.ListTopicsResponse(names=topics.names(connection, namespace))

    def GetView(self, request: pb.GetViewRequest) -> pb.GetViewResponse:
        with self._work.read() as connection:
            names = [TopicName.parse(name) for name in request.topics]
            found = topics.find_all(connection, names)
            by_topic = views.partition_views(connection, [topic.topic_id for topic in found])
            return pb.GetViewResponse(
                topics=[
                    pb.TopicView(
                        topic=convert.topic_to_wire(topic),
                        partitions=[convert.partition_to_wire(p) for p in by_topic[topic.topic_id]],
                    )
                    for topic in found
                ],
                decisions=views.decisions(connection),
                now_ms=self._work.now_ms(),
            )

    def FindCut(self, request: pb.FindCutRequest) -> pb.FindCutResponse:
        bounds, starts = dict(request.bounds), dict(request.starts)
        if starts and starts.keys() != bounds.keys():
            raise InvalidArgumentError("Starts and bounds are not of the same partitions.", "Give both for each.")
        with self._work.read_history() as connection:
            if request.upward:
                found = cuts.raise_to_cut(connection, starts, bounds)
            else:
                found = cuts.lower_to_cut(connection, bounds, starts or None)
        return pb.FindCutResponse(bounds=found)

    def FindPosition(self, request: pb.FindPositionRequest) -> pb.FindPositionResponse:
        response = pb.FindPositionResponse()
        with self._work.read() as connection:
            views.check_there(connection, request.partition_ids)
            response.decisions = views.decisions_at(connection, request.publish_time_us // 1000)
            for partition_id in request.partition_ids:
                found = views.find_position(connection, partition_id, request.publish_time_us)
                position, ledger_only = (None, False) if found is None else (found[0].key, found[1])
                response.found.add(partition_id=partition_id, position=position, ledger_only=ledger_only)
        return response

    def ListLedgers(self, request: pb.ListLedgersRequest) -> pb.ListLedgersResponse:
        with self._work.read_history() as connection:
            page = views.ledger_page(connection, request.partition_id, _range(request), times=request.times)
        return pb.ListLedgersResponse(
            ledgers=convert.table_to_wire(page.table),
            has_more=page.next_start is not None,
            next_start=page.next_start or 0,
        )

    def ListLedgersOfRanges(self, request: pb.ListLedgersOfRangesRequest) -> pb.ListLedgersOfRangesResponse:
        with self._work.read_history() as connection:
            table, counts = views.ledgers_of_ranges(
                connection, [(of.partition_id, _range(of)) for of in request.ranges], times=request.times
            )
        return pb.ListLedgersOfRangesResponse(ledgers=convert.table_to_wire(table), counts=counts)

    def SplitRange(self, request: pb.SplitRangeRequest) -> pb.SplitRangeResponse:
        with self._work.read_history() as connection:
            found = views.split(connection, request.partition_id, _range(request), max(1, request.target_bytes))
        return pb.SplitRangeResponse(
            cuts=found.cuts,
            piece_bytes=found.sizes,
            first_times_us=found.first_times_us,
            last_times_us=found.last_times_us,
        )

    def CountRange(self, request: pb.CountRangeRequest) -> pb.CountRangeResponse:
        level = ISOLATION_LEVEL.given(request.isolation_level)
        with self._work.read_history() as connection:
            found = counts.count(connection, request.partition_id, _range(request), level)
        if found is None:
            return pb.CountRangeResponse(lost=True)
        return pb.CountRangeResponse(messages=found.messages, ledger_ids=found.ledger_ids)

    def ListCopies(self, request: pb.ListCopiesRequest) -> pb.ListCopiesResponse:
        of = PositionRange(Position.from_key(request.start), Position.from_key(request.end))
        with self._work.read() as connection:
            topic = topics.of_partition(connection, request.partition_id)
            if topic is None:
                return pb.ListCopiesResponse()
            found = copies.listing(connection, request.partition_id, of)
            in_force = policies.in_force(connection, topic.name, topic.topic_id, self._configuration)
        return pb.ListCopiesResponse(
            ledgers=[convert.copies_to_wire(c) for c in found],
            data_read_priority=READ_PRIORITY.to_wire(in_force["data_read_priority"].value),
        )

    def ListEntries(self, request: pb.ListEntriesRequest) -> pb.ListEntriesResponse:
        of = _range(request)
        with self._work.read_history() as connection:
            hot_until = copies.hot_until(connection, request.partition_id, of)
            if hot_until is None:
                return pb.ListEntriesResponse(next_start=request.start, not_hot=True)
            page = pages.entry_page(connection, request.partition_id, PositionRange(of.start, hot_until))
            names = pages.names_in(connection, page)
        not_hot = page.next_start is None and hot_until < of.end
        return pb.ListEntriesResponse(
            entries=convert.table_to_wire(page.table),
            has_more=page.next_start is not None,
            next_start=page.next_start or hot_until.key,
            segments=names.segments,
            producers=names.producers,
            segment_roots=names.roots,
            not_hot=not_hot,
        )

    def ListDecisions(self, request: pb.ListDecisionsRequest) -> pb.ListDecisionsResponse:
        with self._work.read_history() as connection:
            page = pages.decision_page(
                connection,
                request.partition_id,
                _range(request),
                aborted_only=request.aborted_only,
                up_to=request.decisions,
            )
        return pb.ListDecisionsResponse(
            transactions=convert.table_to_wire(page.table),
            has_more=page.next_start is not None,
            next_start=page.next_start or 0,
        )


def _range(request: Any) -> PositionRange:
    return PositionRange(Position.from_key(request.start), Position.from_key(request.end))
