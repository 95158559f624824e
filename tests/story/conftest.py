"""What a story needs that other folders have: a browser, Spark, and ``txnlog`` as a process."""

from __future__ import annotations

from tests.cli.conftest import spawn
from tests.console.browser.conftest import browser
from tests.spark.conftest import spark

__all__ = ["browser", "spark", "spawn"]
