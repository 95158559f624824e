"""The calls of the format ``txnlog`` in the jar: schemas, batches and streams of the log that the options name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from txn_source.spark.catalog.lanes import lanes_of
from txn_source.spark.catalog.stream_calls import STREAM_CALLS
from txn_source.spark.source import TxnLogDataSource


def _schema(options: Mapping[str, str]) -> str:
    """Return the columns, as Spark's JSON."""
    return str(TxnLogDataSource(CaseInsensitiveDict(options)).schema().json())


def _plan(options: Mapping[str, str], schema: str, objects: bool) -> dict[str, Any]:
    """Return the tasks of a batch read as ``lanes`` does; see ``ReadCalls.plan``."""
    reader = TxnLogDataSource(CaseInsensitiveDict(options)).reader(StructType.fromJson(json.loads(schema)))
    return lanes_of(options, reader.partitions(), objects)


FORMAT_CALLS: Mapping[str, Callable[..., Any]] = {"formatSchema": _schema, "formatPlan": _plan, **STREAM_CALLS}
"""The calls by their names; the Python source parses ``options``."""
