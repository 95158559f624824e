"""Streams over logs that others wrote: offsets, limits, batches."""
