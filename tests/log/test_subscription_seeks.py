"""Seeking by every kind of place, and what is no place: by consumers, by operators, and for new subscriptions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.log.consuming import mark, numbered, subscribe, take
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, eventually, rows, send_each
from tests.log.sites import ManualClock, Site
from txn_source import InvalidArgumentError, Log, MessageId, Position


def _places(ids: list[MessageId], publish_times: list[datetime]) -> dict[str, Any]:
    at = ids[4]
    return {
        "message id": at,
        "position": at.position,
        "time": publish_times[4],
        "a little earlier": publish_times[3].replace(microsecond=publish_times[3].microsecond + 1),
        "mapping": {"t": {0: at.position}},
    }


@pytest.mark.parametrize("place", _places([MessageId(1, 0)] * 5, [datetime(2026, 1, 1, tzinfo=UTC)] * 5))
def test_seek_goes_to_any_kind_of_place(clocked_site: Site, clock: ManualClock, place: str) -> None:
    """Name the fifth message in each way, by the consumer, as an operator, and for a new subscription."""
    log = clocked_site.connect()
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    ids = []
    for number in range(8):
        clock.advance(0.001)
        ids += send_each(producer, [b"%d" % number])
    times = [row["__publish_time"] for row in rows(log, "t", columns=["__publish_time"])]
    to, expected = _places(ids, times)[place], [b"4", b"5", b"6", b"7"]
    consumer = subscribe(log, initial_position=to)
    assert take(consumer, 4) == expected
    assert consumer.seek(to) == {0: ids[4]}
    assert take(consumer, 4) == expected
    assert log.seek("t", "s", to).moved == frozenset()
    eventually(lambda: consumer.epoch == 2)
    assert take(consumer, 4) == expected
    for everything in ("earliest", " EARLIEST "):
        consumer.seek(everything)
        assert len(take(consumer, 8)) == 8
    consumer.seek("latest")
    send_each(producer, [b"new"])
    assert take(consumer, 1) == [b"new"]


def test_seek_to_latest_is_by_the_level(log: Log) -> None:
    """Seek to the end behind an open transaction, and by a time at which nothing was published yet."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    transaction = log.begin_transaction()
    [inside] = send_each(producer, [b"inside"], txn=transaction)
    later = datetime(2999, 1, 1, tzinfo=UTC)
    behind = MessageId(inside.ledger_id, inside.entry_id + 1)
    consumers = {level: subscribe(log, level, isolation_level=level) for level in (COMMITTED, UNCOMMITTED)}
    for consumer, stand in zip(consumers.values(), (inside, behind), strict=True):
        assert consumer.seek("latest") == consumer.seek(later) == {0: stand}
    transaction.commit()
    send_each(producer, [b"behind"])
    assert take(consumers[COMMITTED], 2) == [b"inside", b"behind"]
    assert take(consumers[UNCOMMITTED], 1) == [b"behind"]


def test_seek_to_a_message_inside_an_entry(log: Log) -> None:
    """Seek to each message of an entry of three, and beyond its last one."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    for value in (b"a", b"b", b"c"):
        producer.send(value)
    ids = producer.flush()
    [last] = send_each(producer, [b"d"])
    consumer = subscribe(log)
    for number, at in enumerate(ids):
        assert consumer.seek(at) == {0: at}
        assert take(consumer, 4 - number) == [b"a", b"b", b"c", b"d"][number:]
    assert consumer.seek(MessageId(ids[0].ledger_id, ids[0].entry_id, 3)) == {0: last}
    assert take(consumer, 1) == [b"d"]


def test_seek_outside_the_log_lands_on_the_nearest_place(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    """Seek before the start of a trimmed log, beyond its end, and beyond a ledger's: it says where it is."""
    producer, ids = numbered(log)
    log.roll_ledger("t")
    newer = send_each(producer, [b"x", b"y"])
    consumer = subscribe(log, initial_position="latest")
    beyond_ledger = MessageId(ids[0].ledger_id, 999)
    assert consumer.seek(beyond_ledger) == {0: newer[0]}
    log.trim("t", before=newer[0].position)
    end = MessageId(newer[1].ledger_id, newer[1].entry_id + 1)
    for to, nearest, expected in (
        (ids[3], newer[0], [b"x", b"y"]),
        (Position(newer[1].ledger_id, 77), end, []),
        (MessageId(newer[1].ledger_id + 5, 0), end, []),
    ):
        caplog.clear()
        assert consumer.seek(to) == {0: nearest}
        assert f"subscription s can't stand at {to}; it is at the nearest place, {nearest}" in caplog.text
        assert take(consumer, len(expected)) == expected
        assert mark(log) == nearest
        sought = log.seek("t", "s", to)
        assert (sought, sought.moved) == ({0: nearest}, {0})
        eventually(lambda: consumer.epoch == sought.epoch)  # noqa: B023
    caplog.clear()
    consumer.seek(end)
    assert "nearest" not in caplog.text
    send_each(producer, [b"new"])
    assert take(consumer, 1) == [b"new"]


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("yesterday", "'yesterday' is no place"),
        ({"t": {7: "1:0"}}, "no partition 7"),
    ],
)
def test_place_that_is_none_is_refused(log: Log, to: Any, why: str) -> None:
    """Seek to nonsense: the error says what would do, and the consumer goes on where it was."""
    numbered(log)
    consumer = subscribe(log)
    take(consumer, 3)
    with pytest.raises(InvalidArgumentError, match=why):
        consumer.seek(to)
    with pytest.raises(InvalidArgumentError, match=why):
        log.seek("t", "s", to)
    assert take(consumer, 7) == [b"%d" % number for number in range(3, 10)]
