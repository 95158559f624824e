"""What a story needs that other folders have: Spark, and ``txnlog`` as a process."""

from __future__ import annotations

from tests.cli.conftest import spawn
from tests.spark.conftest import spark

__all__ = ["spark", "spawn"]
