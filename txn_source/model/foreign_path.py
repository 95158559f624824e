"""Paths of logs that others wrote, told from those of our own without loading what reads them."""

from __future__ import annotations

FORMATS = ("kafka", "pulsar")


def is_foreign(path: object) -> bool:
    """True if a path names a log of another system, as ``kafka:/var/lib/kafka`` does."""
    return isinstance(path, str) and path.partition(":")[0] in FORMATS and ":" in path
