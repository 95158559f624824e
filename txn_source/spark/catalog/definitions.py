"""Topics as SQL defines them: columns, comments, and table properties, which are partitions and policies."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import CharType, NullType, StructField, StructType, VarcharType

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.policies import EffectivePolicy
from txn_source.model.topic import TopicView
from txn_source.model.units import parse_size
from txn_source.spark.schema import to_spark
from txn_source.storage.schema import check_topic_schema

PARTITIONS = "partitions"
INHERITED = "inherited."
"""Begins the properties that a topic hasn't of itself; a statement that makes one takes no notice of them."""
_TEXT_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
_RAW = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_SPARKS_OWN = ("comment", "owner", "provider", "table_type", "is_managed_location")
_OPTION = "option."


def topic_columns(schema: Mapping[str, Any], comment: str | None) -> pa.Schema | None:
    """Return the payload columns of a topic that SQL defines, with their comments; None if it is a raw one.

    Raises:
        InvalidArgumentError: no columns, or a type whose values a topic doesn't give back as they are.
    """
    wanted = StructType.fromJson(dict(schema))
    if not wanted.fields:
        raise InvalidArgumentError(
            "The table has no columns.", "Name one at least; key BINARY, value BINARY make a raw topic."
        )
    columns = [_column(field) for field in wanted.fields]
    found = pa.schema(columns, metadata=None if comment is None else {"comment": comment})
    if found.remove_metadata().equals(_RAW) and comment is None and not any(field.metadata for field in found):
        return None
    return found


def _column(field: StructField) -> pa.Field:
    shown = field.dataType.simpleString()
    if isinstance(field.dataType, NullType):
        raise InvalidArgumentError(
            f"Column {field.name!r} is VOID: it is NULL in each row, which says no type.",
            f"Give it one, such as CAST(NULL AS STRING) AS {field.name}.",
        )
    length = (field.metadata or {}).get(_TEXT_LENGTH)
    try:
        [column] = to_arrow_schema(StructType([field]), timezone="UTC")
        [back] = to_spark(check_topic_schema(pa.schema([column]))).fields
    except (PySparkException, pa.ArrowException, TypeError):
        back = None
    lossy = back is None or back.dataType.simpleString() != shown or _TEXT_LENGTH in field.json()
    if lossy or isinstance(field.dataType, CharType | VarcharType):
        raise InvalidArgumentError(
            f"Column {field.name!r} is {length or shown}, which a topic doesn't keep as it is.",
            "Use BOOLEAN, TINYINT to BIGINT, FLOAT, DOUBLE, DECIMAL, STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ,"
            " INTERVAL DAY TO SECOND, or ARRAY, STRUCT and MAP of them.",
        )
    comment = (field.metadata or {}).get("comment")
    return column.with_metadata(None if comment is None else {"comment": comment})


def partitions_of(properties: Mapping[str, str]) -> int | None:
    """Return how many partitions are asked for, None if nothing is said."""
    given = properties.get(PARTITIONS)
    if given is None:
        return None
    if not (given.strip().isascii() and given.strip().isdigit() and 0 < int(given) < 1 << 31):
        raise InvalidArgumentError(f"{given!r} is not a number of partitions.", "Use 1 or more.")
    return int(given)


def policies_of(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the policies among the properties that a statement gives.

    Raises:
        InvalidArgumentError: a clause that means nothing for a topic.
    """
    provider = properties.get("provider", "txnlog")
    if provider.lower() != "txnlog":
        raise InvalidArgumentError(
            f"The table is to be made USING {provider}, and the catalog makes topics.",
            'Leave USING out, or say txnlog; with saveAsTable say .format("txnlog").',
        )
    for name, clause in (("location", "LOCATION"), ("external", "EXTERNAL"), ("collation", "DEFAULT COLLATION")):
        if name in properties:
            raise InvalidArgumentError(f"A topic takes no {clause}: the log knows where it lies.", "Leave it out.")
    options = sorted(name.removeprefix(_OPTION) for name in properties if name.startswith(_OPTION))
    if options:
        raise InvalidArgumentError(
            f"A topic has no OPTIONS ({', '.join(options)}).",
            "Give options with a query: SELECT ... FROM t WITH (isolationLevel = 'read_uncommitted').",
        )
    policies: dict[str, Any] = {}
    for name, text in properties.items():
        if name == PARTITIONS or name in _SPARKS_OWN or name.startswith(INHERITED):
            continue
        policies[name] = parse_size(text) if name in ("ledger_max_entries", "ledger_max_bytes") else text
    return policies


def properties_of(view: TopicView, columns: pa.Schema, policies: Mapping[str, EffectivePolicy]) -> dict[str, str]:
    """Return a topic's properties: those by which it could be made again, and what it inherits, with whose it is."""
    limits, unset = view.topic.limits, LedgerLimits()
    properties = {PARTITIONS: str(len(view.partitions))}
    if limits.max_entries != unset.max_entries:
        properties["ledger_max_entries"] = str(limits.max_entries)
    if limits.max_bytes != unset.max_bytes:
        properties["ledger_max_bytes"] = str(limits.max_bytes)
    if limits.max_age_ms != unset.max_age_ms:
        properties["ledger_max_age"] = f"{limits.max_age_ms}ms"
    comment = (columns.metadata or {}).get(b"comment")
    if comment is not None:
        properties["comment"] = comment.decode(errors="replace")
    for name, found in policies.items():
        if found.value is None:
            continue
        own = found.source == "topic"
        text = _text(found.value)
        properties[name if own else INHERITED + name] = text if own else f"{text} ({found.source})"
    return properties


def _text(value: Any) -> str:
    """Return a policy's value as it can be set again."""
    if isinstance(value, enum.Enum):
        return str(value.value)
    return f"{value:g}s" if isinstance(value, float) else str(value)
