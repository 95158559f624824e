"""Where a scan starts and ends: positions, maps of them; and what lies out of range."""

from __future__ import annotations

import pytest

from tests.log.reading import send_each
from txn_source import Log, MessageId, OutOfRangeError, Position


@pytest.fixture
def ids(log: Log) -> list[MessageId]:
    """The ids of b"0" to b"6", in ledgers of three entries of one partition."""
    log.create_topic("orders", ledger_max_entries=3)
    return send_each(log.producer("orders"), [b"%d" % i for i in range(7)])


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
