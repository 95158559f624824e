"""The tasks of a plan as Java takes them: runs of entries that it reads itself, and slices that Python reads.

A task has a pickled ``ReadTask`` and steps, in the order of its rows. A step names parts of the pickled task. With
``entries`` Java reads these, and has Python go on with the part, from the entry where Java fails.
"""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from txn_source.client.access import Access
from txn_source.client.reading.columns import STORED_AS
from txn_source.client.reading.direct import EntryRun, Part, divide
from txn_source.client.reading.direct_objects import Left, ObjectRun
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.target import Target
from txn_source.model.packing import Slice, joined
from txn_source.spark.catalog.parquet import PARQUET_OPTIONS, unreadable
from txn_source.spark.connection import is_others, open_log
from txn_source.spark.options import native_reads_wanted
from txn_source.spark.tasks import TaskPartition


def lanes(
    tasks: Sequence[InputPartition], access: Access | None = None, no_objects: str | None = None
) -> dict[str, Any]:
    """Return the tasks of one plan.

    ``stored`` in the answer are the columns that Java takes from segments, as an Arrow schema; ``why`` counts the
    slices that are left to Python, by reason. Without ``access``, of others' logs, all are. ``no_objects`` is the
    reason why Spark's Parquet reader takes none; None: it does, with the options ``parquet``.
    """
    first = tasks[0] if tasks else None
    if access is None or not isinstance(first, TaskPartition) or is_others(first.target):
        return _by_python(tasks, {})
    if first.request.limit is not None:
        return _by_python(tasks, {"a limit": len(tasks)})
    reader = OwnLog(access).read(first.columns, first.request, first.decisions)
    ours = [task for task in tasks if isinstance(task, TaskPartition)]
    no_objects = no_objects or unreadable(pa.schema([field for field in first.columns if field.name != "__topic"]))
    divided = divide(reader, [task.parts for task in ours], _unlike(first), no_objects)
    why = Counter(part.why for parts in divided for part in parts if isinstance(part, Left))
    made = [_task(task, parts) for task, parts in zip(ours, divided, strict=True)]
    return {
        "stored": _text(first.columns.serialize()),
        "tasks": made,
        "why": dict(why),
        "parquet": PARQUET_OPTIONS,
        "renamed": STORED_AS,
    }


def lanes_of(options: Mapping[str, str], tasks: Sequence[InputPartition], objects: bool) -> dict[str, Any]:
    """Return the tasks of a plan as ``lanes`` does; the tasks name their log.

    ``objects``: True if Spark's Parquet reader returns columns in this session.
    """
    first, access = tasks[0] if tasks else None, None
    if isinstance(first, TaskPartition) and isinstance(first.target, Target):
        access = open_log(first.target)
    return lanes(tasks, access, why_no_objects(dict(options), objects))


def why_no_objects(given: dict[str, str], columnar: bool) -> str | None:
    """Return the reason why Spark's Parquet reader takes no objects, or None; remove its option from ``given``."""
    if not native_reads_wanted(given):
        return "nativeTieredReads=false"
    return None if columnar else "Parquet in rows, as the session wants"


def _task(task: TaskPartition, parts: Sequence[Part]) -> dict[str, Any]:
    """Return a task; the rows of each partition keep their order.

    A step of Python's costs about as much as a task, so one reads slices of many partitions. Parts get a round: a run
    that follows a slice on its partition begins the next one. In a round the runs come first, then one step of slices.
    """
    if all(isinstance(part, Left) for part in parts):
        return _whole(task)
    rounds: defaultdict[int, tuple[list[EntryRun | ObjectRun], list[Slice]]] = defaultdict(lambda: ([], []))
    at: Counter[int] = Counter()
    after_slice: set[int] = set()
    for part in parts:
        of = part.piece.partition_id
        if not isinstance(part, Left):
            at[of] += of in after_slice
            after_slice.discard(of)
            rounds[at[of]][0].append(part)
        else:
            after_slice.add(of)
            rounds[at[of]][1].append(part.piece)
    steps: list[dict[str, Any]] = []
    pieces: list[Slice] = []
    for _, (runs, slices) in sorted(rounds.items()):
        for run in runs:
            read = _entries(run) if isinstance(run, EntryRun) else _row_groups(run)
            steps.append({"first": len(pieces), "last": len(pieces) + 1, **read})
            pieces.append(run.piece)
        if slices:
            left = joined(slices)
            steps.append({"first": len(pieces), "last": len(pieces) + len(left)})
            pieces += left
    return {"python": _text(pickle.dumps(replace(task, parts=pieces))), "steps": steps}


def _entries(run: EntryRun) -> dict[str, Any]:
    return {
        "topic": run.piece.topic,
        "partition": run.piece.partition,
        "files": [str(path) for path in run.files],
        "texts": run.texts,
        "entries": _text(run.entries.tobytes()),
    }


def _row_groups(run: ObjectRun) -> dict[str, Any]:
    return {
        "topic": run.piece.topic,
        "partition": run.piece.partition,
        "object": run.path,
        "start": run.start,
        "end": run.end,
        "size": run.size,
        "rows": run.rows,
        "checks": _text(run.checks.astype("<i8").tobytes()),
    }


def _by_python(tasks: Sequence[InputPartition], why: dict[str, int]) -> dict[str, Any]:
    return {"stored": "", "tasks": [_whole(task) for task in tasks], "why": why, "parquet": {}, "renamed": {}}


def _whole(task: InputPartition) -> dict[str, Any]:
    return {"python": _text(pickle.dumps(task)), "steps": [{"first": 0, "last": -1}]}


def _text(data: bytes | pa.Buffer) -> str:
    return b64encode(data).decode()


def _unlike(task: TaskPartition) -> str | None:
    """Return the reason why Java can't use the columns of a task as segments store them, or None."""
    for stored, wanted in zip(task.columns, task.projection.target, strict=True):
        if not _alike(stored.type, wanted.type):
            return f"{stored.type} becomes {wanted.type}"
    return None


def _alike(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """True if Spark's columns over a stored type have the values of the wanted one."""
    t = pa.types
    if t.is_struct(stored) or t.is_list(stored) or t.is_map(stored):
        parts = ((stored.field(i).type, wanted.field(i).type) for i in range(stored.num_fields))
        return stored.id == wanted.id and all(_alike(mine, other) for mine, other in parts)
    large = (t.is_large_string(stored) and t.is_string(wanted)) or (t.is_large_binary(stored) and t.is_binary(wanted))
    return bool(large or stored == wanted or (t.is_timestamp(stored) and _micros(stored, wanted)))


def _micros(stored: pa.DataType, wanted: pa.DataType) -> bool:
    return bool(stored.unit == wanted.unit and (stored.tz is None) == (wanted.tz is None))
