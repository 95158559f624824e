"""The source has no ``pushFilters``: on Spark 4.3 a pushed filter leaks into other scans of one DataFrame, so that a
frame which was counted with a filter has too few rows when it is counted without."""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceReader

from txn_source.spark.batch import BatchReader


def test_source_takes_no_filters() -> None:
    """Look at the reader's class: Spark refuses a reader that defines the method where push-down is off, too."""
    assert BatchReader.pushFilters is DataSourceReader.pushFilters
