"""Streams over our own log, Kafka's and Pulsar's, batch by batch as Spark calls them; offsets travel as texts."""

from __future__ import annotations

import json
import logging
import random
from itertools import chain
from typing import Any

import pytest

from tests.reading.kinds import KINDS, KafkaHistory
from tests.reading.sources import (
    ALL,
    BOTH,
    COMMITTED,
    LEVELS,
    UNCOMMITTED,
    History,
    Query,
    in_order,
    numbers,
)
from tests.selection import for_each, mostly_long
from txn_source import DataLossError, InvalidArgumentError, OutOfRangeError, Position, TopicNotFoundError
from txn_source.model.position import EARLIEST, LATEST
from txn_source.reading.limits import StreamLimits
from txn_source.reading.places import Side
from txn_source.reading.ranges import cuts_of
from txn_source.reading.request import ReadRequest, Selection
from txn_source.reading.stream_offset import StreamOffset

FROM_HERE = Side(LATEST)


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Any:
    """Return the warnings of data loss so far."""
    caplog.set_level(logging.WARNING)
    return lambda: [m for m in (of.getMessage() for of in caplog.records) if m.endswith("(failOnDataLoss=false)")]


@pytest.mark.parametrize("history", mostly_long(KINDS, "own", "kafka", "pulsar"), indirect=True)
@pytest.mark.parametrize("seed", mostly_long(range(40), 0))
def test_each_row_comes_once_in_order(history: History, seed: int) -> None:
    """Follow a random history from a random start, at a level, with limits, restarts and new partitions: each row comes
    once; no batch cuts a transaction above the start in two, as far as the log tells it; repeated batches are the
    same."""
    rng = random.Random(seed)
    most = rng.choice([{}, {"max_messages": 2}, {"max_messages": 5}, {"max_bytes": 400}])
    level = LEVELS[seed % 2]
    for _ in range(8):
        history.step(rng)
    history.publish()
    places = enumerate([[entry for entry in entries if entry.numbers] for entries in history.entries])
    begins = {place: rng.choice(entries) for place, entries in places if rng.random() < 0.6}
    start = Side(EARLIEST, {history.names[place]: entry.position for place, entry in begins.items()})
    query = Query(history, StreamLimits(**most), Selection(pattern="[ab]"), isolation_level=level, start=start)
    for _ in range(26):
        history.step(rng)
        match rng.randrange(8):
            case 0 | 1 | 2:
                query.next()
            case 3:
                end = query.text_of(query.stream.latest(query.at(-1)))
                query.open().next()
                assert query.texts[-1] == end, "it follows from more than its start, the limits and the log"
            case 4 if query.batches:
                check_again(query, rng.randrange(len(query.batches)))
            case 5 if len(history.names) < 5:
                history.add("a")
    history.settle()
    query.open().rest()
    rows = [row for batch in query.batches for row in batch]
    passed = {n for place, begin in begins.items() for n in history.sent(place) if n < begin.numbers[0]}
    assert numbers(rows) == [n for n in history.shown(level) if n not in passed]
    assert in_order(rows)
    assert {row.status for row in rows} <= {None, "committed", *(["open", "aborted"] if level is UNCOMMITTED else [])}
    for index in rng.sample(range(len(query.batches)), min(3, len(query.batches))):
        check_again(query, index)
    batches = [{row.number for row in batch} for batch in query.batches]
    places = range(len(history.names))
    for together in [places] if history.tells else [[place] for place in places]:
        entries = [*chain(*(history.entries[place] for place in together))]
        for txn in {entry.txn for entry in entries} - {None} if level is COMMITTED else ():
            sent = {n for entry in entries if entry.txn == txn for n in entry.numbers}
            assert sum(not sent.isdisjoint(batch) for batch in batches) <= 1 or not sent.isdisjoint(passed), sent


def check_again(query: Query, index: int) -> None:
    """Read a batch once more, by a stream of its own."""
    assert Query.read(query.open(), index) == query.batches[index]


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_to_read_is_the_very_same_offset(history: History, level: Any) -> None:
    """Wait at the log's end, and before an open transaction; the end of an aborted one makes a batch without rows."""
    query = Query(history, isolation_level=level)
    assert query.rest() == [0, 1, 2]
    start = query.at(-1)
    assert query.stream.latest(start) is start
    hanging = history.begin()
    sent = history.send(0, txn=hanging)
    history.publish()
    assert query.rest() == (sent if level is UNCOMMITTED else [])
    history.end(hanging, commit=False)
    history.publish()
    assert query.next() == []
    assert query.next() is None


def test_query_that_begins_at_the_end_begins_at_a_cut(history: History) -> None:
    """Start while one leg of a transfer lies behind an open transaction: later the query sees both legs. Repeat the
    first batch, for which Spark asks for the start again and has only the end."""
    hanging = history.begin()
    history.send(0, txn=hanging)
    legs = history.transfer(0, 1)
    history.publish()
    query = Query(history, start=FROM_HERE)
    assert query.next() is None
    history.end(hanging, commit=False)
    history.publish()
    assert query.rest() == legs
    history.send(0)
    history.publish()
    query.texts[0] = Query(history, start=FROM_HERE).texts[0]
    assert query.texts[0] != query.texts[1]
    check_again(query, 0)
    assert len(query.rest()) == 1


def test_query_begins_where_it_is_told_to(history: History) -> None:
    """Start at words, positions and times; refuse positions and topics that don't exist, also with
    failOnDataLoss=false."""
    sent = history.transfer(0, 1, 2)
    history.publish()
    at, time = history.entries[0][1].position, history.clock.now_us

    def begun(selection: Selection = BOTH, **more: Any) -> list[int]:
        return Query(history, selection=selection, start=Side(**more)).rest()

    assert begun(everywhere=LATEST) == []
    assert begun(everywhere=EARLIEST, points={history.names[0]: at}) == [1, 2, *sent]
    assert begun(everywhere=LATEST, points={history.names[0]: at, history.names[1]: EARLIEST}) == [1, *sent[:2]]
    assert begun(everywhere=LATEST, time_us=time) == sent[2:]
    for error, more in (
        (OutOfRangeError, {"points": {history.names[0]: at.plus(3)}}),
        (InvalidArgumentError, {"points": {history.names[0]: at}, "selection": Selection(("b",))}),
        (InvalidArgumentError, {"bare": at}),
    ):
        with pytest.raises(error):
            begun(everywhere=LATEST, **more)
    for selection in (Selection(("a", "c")), Selection(pattern="c.*")):
        for careful in (True, False):
            with pytest.raises(TopicNotFoundError):
                Query(history, selection=selection, fail_on_data_loss=careful)


def test_target_of_available_now_stays(history: History) -> None:
    """Freeze; then write, add a partition, and leave a transaction open: batches end at the frozen end, without waiting
    for a least number. A frozen end below the checkpoint gives no batch."""
    sent = [n for _ in range(3) for n in history.transfer(0, 1)]
    history.publish()
    query = Query(history, StreamLimits(max_messages=3, min_messages=100))
    query.stream.freeze()
    target = query.stream.newest().positions
    history.send(0, txn=history.begin())
    later = [*history.transfer(1, 2), *history.send(history.add("a"))]
    history.publish()
    assert query.rest() == [0, 1, 2, *sent]
    assert {name: query.at(-1).positions[name] for name in target} == target
    history.settle()
    query.open(limits=ALL)
    early = history.stream(BOTH, query.request, ALL, query.clock)
    early.freeze()
    later_still = history.send(0)
    history.publish()
    assert {*later, *later_still} < {*query.rest()}
    start = query.at(-1)
    assert early.latest(start) is start


def test_limits_are_kept_and_starve_nobody(history: History) -> None:
    """Limit batches to one message, to a few, and to bytes, with a restart before each: places take turns."""
    sent = [n for _ in range(3) for place in range(3) for n in history.send(place)]
    history.publish()
    for most, size in ({"max_messages": 1}, 1), ({"max_bytes": 1}, 1), ({"max_messages": 5}, 5):
        query = Query(history, StreamLimits(**most))
        came = [row for _ in range(6) for row in query.open().next() or ()]
        assert {len(rows) for rows in query.batches[:2]} == {size}
        assert in_order(came)
        if size == 1:
            assert [{row.place for row in came[n : n + 3]} for n in (0, 3)] == [{0, 1, 2}] * 2
        else:
            assert numbers(came) == [0, 1, 2, *sent]
    query = Query(history, StreamLimits(max_messages=1))
    assert query.stream.latest(query.at(0), limited=False).positions == query.stream.newest().positions


def test_limited_batch_holds_whole_transactions(history: History) -> None:
    """Limit batches to one message: a transfer still comes whole, unless the query wants no cut."""
    legs = history.transfer(0, 1, 0, 2)
    between = history.send(0)
    history.publish()
    for cuts, wanted in ((True, 1), (False, 4)):
        query = Query(history, StreamLimits(max_messages=1), consistent_cut=cuts)
        assert query.rest() == [0, 1, 2, *legs, *between]
        assert sum(not {*numbers(rows)}.isdisjoint(legs) for rows in query.batches) == wanted


@pytest.mark.parametrize("history", KINDS, indirect=True)
def test_limited_batch_of_one_partition_holds_whole_transactions(history: History) -> None:
    """Limit batches of one partition to one message, where two transactions overlap each other and an aborted one: both
    come whole in one batch, and the next messages one by one."""
    first, second, aborted = history.begin(), history.begin(), history.begin()
    whole = [n for txn in (first, aborted, first, second, first) for n in history.send(2, txn=txn)]
    history.end(first)
    history.send(2, txn=aborted)
    history.end(aborted, commit=False)
    whole += history.send(2, txn=second)
    history.end(second)
    single = [n for _ in range(3) for n in history.send(2)]
    history.publish()
    query = Query(history, StreamLimits(max_messages=1), Selection(("b",)))
    query.rest()
    batches = [numbers(rows) for rows in query.batches if rows]
    assert batches == [[2], [n for n in whole if n != whole[1]], *([n] for n in single)]


def test_least_number_is_waited_for(history: History) -> None:
    """A batch waits for enough messages, or until its delay is over. A delay makes no empty batch, and messages beyond
    a limit count."""
    now = [100.0]
    query = Query(history, StreamLimits(min_messages=3, max_delay_s=10), clock=lambda: now[0])
    assert len(query.next() or ()) == 3
    history.send(0)
    history.send(2)
    history.publish()
    for later, there in ((9.5, 0), (0.5, 2), (100, 0)):
        now[0] += later
        assert len(query.next() or ()) == there
    sent = [n for _ in range(4) for n in history.send(0)]
    history.publish()
    assert query.open(limits=StreamLimits(min_messages=4, max_messages=1)).rest() == sent[:1]


@for_each("level", LEVELS)
def test_another_level_is_refused_or_ruled(history: History, level: Any) -> None:
    """Go on at another level: refused over others' logs, and over our own if it would show the rest of a transaction; a
    planned batch keeps its level."""
    aborted = history.begin()
    history.send(0, txn=aborted)
    history.end(aborted, commit=False)
    history.publish()
    query = Query(history, isolation_level=level)
    assert (3 in query.rest()) == (level is UNCOMMITTED)
    hanging = history.begin()
    half = history.send(0, txn=hanging)
    history.publish()
    query.next()
    query.open(isolation_level=LEVELS[level is COMMITTED])
    check_again(query, 0)
    query.open()
    if history.kind == "own" and level is COMMITTED:
        assert query.rest() == half
    else:
        with pytest.raises(InvalidArgumentError, match=f"at {level}, and this one is at|a transaction is open"):
            query.next()


# Data loss


def test_what_was_trimmed_unread_is_lost(history: History, warned: Any) -> None:
    """Trim the next messages, and those of an earlier batch: both are errors, or left out with one warning. Messages
    that were read to the end may go."""
    query = Query(history)
    query.next()
    for _ in range(9):
        history.send(0)
        history.publish()
    limited = Query(history, StreamLimits(max_messages=1))
    while limited.texts[-1] != limited.texts[0] and 4 not in numbers(limited.batches[-1]):
        limited.next()
    history.trim(0)
    for again in (query.next, lambda: query.read(0)):
        with pytest.raises(DataLossError, match=r"a-.*0 (begins at|has lost) "):
            again()
    query.open(fail_on_data_loss=False, limits=StreamLimits(max_messages=1))
    came = query.rest()
    assert {11} <= {*came} < {*range(4, 12)}
    assert len(query.batches) > 1
    assert len(warned()) == 1
    assert numbers(query.read(0)) == [1, 2]
    history.send(0)
    history.publish()
    history.trim(0)
    assert query.open(fail_on_data_loss=True, limits=ALL).rest() == [12]


def test_deleted_topic_is_lost(history: History, warned: Any) -> None:
    """Delete one topic of two before its end was read, then both: the error names the topic. With failOnDataLoss=false
    the query goes on with the other topic, and with a new one of the name, with a warning each."""
    query = Query(history)
    query.next()
    sent = [*history.send(2), *history.send(2)]
    history.publish()
    assert numbers(query.open(limits=StreamLimits(max_messages=1)).next() or []) == sent[:1]
    history.delete("b")
    for selection, said in (
        (BOTH, "is gone. There is no topic"),
        (Selection(pattern="[ab]"), "b.* is gone, and with it all"),
    ):
        with pytest.raises(DataLossError, match=said):
            query.open(selection=selection).next()
    with pytest.raises(DataLossError, match=r"b.* is gone, and with it .* of a batch"):
        query.read(0)
    later = history.send(0)
    history.publish(0)
    query.open(fail_on_data_loss=False)
    assert query.rest() == later
    assert query.next() is None
    assert len(warned()) == 1
    assert numbers(query.read(0)) == [0, 1]
    history.make_anew("b")
    again = history.send(2)
    history.publish()
    assert query.open(fail_on_data_loss=True).rest() == again
    history.delete("a")
    history.delete("b")
    with pytest.raises(DataLossError, match=r'What the query has read up to .*a": .* is gone'):
        query.next()
    if history.kind == "own":
        assert query.open(fail_on_data_loss=False).next() is None
        history.make_anew("b")
        again = history.send(2)
        assert query.rest() == again


def test_topic_that_was_made_again_is_lost(history: History, warned: Any) -> None:
    """Delete a topic that wasn't read to its end, and create it again while the query is down: an error, even if the
    new one is longer; or the query reads it from its start, with one warning."""
    query = Query(history)
    query.next()
    history.send(2)
    history.publish()
    history.delete("b")
    history.make_anew("b")
    sent = [n for _ in range(5) for n in history.send(2)]
    history.publish()
    query.open()
    for again in (query.next, lambda: query.read(0)):
        with pytest.raises(DataLossError, match=r"b.*(made anew|made again|begins at|is gone, and with it)"):
            again()
    assert query.open(fail_on_data_loss=False).rest() == sent
    assert len(warned()) == 1
    assert query.open(fail_on_data_loss=True).next() is None


@pytest.mark.parametrize("start", [EARLIEST, LATEST])
def test_new_partitions_are_read_from_their_start(history: History, start: str) -> None:
    """Add a partition, and a topic that matches: all their messages come, whatever the query's start. The batch knows
    their start, so a repeated batch reports what was trimmed since. As the end of a read, an older offset leaves a new
    partition at its own end; a cut must name it."""
    query = Query(history, selection=Selection(pattern="[abc]"), start=Side(start))
    assert query.rest() == ([0, 1, 2] if start == EARLIEST else [])
    [cut] = cuts_of(history.source(), query.selection, [COMMITTED]).values()
    new = history.add("a"), history.add("c")
    sent = [n for _ in range(5) for place in new for n in history.send(place)]
    history.publish()
    later = history.send(0)
    history.publish()
    end = history.side(query.texts[-1])
    assert history.numbers(ReadRequest(end=end), query.selection) == [0, 1, 2, *sent]
    with pytest.raises(InvalidArgumentError, match="The cut has no position of"):
        history.planned(ReadRequest(end=history.side(cut)), query.selection)
    assert query.rest() == [*sent, *later]
    check_again(query, len(query.batches) - 1)
    for _ in range(5):
        history.send(new[0])
        history.publish()
    history.trim(new[0])
    with pytest.raises(DataLossError, match=r"a-.*2 (begins at|has lost) "):
        query.read(len(query.batches) - 1)


def test_place_in_a_topic_that_is_left_out_is_kept(history: History, warned: Any) -> None:
    """Run a query with another topic, and then with both: an error; or the query goes on from its position in each,
    with a warning, and refuses another topic in the middle of a batch."""
    query = Query(history, selection=Selection(("b",)))
    query.next()
    other = Selection(("a",))
    with pytest.raises(DataLossError, match=r"b.* and not read"):
        query.open(selection=other).next()
    query.open(fail_on_data_loss=False)
    with pytest.raises(DataLossError, match=r"b.* of the batch, and the query doesn't take it"):
        query.read(0)
    sent = [*history.send(2), *history.send(0)]
    history.publish()
    assert query.rest() == [0, 1, sent[1]]
    assert query.next() is None
    assert len(warned()) == 1
    assert query.open(selection=BOTH, fail_on_data_loss=True).rest() == sent[:1]


def test_checkpoint_beyond_the_end_is_data_loss(history: History) -> None:
    """Go on from a position beyond the log's end, as after a restore: an error; with failOnDataLoss=false the query
    goes on once the log has positions there again, where a log can have them again."""
    query = Query(history)
    query.next()
    beyond = query.at(-1)
    at = {name: Position(at.ledger_id, at.entry_id + 3) for name, at in beyond.positions.items()}
    query.open().texts.append(query.text_of(StreamOffset(at, beyond.level)))
    with pytest.raises(DataLossError, match=r"made anew|ends at .*, and was read up to"):
        query.next()
    with pytest.raises(DataLossError, match=r"has lost|shows .* up to .*, and .* was planned"):
        query.read(1)
    if history.kind == "kafka":
        assert query.open(fail_on_data_loss=False).next() is None
        sent = [n for _ in range(5) for n in history.send(0)]
        history.publish()
        assert query.rest() == sent[3:]


@pytest.mark.parametrize("history", ["kafka"], indirect=True)
def test_checkpoint_of_kafkas_connector_is_taken(history: History) -> None:
    """Go on from the offsets that the connector left."""
    sent = history.send(0, 5)
    history.publish()
    query = Query(history)
    query.texts.append('{"a": {"0": 3, "1": 1}, "b": {"0": 0}}')
    assert query.rest() == [2, *sent[2:]]


@pytest.mark.parametrize("history", ["kafka"], indirect=True)
def test_checkpoint_of_another_log_is_refused(history: KafkaHistory) -> None:
    """Put another cluster's folder in place of the one that the checkpoint is of, which nothing but its id tells."""
    query = Query(history)
    query.next()
    history.name_cluster("another")
    for careful in (True, False):
        query.open(fail_on_data_loss=careful)
        for again in (query.next, lambda: query.read(0)):
            with pytest.raises(InvalidArgumentError, match=r"is of the log with id .* the log with id another"):
                again()
    assert json.loads(query.texts[-1])["$log"]["id"] != "another"
