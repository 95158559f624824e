"""A batch read as one call: ``txn_source.spark.read``."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from txn_source.client.reading.columns import METADATA_COLUMNS
from txn_source.model.errors import SchemaMismatchError


def read(
    spark: SparkSession,
    topic: str | Sequence[str],
    path: str | PathLike[str] | None = None,
    endpoint: str | None = None,
    isolation_level: str | None = None,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """Return a frame of the format ``txnlog`` with these options. Spark reads when the frame is used.

    Args:
        spark: the session, classic or Connect.
        topic: a topic's name, or several.
        path: the root of an embedded log.
        endpoint: instead, ``host:port`` of a service.
        isolation_level: ``read_committed`` (default) or ``read_uncommitted``.
        columns: those that are wanted, payload or metadata, in that order; None: as ``metadataColumns`` says.
        **options: further options of the source.

    Raises:
        SchemaMismatchError: no column is asked for.
    """
    named: dict[str, Any] = {
        "topic" if isinstance(topic, str) else "topics": topic if isinstance(topic, str) else ",".join(topic),
        "path": None if path is None else fspath(path),
        "endpoint": endpoint,
        "isolationLevel": isolation_level,
    }
    if columns is not None:
        if not columns:
            raise SchemaMismatchError("No column is asked for.", "Name one at least, such as __entry_id.")
        named["metadataColumns"] = ",".join(name for name in columns if name in METADATA_COLUMNS) or "none"
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (named | options).items()
        if value is not None
    }
    frame = spark.read.format("txnlog").options(**given).load()
    return frame if columns is None else frame.select([f"`{name.replace('`', '``')}`" for name in columns])
