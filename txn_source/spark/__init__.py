"""The Spark connector: options and schema, thin over the client's planning and reading; and jobs over a log."""

from __future__ import annotations

from txn_source.spark.catalog.configure import configure
from txn_source.spark.offload_job import offload
from txn_source.spark.tables import create_tables

__all__ = ["configure", "create_tables", "offload"]
