"""The picture of the bank: what each reader has seen, second by second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from bank_readers import Seen
from matplotlib.axes import Axes
from matplotlib.figure import Figure

GREY, BLUE, VERMILION = "#555555", "#0072B2", "#D55E00"
"""Of Okabe and Ito's palette, which colour-blind eyes tell apart; the markers differ too."""


def draw(path: Path, monitor: Sequence[Seen], booking: Sequence[Seen], hang: Sequence[float]) -> None:
    """Draw messages over seconds: the log's end, D and E, and from when until when the hanging transfer was open."""
    figure = Figure(figsize=(11, 6.2), dpi=130, layout="constrained")
    axes = figure.add_subplot()
    log_end = _line((s.at, s.log_end) for s in (*monitor, *booking))
    axes.plot(*log_end, linestyle=":", color=GREY, linewidth=2, label="end of the log")
    for seen, color, marker, label in (
        (monitor, BLUE, "o", "monitor D, read_uncommitted"),
        (booking, VERMILION, "s", "booking system E, read_committed"),
    ):
        axes.plot(*_line((s.at, s.messages) for s in seen), f"{marker}-", color=color, linewidth=2, label=label)

    last, top = log_end[0][-1], log_end[1][-1]
    axes.axvspan(*hang, color="#EBEBEB", linewidth=0)
    held = f"one transfer hangs\nfor {hang[1] - hang[0]:.0f} s"
    axes.text(sum(hang) / 2, top, held, color=GREY, ha="center", va="top")
    _explain(axes, monitor, booking, hang)
    never = f"E never sees\nthe {monitor[-1].aborted} messages\nof aborted\ntransfers"
    axes.text(last * 1.015, booking[-1].messages, never, color=VERMILION, va="top")

    axes.set(xlabel="seconds", ylabel="messages (a point is a Spark query)")
    axes.set(xlim=(0, last * 1.16), ylim=(0, top * 1.06))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, frameon=False)
    figure.suptitle("One log, two isolation levels", fontsize=16, fontweight="bold")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _explain(axes: Axes, monitor: Sequence[Seen], booking: Sequence[Seen], hang: Sequence[float]) -> None:
    """Write beside the lines that D runs on, and that E waits, for how many messages, and then catches up."""
    waiting = [seen for seen in booking if hang[0] < seen.at < hang[1]]
    after = [seen for seen in booking if seen.at > hang[1]]
    if not waiting or not after:
        return  # the readers were too slow, or the time too short
    longest, middle, gap = waiting[-1], sum(hang) / 2, 0.012 * booking[-1].at
    caught_up = next((seen for seen in after if seen.messages > longest.messages), after[-1])
    running = min(monitor, key=lambda seen: abs(seen.at - middle))
    axes.text(running.at - gap, running.log_end * 1.05, "D runs on", color=BLUE, ha="right")
    waits = f"E waits, at last {longest.behind} messages behind"
    below = {"xytext": (-4, -8), "textcoords": "offset points", "ha": "right", "va": "top"}
    axes.annotate(waits, (hang[1], longest.messages), color=VERMILION, **below)
    span = (longest.at, longest.messages), (longest.at, longest.due)
    axes.annotate("", *span, arrowprops={"arrowstyle": "<->", "color": VERMILION, "shrinkA": 0, "shrinkB": 0})
    half = (longest.messages + caught_up.messages) / 2
    axes.text(caught_up.at + gap, half, "E catches up, once\nit is committed", color=VERMILION, va="center")


def _line(points: Iterable[tuple[float, int]]) -> list[tuple[float, ...]]:
    return list(zip((0.0, 0), *sorted(points), strict=True))
