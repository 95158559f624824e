"""The Spark connector: options and schema, thin over the client's planning and reading; and jobs over a log."""

from __future__ import annotations

from txn_source.spark.offload_job import offload

__all__ = ["offload"]
