"""The columns of a write: the topic's payload by name, and a few that say where a row goes and what it carries."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from txn_source.client.reading.columns import METADATA_COLUMNS
from txn_source.client.writing.bulk_writer import PARTITION
from txn_source.model.errors import SchemaMismatchError
from txn_source.spark.options import TOPIC
from txn_source.spark.schema import to_spark
from txn_source.spark.table_options import MARKED, mark_of_default, no_sure_target
from txn_source.storage.schema import EVENT_TIME, KEY, PROPERTIES, RAW_SCHEMA

_OPTIONAL = {field.name: field for field in (EVENT_TIME, PROPERTIES, PARTITION, KEY, TOPIC)}
_READ_ONLY = tuple(name for name in METADATA_COLUMNS if name not in _OPTIONAL)
_TEXT_OR_BYTES = ("string", "binary")


class SinkColumns:
    """The columns of a frame that is written; names are matched as Spark matches them, ignoring case."""

    def __init__(
        self, schema: StructType, *, of_table: bool = False, mark: int | None = None, fans_out: bool = False
    ) -> None:
        """Raise SCHEMA_MISMATCH for what no topic can take.

        Args:
            schema: of the frame.
            of_table: its columns are a table's, with metadata columns that an INSERT leaves null.
            mark: what each row must have in the column ``MARKED`` to be meant for the target (see ``Target``); None:
                the write says itself where it goes.
            fans_out: column ``__topic`` names a topic in each row.
        """
        self.mark = mark
        marks = (mark_of_default(field) for field in schema.fields if field.name == MARKED)
        self._marks = {mark for mark in marks if mark is not None}
        self._left_out = (*_READ_ONLY, *(() if fans_out else (TOPIC.name,))) if of_table else ()
        self._columns: dict[str, tuple[str, str]] = {}
        for field in schema.fields:
            name = field.name.lower()
            if name in self._left_out:
                continue
            if name in _READ_ONLY:
                raise _read_only(field.name)
            if name in self._columns:
                raise SchemaMismatchError(
                    f"The frame has columns {self._columns[name][0]!r} and {field.name!r}, which are one name.",
                    "Drop or rename one of them.",
                )
            self._columns[name] = field.name, field.dataType.simpleString()
        for name, optional in _OPTIONAL.items():
            wanted = to_spark(pa.schema([optional])).fields[0].dataType.simpleString()
            came = self._columns.get(name, ("", "void"))[1]
            if came not in ("void", wanted) and not (name == KEY.name and came in _TEXT_OR_BYTES):
                raise SchemaMismatchError(
                    f"Column {name!r} doesn't fit: expected {wanted}, came {came}.", f"Cast it to {wanted}."
                )

    def check(self, payload: pa.Schema, topic: str) -> None:
        """Raise SCHEMA_MISMATCH, with the column, what was expected and what came, unless a topic can take them."""
        raw = payload is RAW_SCHEMA
        expected = {field.name: field.dataType.simpleString() for field in to_spark(payload).fields}
        known = {name.lower() for name in expected} | {name for name in _OPTIONAL if not (raw and name == KEY.name)}
        for name, (given, _) in self._columns.items():
            if name not in known:
                raise SchemaMismatchError(
                    f"The frame has a column {given!r}, which topic {topic!r} doesn't have.",
                    f"The topic's columns are {', '.join(f'{n} {t}' for n, t in expected.items())}; drop or rename it.",
                )
        for name, wanted in expected.items():
            found = self._columns.get(name.lower())
            if found is None:
                if raw and name == "key":
                    continue
                raise SchemaMismatchError(
                    f"The frame has no column {name!r}, which topic {topic!r} has as {wanted}.",
                    "Add it (of nulls, if it may have them).",
                )
            if found[1] not in ("void", wanted) and not (wanted == "binary" and found[1] in _TEXT_OR_BYTES):
                raise SchemaMismatchError(
                    f"Column {name!r} doesn't fit topic {topic!r}: expected {wanted}, came {found[1]}.",
                    f"Cast it to {wanted}.",
                )

    def fit(self, batch: pa.RecordBatch, payload: pa.Schema, topic: str) -> pa.RecordBatch:
        """Return Spark's batch with a topic's names and types."""
        self.check(payload, topic)
        batch = self._without_columns_of_the_log(batch)
        wanted = {field.name.lower(): field for field in (*_OPTIONAL.values(), *payload)}
        columns, fields = [], []
        for column, name in zip(batch.columns, batch.schema.names, strict=True):
            field = wanted[name.lower()]
            try:
                columns.append(column if column.type == field.type else column.cast(field.type))
            except pa.ArrowInvalid as error:
                raise SchemaMismatchError(
                    f"A value of column {name!r} doesn't fit topic {topic!r}, which has {field.type} ({error}).",
                    "Round it in the query, to what the topic can hold.",
                ) from None
            fields.append(field)
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _without_columns_of_the_log(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the columns that an INSERT leaves to the log; refuse a value, which nobody but the log can give."""
        names = [name for name in batch.schema.names if name.lower() in self._left_out]
        for name in names:
            column = batch.column(name)
            if name == MARKED and self.mark is not None:
                if column.null_count or not pc.all(pc.equal(column, self.mark), min_count=0).as_py():
                    raise no_sure_target()
            elif column.null_count < batch.num_rows and not (name == MARKED and _only(column, self._marks)):
                raise _read_only(name)
        return batch.drop_columns(names) if names else batch


def _only(column: pa.Array, marks: Collection[int]) -> bool:
    return set(pc.unique(column.drop_null()).to_pylist()) <= set(marks)


def _read_only(name: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Column {name!r} is the log's to give, and can't be written.",
        'Leave it out; when reading, .option("metadataColumns", "none") does.',
    )
