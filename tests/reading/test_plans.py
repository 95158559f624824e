"""Plans of reads over our own log, Kafka's and Pulsar's: topics, ends, tasks, and that a plan never changes."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from tests.reading.kinds import KINDS
from tests.reading.sources import BOTH, COMMITTED, LEVELS, UNCOMMITTED, History, in_order, numbers
from tests.selection import mostly_long
from txn_source import DataLossError, InvalidArgumentError, OutOfRangeError, Position
from txn_source.model.position import EARLIEST, LATEST
from txn_source.reading.places import Cut, Side
from txn_source.reading.plan import ReadPlan
from txn_source.reading.ranges import cuts_of
from txn_source.reading.request import ReadRequest, Selection

ONE = Selection(("b",))


def on(history: History, points: dict[int, Any], everywhere: str = EARLIEST, **more: Any) -> Side:
    """Return a side that is at points of some places."""
    return Side(everywhere, {history.names[place]: at for place, at in points.items()}, **more)


@pytest.mark.parametrize("history", [*KINDS], indirect=True)
@pytest.mark.parametrize("seed", mostly_long(range(40), 0))
def test_levels_show_what_they_may_up_to_a_cut(history: History, seed: int) -> None:
    """Read a random history at both levels, up to the bounds and, at read_committed, to the cut of the definition.
    Tasks of any number and size divide just that, with each transaction's status."""
    rng = random.Random(seed)
    for _ in range(40):
        history.step(rng)
    for level, cuts in ((COMMITTED, True), (COMMITTED, False), (UNCOMMITTED, True)):
        untold: list[str | None] = []
        request = ReadRequest(level, consistent_cut=cuts)
        planned = history.planned(request, told=untold.append)
        ends = history.ends(level)
        rows = history.rows(planned)
        assert numbers(rows) == history.shown(level, history.cut(ends) if request.cuts else ends)
        assert in_order(rows)
        assert all(row.status == history.status(row) for row in rows)
        assert not (any(untold) and history.tells)
        again = history.planned(replace(request, **rng.choice([{"min_partitions": 5}, {"max_partition_bytes": 1}])))
        assert history.rows(again) == rows
        assert again.ranges == planned.ranges
        assert len(again.tasks) > len(planned.tasks)
        check_parts(history, again)


def check_parts(history: History, planned: ReadPlan) -> None:
    """Check that the parts of each partition follow each other in its range; the rows show that none is missing."""
    at = {name: reach.start for name, reach in planned.ranges}
    ends = {name: reach.end for name, reach in planned.ranges}
    for name, of in map(history.part, planned.parts):
        assert at[name] <= of.start < of.end <= ends[name]
        at[name] = of.end


@pytest.mark.parametrize("history", [*KINDS], indirect=True)
def test_ends_that_are_asked_for_are_lowered_to_a_cut(history: History) -> None:
    """End before one leg of a transfer: the read leaves the other legs out, or reports that the log can't tell them. A
    start is taken as given, and no end lies below a start. Entries above Kafka's high watermark count."""
    sent = history.transfer(0, 1, 2)
    plain = history.send(1)
    history.publish()
    whole = history.numbers(ReadRequest())
    end = on(history, {0: history.entries[0][1].position}, LATEST)
    untold: list[str | None] = []
    history.planned(ReadRequest(end=end), told=untold.append)
    assert any(untold) == (not history.tells)
    left_out = (*sent, *plain) if history.tells else sent[:1]
    assert history.numbers(ReadRequest(end=end)) == [n for n in whole if n not in left_out]
    assert history.numbers(ReadRequest(end=end, consistent_cut=False)) == [n for n in whole if n != sent[0]]
    start = on(history, {1: history.entries[1][1].position.plus(1), 2: LATEST})
    assert history.numbers(ReadRequest(start=start)) == [n for n in whole if n not in (1, 2, *sent[1:])]
    assert all(reach.start <= reach.end for _, reach in history.planned(ReadRequest(start=start, end=end)).ranges)
    history.transfer(0, 1)
    history.publish(0)
    assert history.numbers(ReadRequest()) == history.shown(COMMITTED, history.cut(history.ends(COMMITTED)))


def test_each_range_has_what_lies_in_it(history: History) -> None:
    """Read from each position of a topic to each other, those of markers and behind a ledger's last entry too."""
    for size in (2, 1):
        history.send(2, size)
        history.publish()
    history.transfer(2)
    history.send(2, txn=history.begin())
    history.publish()
    entries, level = [e for e in history.entries[2] if e.numbers], UNCOMMITTED
    behind = entries[-1].position.plus(1)
    for i, first in enumerate([*(e.position for e in entries), behind]):
        for j, last in enumerate([*(e.position for e in entries), behind]):
            request = ReadRequest(level, on(history, {2: first}), on(history, {2: last}))
            assert history.numbers(request, ONE) == [n for e in entries[i:j] for n in e.numbers]
        request = ReadRequest(start=Side(EARLIEST, bare=first))
        assert history.numbers(request, ONE) == [n for e in entries[i:-1] for n in e.numbers]
    for at, entry in enumerate(entries):
        if len(entry.numbers) == 1:
            start = Side(EARLIEST, bare=entry.position.plus(1))
            assert history.numbers(ReadRequest(level, start), ONE) == [n for e in entries[at + 1 :] for n in e.numbers]


def test_words_and_times_stand_for_places(history: History) -> None:
    """Read from and to earliest, latest and times, of all places or of one; unreadable messages have no time."""
    for place in (0, 1, 2, 0):
        history.send(place)
    hanging = history.begin()
    history.send(0, txn=hanging)
    history.publish()
    whole = history.shown(COMMITTED)
    last = history.clock.now_us

    def between(start: Side | None, end: Side | None = None) -> list[int]:
        return history.numbers(ReadRequest(start=start or Side(EARLIEST), end=end or Side(LATEST)))

    assert between(None) == between(history.side("earliest"), history.side("LATEST ")) == whole
    assert history.planned(ReadRequest(start=Side(LATEST))).tasks == []
    assert between(Side(LATEST)) == between(None, Side(EARLIEST)) == []
    assert between(on(history, {0: LATEST})) == between(None, on(history, {0: EARLIEST}, LATEST)) == [1, 2, 4, 5]
    for back in (0, 3):
        time = last - back * 1_000_000
        assert between(Side(EARLIEST, time_us=time)) == [n for n in whole if n >= 7 - back]
        assert between(Side(EARLIEST, time_us=time - 999), Side(LATEST, time_us=time)) == []
        assert between(None, Side(LATEST, time_us=time)) == [n for n in whole if n < 7 - back]
    assert between(on(history, {}, times_us={history.names[1]: last})) == [0, 2, 3, 5, 6]
    assert between(Side(EARLIEST, time_us=last + 1)) == []
    history.end(hanging)
    history.publish()
    assert between(Side(EARLIEST, time_us=last)) == [7]


def test_plan_is_pinned(history: History) -> None:
    """Make a plan; then write, end open transactions, and read the tasks in another order, twice: rows and statuses
    stay the same."""
    ways = {n: history.begin() for n in range(3)}
    for txn in ways.values():
        history.send(0, txn=txn)
        history.send(2, 2, txn)
    history.transfer(0, 1)
    history.publish()
    plans = [history.planned(ReadRequest(level, max_partition_bytes=1)) for level in LEVELS]
    before = [[history.rows(planned, [task]) for task in planned.tasks] for planned in plans]
    assert {row.status for rows in before[1] for row in rows} == {None, "open", "committed"}
    for n, txn in ways.items():
        history.end(txn, commit=n != 1)
    history.send(0)
    history.publish()
    for planned, rows in zip(plans, before, strict=True):
        for _ in range(2):
            assert [history.rows(planned, [task]) for task in planned.tasks[::-1]] == rows[::-1]
        assert history.numbers(planned.request) != numbers([*chain(*rows)])


def test_cut_bounds_later_reads(history: History) -> None:
    """Take the cuts of a moment, also as text: later messages lie above them, and each message on one side."""
    hanging = history.begin()
    history.send(0, txn=hanging)
    history.transfer(0, 2)
    history.send(1)
    history.publish()
    cuts = cuts_of(history.source(), BOTH, LEVELS)
    shown = {
        level: history.shown(level, history.cut(history.ends(level)) if level is COMMITTED else None)
        for level in LEVELS
    }
    history.end(hanging)
    history.transfer(0, 1, 2)
    history.publish()
    for level, cut in cuts.items():
        for value in (cut, cut.json()):
            side = history.side(value)
            assert history.numbers(ReadRequest(level, end=side)) == shown[level]
            rest = history.numbers(ReadRequest(level, side))
            assert sorted([*shown[level], *rest]) == history.shown(level)
    with pytest.raises(InvalidArgumentError, match="taken at read_uncommitted, and the read is read_committed"):
        history.planned(ReadRequest(end=history.side(cuts[UNCOMMITTED])))
    assert history.numbers(ReadRequest(UNCOMMITTED, end=history.side(cuts[COMMITTED]))) >= shown[COMMITTED]
    assert history.numbers(ReadRequest(end=history.side(cuts[COMMITTED])), ONE) == [2]
    part = Cut({history.names[2]: cuts[COMMITTED].positions[history.names[2]]}, COMMITTED)
    with pytest.raises(InvalidArgumentError, match=r"The cut has no position of .*a-"):
        history.planned(ReadRequest(start=history.side(part)))


def test_cut_tells_what_was_trimmed_since(history: History, caplog: pytest.LogCaptureFixture) -> None:
    """Trim messages below a cut: a read from the start of then reports the loss, and so does one from a lost position,
    or they go on with a warning. A position at the end of the trimmed part has lost nothing, if the log knows that."""
    for _ in range(9):
        history.send(0)
        history.publish()
    first, cut = history.entries[0][0].position, cuts_of(history.source(), BOTH, [COMMITTED])[COMMITTED]
    began = Side(EARLIEST, cut.starts)
    assert history.numbers(ReadRequest(end=history.side(cut), began=began)) == history.shown(COMMITTED)
    history.trim(0)
    left, start = history.numbers(ReadRequest()), dict(history.planned(ReadRequest()).ranges)[history.names[0]].start
    border = max(entry.position for entry in history.entries[0] if entry.position < start).plus(1)
    if history.kind != "pulsar":
        assert history.numbers(ReadRequest(start=on(history, {0: border}))) == left
    assert {1, 2, 11} <= {*left} < {*range(12)}
    with pytest.raises(DataLossError, match=r"a-.*0 has lost .* was trimmed after the query's cut"):
        history.planned(ReadRequest(end=history.side(cut), began=began))
    with pytest.raises((DataLossError, OutOfRangeError), match=r"is gone: it begins at|lies outside .*a-"):
        history.planned(ReadRequest(start=on(history, {0: first})))
    with caplog.at_level(logging.WARNING):
        for request in ({"end": history.side(cut), "began": began}, {"start": on(history, {0: first})}):
            assert history.numbers(ReadRequest(**request, fail_on_data_loss=False)) == left
    assert [said.getMessage().count("failOnDataLoss=false") for said in caplog.records] == [1]


def test_places_that_cannot_be_are_refused(history: History) -> None:
    """Name positions beyond the end, of other partitions, not of all partitions, and one without a partition."""
    at, end = history.entries[2][0].position, history.planned(ReadRequest()).ranges[2][1].end
    refused: list[tuple[type[Exception], str, Side]] = [
        (OutOfRangeError, "lies outside .*b", on(history, {2: end.plus(1)})),
        (OutOfRangeError, "lies outside .*b", on(history, {2: Position(at.ledger_id + 1000, 0)})),
        (InvalidArgumentError, "name .*b.*which this read doesn't take", on(history, {2: at})),
        (InvalidArgumentError, "a-.*0, which this read", on(history, {}, times_us={history.names[0]: 0})),
        (InvalidArgumentError, "which of the 3 partitions", Side(EARLIEST, bare=at)),
        (InvalidArgumentError, "don't name .*a-", on(history, {2: at}, complete=True)),
    ]
    for number, (error, said, side) in enumerate(refused):
        selection = {2: Selection(("a",)), 3: ONE}.get(number, BOTH)
        for request in (ReadRequest(start=side), ReadRequest(end=side)):
            with pytest.raises(error, match=said):
                history.planned(request, selection)
