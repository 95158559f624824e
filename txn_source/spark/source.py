"""The Spark data source ``txnlog``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.foreign_path import is_foreign
from txn_source.spark.connection import open_log, readable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from txn_source.spark.batch import BatchReader
    from txn_source.spark.foreign.batch import ForeignBatchReader
    from txn_source.spark.foreign.stream import ForeignStreamReader
    from txn_source.spark.metadata_table import MetadataTableReader
    from txn_source.spark.options import WriteOptions
    from txn_source.spark.sink import BatchWriter, StreamWriter
    from txn_source.spark.sink_columns import SinkColumns
    from txn_source.spark.stream import StreamReader


class TxnLogDataSource(DataSource):
    """``spark.read.format("txnlog")``. Spark finds it by itself; ``spark.dataSource.register`` works as well.

    It has no ``pushFilters``: on Spark 4.3 a pushed filter leaks into other scans of the same DataFrame and gives
    wrong rows.

    Each method imports what it needs. Spark starts a process of its own to find the source, to ask for its schema, to
    plan, and to read, and each imports this module.
    """

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "txnlog"

    @readable
    def schema(self) -> StructType:
        """Return the payload columns of the topics and the metadata columns that were asked for."""
        from txn_source.spark.table_options import is_create_table, keep_options, table_properties, without_sparks_own

        for_table = is_create_table(self.options)
        given = without_sparks_own(self.options)
        if names_foreign(given):
            from txn_source.spark.foreign.batch import foreign_schema

            columns = foreign_schema(given, table_properties(self.options) if for_table else ())
            return keep_options(columns, self.options, insertable=False) if for_table else columns
        from txn_source.client.reading.columns import read_schema
        from txn_source.client.reading.source import resolve
        from txn_source.spark.options import ColumnOptions, MetadataTableOptions
        from txn_source.spark.schema import to_spark
        from txn_source.storage.log_tables import LOG_TABLES

        about_log = MetadataTableOptions.parse(given)
        if about_log is not None:
            columns = to_spark(LOG_TABLES[about_log.table])
            return keep_options(columns, self.options, insertable=False) if for_table else columns
        properties = table_properties(self.options) if for_table else ()
        options = ColumnOptions.parse(given, for_table=for_table, properties=properties)
        source = resolve(open_log(options.target).metadata, options.topics, options.pattern)
        schema = to_spark(read_schema(source.payload, options.metadata_columns, several_topics=options.several_topics))
        return keep_options(schema, self.options, insertable=options.insertable) if for_table else schema

    @readable
    def streamReader(self, schema: StructType) -> StreamReader | ForeignStreamReader:
        """Return the reader of a streaming query."""
        from txn_source.spark.table_options import kept_options, options_of

        kept = kept_options(schema)
        foreign = options_of(self.options, kept, kept)
        if names_foreign(foreign):
            from txn_source.spark.foreign.batch import names_of_reads
            from txn_source.spark.foreign.stream import ForeignStreamReader

            return ForeignStreamReader(options_of(self.options, kept, names_of_reads(foreign)), schema)
        from txn_source.spark.stream import StreamReader

        return StreamReader(self.options, schema)

    @readable
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of a streaming query."""
        from txn_source.spark.sink import StreamWriter

        _refuse_overwrite(overwrite)
        return StreamWriter(*self._sink(schema, stream=True))

    @readable
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch job."""
        from txn_source.spark.sink import BatchWriter

        _refuse_overwrite(overwrite)
        return BatchWriter(*self._sink(schema, stream=False))

    @readable
    def reader(self, schema: StructType) -> BatchReader | MetadataTableReader | ForeignBatchReader:
        """Return the reader of a batch query."""
        from txn_source.spark.table_options import kept_options, names_a_log, no_options, options_of

        kept = kept_options(schema)
        options = options_of(self.options, kept, kept)
        if names_foreign(options):
            from txn_source.spark.foreign.batch import ForeignBatchReader, names_of_reads

            return ForeignBatchReader(options_of(self.options, kept, names_of_reads(options)), schema)
        from txn_source.spark.batch import BatchReader
        from txn_source.spark.options import BATCH_READ, BatchReadOptions, MetadataTableOptions

        options = options_of(self.options, kept, BATCH_READ)
        if not names_a_log(options):
            raise no_options("read")
        about_log = MetadataTableOptions.parse(options)
        if about_log is not None:
            from txn_source.spark.metadata_table import MetadataTableReader

            return MetadataTableReader(about_log, schema)
        return BatchReader(BatchReadOptions.parse(options), schema)

    def _sink(self, schema: StructType, *, stream: bool) -> tuple[WriteOptions, SinkColumns]:
        from txn_source.spark.options import WRITE, WriteOptions, through_catalog
        from txn_source.spark.sink_columns import SinkColumns
        from txn_source.spark.table_options import (
            kept_options,
            names_a_log,
            no_options,
            no_sure_target,
            options_of,
            target_of_insert,
            without_sparks_own,
        )

        given = without_sparks_own(self.options)
        if names_foreign(given) or names_foreign(kept_options(schema)):
            raise InvalidArgumentError(
                "A log that another system wrote is only read.", "Import its topics to a log of txnlog's own."
            )
        of_table = bool(kept_options(schema)) and not through_catalog(given)
        mark = None
        if not names_a_log(given):
            target = target_of_insert(schema)
            if target is None:
                raise no_sure_target() if of_table else no_options("write")
            given, mark = options_of(given, target.options, WRITE), target.mark
        names_topic = "topic" in {name.lower() for name in given}
        columns = [] if of_table and names_topic else [name.lower() for name in schema.names]
        options = WriteOptions.parse(given, columns, stream=stream)
        return options, SinkColumns(schema, of_table=of_table, mark=mark, fans_out=options.topic is None)


def names_foreign(options: Mapping[str, str]) -> bool:
    """True if the options' path is that of a log that others wrote."""
    return any(name.lower() == "path" and is_foreign(value) for name, value in options.items())


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidArgumentError(
            "A log is never overwritten: readers hold positions in it.",
            'Use .mode("append") (for a stream, .outputMode("append")); to begin anew, delete the topic and create it.',
        )
