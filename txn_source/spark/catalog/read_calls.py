"""What a catalog's scans ask about a log: where they end, what they would find, and how far a stream is behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.types import StructType

from txn_source.client.access import Access
from txn_source.client.log import Log
from txn_source.client.reading.count import count
from txn_source.client.reading.outlook import outlook
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import Source, resolve
from txn_source.model.isolation import IsolationLevel
from txn_source.model.topic_name import TopicName
from txn_source.reading.log_source import LogSource
from txn_source.reading.places import by_topic
from txn_source.reading.ranges import cuts_of
from txn_source.reading.request import ReadRequest, Selection
from txn_source.spark.batch import batch_tasks
from txn_source.spark.catalog.lanes import lanes, why_no_objects
from txn_source.spark.metadata_table import MetadataTableReader
from txn_source.spark.options import BatchReadOptions, MetadataTableOptions


class ReadCalls:
    """The calls by their names; ``options`` are those of the source, as Spark hands them over."""

    def __init__(self, log: Log) -> None:
        self._access: Access = log.access
        self.by_name: Mapping[str, Callable[..., Any]] = {
            "cut": self.cut,
            "outlook": self.outlook,
            "count": self.count,
            "plan": self.plan,
        }

    def cut(self, topics: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
        """Return options of the scans of a query, by isolation level: where they end, and began then, at one moment."""
        whole = {level: [str(_topic_of(name)) for name in names] for level, names in topics.items()}
        return query_cut(OwnLog(self._access), whole)

    def outlook(self, options: Mapping[str, str]) -> dict[str, Any]:
        """Return what a batch read would find now."""
        source, request = self._batch(options)
        found = outlook(self._access, source, request)
        return {
            "rows": found.messages,
            "bytes": found.bytes,
            "bounds": found.bounds_text,
            "ledgers": found.ledgers_text,
            "tasks": found.tasks,
        }

    def count(self, options: Mapping[str, str]) -> int:
        """Return how many messages a batch read has; none is read."""
        source, request = self._batch(options)
        return count(self._access, source, request)

    def plan(self, options: Mapping[str, str], schema: str, objects: bool) -> dict[str, Any]:
        """Return the tasks of a batch read as ``lanes`` does; ``schema`` is Spark's, as JSON.

        ``objects``: the session has Spark's Parquet reader return columns.
        """
        columns = StructType.fromJson(json.loads(schema))
        about_log = MetadataTableOptions.parse(options)
        if about_log is not None:
            return lanes(MetadataTableReader(about_log, columns).partitions())
        given = dict(options)
        why = why_no_objects(given, objects)
        return lanes(batch_tasks(OwnLog(self._access), BatchReadOptions.parse(given), columns), self._access, why)

    def _batch(self, options: Mapping[str, str]) -> tuple[Source, ReadRequest]:
        given = BatchReadOptions.parse(options)
        return resolve(self._access.metadata, replace(given.selection, columns=())), given.request


def query_cut(source: LogSource[Any], topics: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Return options of the scans of a query, by isolation level: where they end, and began then, at one moment."""
    selection = Selection(tuple(sorted({name for names in topics.values() for name in names})), columns=())
    cuts = cuts_of(source, selection, [IsolationLevel.parse(level) for level in topics])
    found = {level: cuts[IsolationLevel.parse(level)] for level in topics}
    return {
        level: {"endingoffsets": cut.json(), "__cutstart": json.dumps(by_topic(cut.starts, cut.shown))}
        for level, cut in found.items()
    }


def _topic_of(text: str) -> TopicName:
    """Return the whole topic of a name that may be one partition's."""
    name = TopicName.parse(text)
    part = name.split_partition()
    return name if part is None else part[0]
