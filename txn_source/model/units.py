"""Numbers, durations and sizes as people give them; as text: ``24h``, ``1h30m``, ``500ms``, ``128m``, ``10GB``.

And numbers of things as people read them.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any, TypeGuard

from txn_source.model.errors import InvalidArgumentError

UNIT_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)
_BARE = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.ASCII)
_SIZE_LETTERS = "kmgt"
MAX_TOTAL = 1 << 62
"""Of running totals and epochs: so much that nothing real gets there, and sums of two of them still fit."""


def is_whole(value: Any) -> TypeGuard[int]:
    """True for a whole number; ``True`` and ``False``, which Python takes for 1 and 0, are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """True for a number; neither a truth value nor NaN is one."""
    return is_whole(value) or (isinstance(value, float) and not math.isnan(value))


def parse_duration(text: str) -> float:
    """Return the seconds that a text such as ``90s``, ``1h30m`` or ``7d`` means.

    A bare number is refused but for 0: who writes 7 for an age mostly means days, and would lose data.
    """
    stripped = text.strip().lower()
    if _DURATION.fullmatch(stripped):
        return sum(float(number) * UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(stripped))
    if _BARE.fullmatch(stripped):
        if float(stripped) == 0:
            return 0.0
        raise InvalidArgumentError(
            f"{text!r} has no unit.", f"Write {stripped}d, {stripped}h, {stripped}m, {stripped}s or {stripped}ms."
        )
    raise InvalidArgumentError(f"{text!r} is not a duration.", "Write it as 7d, 24h, 1h30m, 90s or 500ms.")


def parse_size(text: str) -> int:
    """Return the bytes that a text such as ``64m``, ``10GB`` or a bare number means; letters are powers of 1024."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidArgumentError(f"{text!r} is not a size.", "Write it as 64m, 1g or a number of bytes.")
    power = _SIZE_LETTERS.index(found[2]) + 1 if found[2] else 0
    return int(found[1]) << (10 * power)


def given_duration(value: Any) -> Any:
    """Return the seconds of a ``timedelta`` or a text with a unit; any other value, such as a number, as it is."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    return parse_duration(value) if isinstance(value, str) else value


def format_count(number: int, noun: str) -> str:
    """Return a number of things, such as ``1 message`` or ``1,000 messages``."""
    if number == 1:
        return f"{number:,} {noun}"
    return f"{number:,} {noun[:-1]}ies" if noun.endswith(("ry", "py")) else f"{number:,} {noun}s"
