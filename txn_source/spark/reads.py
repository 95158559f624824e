"""The options of reads over any log; the path decides which module parses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.types import StructType

from txn_source.model.foreign_path import is_foreign
from txn_source.spark.table_options import kept_options, names_a_log, no_options, options_of

if TYPE_CHECKING:
    from txn_source.foreign.reading.options import ForeignOptions
    from txn_source.spark.options import BatchReadOptions, StreamReadOptions

    AnyOptions: TypeAlias = BatchReadOptions | StreamReadOptions | ForeignOptions
else:
    AnyOptions = Any


def names_foreign(options: Mapping[str, str]) -> bool:
    """True if the options' path is that of a log that others wrote."""
    return any(name.lower() == "path" and is_foreign(value) for name, value in options.items())


def options_given(options: Mapping[str, str], schema: StructType, *, stream: bool) -> dict[str, str]:
    """Return the options of a query, and those of its table if the query doesn't name a log."""
    kept = kept_options(schema)
    given = options_of(options, kept, kept)
    if names_foreign(given):
        from txn_source.foreign.reading.options import names_of
        from txn_source.foreign.target import ForeignTarget

        [path] = (value for name, value in given.items() if name.lower() == "path")
        return options_of(options, kept, names_of(ForeignTarget.parse(path).rules))
    from txn_source.spark.options import BATCH_READ, STREAM_READ

    found = options_of(options, kept, STREAM_READ if stream else BATCH_READ)
    if not names_a_log(found):
        raise no_options("stream" if stream else "read")
    return found


def batch_options(given: Mapping[str, str]) -> BatchReadOptions | ForeignOptions:
    """Return the meaning of a batch read's options, or raise INVALID_ARGUMENT for the first that can't be."""
    if names_foreign(given):
        from txn_source.foreign.reading.options import BATCH, ForeignOptions

        return ForeignOptions.parse(given, BATCH)
    from txn_source.spark.options import BatchReadOptions

    return BatchReadOptions.parse(given)


def stream_options(given: Mapping[str, str]) -> StreamReadOptions | ForeignOptions:
    """Return the meaning of a streaming read's options, or raise INVALID_ARGUMENT for the first that can't be."""
    if names_foreign(given):
        from txn_source.foreign.reading.options import STREAM, ForeignOptions

        return ForeignOptions.parse(given, STREAM)
    from txn_source.spark.options import StreamReadOptions

    return StreamReadOptions.parse(given)
