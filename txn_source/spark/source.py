"""The Spark data source ``txnlog``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from txn_source.model.errors import InvalidArgumentError
from txn_source.spark.connection import open_log, readable
from txn_source.spark.reads import names_foreign

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from txn_source.spark.batch import BatchReader
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
            from txn_source.foreign.reading.options import SCHEMA, ForeignOptions
            from txn_source.foreign.scan import schema_of
            from txn_source.foreign.source import ForeignSource
            from txn_source.spark.schema import to_spark

            read = ForeignOptions.parse(given, SCHEMA, table_properties(self.options) if for_table else ())
            look, several = ForeignSource(read.target).look(read.selection), read.selection.several
            schema = schema_of(read.target, look, None, read.metadata_columns, read.given, several=several)
            columns = to_spark(schema)
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
        source = resolve(open_log(options.target).metadata, options.selection)
        several = options.selection.several
        columns = to_spark(read_schema(source.payload, options.metadata_columns, several_topics=several))
        return keep_options(columns, self.options, insertable=options.insertable) if for_table else columns

    @readable
    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of a streaming query."""
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
    def reader(self, schema: StructType) -> BatchReader | MetadataTableReader:
        """Return the reader of a batch query."""
        from txn_source.spark.batch import BatchReader
        from txn_source.spark.reads import batch_options, options_given

        options = options_given(self.options, schema, stream=False)
        if not names_foreign(options):
            from txn_source.spark.options import MetadataTableOptions

            about_log = MetadataTableOptions.parse(options)
            if about_log is not None:
                from txn_source.spark.metadata_table import MetadataTableReader

                return MetadataTableReader(about_log, schema)
        return BatchReader(batch_options(options), schema)

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


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidArgumentError(
            "A log is never overwritten: readers hold positions in it.",
            'Use .mode("append") (for a stream, .outputMode("append")); to begin anew, delete the topic and create it.',
        )
