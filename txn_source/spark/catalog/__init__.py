"""What Spark's named catalog asks of a log: a process that answers it, and the jar that asks."""
