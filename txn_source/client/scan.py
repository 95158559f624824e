"""Reading what a log has now, as batches; what ``Log.scan`` does."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.places import parse_side
from txn_source.client.reading.columns import read_schema, select_columns
from txn_source.client.reading.count import count
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.reading.source import resolve
from txn_source.model.copies import CopiesRead
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import GivenLevel, IsolationLevel
from txn_source.model.moments import moment_us
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.read_priority import GivenPriority, ReadPriority
from txn_source.reading.places import Cut
from txn_source.reading.plan import plan
from txn_source.reading.ranges import cuts_of
from txn_source.reading.request import ReadRequest, Selection, check_as_of

_COPIES_READ: weakref.WeakKeyDictionary[pa.RecordBatchReader, CopiesRead] = weakref.WeakKeyDictionary()


def scan(
    access: Access,
    topic: str | Sequence[str],
    isolation_level: GivenLevel,
    columns: Sequence[str] | None,
    start: Any,
    end: Any,
    read_priority: GivenPriority | None,
    consistent_cut: bool,
    as_of: Any,
) -> pa.RecordBatchReader:
    """Plan a read of what is there now, and return what reads it; ``Log.scan`` has the arguments' meaning."""
    source = resolve(access.metadata, Selection.of(topic, columns))
    if columns is None:
        schema = read_schema(source.payload, "default", several_topics=not isinstance(topic, str))
    else:
        schema = select_columns(source.payload, columns)
    request = _request(isolation_level, start, end, consistent_cut, as_of)
    if read_priority is not None:
        request = replace(request, read_priority=ReadPriority.parse(read_priority))
    log = OwnLog(access)
    planned = plan(log, source, request)
    reader = log.read(schema, planned.request, planned.decisions)
    batches = pa.RecordBatchReader.from_batches(schema, reader.read(planned.parts))
    _COPIES_READ[batches] = reader.copies_read
    return batches


def cut(access: Access, topics: str | Sequence[str], isolation_level: GivenLevel) -> Cut:
    """Return up to where topics could be read now; ``Log.cut`` has the arguments' meaning."""
    level = IsolationLevel.parse(isolation_level)
    return cuts_of(OwnLog(access), Selection.of(topics, ()), [level])[level]


def copies_read(scanned: pa.RecordBatchReader) -> CopiesRead:
    """Return which copies a ``scan`` has read so far."""
    found = _COPIES_READ.get(scanned) if isinstance(scanned, pa.RecordBatchReader) else None
    if found is None:
        raise InvalidArgumentError("That is not what scan() returned.", "Give the reader that came from scan().")
    return found


def count_messages(
    access: Access,
    topic: str | Sequence[str],
    isolation_level: GivenLevel,
    start: Any,
    end: Any,
    consistent_cut: bool,
    as_of: Any,
) -> int:
    """Count what a scan of what is there now would read; ``Log.count`` has the arguments' meaning."""
    source = resolve(access.metadata, Selection.of(topic, ()))
    return count(access, source, _request(isolation_level, start, end, consistent_cut, as_of))


def _request(isolation_level: GivenLevel, start: Any, end: Any, consistent_cut: bool, as_of: Any) -> ReadRequest:
    level = IsolationLevel.parse(isolation_level)
    sides = parse_side(start, EARLIEST), parse_side(end, LATEST)
    return ReadRequest(level, *sides, consistent_cut, as_of_us=_as_of(as_of, level, end))


def _as_of(value: Any, level: IsolationLevel, end: Any) -> int | None:
    if value is None:
        return None
    check_as_of(level, end is not None)
    return moment_us(value)
