"""Real time: tasks follow partitions until Spark ends the batch, between any two rows.

1. ``real_time``, on the driver, divides the partitions of a query among tasks.
2. ``follow``, on an executor, waits for messages and reads them.
3. ``real_time_end``, on the driver, makes an offset of the tasks' places.
"""

from __future__ import annotations

import functools
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from txn_source.client.reading.columns import METADATA_COLUMNS
from txn_source.client.reading.own_log import DESCRIPTION
from txn_source.client.reading.source import Source
from txn_source.client.streaming.own_guard import own_stream
from txn_source.metadata.stub.credentials import Credentials
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.position import MessageId
from txn_source.model.topic_name import TopicName
from txn_source.reading.limits import StreamLimits
from txn_source.reading.places import Name
from txn_source.reading.request import Selection
from txn_source.reading.stream import Stream
from txn_source.reading.stream_offset import StreamOffset, position_of
from txn_source.spark.connection import identity_of, open_log
from txn_source.spark.options import StreamReadOptions
from txn_source.spark.reads import names_foreign, options_given
from txn_source.spark.schema import to_spark
from txn_source.spark.tasks import TaskPartition, tasks_of

_PLACE = ("__topic", "__partition", "__ledger_id", "__entry_id", "__batch_index")
_PUBLISHED = "__publish_time"
_ANSWER_BYTES = 8 << 20
"""A larger answer ends behind the entry that reaches this size."""
_FEW_ENTRIES = 8
"""An answer of so many entries (inclusive) isn't limited."""
_LOOK_S = 0.002
"""Seconds between two looks. Without messages the pause grows to ``_IDLE_S``."""
_IDLE_S = 0.02


def real_time(options: Mapping[str, str], schema: str, start: str, tasks: int) -> dict[str, Any]:
    """Return the tasks of a batch: where each begins, and the options and columns of all of them.

    There are as many tasks as ``minPartitions`` says, or ``tasks``, but at most one for each partition. ``schema`` has
    the columns that Spark wants, as JSON; the answer adds the columns of a row's place. ``published`` is the index of
    the column with the time of publishing. ``kept`` is for ``real_time_end``.

    Raises:
        InvalidArgumentError: the query asks for what real time doesn't have.
    """
    columns = StructType.fromJson(json.loads(schema))
    given = options_given(options, columns, stream=True)
    if names_foreign(given):
        raise InvalidArgumentError(
            "The query reads a log that others wrote in real time.", "Use a trigger of micro-batches."
        )
    wanted = StreamReadOptions.parse(given)
    _check(wanted)
    selection = replace(wanted.selection, columns=columns.names)
    stream = own_stream(open_log(wanted.target), selection, wanted.request, wanted.limits)
    begin, others = stream.followed(_offset(start))
    names = sorted(begin.positions)
    wanted_names = [name.lower() for name in columns.names]
    for field in to_spark(pa.schema([METADATA_COLUMNS[name] for name in (*_PLACE, _PUBLISHED)])).fields:
        if field.name not in wanted_names:
            columns.add(field)
    most = min(wanted.request.min_partitions or tasks, len(names))
    parts = [names[number::most] for number in range(most)]
    return {
        "options": _for_executors(given, wanted.target.credentials),
        "schema": columns.json(),
        "published": [name.lower() for name in columns.names].index(_PUBLISHED),
        "tasks": [_text(begin.only(part)) for part in parts],
        "kept": _text(others),
    }


def real_time_end(kept: str, places: Sequence[Mapping[str, Any]]) -> str:
    """Return the offset at which a batch ends.

    Args:
        kept: the offset of partitions that no task follows, from ``real_time``.
        places: of each task ``begin``, its start; ``at``, the offset up to which it has handed out all rows; and
            ``done``, the number of rows that it has handed out of its last answer's ``rows``.
    """
    whole = _offset(kept)
    for place in places:
        begin, at = _offset(place["begin"]), _offset(place["at"])
        reached = _reached(b64decode(place["rows"]), place["done"]) if place["done"] else {}
        whole = replace(
            at,
            decisions=max(whole.decisions, at.decisions),
            positions={**whole.positions, **at.positions, **{n: m.position for n, m in reached.items()}},
            begins={**whole.begins, **begin.begins},
            inside={**whole.inside, **at.inside, **reached},
        )
    return _text(whole)


def follow(options: Mapping[str, str], schema: str, at: str, wait_ms: int) -> dict[str, Any] | None:
    """Return the next rows behind a task's place ``at``, and the place behind the rows; None if none came in time.

    ``rows`` is an Arrow stream in base64, empty if the isolation level shows none of the new messages.
    """
    start, until, pause = _offset(at), time.monotonic() + wait_ms / 1000, _LOOK_S
    given = json.dumps(options, sort_keys=True)
    target = _wanted(given).target
    stream, columns = _stream(given, schema, tuple(sorted(start.positions)), identity_of(target))
    while (step := _step(stream, start))[0] is start:
        left = until - time.monotonic()
        if left <= 0:
            return None
        time.sleep(min(pause, left))
        pause = min(pause * 1.25, _IDLE_S)
    batches: list[pa.RecordBatch] = []
    for task in tasks_of(stream.plan(start, *step), target, columns):
        assert isinstance(task, TaskPartition)
        batches += task.rows()
    return {"at": _text(step[0]), "rows": b64encode(_stream_of(batches)).decode()}


def _step(stream: Stream[Source], start: StreamOffset) -> tuple[StreamOffset, Source]:
    """Return the end of the next answer. Only a large answer is limited, since counting its bytes costs two calls."""
    end, look = stream.step(start, limited=False)
    entries = 0
    for name, until in end.positions.items():
        at = start.next(name)
        begin = until if at is None else position_of(at)
        entries += until.entry_id - begin.entry_id if until.ledger_id == begin.ledger_id else _FEW_ENTRIES + 1
    return (end, look) if end is start or entries <= _FEW_ENTRIES else stream.step(start, limited=True)


@functools.lru_cache(256)
def _wanted(options: str) -> StreamReadOptions:
    return StreamReadOptions.parse(json.loads(options))


@functools.lru_cache(256)
def _stream(
    options: str, schema: str, names: tuple[Name, ...], identity: tuple[int, ...]
) -> tuple[Stream[Source], StructType]:
    columns, wanted = StructType.fromJson(json.loads(schema)), _wanted(options)
    selection = Selection(partitions=names, columns=columns.names)
    limits = StreamLimits(max_bytes=_ANSWER_BYTES)
    return own_stream(open_log(wanted.target), selection, wanted.request, limits), columns


def _reached(rows: bytes, done: int) -> dict[Name, MessageId]:
    """Return, for each partition, the place behind its last row among the first ``done`` rows."""
    table = pa.ipc.open_stream(rows).read_all().slice(0, done)
    table = table.rename_columns([name.lower() for name in table.column_names])
    places = zip(*(table[name].to_pylist() for name in _PLACE), strict=True)
    return {(TopicName.parse(t), p): MessageId(ledger, entry, index + 1) for t, p, ledger, entry, index in places}


def _stream_of(batches: Sequence[pa.RecordBatch]) -> pa.Buffer | bytes:
    if not batches:
        return b""
    rows = pa.BufferOutputStream()
    with pa.ipc.new_stream(rows, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return rows.getvalue()


def _check(wanted: StreamReadOptions) -> None:
    if wanted.request.cuts:
        raise InvalidArgumentError(
            "In real time each partition is read as far as it can be, without a cut over all of them, so read_committed"
            " can show a part of a transaction before another part.",
            'Accept it with .option("consistentCut", "false"), or use a trigger of micro-batches.',
        )
    if wanted.subscription is not None:
        raise InvalidArgumentError(
            f"The query follows subscription {wanted.subscription!r}, and real time has no subscriptions.",
            "Leave it out, or use a trigger of micro-batches.",
        )
    if wanted.limits.limited or wanted.limits.patient:
        raise InvalidArgumentError(
            "The query limits its batches, and in real time a batch has all that comes while it lasts.",
            "Leave out the limits, or use a trigger of micro-batches.",
        )


def _for_executors(options: Mapping[str, str], credentials: Credentials) -> dict[str, str]:
    """Return options with what the driver's environment adds to them: an executor's may have none of it."""
    names = {"tlsCa": "tls_ca", "tlsCert": "tls_cert", "tlsKey": "tls_key", "tokenFile": "token_file"}
    found = {option: getattr(credentials, name) for option, name in names.items()}
    given = {option.lower() for option in options}
    return {**options, **{o: v for o, v in found.items() if v is not None and o.lower() not in given}}


def _offset(text: str) -> StreamOffset:
    return DESCRIPTION.offsets.from_json(json.loads(text))


def _text(offset: StreamOffset) -> str:
    return json.dumps(DESCRIPTION.offsets.to_json(offset))
