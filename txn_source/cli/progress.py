"""How far a command is: a line on standard error, for people, of whatever takes longer than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from txn_source.cli.output import console

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_PATIENCE_S = 2.0
_INTERVAL_S = 0.1


class Progress:
    """A block whose progress is shown while it lasts, with rate and remaining time where they can be known.

    Args:
        unit: what is counted, in the plural; "" where nothing is, so that only the time is shown.
        total: how much there is to do; None if that isn't known, or is told later (``expect``).
        later: True if it is told later.
        wanted: False shows nothing, as where standard error is no terminal.
    """

    def __init__(self, unit: str, total: int | None = None, *, later: bool = False, wanted: bool = True) -> None:
        self._unit, self._total, self._later = unit, total, later
        self.wanted = wanted and sys.stderr.isatty()
        """Whether it is shown; if not, a total need not be found."""
        self._bar: Bar | None = None
        self._done = 0
        self._began = self._told = 0.0

    def __enter__(self) -> Self:
        if self.wanted:
            self._bar = self._made()
            self._began = time.monotonic()
            self._timer = threading.Timer(_PATIENCE_S, self._bar.start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._timer.cancel()
            self._timer.join()  # it may be starting the bar
            self._bar.stop()
            self._bar = None

    def expect(self, total: int) -> None:
        """Note how much there is to do."""
        if self._bar is not None:
            self._bar.update(self._task, total=total)

    def of(self, done: int, total: int) -> None:
        """Note how much is done, and how much there is to do."""
        self.expect(total)
        self.update(done)

    def advance(self, _: object = None) -> None:
        """Note that one more is done."""
        self._done += 1
        self.update(self._done)

    def update(self, done: int, count: int | None = None) -> None:
        """Note how much is done of the total, and how many that are, if the total is of something else."""
        now = time.monotonic()
        if self._bar is not None and now - self._told >= _INTERVAL_S:
            self._told = now
            counted = done if count is None else count
            rate = counted / max(now - self._began, 1e-6)
            self._bar.update(self._task, completed=done, text=f"{counted:,} {self._unit}, {rate:,.0f}/s")

    def _made(self) -> Bar:
        from rich import progress

        is_known = self._total or self._later
        known = [progress.BarColumn(), progress.TimeRemainingColumn()] if is_known else [progress.SpinnerColumn()]
        bar = progress.Progress(
            *known[:1],
            progress.TextColumn("{task.fields[text]}"),
            progress.TimeElapsedColumn(),
            *known[1:],
            console=console(stderr=True),
            transient=True,
        )
        self._task = bar.add_task("", total=self._total or None, text=f"{self._unit}")
        return bar
