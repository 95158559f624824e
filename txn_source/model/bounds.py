"""The four bounds of a partition, read together as one value so that they agree (Kafka's ``LogOffsetSnapshot``)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txn_source.model.errors import InternalError, OutOfRangeError
from txn_source.model.isolation import FetchIsolation, IsolationLevel
from txn_source.model.position import Position, PositionRange


@dataclass(frozen=True, slots=True)
class Bounds:
    """``log_start <= last_stable <= high_watermark <= log_end`` of one partition at one moment.

    ``log_start`` is the first position still there (inclusive). The other three are exclusive upper bounds:
    ``log_end`` is the next position to be assigned, below ``high_watermark`` every entry has enough copies, and below
    ``last_stable`` every transaction is decided.
    """

    log_start: Position
    last_stable: Position
    high_watermark: Position
    log_end: Position

    def __post_init__(self) -> None:
        if not self.log_start <= self.last_stable <= self.high_watermark <= self.log_end:
            raise InternalError(f"The bounds of a partition disagree: {self}.", "Please report it.")

    @classmethod
    def of(
        cls,
        log_start: Position,
        log_end: Position,
        unstable_firsts: Iterable[Position] = (),
        high_watermark: Position | None = None,
    ) -> Bounds:
        """Return the bounds that follow from a partition's state.

        Args:
            log_start: first position still there, inclusive.
            log_end: next position to be assigned, exclusive bound.
            unstable_firsts: first positions of the transactions that are ongoing, or whose marker lies at or above
                ``high_watermark``.
            high_watermark: exclusive; None if one copy is enough, and then it is the log's end.
        """
        high_watermark = log_end if high_watermark is None else min(max(high_watermark, log_start), log_end)
        unstable = first_unstable(unstable_firsts, log_start)
        last_stable = high_watermark if unstable is None else min(unstable, high_watermark)
        return cls(log_start, max(last_stable, log_start), high_watermark, log_end)

    def upper(self, isolation: FetchIsolation | IsolationLevel) -> Position:
        """Return the exclusive bound that a fetch so isolated reads below."""
        if isinstance(isolation, IsolationLevel):
            isolation = isolation.fetch_isolation
        match isolation:
            case FetchIsolation.LOG_END:
                return self.log_end
            case FetchIsolation.HIGH_WATERMARK:
                return self.high_watermark
            case FetchIsolation.TXN_COMMITTED:
                return self.last_stable

    def clip(self, start: Position, end: Position, isolation: FetchIsolation | IsolationLevel) -> PositionRange:
        """Return what of ``[start, end)`` may be read; it is empty, not an error, if all lies at or above the bound."""
        self.check(start)
        self.check(end)
        return PositionRange(start, max(start, min(end, self.upper(isolation))))

    def check(self, position: Position) -> None:
        """Raise OUT_OF_RANGE for a position below ``log_start`` or above ``log_end``."""
        if not self.log_start <= position <= self.log_end:
            raise OutOfRangeError(
                f"Position {position} lies outside the partition, which has [{self.log_start}, {self.log_end}).",
                "Use a position in that range, earliest or latest.",
            )


def first_unstable(unstable_firsts: Iterable[Position], log_start: Position) -> Position | None:
    """Return the smallest first position of the unstable transactions, never below the log's start; None if none is."""
    smallest = min(unstable_firsts, default=None)
    return None if smallest is None else max(smallest, log_start)
