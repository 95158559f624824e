"""Where a scan starts and ends: positions, maps of them, times; and what lies out of range."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.log.reading import UNCOMMITTED, by_partition, send_each, values
from tests.log.sites import ManualClock
from txn_source import Log, MessageId, OutOfRangeError, Position


@pytest.fixture
def ids(log: Log) -> list[MessageId]:
    """The ids of b"0" to b"6", in ledgers of three entries of one partition."""
    log.create_topic("orders", ledger_max_entries=3)
    return send_each(log.producer("orders"), [b"%d" % i for i in range(7)])


def test_start_is_inclusive_and_end_exclusive(log: Log, ids: list[MessageId]) -> None:
    """Read every range there is between two messages."""
    places = [*(i.position for i in ids), log.stats("orders").partitions[0].log_end]
    for start in range(8):
        for end in range(8):
            expected = [b"%d" % i for i in range(start, end)]
            assert values(log, "orders", start=places[start], end=places[end]) == expected


def test_position_is_taken_in_every_form(log: Log, ids: list[MessageId]) -> None:
    """Give one range bare, as text, as mappings of several kinds, as JSON and half by name."""
    start, end = ids[2].position, ids[5].position
    for first, last in (
        (start, end),
        (str(start), f" {end} "),
        ({"orders": {0: start}}, {"orders": {"0": str(end)}}),
        ({"persistent://public/default/orders": {0: str(start)}}, json.dumps({"orders": {"0": str(end)}})),
    ):
        assert values(log, "orders", start=first, end=last) == [b"2", b"3", b"4"]
    assert values(log, "orders", start="earliest", end=end) == [b"0", b"1", b"2", b"3", b"4"]
    assert values(log, "orders", start=start, end="LATEST") == [b"2", b"3", b"4", b"5", b"6"]
    assert values(log, "orders", start={"orders": {0: "latest"}}) == []
    assert values(log, "orders", end={"orders": {0: "earliest"}}) == []
    assert values(log, "orders", start="latest") == []
    assert len(values(log, "orders", start={}, end={})) == 7


def test_position_above_the_bound_gives_nothing_and_no_error(log: Log) -> None:
    """Start and end between the last stable position and the log's end."""
    log.create_topic("orders")
    producer = log.producer("orders")
    send_each(producer, [b"a"])
    [first, second] = send_each(producer, [b"b", b"c"], txn=log.begin_transaction())
    end = log.stats("orders").partitions[0].log_end
    for start in (first.position, second.position, end):
        assert values(log, "orders", start=start) == []
    assert values(log, "orders", end=second.position) == [b"a"]
    assert values(log, "orders", UNCOMMITTED, start=second.position) == [b"c"]
    assert values(log, "orders", UNCOMMITTED, start=end) == []


def test_position_of_a_marker_is_a_place_to_start(log: Log) -> None:
    """Start at a marker: reading goes on behind it."""
    log.create_topic("orders")
    producer = log.producer("orders")
    with log.begin_transaction() as transaction:
        [inside] = send_each(producer, [b"a"], txn=transaction)
    send_each(producer, [b"b"])
    assert values(log, "orders", start=inside.position.plus(1)) == [b"b"]


def test_end_of_a_closed_ledger_is_a_place_to_start(log: Log, ids: list[MessageId]) -> None:
    """Start and end behind the last entry of a closed ledger: that is where the next one begins."""
    border = ids[2].position.plus(1)
    assert values(log, "orders", start=border) == [b"3", b"4", b"5", b"6"]
    assert values(log, "orders", end=border) == [b"0", b"1", b"2"]


def test_position_out_of_range_is_refused(log: Log) -> None:
    """Name positions before the start, beyond the end, in other partitions' ledgers and beyond a closed ledger."""
    log.create_topic("first", partitions=2)
    log.create_topic("orders", partitions=2, ledger_max_entries=2)
    producer = log.producer("orders")
    for index in range(10):  # in turn, so that the ledgers of one partition lie between those of the other
        send_each(producer, [b"x"], partition=index % 2)
    zero, one = log.stats("orders").partitions
    closed = zero.ledgers[0]
    out = {
        "before the start": Position(zero.log_start.ledger_id - 1, 0),
        "far before": Position(0, 0),
        "beyond the end": zero.log_end.plus(1),
        "far beyond": Position(zero.log_end.ledger_id + 1000, 0),
        "of another partition": Position(one.ledgers[1].ledger_id, 0),
        "beyond a closed ledger": Position(closed.ledger_id, closed.entries + 1),
    }
    assert zero.log_start < out["of another partition"] < zero.log_end
    for position in out.values():
        for side in ("start", "end"):
            with pytest.raises(
                OutOfRangeError, match=rf"^\[TXNLOG_OUT_OF_RANGE\] Position {position} .*orders-partition-0"
            ):
                log.scan("orders", **{side: {"orders": {0: position}}})


def test_position_before_entry_0_is_refused(log: Log, ids: list[MessageId]) -> None:
    """Give what stands for "nothing is readable yet" in what people see: no reader can stand there."""
    for side in ("start", "end"):
        with pytest.raises(OutOfRangeError, match=rf"Position {ids[3].ledger_id}:-1 "):
            log.scan("orders", **{side: Position(ids[3].ledger_id, -1)})


def test_time_stands_for_the_first_message_published_then_or_after(clocked_log: Log, clock: ManualClock) -> None:
    """Publish a message each ten seconds, over ledgers and two partitions, and read between times."""
    log = clocked_log
    log.create_topic("orders", partitions=2, ledger_max_entries=2)
    producer = log.producer("orders")
    noon = datetime.fromtimestamp(clock.now_us / 1_000_000, UTC)
    for index in range(10):
        send_each(producer, [b"%d" % index], partition=index % 2)
        clock.advance(10)

    def between(start: float, end: float) -> list[int]:
        found = log.scan(
            "orders", columns=["value"], start=noon + timedelta(seconds=start), end=noon + timedelta(seconds=end)
        )
        return sorted(int(row["value"]) for row in found.read_all().to_pylist())

    assert between(-100, 1000) == list(range(10))
    assert between(20, 50) == [2, 3, 4]
    assert between(20.000001, 50.000001) == [3, 4, 5]
    assert between(90, 91) == [9]
    assert between(90.000001, 1000) == []
    assert between(50, 20) == []


def test_time_in_what_is_not_yet_readable_has_no_answer(clocked_log: Log, clock: ManualClock) -> None:
    """Start and end at the time of a message behind an open transaction."""
    log = clocked_log
    log.create_topic("orders")
    producer = log.producer("orders")
    send_each(producer, [b"a"])
    transaction = log.begin_transaction()
    clock.advance(10)
    send_each(producer, [b"b"], txn=transaction)
    clock.advance(10)
    later = datetime.fromtimestamp(clock.now_us / 1_000_000, UTC)
    send_each(producer, [b"c"])
    assert values(log, "orders", start=later) == []
    assert values(log, "orders", end=later) == [b"a"]
    assert values(log, "orders", UNCOMMITTED, start=later) == [b"c"]
    assert values(log, "orders", UNCOMMITTED, end=later) == [b"a", b"b"]
    transaction.commit()
    assert values(log, "orders", start=later) == [b"c"]
    assert by_partition(log, "orders") == {0: [b"a", b"b", b"c"]}
