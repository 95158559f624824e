"""Readers: they start anywhere, know whether there is more as their level sees it, and leave nothing behind."""

from __future__ import annotations

import pytest

from tests.log.consuming import END, VALUES, WAIT_S, numbered, read
from tests.log.reading import BY_HAND, COMMITTED, UNCOMMITTED, eventually, send_each
from tests.log.sites import ManualClock, Site
from txn_source import InvalidArgumentError, Log, MessageId, Position, TopicNotFoundError
from txn_source.model.position import MAX_LEDGER_ID, PositionRange


@pytest.mark.parametrize("start", ["earliest", "latest", "message id", "position"])
def test_reader_starts_anywhere(log: Log, start: str) -> None:
    """Start at each kind of place; what is written then comes, too."""
    producer, ids = numbered(log)
    where = {"message id": ids[7], "position": str(ids[7].position)}.get(start, start)
    expected = {"earliest": VALUES, "latest": []}.get(start, VALUES[7:])
    with log.reader("t", start=where) as reader:
        assert reader.has_message_available() == bool(expected)
        assert read(reader, len(expected)) == expected
        assert not reader.has_message_available()
        send_each(producer, [b"new"])
        assert read(reader, 1) == [b"new"]


def test_reader_starts_inside_an_entry(log: Log) -> None:
    """Start at the second message of three that were written together."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    for value in (b"a", b"b", b"c"):
        producer.send(value)
    ids = producer.flush()
    for number, at in enumerate(ids):
        with log.reader("t", start=at) as reader:
            assert reader.has_message_available()
            assert read(reader, 3 - number) == [b"a", b"b", b"c"][number:]
            assert not reader.has_message_available()


@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED])
def test_aborted_messages_and_markers_are_not_available(log: Log, level: str) -> None:
    """Leave only markers and aborted messages behind the last visible one, then one that is open."""
    producer, _ = numbered(log)
    for end in ("commit", "abort"):
        transaction = log.begin_transaction()
        send_each(producer, [b"x", b"y"], txn=transaction)
        getattr(transaction, end)()
    reader = log.reader("t", isolation_level=level)
    visible = [*VALUES, b"x", b"y"] + ([] if level == COMMITTED else [b"x", b"y"])
    for number, value in enumerate(visible):
        assert reader.has_message_available(), number
        assert read(reader, 1) == [value]
    assert not reader.has_message_available()
    with log.begin_transaction() as transaction:
        send_each(producer, [b"open"], txn=transaction)
        assert reader.has_message_available() == (level == UNCOMMITTED)
    assert reader.has_message_available()
    assert read(reader, 1) == [b"open"]


def test_reader_inside_an_aborted_entry_sees_what_is_behind_it(log: Log) -> None:
    """Start at the last message of an aborted entry, with one visible message behind it."""
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    transaction = log.begin_transaction()
    for value in (b"a", b"b", b"c"):
        producer.send(value, txn=transaction)
    ids = producer.flush()
    transaction.abort()
    send_each(producer, [b"behind"])
    for at in ids:
        with log.reader("t", start=at) as reader:
            assert reader.has_message_available()
            assert read(reader, 1) == [b"behind"]
            assert not reader.has_message_available()


def test_reader_seeks(log: Log) -> None:
    """Seek back, forward and to the end."""
    producer, ids = numbered(log)
    reader = log.reader("t")
    assert read(reader, 6) == VALUES[:6]
    assert reader.seek(ids[2]) == {0: ids[2]}
    assert read(reader, 2) == VALUES[2:4]
    reader.seek("latest")
    assert not reader.has_message_available()
    send_each(producer, [b"new"])
    assert read(reader, 1) == [b"new"]
    reader.seek("earliest")
    assert reader.has_message_available()
    assert read(reader, 11) == [*VALUES, b"new"]


def test_reader_leaves_nothing_behind(log: Log) -> None:
    """Open readers side by side, and close them."""
    numbered(log)
    readers = [log.reader("t") for _ in range(3)]
    assert all(read(reader, 10) == VALUES for reader in readers)
    assert [info.durable for info in log.subscriptions("t")] == [False] * 3
    for reader in readers:
        reader.close()
    assert log.subscriptions("t") == []


def test_reader_goes_on_over_a_restart(remote_site: Site) -> None:
    """Restart the server while a reader is in the middle: each message comes once."""
    log = remote_site.connect()
    producer, _ = numbered(log)
    reader = log.reader("t", queue_size=2)
    found = read(reader, 4)
    assert remote_site.server is not None
    port = int(remote_site.endpoint.rsplit(":", 1)[1])
    remote_site.stop_server()
    remote_site.start_server(port)
    found += read(reader, 6)
    assert found == VALUES
    send_each(producer, [END])
    assert read(reader, 1) == [END]


def test_reader_goes_on_after_its_service_was_paused(clocked_site: Site, clock: ManualClock) -> None:
    """Let a reader's lease end, which deletes its subscription: the reader reconnects and continues at its place."""
    log = clocked_site.connect()
    producer, _ = numbered(log)
    reader = log.reader("t", queue_size=2)
    found = read(reader, 4)
    clock.advance(16)
    log.subscribe("t", "other").close()  # a connect removes ended leases
    found += read(reader, 6)
    assert found == VALUES
    send_each(producer, [END])
    assert read(reader, 1) == [END]


@pytest.mark.parametrize("level", [COMMITTED, UNCOMMITTED])
def test_offloaded_ledgers_are_read_and_counted(clocked_site: Site, clock: ManualClock, level: str) -> None:
    """Read a ledger that only its object knows any more; ask before each message whether there is one."""
    log = clocked_site.connect()
    log.create_topic("t")
    producer = log.producer("t", batching=BY_HAND)
    for number, end in enumerate(["commit", "abort", "commit"]):
        transaction = log.begin_transaction()
        for each in range(1 + 2 * number):
            producer.send(b"%d:%d" % (number, each), txn=transaction)
        producer.flush()
        getattr(transaction, end)()
    visible = [b"%d:%d" % (n, i) for n in range(3) for i in range(1 + 2 * n) if level == UNCOMMITTED or n != 1]
    log.roll_ledger("t")
    log.offload("t")
    log.delete_hot("t")
    clock.advance(2 * 3600)
    log.delete_hot("t")
    [closed, _] = log.metadata.list_ledgers(1, PositionRange(Position(1, 0), Position(MAX_LEDGER_ID, 0))).to_pylist()
    assert closed["purged"]
    reader = log.reader("t", isolation_level=level)
    found: list[bytes] = []
    for _ in visible:
        assert reader.has_message_available(), found
        found += read(reader, 1)
    assert found == visible
    assert not reader.has_message_available()
    send_each(producer, [b"new"])
    assert read(reader, 1) == [b"new"]


def test_reader_of_what_is_not_there_says_so(log: Log) -> None:
    """Name no topic, no place, and read what is closed or gone."""
    with pytest.raises(TopicNotFoundError):
        log.reader("t")
    numbered(log)
    with pytest.raises(InvalidArgumentError, match="no place"):
        log.reader("t", start="here")
    with pytest.raises(InvalidArgumentError, match="queue_size"):
        log.reader("t", queue_size=0)
    reader = log.reader("t")
    reader.close()
    with pytest.raises(InvalidArgumentError, match="closed"):
        reader.read_next(WAIT_S)
    assert log.subscriptions("t") == []


def test_reader_beyond_the_end_waits_there(log: Log) -> None:
    """Start beyond the end: it stands at the end, and gets what comes then."""
    producer, ids = numbered(log)
    reader = log.reader("t", start=MessageId(ids[-1].ledger_id, 999))
    eventually(lambda: not reader.has_message_available())
    send_each(producer, [b"new"])
    assert read(reader, 1) == [b"new"]
