"""The client's rim of the service's calls about hot roots, and about what lies in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol import convert
from txn_source.metadata.protocol.enums import FILE_DOOM, FILE_VERDICT
from txn_source.metadata.stub.ranges import incomplete
from txn_source.metadata.stub.request_ids import request_id
from txn_source.metadata.stub.transport import Transport
from txn_source.model.roots import HotRoot
from txn_source.model.topic_name import TopicName
from txn_source.model.verdict import Doom, Verdict

_CHANGES_AT_ONCE = 1000
_JUDGED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class HotSegment:
    """A segment with registered entries.

    ``roots`` is the set of the roots that have all of them, ``wanted`` of those that are to. ``end`` is where the last
    one ends, in bytes, exclusive.
    """

    path: str
    roots: int
    wanted: int
    end: int
    entries: int


@dataclass(frozen=True, slots=True)
class SegmentRoots:
    """What was found or made: sets of roots that have all of a segment's entries below ``end``, or lack some."""

    path: str
    added: int
    removed: int
    end: int


@dataclass(slots=True)
class KnownLog:
    """What ``get_log`` has found; stubs that answer for one another share it."""

    log_id: str | None = None
    roots: tuple[HotRoot, ...] = ()


class RootStub:
    """Part of ``MetadataStub``."""

    _transport: Transport
    _known: KnownLog

    @property
    def roots(self) -> tuple[HotRoot, ...]:
        """Hot roots beside the log's own one, as ``get_log`` has found them."""
        return self._known.roots

    def add_root(self, name: str, uri: str) -> HotRoot:
        """Add a root; one of this name and place that is there is returned."""
        request = pb.AddRootRequest(request_id=request_id(), name=name, uri=uri)
        return convert.root_from_wire(self._transport.call("AddRoot", request).root)

    def remove_root(self, name: str) -> None:
        """Remove a root that no policy names and that has nothing alone."""
        self._transport.call("RemoveRoot", pb.RemoveRootRequest(request_id=request_id(), name=name))

    def judge_files(self, uris: Sequence[str], doom: Doom | None = None, *, settled: bool = False) -> list[Verdict]:
        """Return what the log knows of files, by their names, and doom those of them that are to go.

        ``settled``: what the log lost when it was put back was looked at.
        """
        found: list[Verdict] = []
        for start in range(0, max(1, len(uris)), _JUDGED_AT_ONCE):
            some = uris[start : start + _JUDGED_AT_ONCE]
            which = FILE_DOOM.to_wire(doom)
            request = pb.JudgeFilesRequest(uris=some, doom=which, settled=settled)
            found += map(FILE_VERDICT.given, self._transport.call("JudgeFiles", request).verdicts)
        if len(found) != len(uris):
            raise incomplete(f"{len(found)} verdicts of {len(uris)} files")
        return found

    def recovered_at_s(self) -> float | None:
        """Return when the log was put back to an earlier moment (since the epoch), if that isn't settled; else None."""
        answer = self._transport.call("JudgeFiles", pb.JudgeFilesRequest())
        return answer.recovered_at_ms / 1000 if answer.HasField("recovered_at_ms") else None

    def list_hot_segments(self, topic: TopicName) -> Iterator[HotSegment]:
        """Yield the segments of a topic that have entries."""
        after, more = 0, True
        while more:
            request = pb.ListHotSegmentsRequest(topic=str(topic), after_segment_id=after)
            answer = self._transport.call("ListHotSegments", request)
            for s in answer.segments:
                after = s.segment_id
                if s.end:
                    yield HotSegment(s.path, s.roots, answer.wanted, s.end, s.entries)
            more = answer.has_more and bool(answer.segments)

    def list_segment_entries(self, topic: TopicName, path: str) -> pa.Table:
        """Return position, offset, length and crc32c of a segment's entries, by offset."""
        answer = self._transport.call("ListSegmentEntries", pb.ListSegmentEntriesRequest(topic=str(topic), path=path))
        return convert.table_from_wire(answer.entries)

    def change_segment_roots(self, topic: TopicName, changes: Sequence[SegmentRoots]) -> None:
        """Say which roots have segments, and which have lost them."""
        for start in range(0, len(changes), _CHANGES_AT_ONCE):
            request = pb.ChangeSegmentRootsRequest(topic=str(topic))
            for one in changes[start : start + _CHANGES_AT_ONCE]:
                request.changes.add(path=one.path, added=one.added, removed=one.removed, end=one.end)
            self._transport.call("ChangeSegmentRoots", request)
