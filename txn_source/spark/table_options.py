"""The options of SQL tables, kept where Spark 4.3 keeps them: in the metadata of a column.

``CREATE TABLE ... USING txnlog OPTIONS (...)`` hands the options to ``schema()`` and forgets them. The metadata of the
columns that ``schema()`` returns is stored in the catalog, and comes back with the schema when the table is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

_KEY = "txnlog.options"
_COPY = "option."
_SPARKS_OWN = ("owner", "provider", "location", "serialization.format")
NEVER_NULL = ("__ledger_id", "__entry_id", "__batch_index", "__publish_time")
_NAMES_A_LOG = ("path", "endpoint", "topic", "topics", "topicspattern")


def without_sparks_own(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that somebody gave, without those that Spark adds at ``CREATE TABLE``."""
    return {
        name: value
        for name, value in options.items()
        if not name.lower().startswith(_COPY) and name.lower() not in _SPARKS_OWN
    }


def is_create_table(options: Mapping[str, str]) -> bool:
    """True if a schema is asked for to make a table of it."""
    names = {name.lower() for name in options}
    return "provider" in names or any(name.startswith(_COPY) for name in names)


def keep_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema with the options in the metadata of its first column, and of those that only the log gives.

    None of them is ever a secret.
    """
    kept = json.dumps({n.lower(): v for n, v in without_sparks_own(options).items()}, sort_keys=True)
    fields = [
        StructField(f.name, f.dataType, f.nullable, {**(f.metadata or {}), _KEY: kept})
        if number == 0 or f.name in NEVER_NULL
        else f
        for number, f in enumerate(schema.fields)
    ]
    return StructType(fields)


def kept_options(schema: StructType) -> dict[str, str]:
    """Return the options that a table's schema carries, for a read; none if it isn't a table's."""
    return next((_parsed(field) for field in schema.fields if _KEY in (field.metadata or {})), {})


def kept_options_of_target(schema: StructType) -> dict[str, str]:
    """Return the options of the table that is written to; none if nothing tells for sure.

    In ``INSERT INTO b SELECT id FROM a`` column ``id`` comes with the metadata of table *a*. A column that only the log
    gives, and that is never null when it is read, tells: if it is null in every row, Spark has filled it in for the
    target, with the target's metadata. Whoever uses these options must see to that.
    """
    found = [_parsed(f) for f in schema.fields if f.name in NEVER_NULL and _KEY in (f.metadata or {})]
    return found[0] if found and all(options == found[0] for options in found) else {}


def _parsed(field: StructField) -> dict[str, str]:
    options: dict[str, str] = json.loads(field.metadata[_KEY])
    return options


def options_of(options: Mapping[str, str], kept: Mapping[str, str], applicable: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a query: what was given, and the table's own where it doesn't say which log and topic.

    Args:
        options: what was given with the query.
        kept: the table's.
        applicable: lower-case names of the options that mean something for this kind of query; of those that a table
            carries for others, it takes no notice.
    """
    given = without_sparks_own(options)
    names = {name.lower() for name in given}
    if names & set(_NAMES_A_LOG):
        return given
    return {n: v for n, v in kept.items() if n in applicable and n not in names} | given
