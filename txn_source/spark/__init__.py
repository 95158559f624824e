"""The Spark connector: options and schema, thin over the client's planning and reading; and jobs over a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txn_source.spark.catalog.configure import configure
    from txn_source.spark.frame import read
    from txn_source.spark.import_job import import_topics
    from txn_source.spark.offload_job import offload
    from txn_source.spark.tables import create_tables

_LAZY = {
    "configure": "txn_source.spark.catalog.configure",
    "create_tables": "txn_source.spark.tables",
    "import_topics": "txn_source.spark.import_job",
    "offload": "txn_source.spark.offload_job",
    "read": "txn_source.spark.frame",
}
"""Loaded when first used: Spark imports this package in several processes for each query, none of which needs them."""

__all__ = ["configure", "create_tables", "import_topics", "offload", "read"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
