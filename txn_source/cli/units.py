"""Durations and sizes as people read them: ``1h 30m``, ``1.5 GiB``."""

from __future__ import annotations

from txn_source.model.units import UNIT_SECONDS


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as ``1h 30m``; tenths of seconds below a minute."""
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    rest = round(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(UNIT_SECONDS[unit]))
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for number, part in enumerate(parts[:2]) if number == 0 or not part.startswith("0"))


def format_size(size_bytes: int) -> str:
    """Return a size with three digits or so, such as ``1.5 MiB``."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 999.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"
