"""What the format ``txnlog`` asks with the jar: schemas and tasks of whatever log the options name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.types import StructType

from txn_source.client.target import Target
from txn_source.spark.catalog.lanes import lanes
from txn_source.spark.catalog.read_calls import no_objects, unpickled
from txn_source.spark.catalog.real_time import RealTimeCalls
from txn_source.spark.connection import open_log
from txn_source.spark.source import TxnLogDataSource
from txn_source.spark.tasks import TaskPartition


class FormatCalls:
    """The calls by their names; the Python source says what ``options`` mean."""

    def __init__(self) -> None:
        self.by_name: Mapping[str, Callable[..., Any]] = {
            "formatSchema": self.schema,
            "formatPlan": self.plan,
            "lanes": self.lanes,
            **RealTimeCalls().by_name,
        }

    def schema(self, options: Mapping[str, str]) -> str:
        """Return the columns, as Spark's JSON."""
        return str(TxnLogDataSource(CaseInsensitiveDict(options)).schema().json())

    def plan(self, options: Mapping[str, str], schema: str, objects: bool) -> dict[str, Any]:
        """Return the tasks of a batch read as ``lanes`` does; see ``ReadCalls.plan``."""
        reader = TxnLogDataSource(CaseInsensitiveDict(options)).reader(StructType.fromJson(json.loads(schema)))
        return _lanes(options, reader.partitions(), objects)

    def lanes(self, options: Mapping[str, str], tasks: Sequence[str], objects: bool) -> dict[str, Any]:
        """Return the tasks of a stream's batch as ``lanes`` does; ``tasks`` are pickled, in base64."""
        return _lanes(options, unpickled(tasks), objects)


def _lanes(options: Mapping[str, str], tasks: Sequence[InputPartition], objects: bool) -> dict[str, Any]:
    first, access = tasks[0] if tasks else None, None
    if isinstance(first, TaskPartition) and isinstance(first.target, Target):
        access = open_log(first.target)
    return lanes(tasks, access, no_objects(dict(options), objects))
