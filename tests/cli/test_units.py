from __future__ import annotations

from tests.selection import for_each
from txn_source.cli.units import format_duration, format_size
from txn_source.model.units import format_count


@for_each(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (59.94, "59.9s"),
        (59.96, "1m"),
        (61, "1m 1s"),
        (3599.9, "1h"),
        (3660, "1h 1m"),
        (3601, "1h"),
        (90_000, "1d 1h"),
    ],
)
def test_duration_is_shown_in_two_units(seconds: float, text: str) -> None:
    """Rounding at a unit's edge moves to the next unit instead of showing 60s."""
    assert format_duration(seconds) == text


@for_each(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_048_575, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 40, "3.0 TiB"),
    ],
)
def test_size_is_shown_in_one_unit(size: int, text: str) -> None:
    """Rounding at a unit's edge moves to the next unit instead of showing 1024.0 KiB."""
    assert format_size(size) == text


def test_one_thing_is_singular() -> None:
    """Counts read as English, with thousands set apart."""
    assert [format_count(n, "line") for n in (0, 1, 1000)] == ["0 lines", "1 line", "1,000 lines"]
    assert [format_count(n, "entry") for n in (0, 1, 1000)] == ["0 entries", "1 entry", "1,000 entries"]
    assert format_count(2, "copy") == "2 copies"
