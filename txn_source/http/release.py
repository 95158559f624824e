"""Which release a service is of."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def release() -> str:
    """Return the package's version; ``unknown`` where it isn't installed."""
    try:
        return version("txn-source")
    except PackageNotFoundError:
        return "unknown"
