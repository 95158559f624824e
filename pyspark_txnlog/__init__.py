"""Makes ``spark.read.format("txnlog")`` work by itself.

At its first use Spark imports every top-level module whose name starts with ``pyspark_`` and registers the
``DefaultSource`` it exports. An import that raises would break every Python source of the session, so this module
does nothing else.
"""

from txn_source.spark.source import TxnLogDataSource as DefaultSource

__all__ = ["DefaultSource"]
