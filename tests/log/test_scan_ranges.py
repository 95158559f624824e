"""Where a scan starts and ends: positions, maps of them; and what lies out of range."""

from __future__ import annotations

import json

import pytest

from tests.log.reading import send_each, values
from txn_source import Log, MessageId, OutOfRangeError, Position


@pytest.fixture
def ids(log: Log) -> list[MessageId]:
    """The ids of b"0" to b"6", in ledgers of three entries of one partition."""
    log.create_topic("orders", ledger_max_entries=3)
    return send_each(log.producer("orders"), [b"%d" % i for i in range(7)])


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
