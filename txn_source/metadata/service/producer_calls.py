"""The service's calls of those who write, but for those that register a producer's entries (``write_calls.py``)."""

from __future__ import annotations

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol.enums import FILE_DOOM, FILE_VERDICT
from txn_source.metadata.service.callers import caller
from txn_source.metadata.service.unit_of_work import UnitOfWork
from txn_source.metadata.store import pages, producers, segments, spark_commits, topics, verdicts, views
from txn_source.metadata.store.connection import Connection
from txn_source.model.spark_commit import AppVersion, Sink
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import id_of
from txn_source.model.verdict import Verdict


class ProducerCalls:
    """Calls that register what was written, and those about the files that it was written to."""

    def __init__(self, work: UnitOfWork) -> None:
        self._work = work

    def OpenProducer(self, request: pb.OpenProducerRequest) -> pb.OpenProducerResponse:
        name, of = TopicName.parse(request.topic), caller()

        def open_producer(connection: Connection) -> pb.OpenProducerResponse:
            topic = topics.find(connection, name)
            opened = producers.open_producer(
                connection,
                topic.topic_id,
                request.transactional_id if request.HasField("transactional_id") else None,
                request.producer_name if request.HasField("producer_name") else None,
                self._work.now_us(),
                of,
            )
            of_topic = views.partition_views(connection, [topic.topic_id])[topic.topic_id]
            return pb.OpenProducerResponse(
                producer_id=opened.producer_id,
                epoch=opened.epoch,
                producer_name=opened.name,
                topic=convert.topic_to_wire(topic),
                partitions=[convert.partition_to_wire(p) for p in of_topic],
            )

        return self._work.once(request, pb.OpenProducerResponse, open_producer)

    def CommitBatch(self, request: pb.CommitBatchRequest) -> pb.CommitBatchResponse:
        sink = Sink(
            request.query_id if request.HasField("query_id") else None,
            request.batch_id,
            request.producer_name,
            request.transactional_id if request.HasField("transactional_id") else None,
            request.run_id if request.HasField("run_id") else None,
            AppVersion(request.app_id, request.version) if request.HasField("app_id") else None,
        )
        of = caller()
        batches = [convert.topic_batch_from_wire(topic, request.producer_name) for topic in request.topics]

        def commit(connection: Connection) -> pb.CommitBatchResponse:
            done = spark_commits.commit_batch(
                connection, sink, batches, self._work.now_us(), of, self._work.configuration
            )
            answer = pb.CommitBatchResponse(repeated_batch=done.repeated, warnings=done.warnings)
            if done.txn is not None:
                answer.txn.CopyFrom(convert.txn_to_wire(id_of(done.txn)))
            return answer

        return self._work.once(request, pb.CommitBatchResponse, commit)

    def ListSegments(self, request: pb.ListSegmentsRequest) -> pb.ListSegmentsResponse:
        with self._work.read_history() as connection:
            found = views.segment_page(connection, request.after_segment_id)
        page = found[: pages.PAGE_ROWS]
        return pb.ListSegmentsResponse(
            paths=[path for _, path in page],
            last_segment_id=page[-1][0] if page else request.after_segment_id,
            has_more=len(found) > len(page),
        )

    def CondemnSegments(self, request: pb.CondemnSegmentsRequest) -> pb.CondemnSegmentsResponse:
        return pb.CondemnSegmentsResponse()

    def JudgeFiles(self, request: pb.JudgeFilesRequest) -> pb.JudgeFilesResponse:
        uris, which = list(request.uris), FILE_DOOM.from_wire(request.doom)

        def judge(connection: Connection) -> tuple[list[Verdict], int | None]:
            if request.settled:
                verdicts.settle(connection)
            found = verdicts.doom(connection, uris, which, self._work.now_ms())
            return found, segments.recovered_at_ms(connection)

        if which is None and not request.settled:
            with self._work.read_history() as connection:
                found, recovered_at_ms = verdicts.judge(connection, uris), segments.recovered_at_ms(connection)
        else:
            found, recovered_at_ms = self._work.write(judge)
        told = [FILE_VERDICT.to_wire(each) for each in found]
        return pb.JudgeFilesResponse(verdicts=told, recovered_at_ms=recovered_at_ms)

    def CloseProducer(self, request: pb.CloseProducerRequest) -> pb.CloseProducerResponse:
        self._work.write(lambda connection: producers.close(connection, request.producer_id, request.epoch))
        return pb.CloseProducerResponse()
