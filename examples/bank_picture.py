"""The picture of the bank: what each query has seen, second by second, and what its books summed to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bank_books import Books
from bank_readers import Reader, Seen
from matplotlib.axes import Axes
from matplotlib.figure import Figure

GREY, BLUE, VERMILION, PURPLE = "#555555", "#0072B2", "#D55E00", "#CC79A7"
"""Of Okabe and Ito's palette, which colour-blind eyes tell apart; the markers differ too."""


@dataclass(frozen=True)
class Told:
    """When things happened (``time.time``)."""

    started: float
    log_end: Sequence[tuple[float, int]]
    """How many messages the log had at a moment."""
    hang: Sequence[float]
    """From when until when the hanging transfer was open."""


def draw(path: Path, told: Told, d: Reader, e: tuple[Reader, Books], without: tuple[Reader, Books]) -> None:
    """Draw messages over seconds for D and E, and the sum of all balances over messages, with and without the cut."""
    figure = Figure(figsize=(11, 8.4), dpi=130, layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=(3, 2))
    _messages(above, told, d.seen(told.started), e[0].seen(told.started))
    _sums(below, e, without)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
    figure.suptitle("One log, two isolation levels, whole transactions", fontsize=16, fontweight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _messages(axes: Axes, told: Told, monitor: Sequence[Seen], booking: Sequence[Seen]) -> None:
    hang = [at - told.started for at in told.hang]
    ends = [(at - told.started, messages) for at, messages in told.log_end]
    axes.plot(*zip(*ends, strict=True), linestyle=":", color=GREY, linewidth=2, label="end of the log")
    for seen, color, marker, label in (
        (monitor, BLUE, "o", "monitor D, read_uncommitted"),
        (booking, VERMILION, "s", "bookkeeper E, read_committed"),
    ):
        points = [(s.at, s.messages) for s in seen]
        axes.plot(
            *zip(*points, strict=True), f"{marker}-", color=color, linewidth=2, label=label, drawstyle="steps-post"
        )
    last = max(ends[-1][0], monitor[-1].at, booking[-1].at)
    top = ends[-1][1]
    axes.axvspan(hang[0], hang[1], color="#EBEBEB", linewidth=0)
    held = f"one transfer hangs\nfor {hang[1] - hang[0]:.0f} s:\nD runs on, E waits"
    axes.text(sum(hang) / 2, top, held, color=GREY, ha="center", va="top")
    never = f"E never sees\nthe {monitor[-1].messages - booking[-1].messages} messages\nof aborted\ntransfers"
    axes.text(last * 1.015, booking[-1].messages, never, color=VERMILION, va="top")
    axes.set(xlabel="seconds", ylabel="messages (a point is a micro-batch)")
    axes.set(xlim=(0, last * 1.16), ylim=(0, top * 1.06))


def _sums(axes: Axes, *kept: tuple[Reader, Books]) -> None:
    looks = (
        (VERMILION, "s", "bookkeeper E, with a consistent cut"),
        (PURPLE, "X", "the same job with consistentCut=false"),
    )
    for (reader, books), (color, marker, label) in zip(kept, looks, strict=True):
        points = [(s.messages, cents / 100) for s, cents in zip(reader.seen(), books.sums, strict=False)]
        axes.plot(*zip(*points, strict=True), f"{marker}-", color=color, linewidth=2, label=label)
    half = "without it, half of some transfers is booked,\nand the other half is not yet"
    axes.text(0.99, 0.08, half, color=PURPLE, ha="right", transform=axes.transAxes)
    axes.set(xlabel="messages booked", ylabel="sum of all balances")
    axes.set_xlim(left=0, right=axes.get_xlim()[1] * 1.1)
    axes.yaxis.set_major_formatter("{x:,.0f}")
