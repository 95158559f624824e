"""Spark over logs that others wrote: thin over ``txn_source.foreign``."""
