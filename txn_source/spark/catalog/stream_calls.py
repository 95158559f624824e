"""Streams whose state this process holds for Java, by the ids that Java gives them.

If the process dies, another one continues: each call has the options, columns and places of the stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from txn_source.spark.catalog.lanes import lanes_of
from txn_source.spark.catalog.real_time import follow, real_time, real_time_end
from txn_source.spark.source import TxnLogDataSource
from txn_source.spark.stream import StreamReader

_STREAMS: dict[str, StreamReader] = {}


def _stream(id: str, options: Mapping[str, str], schema: str, frozen: bool) -> StreamReader:
    """Return a stream, made at the first call. ``schema``: columns as Spark's JSON; ``frozen``: its end is fixed."""
    found = _STREAMS.get(id)
    if found is None:
        source = TxnLogDataSource(CaseInsensitiveDict(options))
        found = _STREAMS[id] = source.streamReader(StructType.fromJson(json.loads(schema)))
        if frozen:
            found.prepareForTriggerAvailableNow()
    return found


def _initial(stream: Mapping[str, Any]) -> str:
    return json.dumps(_stream(**stream).initialOffset())


def _latest(stream: Mapping[str, Any], start: str, limited: bool) -> dict[str, str]:
    """Return the end of the next batch, and how far the log can be read."""
    reader = _stream(**stream)
    limit = reader.getDefaultReadLimit() if limited else ReadAllAvailable()
    end = reader.latestOffset(json.loads(start), limit)
    return {"end": json.dumps(end), "newest": json.dumps(reader.reportLatestOffset())}


def _freeze(stream: Mapping[str, Any]) -> None:
    _stream(**stream).prepareForTriggerAvailableNow()


def _plan(stream: Mapping[str, Any], start: str, end: str, objects: bool) -> dict[str, Any]:
    """Return the tasks of a batch as ``lanes`` does."""
    tasks = _stream(**stream).partitions(json.loads(start), json.loads(end))
    return lanes_of(stream["options"], tasks, objects)


def _behind(stream: Mapping[str, Any], at: str) -> dict[str, Any]:
    return _stream(**stream).behind(json.loads(at))


def _commit(stream: Mapping[str, Any], end: str) -> None:
    _stream(**stream).commit(json.loads(end))


def _stop(stream: Mapping[str, Any]) -> None:
    found = _STREAMS.pop(stream["id"], None)
    if found is not None:
        found.stop()


STREAM_CALLS: Mapping[str, Callable[..., Any]] = {
    "streamInitial": _initial,
    "streamLatest": _latest,
    "streamFreeze": _freeze,
    "streamPlan": _plan,
    "streamBehind": _behind,
    "streamCommit": _commit,
    "streamStop": _stop,
    "realTime": real_time,
    "realTimeEnd": real_time_end,
    "follow": follow,
}
"""The calls by their names."""
