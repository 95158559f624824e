"""Moments as people write them, in microseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from txn_source.model.errors import InvalidArgumentError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
"""The last time that has a text."""
_FIRST_MS = 100_000_000_000
"""In March 1973; as seconds this is the year 5138."""
_MILLIS = re.compile(r"-?[0-9]{1,15}")


def shown_time(time_us: int) -> str:
    """Return a time (microseconds since 1970, UTC) as text that ``time_us`` reads, as far as Python has such times."""
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).isoformat()
    except OverflowError:
        return f"{time_us} \u00b5s after 1970"


def time_us(text: str) -> int:
    """Return the moment that a text names, in microseconds since 1970.

    It is milliseconds since then, or ISO 8601 with a zone. A number of milliseconds before 1973 is refused: it was
    meant as seconds, or as something else. So is a time without a zone: who writes one mostly means that of his clock.
    """
    text = text.strip()
    if _MILLIS.fullmatch(text):
        if int(text) and int(text) < _FIRST_MS:
            raise InvalidArgumentError(
                f"{text} is not a time in milliseconds since 1970.",
                "Write seconds with three zeros more, a time as 2026-01-31T12:00:00Z, a place as earliest or 12:40.",
            )
        return int(text) * 1000
    try:
        if text.isdigit():  # Python reads a date from digits alone, and more than a date has are microseconds
            raise ValueError("too many milliseconds")
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgumentError(
            f"{text!r} is not a time.",
            "Use milliseconds since the epoch or ISO 8601, such as 2026-01-31T12:00:00Z.",
        ) from None
    if when.tzinfo is None:
        shown = when.isoformat()
        raise InvalidArgumentError(
            f"The time {text!r} has no zone.", f"Write {shown}Z if UTC is meant, or the zone, such as {shown}+02:00."
        )
    return micros(when)


def moment_us(value: Any) -> int:
    """Return a moment in microseconds since 1970: a datetime with a time zone, or a text that ``time_us`` reads."""
    if isinstance(value, datetime):
        return micros(value)
    if isinstance(value, str):
        return time_us(value)
    raise InvalidArgumentError(f"{value!r:.120} is not a time.", "Use a datetime with a time zone, or ISO 8601.")


def micros(when: datetime) -> int:
    """Return a moment with a time zone in microseconds since 1970, or raise INVALID_ARGUMENT."""
    if when.tzinfo is None:
        raise InvalidArgumentError(f"The time {when} has no time zone.", "Use one with a time zone.")
    return (when - _EPOCH) // timedelta(microseconds=1)
