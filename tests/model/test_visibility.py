"""Visibility: which entries of a partition a reader of each isolation level sees.

Two logs run the same steps. ``CoreLog`` asks the model, as the service and the readers do; ``NaiveLog`` knows the
definitions of semantics.md §2 and §3 only, and works everything out from the list of entries again, every time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.selection import examples, for_each
from txn_source.model.bounds import Bounds, first_unstable
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import Position, PositionRange
from txn_source.model.visibility import NO_TXN, needed, visible

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED

Place = tuple[int, int]
"""Ledger and entry id: the naive log does without the model's own type."""


@dataclass(frozen=True)
class Trace:
    """What a transaction left on the partition: its number, its first entry, and its marker unless it is ongoing."""

    txn: int
    first: Position
    marker: Position | None = None
    aborted: bool = False


class CoreLog:
    """One partition whose bounds and rows come from the model."""

    def __init__(self) -> None:
        self.log_start = self.log_end = Position(0, 0)
        self.high_watermark: Position | None = None
        self.entries: list[tuple[Position, int, bool]] = []  # position, transaction's number, whether it is a marker
        self.traces: dict[int, Trace] = {}

    def append(self, txn: int | None) -> None:
        if txn is not None and txn not in self.traces:
            self.traces[txn] = Trace(txn, self.log_end)
        self._put(NO_TXN if txn is None else txn, marker=False)

    def end(self, txn: int, *, abort: bool) -> None:
        """Write the marker, unless the transaction left no trace here."""
        if txn in self.traces:
            self.traces[txn] = Trace(txn, self.traces[txn].first, self.log_end, abort)
            self._put(txn, marker=True)

    def _put(self, txn: int, *, marker: bool) -> None:
        self.entries.append((self.log_end, txn, marker))
        self.log_end = self.log_end.plus(1)

    def unstable_firsts(self) -> list[Position]:
        high_watermark = self.log_end if self.high_watermark is None else self.high_watermark
        unstable = [t for t in self.traces.values() if t.marker is None or t.marker >= high_watermark]
        return [trace.first for trace in unstable]

    def bounds(self) -> Bounds:
        return Bounds.of(self.log_start, self.log_end, self.unstable_firsts(), self.high_watermark)

    def aborted(self, of: PositionRange) -> list[Trace]:
        """Return the aborted transactions that a read of a range needs, as the service finds them."""
        ended = [(trace, trace.marker.key) for trace in self.traces.values() if trace.aborted and trace.marker]
        firsts = np.array([trace.first.key for trace, _ in ended], np.int64)
        markers = np.array([marker for _, marker in ended], np.int64)
        return [ended[i][0] for i in np.flatnonzero(needed(firsts, markers, of.start.key, of.end.key))]

    def read(self, of: PositionRange, level: IsolationLevel) -> list[Position]:
        """Return the entries of a range that a reader of the level sees; the range ends at or below its bound."""
        aborted = [a.txn for a in self.aborted(of)]
        seen = visible(
            np.array([position.key for position, _, _ in self.entries], np.int64),
            np.array([txn for _, txn, _ in self.entries], np.int64),
            np.array([marker for _, _, marker in self.entries], np.bool_),
            of,
            level,
            np.array(aborted, np.int64),
        )
        return [self.entries[i][0] for i in np.flatnonzero(seen)]

    def readable(self, level: IsolationLevel) -> PositionRange:
        return PositionRange(self.log_start, self.bounds().upper(level))


class NaiveLog:
    """One partition by the words of semantics.md: an entry is a place, a transaction or None, and its kind."""

    def __init__(self) -> None:
        self.entries: list[tuple[Place, int | None, str]] = []
        self.log_start: Place = (0, 0)
        self.log_end: Place = (0, 0)
        self.raised_to: Place | None = None

    def put(self, txn: int | None, kind: str) -> None:
        self.entries.append((self.log_end, txn, kind))
        self.log_end = (self.log_end[0], self.log_end[1] + 1)

    def places(self, txn: int) -> list[Place]:
        return [place for place, owner, kind in self.entries if owner == txn and kind == "message"]

    def marker(self, txn: int) -> tuple[Place, str] | None:
        ends = [(place, kind) for place, owner, kind in self.entries if owner == txn and kind != "message"]
        return ends[0] if ends else None

    def high_watermark(self) -> Place:
        return self.log_end if self.raised_to is None else self.raised_to

    def first_unstable(self) -> Place | None:
        firsts = []
        for txn in {owner for _, owner, _ in self.entries if owner is not None}:
            end = self.marker(txn)
            ongoing, unreplicated = end is None, end is not None and not end[0] < self.high_watermark()
            if ongoing or unreplicated:
                firsts.append(max(min(self.places(txn)), self.log_start))
        return min(firsts) if firsts else None

    def last_stable(self) -> Place:
        unstable = self.first_unstable()
        if unstable is None or not unstable < self.high_watermark():
            return max(self.high_watermark(), self.log_start)
        return max(unstable, self.log_start)

    def is_aborted(self, txn: int | None) -> bool:
        return any(owner == txn and kind == "abort" for _, owner, kind in self.entries)

    def sees(self, level: IsolationLevel) -> list[Place]:
        rows = []
        for place, txn, kind in self.entries:
            message_still_there = kind == "message" and self.log_start <= place
            if level is COMMITTED:
                if message_still_there and place < self.last_stable() and not self.is_aborted(txn):
                    rows.append(place)
            elif message_still_there and place < self.high_watermark():
                rows.append(place)
        return rows

    def aborted(self, start: Place, end: Place) -> set[int]:
        found = set()
        for txn in {owner for _, owner, _ in self.entries if owner is not None and self.is_aborted(owner)}:
            last = self.marker(txn)
            if last is not None and last[0] >= start and min(self.places(txn)) < end:
                found.add(txn)
        return found


def place(position: Position) -> Place:
    return position.ledger_id, position.entry_id


def places(positions: Iterable[Position]) -> list[Place]:
    return [place(p) for p in positions]


# The worked cases


# The model against the naive log


class CoreAgainstNaive(RuleBasedStateMachine):
    """Appends, ends, trims, rolls and raises the high watermark at random; both logs must always agree."""

    def __init__(self) -> None:
        super().__init__()
        self.core, self.naive = CoreLog(), NaiveLog()
        self.open: list[int] = []
        self.begun = 0
        self.before: Bounds | None = None
        self.stable_rows: list[Place] = []  # what was once seen below last_stable

    @initialize(one_copy=st.booleans())
    def choose_copies(self, one_copy: bool) -> None:
        """With one copy the high watermark follows the log's end; else it waits for ``replicate``."""
        if not one_copy:
            self._raise_to((0, 0))

    @rule(messages=st.integers(1, 3))
    def append_plain(self, messages: int) -> None:
        for _ in range(messages):
            self.core.append(None)
            self.naive.put(None, "message")

    @rule(data=st.data(), messages=st.integers(1, 2))
    def append_in_transaction(self, data: st.DataObject, messages: int) -> None:
        txn = data.draw(st.sampled_from([*self.open, self.begun]))
        if txn == self.begun:  # the first is number 0, that is (0,0), a valid id
            self.begun += 1
            self.open.append(txn)
        for _ in range(messages):
            self.core.append(txn)
            self.naive.put(txn, "message")

    @precondition(lambda self: self.open)
    @rule(data=st.data(), abort=st.booleans())
    def end_transaction(self, data: st.DataObject, abort: bool) -> None:
        txn = data.draw(st.sampled_from(self.open))
        self.open.remove(txn)
        self.core.end(txn, abort=abort)
        self.naive.put(txn, "abort" if abort else "commit")

    @precondition(lambda self: self.naive.raised_to is not None)
    @rule(data=st.data())
    def replicate(self, data: st.DataObject) -> None:
        higher = [p for p, _, _ in self.naive.entries if p >= self.naive.high_watermark()]
        self._raise_to(data.draw(st.sampled_from([*higher, self.naive.log_end])))

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        low, high = self.naive.log_start, self.naive.high_watermark()
        start = data.draw(st.sampled_from([p for p, _, _ in self.naive.entries if low <= p < high] or [low]))
        self.core.log_start, self.naive.log_start = Position(*start), start

    @precondition(lambda self: self.naive.log_end[1])
    @rule(gap=st.integers(1, 3))
    def roll(self, gap: int) -> None:
        """Go on in a new ledger; its id is higher by any number, since other partitions take ids too."""
        whole = self.naive.high_watermark() == self.naive.log_end
        self.naive.log_end = (self.naive.log_end[0] + gap, 0)
        self.core.log_end = Position(*self.naive.log_end)
        if self.naive.raised_to is not None and whole:
            self._raise_to(self.naive.log_end)

    def _raise_to(self, high_watermark: Place) -> None:
        self.naive.raised_to, self.core.high_watermark = high_watermark, Position(*high_watermark)

    @invariant()
    def bounds_are_the_naive_ones_and_in_order(self) -> None:
        bounds, naive = self.core.bounds(), self.naive
        unstable = first_unstable(self.core.unstable_firsts(), self.core.log_start)
        assert (unstable and place(unstable)) == naive.first_unstable()
        assert place(bounds.last_stable) == naive.last_stable()
        assert place(bounds.high_watermark) == naive.high_watermark()
        assert place(bounds.log_end) == naive.log_end
        assert bounds.log_start <= bounds.last_stable <= bounds.high_watermark <= bounds.log_end

    @invariant()
    def bounds_never_go_back(self) -> None:
        before, self.before = self.before, self.core.bounds()
        if before is not None:
            assert before.last_stable <= self.before.last_stable
            assert before.high_watermark <= self.before.high_watermark

    @invariant()
    def rows_are_the_naive_ones(self) -> None:
        for level in IsolationLevel:
            assert places(self.core.read(self.core.readable(level), level)) == self.naive.sees(level)

    @invariant()
    def rows_below_the_bound_never_change(self) -> None:
        """What read_committed saw once, it sees again, but for what was trimmed; new rows come behind it only."""
        rows = places(self.core.read(self.core.readable(COMMITTED), COMMITTED))
        known = [p for p in self.stable_rows if p >= self.naive.log_start]
        assert rows[: len(known)] == known
        self.stable_rows = rows

    @rule(data=st.data(), level=st.sampled_from(IsolationLevel))
    def read_in_pieces(self, data: st.DataObject, level: IsolationLevel) -> None:
        """Split the readable range at any places: each piece asks for its own aborted set, the rows stay the same."""
        readable = self.core.readable(level)
        inside = [Position(*p) for p, _, _ in self.naive.entries if Position(*p) in readable]
        cuts = data.draw(st.lists(st.sampled_from(inside), max_size=4)) if inside else []
        rows: list[Position] = []
        for start, end in pairwise([readable.start, *sorted(cuts), readable.end]):
            piece = PositionRange(start, end)
            found = self.core.aborted(piece)
            assert {a.txn for a in found} == self.naive.aborted(place(start), place(end))
            for a in found:
                assert a.marker is not None
                assert (place(a.first), (place(a.marker), "abort")) == (
                    min(self.naive.places(a.txn)),
                    self.naive.marker(a.txn),
                )
            rows += self.core.read(piece, level)
        assert places(rows) == self.naive.sees(level)


CoreAgainstNaive.TestCase.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)
test_model_agrees_with_the_naive_log = CoreAgainstNaive.TestCase


# Rules worth a picture of their own


def _log(*steps: tuple[str, int | None]) -> CoreLog:
    log = CoreLog()
    for action, txn in steps:
        if action == "append":
            log.append(txn)
        else:
            assert txn is not None
            log.end(txn, abort=action == "abort")
    return log


@pytest.mark.parametrize("abort", [False, True])
def test_entry_at_the_bound_is_not_read(abort: bool) -> None:
    """Read up to a bound, again after the transaction at it ended (Redpanda #3036 then showed aborted data)."""
    log = _log(("append", None), ("append", 0))
    planned = log.readable(COMMITTED)
    assert planned.end == Position(0, 1)
    assert log.read(planned, COMMITTED) == [Position(0, 0)]
    log.end(0, abort=abort)
    assert log.read(planned, COMMITTED) == [Position(0, 0)]


@for_each(
    ("start", "end", "is_needed"),
    [(0, 2, False), (0, 3, True), (4, 9, True), (5, 9, True), (6, 9, False)],
)
def test_aborted_transaction_is_needed_where_it_touches_the_range(start: int, end: int, is_needed: bool) -> None:
    """Ask for ranges around a transaction with its first entry at 2 and its marker at 5."""
    firsts, markers = (np.array([Position(3, entry).key], np.int64) for entry in (2, 5))
    found = needed(firsts, markers, Position(3, start).key, Position(3, end).key)
    assert found.tolist() == [is_needed]
