"""What Spark can't do with txnlog yet is refused in our words, before anything happens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import txn_source


def _read_stream(spark: SparkSession, root: str) -> Any:
    frame = spark.readStream.format("txnlog").option("topic", "t").load(root)
    return frame.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("query", [_read_stream])
def test_refused_in_one_readable_message(
    spark: SparkSession, tmp_path: Path, query: Callable[[SparkSession, str], Any]
) -> None:
    """Start a streaming read; the error carries our code and what to do instead."""
    with txn_source.connect(tmp_path / "log") as log:
        log.create_topic("t")
    with pytest.raises(PySparkException, match=r"\[TXNLOG_INVALID_ARGUMENT\] This release of txnlog .* Use"):
        query(spark, str(tmp_path / "log"))
