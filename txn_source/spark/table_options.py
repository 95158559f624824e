"""The options of SQL tables, kept where Spark 4.3 keeps them: in the metadata of a column.

``CREATE TABLE ... USING txnlog OPTIONS (...)`` hands the options to ``schema()`` and forgets them. The metadata of the
columns that ``schema()`` returns is stored in the catalog, and comes back with the schema when the table is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pyspark.sql.types import StructField, StructType

from txn_source.model.errors import InvalidArgumentError

_KEY = "txnlog.options"
_DEFAULT = "CURRENT_DEFAULT"
_COPY = "option."
_SPARKS_OWN = (
    *("owner", "provider", "location", "serialization.format", "external", "comment"),
    *("checkpointlocation", "queryname", "asyncprogresstrackingenabled", "asyncprogresstrackingcheckpointintervalms"),
    "_asyncprogresstrackingoverridesinksupportcheck",
)
"""Lower-case names of options that Spark adds to a table, or obeys itself in a streaming query."""
MARKED = "__ledger_id"
"""The column whose default tells, in each row of an INSERT, which table the statement named."""
_NAMES_A_LOG = ("path", "endpoint", "topic", "topics", "topicspattern")
_WAYS_OUT = "INSERT INTO t WITH (path = '...', topic = '...') (id, ...) SELECT ..., or df.write"


@dataclass(frozen=True, slots=True)
class Target:
    """The table that an INSERT names, if each row has its mark in the column ``MARKED``."""

    options: Mapping[str, str]
    mark: int


def without_sparks_own(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that somebody gave, without Spark's own."""
    return {
        name: value
        for name, value in options.items()
        if not name.lower().startswith(_COPY) and name.lower() not in _SPARKS_OWN
    }


def table_properties(options: Mapping[str, str]) -> set[str]:
    """Return, in lower case, the names that may come from TBLPROPERTIES: Spark hands over OPTIONS twice."""
    names = {name.lower() for name in options}
    return {name for name in names if f"{_COPY}{name}" not in names}


def is_create_table(options: Mapping[str, str]) -> bool:
    """True if a schema is asked for to make a table of it."""
    names = {name.lower() for name in options}
    return "provider" in names or any(name.startswith(_COPY) for name in names)


def keep_options(schema: StructType, options: Mapping[str, str], *, insertable: bool) -> StructType:
    """Return the schema with the options in the metadata of its first column, and of the one that the mark is in.

    None of them is ever a secret. The mark is the default of that column. It is a number that no message has there, and
    other tables have other ones. A table with a default isn't what everybody wants: copies inherit it, and Delta Lake
    refuses to make them. So only insertable tables have it.

    Raises:
        InvalidArgumentError: the table is to be insertable, and lacks the column.
    """
    if insertable and MARKED not in schema.names:
        raise InvalidArgumentError(
            f"A table that is 'insertable' needs the column {MARKED}, by which a row tells the table it is meant for.",
            f"Let 'metadataColumns' name it, or leave 'insertable' out and write with {_WAYS_OUT}.",
        )
    kept = json.dumps({n.lower(): v for n, v in without_sparks_own(options).items()}, sort_keys=True)
    fields = []
    for number, field in enumerate(schema.fields):
        metadata = dict(field.metadata or {})
        if number == 0 or field.name == MARKED:
            metadata[_KEY] = kept
        if insertable and field.name == MARKED:
            metadata[_DEFAULT] = f"{_mark(kept)}L"
        fields.append(StructField(field.name, field.dataType, field.nullable, metadata))
    return StructType(fields)


def kept_options(schema: StructType) -> dict[str, str]:
    """Return the options that a table's schema carries, for a read; none if it isn't a table's."""
    return next((_parsed(field) for field in schema.fields if _KEY in (field.metadata or {})), {})


def target_of_insert(schema: StructType) -> Target | None:
    """Return the table that is written to, by what Spark hands to a writer; None if nothing tells.

    Metadata alone don't: in ``INSERT INTO b SELECT * FROM a`` columns come with those of *a*, and after an outer join
    with nulls in them. But where a statement leaves a column out, Spark fills in the target's default, and only there.
    So each row that has the mark which the metadata promise was meant for that table. Whoever uses this must look.
    """
    for field in schema.fields:
        mark = mark_of_default(field)
        if field.name == MARKED and not field.nullable and mark is not None:
            return Target(_parsed(field), mark)
    return None


def mark_of_default(field: StructField) -> int | None:
    """Return the mark that Spark fills in for a column of an insertable table; None for any other."""
    metadata = field.metadata or {}
    mark = _mark(metadata[_KEY]) if _KEY in metadata else None
    return mark if mark is not None and metadata.get(_DEFAULT) == f"{mark}L" else None


def names_a_log(options: Mapping[str, str]) -> bool:
    """True if somebody said, in part at least, which log and topic a query is about."""
    return any(name.lower() in _NAMES_A_LOG for name in options)


def no_sure_target() -> InvalidArgumentError:
    """Return the refusal of an INSERT of which Spark doesn't tell the table."""
    return InvalidArgumentError(
        "Spark doesn't tell which table is written to: what comes may carry the options of one that was selected from.",
        f"Make the table with the option insertable 'true', and name the columns: INSERT INTO t (id, ...) SELECT ...;"
        f" or use {_WAYS_OUT}.",
    )


def no_options(kind: str) -> InvalidArgumentError:
    """Return the refusal of a query to which Spark hands on no options, though somebody may have given some."""
    return InvalidArgumentError(
        f"Spark hands on neither a path or endpoint nor a topic to this {kind}. It forgets the options of tables that"
        " were made with declared columns, PARTITIONED BY, AS SELECT, saveAsTable or toTable, and of a table that a"
        " stream writes to.",
        "Make the table with CREATE TABLE t USING txnlog OPTIONS (path '...', topic '...') and nothing more, over a"
        " topic that is there; or give the options: SELECT ... FROM t WITH (...), .option(...) of spark.read and"
        " df.write, writeStream.option(...).start().",
    )


def _mark(kept: str) -> int:
    """Return a number below zero, of 62 bits."""
    return -(int.from_bytes(hashlib.sha256(kept.encode()).digest()[:8]) >> 2) - 1


def _parsed(field: StructField) -> dict[str, str]:
    options: dict[str, str] = json.loads(field.metadata[_KEY])
    return options


def options_of(options: Mapping[str, str], kept: Mapping[str, str], applicable: Collection[str]) -> dict[str, str]:
    """Return the options of a query: what was given, and the table's own where it doesn't say which log and topic.

    Args:
        options: what was given with the query.
        kept: the table's.
        applicable: lower-case names of the options that mean something for this kind of query; of those that a table
            carries for others, it takes no notice.
    """
    given = without_sparks_own(options)
    names = {name.lower() for name in given}
    if names_a_log(given):
        return given
    return {n: v for n, v in kept.items() if n in applicable and n not in names} | given
