"""Colours of the console: each that says something can be told from what it lies on, in both themes (WCAG 2.2, AA)."""

from __future__ import annotations

import re

import pytest

from txn_source.console.static_files import STATIC

Colour = tuple[int, ...]
_TEXT, _SHAPE = 4.5, 3.0
_STYLES = "".join(path.read_text(encoding="utf-8") for path in sorted(STATIC.rglob("*.css")))
_NAMED = {name: colours for name, *colours in re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", _STYLES)}
_GROUNDS = ("page", "card", "sunk")


def colour(name: str, theme: int) -> Colour:
    """Return what a name, or #rrggbb, stands for."""
    text = name if name.startswith("#") else _NAMED[name][theme]
    return tuple(int(text[at : at + 2], 16) for at in (1, 3, 5))


def luminance(of: Colour) -> float:
    parts = [part / 255 for part in of]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: Colour, other: Colour) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_and_shapes_stand_out(theme: int) -> None:
    """Compute the contrast of texts with all grounds, of what they are written on, and of shapes with their lane."""
    cases = [(name, on, _TEXT) for name in ("text", "quiet", "link", "good", "warn", "bad") for on in _GROUNDS]
    cases += [(name, on, _SHAPE) for name in ("edge", "focus", "hot", "tiered", "open", "aborted") for on in _GROUNDS]
    cases += [("#ffffff", on, _TEXT) for on in ("primary", "danger")]
    cases += [("text", on, _TEXT) for on in ("waiting", "away")] + [("quiet", "away", _TEXT)]
    found = [(name, on, contrast(colour(name, theme), colour(on, theme)), least) for name, on, least in cases]
    assert not [each for each in found if each[2] < each[3]]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_what_is_seen_through_stands_out(theme: int) -> None:
    """Find what is made fainter: a namespace in a link is text nevertheless; all else is of what can't be used now."""
    found = dict(re.findall(r"([^{}\n]+?) \{[^}]*?\bopacity: (0\.\d+)", _STYLES))
    share = float(found.pop(".pair .namespace"))
    for ground in _GROUNDS:
        below = colour(ground, theme)
        seen = tuple(round(a * share + b * (1 - share)) for a, b in zip(colour("link", theme), below, strict=True))
        assert contrast(seen, below) >= _TEXT, ground
    assert set(found) == {".sparkline .area", ".virtual .awaited > *", 'button[aria-disabled="true"], button:disabled'}
