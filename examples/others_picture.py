"""The picture of a log that others wrote: its transactions along a partition, and where each level ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

GREY, BLUE, VERMILION, PURPLE = "#555555", "#0072B2", "#D55E00", "#CC79A7"
"""Of Okabe and Ito's palette, which colour-blind eyes tell apart; the lines and markers differ too."""
LOOKS = {"plain": (GREY, "|"), "committed": (BLUE, "o"), "aborted": (VERMILION, "x"), "open": (PURPLE, "s")}
"""Colour and marker of messages by what became of their transaction."""


@dataclass(frozen=True)
class Span:
    """A transaction on the line: from its first message to its marker, None if it has none."""

    first: float
    marker: float | None
    state: str


@dataclass(frozen=True)
class Line:
    """A partition as a line: messages with their states, transactions, and the places where the levels end."""

    title: str
    messages: Sequence[tuple[float, str]]
    spans: Sequence[Span]
    last_stable: float
    end: float
    breaks: Sequence[tuple[float, str]] = ()
    """Where something else begins, such as a ledger, with its name."""


def text_of(value: bytes | None) -> str:
    """Return a short text of a message's value, whatever is in it."""
    if value is None:
        return "null"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if not text.isprintable():
        text = f"{value[:8].hex()}... {len(value)} bytes"
    return text[:20] or "(empty)"


def line_of(
    title: str,
    rows: Sequence[tuple[Any, str | None]],
    transactions: Sequence[Any],
    bounds: tuple[Any, Any],
    place: Callable[[Any], float],
    breaks: Sequence[tuple[float, str]] = (),
) -> Line:
    """Return a partition's line; ``place`` tells where on it a position lies."""
    spans = [
        Span(place(txn.first), None if txn.marker is None else place(txn.marker), str(txn.state))
        for txn in sorted(transactions, key=lambda txn: txn.first)
    ]
    messages = [(place(at), status or "plain") for at, status in rows]
    return Line(title, messages, spans, place(bounds[0]), place(bounds[1]), breaks)


def draw(path: Path, heading: str, unit: str, lines: Sequence[Line]) -> None:
    """Draw partitions below each other."""
    heights = [2 + 0.35 * (max(_rows(line.spans), default=0) + 1) for line in lines]
    figure = Figure(figsize=(12, 1.2 + 0.9 * sum(heights)), dpi=130, layout="constrained")
    all_axes = figure.subplots(len(lines), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axes, line in zip(all_axes, lines, strict=True):
        _draw(axes, line)
    all_axes[-1].set_xlabel(unit)
    names = {"plain": "plain", "committed": "committed", "aborted": "aborted", "open": "undecided"}
    handles = [
        Line2D([], [], color=color, marker=marker, linewidth=0 if state == "plain" else 2, label=names[state])
        for state, (color, marker) in LOOKS.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(heading, fontsize=15, fontweight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _rows(spans: Sequence[Span]) -> list[int]:
    """Return the height at which each transaction is drawn: those that overlap lie above each other."""
    ends: list[float] = []
    rows = []
    for span in spans:
        end = float("inf") if span.marker is None else span.marker
        row = next((at for at, taken in enumerate(ends) if taken < span.first), len(ends))
        ends[row:] = [end, *ends[row + 1 :]]
        rows.append(row)
    return rows


def _draw(axes: Axes, line: Line) -> None:
    for state, (color, marker) in LOOKS.items():
        places = [at for at, of in line.messages if of == state]
        axes.plot(places, [0] * len(places), marker, color=color, markersize=5, linewidth=0)
    rows = _rows(line.spans)
    for span, row in zip(line.spans, rows, strict=True):
        color, _ = LOOKS[span.state]
        height = row + 1.0
        end = line.end if span.marker is None else span.marker
        style = ":" if span.marker is None else "-"
        axes.plot([span.first, end], [height, height], style, color=color, linewidth=2.5, solid_capstyle="butt")
        if span.marker is not None:
            axes.plot([end], [height], "|", color=color, markersize=11, markeredgewidth=2)
    top = max(rows, default=0) + 1.6
    if line.last_stable < line.end:
        axes.axvspan(line.last_stable, line.end, color="#EBEBEB", linewidth=0)
        axes.text(
            line.last_stable, top - 0.3, "read_committed ends here ", color=GREY, ha="right", va="bottom", fontsize=9
        )
        axes.axvline(line.last_stable, color=GREY, linewidth=1.2, linestyle="--")
    for at, name in line.breaks:
        axes.axvline(at - 0.5, color="#BBBBBB", linewidth=0.8)
        axes.text(at - 0.3, -0.9, name, fontsize=7, color=GREY, ha="left", va="center")
    axes.set_title(line.title, loc="left", fontsize=11)
    axes.set_ylim(-1.3 if line.breaks else -0.8, top + 0.3)
    axes.set_xlim(min([0, *(at for at, _ in line.messages)]) - 1, line.end + 1)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
