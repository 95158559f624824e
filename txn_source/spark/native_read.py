"""A batch read of which Spark's own Parquet reader takes as much as it can: the ledgers that lie in tiered objects.

What a read gives must not depend on which reader takes a ledger. So Spark is told all that sessions may set otherwise,
and topics with columns that it would read in another way, or not at all, are left to the Python source.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from os import PathLike, fspath
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from txn_source.client.reading.columns import METADATA_COLUMNS, read_schema, select_columns
from txn_source.client.reading.native import NativeObject, NativeSplit, native_split
from txn_source.client.reading.source import resolve
from txn_source.client.tiering.object_columns import STORED_AS, object_schema
from txn_source.model.given_options import CATALOG_DEFAULTS
from txn_source.spark.connection import open_log, readable
from txn_source.spark.options import BatchReadOptions, ColumnOptions, native_reads_wanted
from txn_source.spark.schema import to_spark

_log = logging.getLogger(__name__)
_ENDS = ("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp", "asoftimestamp")
PARQUET_OPTIONS = {
    "ignoreCorruptFiles": "false",  # of a session they would leave out rows without a word
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
    "recursiveFileLookup": "true",  # folders with a = in their name are no columns
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "parquet.page.verify-checksum.enabled": "true",
}
"""How Spark is to read objects, whatever the session says."""
_WITHOUT_SKIPPING = {
    f"parquet.filter.{way}.enabled": "false" for way in ("stats", "dictionary", "columnindex", "bloom", "record-level")
}
"""Options for reads of ``misjudged`` columns: Spark's Parquet reader skips no rows, and Spark filters them itself."""
_AS_THEY_ARE = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(), pa.string(),
    pa.large_string(), pa.binary(), pa.large_binary(),
)  # fmt: skip


@readable
def read(
    spark: SparkSession,
    topic: str | Sequence[str],
    path: str | PathLike[str] | None = None,
    endpoint: str | None = None,
    isolation_level: str | None = None,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """Return what is in a topic now, or between the ends that options name, as a frame.

    Ledgers that lie wholly inside the read, and whose tiered object is to be read first, are read by Spark's Parquet
    reader, the rest by the source ``txnlog``: all of it at one cut, which is made now and not when the frame is used.
    The log of ``txn_source`` says how many ledgers are read in which way, and why. All columns may be null, as in any
    Parquet file; otherwise rows and columns are those of ``spark.read.format("txnlog")``.

    An object that is missing or damaged now is left to the source, which takes the hot copy. One that is lost after
    this call, also by trimming, makes Spark fail: read again, or with ``nativeTieredReads=False``.

    Args:
        spark: the session, classic or Connect. This process must reach the log, too.
        topic: a topic's name, or several.
        path: the root of an embedded log.
        endpoint: instead, ``host:port`` of a service.
        isolation_level: ``read_committed`` (default) or ``read_uncommitted``, which leaves to the source what has
            aborted messages.
        columns: those that are wanted, payload or metadata, in that order; None: as ``metadataColumns`` says.
        **options: of the source; ``nativeTieredReads=False`` leaves everything to it.
    """
    given = _options(topic, path, endpoint, isolation_level, options)
    wanted = native_reads_wanted(given)
    request_options = BatchReadOptions.parse(given)
    choice = ColumnOptions.parse(given)
    log = open_log(request_options.target)
    source = resolve(log.metadata, replace(request_options.selection, columns=columns))
    if columns is None:
        schema = read_schema(source.payload, choice.metadata_columns, several_topics=choice.selection.several)
    else:
        schema = select_columns(source.payload, columns)
    spark_schema = _nullable(to_spark(schema))
    why = "nativeTieredReads is false" if not wanted else unreadable(schema, source.payload)
    if why is not None:
        _log.info("the Python source reads all of %s: %s", topic, why)
        return spark.read.format("txnlog").schema(spark_schema).options(**given).load()
    split = native_split(log, source, request_options.request)
    _tell(topic, split)
    frames = [_native(spark, objects, schema, spark_schema) for objects in _by_topic(split.objects)]
    if split.rest or not frames:
        rest = {name: value for name, value in given.items() if name.lower() not in _ENDS}
        rest |= {"__ranges": split.ranges, CATALOG_DEFAULTS: ""}  # as a catalog hands over an internal option
        frames.append(spark.read.format("txnlog").schema(spark_schema).options(**rest).load())
    return reduce(DataFrame.union, frames)


def _options(
    topic: str | Sequence[str],
    path: str | PathLike[str] | None,
    endpoint: str | None,
    isolation_level: str | None,
    options: dict[str, Any],
) -> dict[str, str]:
    named: dict[str, str | None] = {
        "topic" if isinstance(topic, str) else "topics": topic if isinstance(topic, str) else ",".join(topic),
        "path": None if path is None else fspath(path),
        "endpoint": endpoint,
        "isolationLevel": isolation_level,
    }
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (named | options).items()
        if value is not None
    }


def _native(spark: SparkSession, objects: Sequence[NativeObject], columns: pa.Schema, schema: StructType) -> DataFrame:
    """Return the rows of some objects of one topic, in the columns of a schema."""
    stored = [f for f in schema.fields if f.name != "__topic"] or [_PLACE]
    in_file = StructType([StructField(STORED_AS.get(f.name, f.name), f.dataType) for f in stored])
    options = PARQUET_OPTIONS | (_WITHOUT_SKIPPING if misjudged(columns) else {})
    frame = spark.read.options(**options).schema(in_file).parquet(*(found.location for found in objects))
    return frame.select([_column(field, objects[0].topic) for field in schema.fields])


def _column(field: StructField, topic: str) -> Any:
    if field.name == "__topic":
        return F.when(F.lit(True), F.lit(topic)).alias(field.name)
    name = STORED_AS.get(field.name, field.name).replace("`", "``")
    return F.col(f"`{name}`").alias(field.name)


def _by_topic(objects: Sequence[NativeObject]) -> list[list[NativeObject]]:
    found: dict[str, list[NativeObject]] = {}
    for each in objects:
        found.setdefault(each.topic, []).append(each)
    return list(found.values())


def unreadable(schema: pa.Schema, payload: pa.Schema) -> str | None:
    """Return why Spark's Parquet reader can't take columns of a topic as this source does; None if it can."""
    for field in schema:
        if not _reads_alike(field.type):
            return f"Spark's Parquet reader doesn't take {field.type}, as column {field.name!r} is"
    if _ambiguous(object_schema(payload).names) or any(_has_ambiguous(field.type) for field in schema):
        return "columns differ in the case of letters only"
    return None


def misjudged(schema: pa.Schema) -> list[str]:
    """Return the columns by whose statistics Spark's Parquet reader leaves out rows that its filters want.

    - Statistics know no NaN, which Spark takes for the largest number; and Parquet tells -0.0 from 0.0.
    - Spark cuts a time that it compares to the column's unit: 23:59:59.9995 becomes 23:59:59.999.
    """
    return [field.name for field in schema if _is_misjudged(field.type)]


def _is_misjudged(t: pa.DataType) -> bool:
    if pa.types.is_struct(t):
        return any(_is_misjudged(part.type) for part in t)
    return bool(pa.types.is_floating(t) or (pa.types.is_timestamp(t) and str(t.unit) != "us"))


def _reads_alike(t: pa.DataType) -> bool:
    if pa.types.is_timestamp(t):
        return str(t.unit) != "ns"
    if pa.types.is_decimal128(t):
        return bool(t.scale >= 0)
    if pa.types.is_struct(t):
        return t.num_fields > 0 and all(_reads_alike(part.type) for part in t)
    if pa.types.is_list(t):
        return _reads_alike(t.value_type)
    if pa.types.is_map(t):
        return _reads_alike(t.key_type) and _reads_alike(t.item_type)
    return any(t == each for each in _AS_THEY_ARE)


def _ambiguous(names: Sequence[str]) -> bool:
    return len({name.lower() for name in names}) < len(names)


def _has_ambiguous(t: pa.DataType) -> bool:
    parts = [t.field(i) for i in range(t.num_fields)]
    names = [part.name for part in parts] if pa.types.is_struct(t) else []
    return _ambiguous(names) or any(_has_ambiguous(part.type) for part in parts)


def _nullable(schema: StructType) -> StructType:
    return StructType([StructField(f.name, _with_nulls(f.dataType), True, f.metadata) for f in schema.fields])


def _with_nulls(t: DataType) -> DataType:
    match t:
        case StructType():
            return _nullable(t)
        case ArrayType():
            return ArrayType(_with_nulls(t.elementType), True)
        case MapType():
            return MapType(_with_nulls(t.keyType), _with_nulls(t.valueType), True)
    return t


_PLACE = StructField("__entry_id", to_spark(pa.schema([METADATA_COLUMNS["__entry_id"]])).fields[0].dataType)
"""Stands for the rows where no stored column is wanted."""


def _tell(topic: str | Sequence[str], split: NativeSplit) -> None:
    damaged = any(" is unreadable: " in why for why in split.left)
    _log.log(logging.WARNING if damaged else logging.INFO, "reading %s: %s", topic, split)
