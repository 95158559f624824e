"""Durations and sizes as people write and read them: ``24h``, ``1h30m``, ``128m``, ``1.5 GiB``."""

from __future__ import annotations

import re

from txn_source.model.errors import InvalidArgumentError

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?")
_SIZE_LETTERS = "kmgt"


def parse_duration(text: str) -> float:
    """Return the seconds that a text such as ``90s``, ``1h30m``, ``7d`` or a bare number of seconds means."""
    stripped = text.strip().lower()
    if _DURATION.fullmatch(stripped):
        return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(stripped))
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        return float(stripped)
    raise InvalidArgumentError(f"{text!r} is not a duration.", "Write it as 24h, 1h30m, 90s or 500ms.")


def parse_size(text: str) -> int:
    """Return the bytes that a text such as ``64m``, ``1g`` or a bare number means; the letters are powers of 1024."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidArgumentError(f"{text!r} is not a size.", "Write it as 64m, 1g or a number of bytes.")
    power = _SIZE_LETTERS.index(found[2]) + 1 if found[2] else 0
    return int(found[1]) << (10 * power)


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as ``1h 30m``; tenths of seconds below a minute."""
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    rest = round(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(_SECONDS[unit]))
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for number, part in enumerate(parts[:2]) if number == 0 or not part.startswith("0"))


def format_count(number: int, noun: str) -> str:
    """Return a number of things, such as ``1 message`` or ``1,000 messages``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


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
