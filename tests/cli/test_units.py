from __future__ import annotations

import pytest

from txn_source.cli.units import format_count, format_duration, format_size, parse_duration, parse_size
from txn_source.model.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24h", 86_400),
        ("1h30m", 5400),
        ("90s", 90),
        ("1.5d", 129_600),
        ("250ms", 0.25),
        ("7", 7),
        (" 2M ", 120),
        ("0", 0),
    ],
)
def test_duration_is_read(text: str, seconds: float) -> None:
    """Each spelling has one meaning in seconds."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "1 day", "-1s", "1h 30m", "1e3", "1,5s", "1w"])
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    """Nothing is guessed: each is an error that shows how to write it."""
    with pytest.raises(InvalidArgumentError, match="Write it as 24h"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("64m", 64 << 20), ("1G", 1 << 30), ("8 KiB", 8192), ("8kb", 8192), ("2t", 2 << 40)]
)
def test_size_is_read(text: str, size: int) -> None:
    """Letters are powers of 1024, as in Spark."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "m", "-1", "1.5g", "1x"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    """Nothing is guessed: each is an error that shows how to write it."""
    with pytest.raises(InvalidArgumentError, match="Write it as 64m"):
        parse_size(text)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
