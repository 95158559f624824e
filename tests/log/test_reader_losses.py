"""Readers and consumers whose next messages are gone: they say so once, with the range, and go on behind it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.log.consuming import VALUES, WAIT_S, numbered, read, session_of, subscribe, take
from tests.log.reading import eventually, send_each, trim_closed
from tests.log.sites import Site
from txn_source import DataLossError, Log, MessageId, SubscriptionNotFoundError, UnavailableError
from txn_source.metadata.delivery import topic_dispatch
from txn_source.metadata.delivery.next_entries import EntryBatch
from txn_source.metadata.delivery.row_dispatch import RowDispatch


def trim_all(log: Log) -> MessageId:
    """Trim all that is there, and return where the topic begins now."""
    log.roll_ledger("t")
    [trimmed] = log.trim("t", keep_bytes=0)
    assert trimmed.ledgers == 1
    return MessageId(trimmed.log_start.ledger_id, 0, 0)


@pytest.mark.parametrize("queue_size", [1, 100])
def test_reader_says_what_was_trimmed(site: Site, queue_size: int) -> None:
    """Trim while a reader is in the middle, with and without references in its queue: the exact range, once."""
    log = site.connect()
    producer, ids = numbered(log)
    reader = log.reader("t", queue_size=queue_size)
    assert read(reader, 3) == VALUES[:3]
    start = trim_all(log)
    send_each(producer, [b"new"])
    lost, found = [], [b""]
    while found[-1] != b"new":
        try:
            message = reader.read_next(WAIT_S)
        except DataLossError as error:
            lost.append(error.lost)
        else:
            assert message is not None
            found.append(message.value)
    came = found[1:-1]  # what had been read ahead
    assert came == VALUES[3 : 3 + len(came)]
    assert all(any(at.position in of for of in lost) for at in ids[3 + len(came) :])
    assert not any(at.position in of for of in lost for at in ids[: 3 + len(came)])
    assert not lost or lost[-1].end == start.position
    assert all(a.end <= b.start for a, b in pairwise(lost))
    assert lost or queue_size == 100
    send_each(producer, [b"newer"])
    assert read(reader, 1) == [b"newer"]


def test_reader_that_asks_first_hears_of_what_was_trimmed(log: Log) -> None:
    """Trim all unread messages, in several ledgers: ``has_message_available`` is true until one DATA_LOSS with a remedy
    for consumers has named the whole range."""
    producer, ids = numbered(log)
    reader = log.reader("t", queue_size=1)
    assert read(reader, 3) == VALUES[:3]
    for number in range(20):
        log.roll_ledger("t")
        send_each(producer, [b"%d" % number])
    log.roll_ledger("t")
    [trimmed] = log.trim("t", keep_bytes=0)
    found: list[bytes] = []
    lost: list[DataLossError] = []
    while reader.has_message_available():
        try:
            found += read(reader, 1)
        except DataLossError as error:
            lost.append(error)
    assert found == VALUES[3 : 3 + len(found)]
    [error] = lost
    assert ids[3 + len(found)].position in error.lost
    assert error.lost.end == trimmed.log_start
    assert "load()" not in str(error)
    assert "the next call gives what lies behind them" in str(error)
    send_each(producer, [b"new"])
    assert reader.has_message_available()
    assert read(reader, 1) == [b"new"]


def test_what_was_read_before_it_was_trimmed_is_no_loss(site: Site) -> None:
    """Read all, trim it, and write more; seek to the earliest message; subscribe anew: nobody misses anything."""
    log = site.connect()
    producer, _ = numbered(log)
    reader = log.reader("t")
    assert read(reader, 10) == VALUES
    trim_all(log)
    send_each(producer, [b"a"])
    assert read(reader, 1) == [b"a"]
    reader.seek("earliest")
    assert read(reader, 1) == [b"a"]
    assert take(subscribe(log), 1) == [b"a"]


def test_topic_made_anew_is_another_one(site: Site) -> None:
    """Delete the topic and make it again under a reader and a consumer: both end with an error, and read no other."""
    log = site.connect()
    numbered(log)
    reader, consumer = log.reader("t", queue_size=1), subscribe(log, queue_size=1)
    assert read(reader, 1) == VALUES[:1]
    assert take(consumer, 1) == VALUES[:1]
    log.delete_topic("t")
    log.create_topic("t")
    send_each(log.producer("t"), [b"other"])
    for call in (lambda: reader.read_next(WAIT_S), lambda: consumer.receive(WAIT_S)):
        with pytest.raises(SubscriptionNotFoundError):
            _until_it_says_so(call)


def _until_it_says_so(call: object) -> None:
    while True:
        try:
            message = call()  # type: ignore[operator]
        except DataLossError:
            continue
        assert message is None or message.value != b"other"


def test_permits_are_used_only_when_a_hand_out_is_committed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commit of a shared hand-out fail: nobody loses a permit by it, and the message comes to one of them."""
    log = site.connect()
    producer, _ = numbered(log, 0)
    consumers = [subscribe(log, type="shared", queue_size=4) for _ in range(2)]
    sessions = [session_of(site, log, consumer) for consumer in consumers]
    eventually(lambda: all(session.permits == 4 for session in sessions))

    class Failing(RowDispatch):
        def run(self) -> Iterator[tuple[int, EntryBatch]]:
            yield from super().run()
            if not failed:
                failed.append(True)
                raise UnavailableError("The database transaction failed.", "Try again.")

    failed: list[bool] = []
    monkeypatch.setattr(topic_dispatch, "RowDispatch", Failing)
    send_each(producer, [b"x"])
    eventually(lambda: all(session.failure is not None for session in sessions))
    assert [(session.permits, session.unacknowledged) for session in sessions] == [(4, 0)] * 2
    found: list[object] = []
    while not found:
        found = [message.value for consumer in consumers if (message := consumer.receive(0.05)) is not None]
    assert found == [b"x"]


def test_failed_scan_fails_again(log: Log) -> None:
    """Trim what a scan has planned; however often it is asked then, it doesn't say that it has come to its end."""
    log.create_topic("t", ledger_max_entries=2)
    with log.producer("t") as producer:
        send_each(producer, VALUES[:5])
    scanned = log.scan("t")
    log.roll_ledger("t")
    trim_closed(log, "t")
    for _ in range(3):
        with pytest.raises(DataLossError, match=r"\[1:0, 3:[01]\)"):
            scanned.read_next_batch()
