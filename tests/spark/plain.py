"""What Spark does with the source's objects, in this process and without a JVM: a query takes milliseconds.

Readers and partitions are pickled as on their way to executors, batches must have exactly the schema that Spark asks
for, and offsets go through JSON text and the files of a checkpoint, in the order of Spark's micro-batches.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from pyspark.sql.utils import to_str

from txn_source.cli.schema_text import parse_schema
from txn_source.client.access import Access
from txn_source.client.target import Target
from txn_source.spark import connection
from txn_source.spark.schema import to_spark
from txn_source.spark.source import TxnLogDataSource


def schema_of(schema: str | StructType) -> StructType:
    """Return the schema that a text means; ``StructType.fromDDL`` needs a JVM."""
    return schema if isinstance(schema, StructType) else to_spark(parse_schema(schema))


def source_of(options: dict[str, Any]) -> TxnLogDataSource:
    """Return the source with options as Spark hands them over."""
    return TxnLogDataSource(CaseInsensitiveDict({name: to_str(value) for name, value in options.items()}))


def sent(thing: Any) -> Any:
    """Return what arrives in another process."""
    return pickle.loads(cloudpickle.dumps(thing))


@contextmanager
def logs_closed() -> Iterator[None]:
    """Close in the end what queries open in this process, as the end of Spark's processes does."""
    opened: dict[Any, Access] = {}

    def open_once(target: Target, identity: tuple[int, ...]) -> Access:
        if (target, identity) not in opened:
            opened[target, identity] = Access.open(target)
        return opened[target, identity]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "_opened", open_once)
        try:
            yield
        finally:
            for log in opened.values():
                log.close()


class Frame:
    """A batch query. As a DataFrame's, its plan is made at the first action, and stays."""

    def __init__(self, options: dict[str, Any], schema: str | StructType | None = None) -> None:
        self._options = options
        self.schema = source_of(options).schema() if schema is None else schema_of(schema)
        self.columns = self.schema.names
        self.dtypes = [(field.name, field.dataType.simpleString()) for field in self.schema.fields]
        self._planned: tuple[Any, list[InputPartition]] | None = None

    def tasks(self) -> list[InputPartition]:
        """Return what each task is to read."""
        if self._planned is None:
            reader = source_of(self._options).reader(self.schema)
            self._planned = reader, list(reader.partitions())
        return self._planned[1]

    def toArrow(self) -> pa.Table:
        """Return the rows."""
        tasks = self.tasks()
        assert self._planned is not None
        return _rows(self._planned[0], tasks, self.schema)

    def collect(self) -> list[Row]:
        """Return the rows as Spark's."""
        return [Row(**row) for row in self.toArrow().to_pylist()]

    def collect_task(self, task: InputPartition) -> list[Row]:
        """Return what one of the tasks reads."""
        assert self._planned is not None
        return [Row(**row) for row in _rows(self._planned[0], [task], self.schema).to_pylist()]

    def count(self) -> int:
        """Return the number of rows."""
        return int(self.toArrow().num_rows)


def _rows(reader: Any, tasks: list[InputPartition], schema: StructType) -> pa.Table:
    expected = to_arrow_schema(schema, timezone="UTC")
    batches: list[pa.RecordBatch] = []
    for task in tasks or [InputPartition(None)]:  # Spark's stand-in for no partitions
        read = list(sent(reader).read(sent(task)))
        assert all(batch.schema == expected for batch in read), "Spark takes no other columns"
        batches += read
    return pa.Table.from_batches(batches, expected)


def write_table(table: pa.Table, tasks: int, options: dict[str, Any]) -> None:
    """Write rows as a job of several tasks does."""
    writer = source_of(options).writer(to_spark(table.schema), False)
    size = -(-table.num_rows // tasks) or 1
    parts = [table.slice(task * size, size).to_batches() for task in range(tasks)]
    writer.commit([sent(sent(writer).write(iter(part))) for part in parts])


class Query:
    """A streaming query that keeps the rows of each batch; it can be started again from its checkpoint.

    ``planned`` is called before a batch is read, and ``each`` with its number and rows before it counts as done. The
    limits of a query that isn't ``limited`` don't count: it runs one batch, as the trigger ``once`` does.
    """

    def __init__(self, checkpoint: Path, options: dict[str, Any]) -> None:
        self.checkpoint = checkpoint
        self.batches: dict[int, list[dict[str, Any]]] = {}
        self.tasks: dict[int, int] = {}
        self.planned: Callable[[], object] = lambda: None
        self.each: Callable[[int, list[dict[str, Any]]], object] = lambda number, rows: None
        self.reader: Any = None
        self._options = options
        self._limited = True

    def start(self, schema: str | StructType | None = None, *, limited: bool = True, **options: Any) -> Query:
        """Begin where the checkpoint ends, with its last batch if that isn't done. None takes an option away."""
        given = {**options, "path": None} if "endpoint" in options else options
        given = {name: value for name, value in (self._options | given).items() if value is not None}
        source = source_of(given)
        self.schema = source.schema() if schema is None else schema_of(schema)
        self.reader = source.streamReader(self.schema)
        self._limited = limited
        return self

    def run(self, schema: str | StructType | None = None, **options: Any) -> None:
        """Read what is there now."""
        self.start(schema, **options)
        try:
            self.reader.prepareForTriggerAvailableNow()
            self.process()
        finally:
            self.reader.stop()

    def process(self) -> None:
        """Read batches until there is nothing more."""
        for number in self._batches():
            last = self.noted("offsets", number - 1) if number else None
            end = self.noted("offsets", number)
            start = self.reader.initialOffset() if last is None else last
            tasks = list(self.reader.partitions(_text(start), end))
            self.tasks[number] = len(tasks)
            self.planned()
            rows = _rows(self.reader, tasks, self.schema).to_pylist()
            self.batches[number] = rows
            self.each(number, rows)
            self.note("commits", number, {})

    def values(self) -> list[list[str]]:
        """Return the values of each batch that has some, sorted."""
        return [sorted(row["value"].decode() for row in rows) for _, rows in sorted(self.batches.items()) if rows]

    def last(self, which: str) -> int:
        """Return the number of the last batch that the checkpoint has planned (``offsets``) or done (``commits``)."""
        return max((int(path.name) for path in (self.checkpoint / which).glob("*")), default=-1)

    def noted(self, which: str, number: int) -> Any:
        """Return what the checkpoint has of a batch."""
        return json.loads((self.checkpoint / which / str(number)).read_text())

    def note(self, which: str, number: int, what: Any) -> None:
        """Have the checkpoint keep something of a batch."""
        (self.checkpoint / which).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / which / str(number)).write_text(json.dumps(what))

    def _batches(self) -> Iterator[int]:
        """Yield the batch that is planned and not done, and then each that there is something for."""
        if self.last("offsets") > self.last("commits"):
            yield self.last("offsets")
        while True:
            number = self.last("offsets")
            limit = self.reader.getDefaultReadLimit() if self._limited else ReadAllAvailable()
            start = self.reader.initialOffset() if number < 0 else self.noted("offsets", number)
            end = _text(self.reader.latestOffset(_text(start), limit))
            if number >= 0 and end == start:
                return
            self.note("offsets", number + 1, end)
            if number >= 0:
                self.reader.commit(self.noted("offsets", number))
            yield number + 1
            if not self._limited:
                return


def _text(offset: Any) -> Any:
    return json.loads(json.dumps(offset))
