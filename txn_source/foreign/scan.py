"""Reading what a log that others wrote has now, as batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from txn_source.foreign.reading.topics import ForeignLook
from txn_source.foreign.source import ForeignSource
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import SchemaMismatchError
from txn_source.reading.plan import ReadPlan, plan
from txn_source.reading.request import ReadRequest, Selection


def schema_of(
    target: ForeignTarget,
    look: ForeignLook,
    columns: Sequence[str] | None = None,
    choice: str = "default",
    options: Mapping[str, str] | None = None,
    *,
    several: bool = False,
) -> pa.Schema:
    """Return the schema of a read: of some columns in that order, or of those that it has by itself.

    Args:
        target: the log.
        look: the partitions of the read.
        columns: their names; None: those of ``choice``, as ``metadataColumns`` has it.
        choice: which columns there are beside the payload's.
        options: those of the read.
        several: several topics may be read.

    Raises:
        SchemaMismatchError: a column that isn't there, or is asked for twice.
        InvalidArgumentError: no choice.
    """
    rules, every = target.rules, look.payload
    if columns is None:
        columns = rules.default_columns(every, choice, options or {}, several=several)
    if not columns:
        raise SchemaMismatchError("No column is asked for.", f"Name one at least, such as {rules.cheapest}.")
    for name in columns:
        if name not in every.names:
            raise SchemaMismatchError(f"There is no column {name!r}.", f"There are {', '.join(every.names)}.")
    if len(set(columns)) < len(columns):
        raise SchemaMismatchError("A column is asked for twice.", "Name each once.")
    return pa.schema([every.field(name) for name in columns])


def scan(
    target: ForeignTarget, selection: Selection, request: ReadRequest, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """Plan a read, and return what reads it, partition after partition."""
    source = ForeignSource(target)
    look = source.look(selection)
    schema = schema_of(target, look, columns, several=selection.several)
    planned = plan(source, look, request)
    reader = source.read(schema, planned.request, planned.decisions)
    return pa.RecordBatchReader.from_batches(schema, reader.read_ahead(planned.parts))


def count(source: ForeignSource, target: ForeignTarget, look: ForeignLook, planned: ReadPlan) -> int:
    """Return how many rows a plan reads, without reading them where what is stored says it otherwise."""
    cheapest = target.rules.cheapest
    schema = pa.schema([target.rules.columns(look.log, ()).field(cheapest)])
    return source.read(schema, planned.request, planned.decisions).count(planned.parts)
