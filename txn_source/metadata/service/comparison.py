"""Comparing two databases of one log by what services over them say: what may be seen, at both isolation levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.enums import ISOLATION_LEVEL
from txn_source.metadata.service.service import MetadataService
from txn_source.model.errors import DataLossError
from txn_source.model.isolation import IsolationLevel

_TOLD_EVERY = 1000


@dataclass(frozen=True, slots=True)
class Scanned:
    """What was found, the same on both sides."""

    topics: int
    partitions: int
    messages: dict[IsolationLevel, int]
    """That are visible at each level."""


def compare(sides: Iterable[MetadataService], progress: Callable[[int], object]) -> Scanned:
    """Scan all topics on both sides: bounds, ledgers, entries, decisions, and how many messages each level sees.

    ``progress`` is told from time to time how many topics were scanned.

    Raises:
        DataLossError: they differ.
    """
    one, other = sides
    names = list(_same(one, other, "ListTopics", pb.ListTopicsRequest()).names)
    messages, partitions = dict.fromkeys(IsolationLevel, 0), 0
    for done, name in enumerate(names):
        if done and done % _TOLD_EVERY == 0:
            progress(done)
        view = _same(one, other, "GetView", pb.GetViewRequest(topics=[name]))
        for partition in view.topics[0].partitions:
            partitions += 1
            of = {"partition_id": partition.partition_id, "start": partition.log_start, "end": partition.high_watermark}
            _same_pages(one, other, "ListLedgers", pb.ListLedgersRequest(**of))
            _same_pages(one, other, "ListEntries", pb.ListEntriesRequest(**of))
            _same_pages(one, other, "ListDecisions", pb.ListDecisionsRequest(**of, decisions=view.decisions))
            for level in IsolationLevel:
                point = pb.MessagePoint(partition_id=partition.partition_id, position=partition.log_start)
                request = pb.CountMessagesRequest(isolation_level=ISOLATION_LEVEL.to_wire(level), points=[point])
                messages[level] += _same(one, other, "CountMessages", request).messages
    return Scanned(len(names), partitions, messages)


def _same_pages(one: MetadataService, other: MetadataService, name: str, request: Any) -> None:
    while request.start < request.end:
        answer = _same(one, other, name, request)
        if not answer.has_more:
            return
        request.start = answer.next_start


def _same(one: MetadataService, other: MetadataService, name: str, request: Message) -> Any:
    answers: Iterator[Message] = (service.call(name, request) for service in (one, other))
    first, second = answers
    if first != second:
        raise DataLossError(
            f"The copy differs: {name} is answered otherwise for {' '.join(str(request).split())}.",
            "Nothing was changed. Please report it.",
        )
    return first
