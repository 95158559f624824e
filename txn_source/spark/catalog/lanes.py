"""The tasks of a plan as Java takes them: runs of entries that it reads itself, and parts that Python reads.

Each task is a list of steps in the order of its rows. A step has a pickled ``ReadTask``. With ``entries`` Java reads
these, and has Python go on with that task, from the entry where it fails.
"""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from txn_source.client.access import Access
from txn_source.client.reading.direct import ENTRIES_MAX, EntryRun, divide
from txn_source.client.reading.own_log import OwnLog
from txn_source.spark.connection import is_others
from txn_source.spark.tasks import TaskPartition

Step = dict[str, Any]


def lanes(tasks: Sequence[InputPartition], access: Access | None = None) -> dict[str, Any]:
    """Return the tasks of one plan as lists of steps.

    ``stored`` in the answer are the columns that Java takes from files, as an Arrow schema; ``why`` counts the parts
    that are left to Python, by reason. Without ``access``, of others' logs, all are.
    """
    first = tasks[0] if tasks else None
    if access is None or not isinstance(first, TaskPartition) or is_others(first.target):
        return _by_python(tasks, {})
    unlike = _unlike(first)
    if unlike is not None:
        return _by_python(tasks, {unlike: len(tasks)})
    reader = OwnLog(access).read(first.columns, first.request, first.decisions)
    made: list[list[Step]] = []
    why: Counter[str] = Counter()
    entries_left = ENTRIES_MAX
    for task in tasks:
        assert isinstance(task, TaskPartition)
        steps = []
        for part in divide(reader, task.parts, entries_left):
            step = _step(replace(task, parts=[part.piece]))
            if isinstance(part, EntryRun):
                entries_left -= len(part.entries)
                step |= {
                    "topic": part.piece.topic,
                    "partition": part.piece.partition,
                    "files": [str(path) for path in part.files],
                    "texts": part.texts,
                    "entries": _text(part.entries.tobytes()),
                }
            else:
                why[part.why] += 1
            steps.append(step)
        made.append(steps)
    return {"stored": _text(first.columns.serialize()), "tasks": made, "why": dict(why)}


def _by_python(tasks: Sequence[InputPartition], why: dict[str, int]) -> dict[str, Any]:
    return {"stored": "", "tasks": [[_step(task)] for task in tasks], "why": why}


def _step(task: InputPartition) -> Step:
    return {"python": _text(pickle.dumps(task))}


def _text(data: bytes | pa.Buffer) -> str:
    return b64encode(data).decode()


def _unlike(task: TaskPartition) -> str | None:
    """Return why Java can't have the columns of a task as files have them; None if it can."""
    if task.request.limit is not None:
        return "a limit"
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
