"""Producers: what is sent is stored once, in order, where its key belongs, and acknowledged by its id."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import BY_HAND, UNCOMMITTED, by_id, by_partition, eventually, rows, values
from tests.log.sites import Site
from txn_source import Batching, InvalidArgumentError, Log, Position, SchemaMismatchError, TopicNotFoundError
from txn_source.storage import segment

pytestmark = pytest.mark.also("objects", "copies")

_MAP = pa.map_(pa.string(), pa.string())
_KEYS = [b"alice", b"bob", b"carol", b"dave", b"", b"\x00\xff"]


def test_ids_come_in_the_order_of_sending(log: Log) -> None:
    """Send over several partitions by key and by number; each id leads to the message sent at its place."""
    log.create_topic("orders", partitions=4)
    producer = log.producer("orders", batching=BY_HAND)
    sent = [b"%d" % i for i in range(100)]
    for index, value in enumerate(sent):
        if index % 3:
            producer.send(value, key=_KEYS[index % len(_KEYS)])
        else:
            producer.send(value, partition=index % 4)
    ids = producer.flush()
    stored = by_id(log, "orders")
    assert [stored[i] for i in ids] == sent
    assert producer.flush() == []


def test_ids_come_in_the_order_of_sending_over_transactions(log: Log) -> None:
    """Send plain messages and those of two transactions in turn, then flush once."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders", batching=BY_HAND)
    owners = [None, log.begin_transaction(), log.begin_transaction()]
    sent = [b"%d" % i for i in range(12)]
    for index, value in enumerate(sent):
        producer.send(value, txn=owners[index % 3], partition=index % 2)
    ids = producer.flush()
    stored = by_id(log, "orders")
    assert [stored[i] for i in ids] == sent


def test_messages_without_key_use_all_partitions(log: Log) -> None:
    """Write often without a key: one write stays on one partition, many reach all of them evenly."""
    log.create_topic("orders", partitions=3)
    producer = log.producer("orders", batching=BY_HAND)
    for _ in range(6):
        producer.send(b"a")
        producer.send(b"b")
        one, other = producer.flush()
        assert one.position == other.position
    assert {p: len(found) for p, found in by_partition(log, "orders").items()} == {0: 4, 1: 4, 2: 4}


@pytest.mark.parametrize("partition", [None, 2])
def test_batch_is_the_same_as_sends(log: Log, partition: int | None) -> None:
    """Send equal messages one by one and as a batch, and compare the entries that each makes on each partition."""
    keys = [*_KEYS, None, b"alice", None, b"bob"] * 3
    sent = [b"%d" % i for i in range(len(keys))]
    times = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=i) for i in range(len(keys))]
    properties = [{"n": str(i)} if i % 2 else None for i in range(len(keys))]
    log.create_topic("orders", partitions=3)
    producer = log.producer("orders", batching=BY_HAND)
    for value, key, time, each in zip(sent, keys, times, properties, strict=True):
        producer.send(value, key=key, event_time=time, properties=each, partition=partition)
    singles = producer.flush()
    for _ in range(2):  # so that messages without a key are at the same one of three partitions again
        producer.send_batch(pa.record_batch({"value": [b"filler"]}))
        producer.flush()
    columns = {
        "__event_time": pa.array(times, pa.timestamp("us", tz="UTC")),
        "value": pa.array(sent, pa.binary()),
        "__properties": pa.array([each and list(each.items()) for each in properties], _MAP),
        "key": pa.array(keys, pa.binary()),
    }
    producer.send_batch(pa.table(columns), partition=partition)
    batched = producer.flush()

    stored = by_id(log, "orders")
    assert [stored[i] for i in singles] == [stored[i] for i in batched] == sent
    first_place, second_place = {i.position for i in singles}, {i.position for i in batched}
    found: dict[bool, list[tuple[Any, ...]]] = {True: [], False: []}
    for row in rows(log, "orders", columns=["__partition", "__ledger_id", "__entry_id", "__batch_index", *columns]):
        place = Position(row.pop("__ledger_id"), row.pop("__entry_id"))
        if place in first_place | second_place:
            found[place in first_place].append(tuple(row.values()))
    assert found[True] == found[False]


def test_full_batch_is_written_at_once(log: Log) -> None:
    """Reach each limit of the batching without a flush."""
    log.create_topic("by_number")
    log.create_topic("by_size")
    by_number = log.producer("by_number", batching=Batching(linger_s=1e6, max_messages=3))
    by_size = log.producer("by_size", batching=Batching(linger_s=1e6, max_bytes=1000))
    for producer, value in ((by_number, b"x"), (by_size, b"x" * 400)):
        producer.send(value)
        producer.send(value)
        assert values(log, producer.topic) == []
        producer.send(value)
        eventually(lambda producer=producer, value=value: values(log, producer.topic) == [value] * 3)


def test_message_is_written_after_its_linger_time(log: Log) -> None:
    """Send and don't flush; then look until it has come, twice, since the thread must not stop after the first."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=Batching(linger_s=0.001))
    producer.send(b"a")
    eventually(lambda: values(log, "orders") == [b"a"])
    producer.send(b"b")
    eventually(lambda: values(log, "orders") == [b"a", b"b"])
    assert len(producer.flush()) == 2


def test_properties_and_event_time_come_back(log: Log) -> None:
    """Send messages with none, one or both of them, in one batch."""
    log.create_topic("orders")
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    with log.producer("orders", batching=BY_HAND) as producer:
        producer.send(b"a")
        producer.send(b"b", properties={"x": "1", "ü": ""})
        producer.send(b"c", event_time=noon.astimezone(timezone(timedelta(hours=5))))
        producer.send(b"d", event_time=int(noon.timestamp() * 1000), properties={})
        producer.send(b"e")
    found = rows(log, "orders", columns=["value", "__event_time", "__properties"])
    assert [row["__event_time"] for row in found] == [None, None, noon, noon, None]
    assert [row["__properties"] for row in found] == [None, [("x", "1"), ("ü", "")], None, [], None]


@pytest.mark.parametrize("bad", [{"event_time": "noon"}, {"txn": 5}, {"txn": "seven"}], ids=ascii)
def test_bad_message_is_refused_and_loses_no_other(log: Log, bad: dict[str, Any]) -> None:
    """Send a message that can't be stored between two that can: it is refused at once, the others are stored."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders", batching=BY_HAND)
    producer.send(b"a", partition=0)
    with pytest.raises((InvalidArgumentError, SchemaMismatchError, TopicNotFoundError)):
        producer.send(**{"value": b"bad", **bad})
    producer.send(b"b", partition=0)
    assert len(producer.flush()) == 2
    assert values(log, "orders", UNCOMMITTED) == [b"a", b"b"]


def test_message_of_100_megabytes_comes_back(log: Log) -> None:
    """Send one message far above every batch limit between two small ones."""
    log.create_topic("orders")
    large = bytes(range(256)) * (100 * 1_000_000 // 256)
    with log.producer("orders") as producer:
        for value in (b"before", large, b"after"):
            producer.send(value)
        assert len(producer.flush()) == 3
    before, middle, after = values(log, "orders")
    assert (before, after) == (b"before", b"after")
    assert middle == large


def test_closed_producer_refuses_messages(log: Log) -> None:
    """Close twice, then send, send a batch and flush."""
    log.create_topic("orders")
    producer = log.producer("orders", batching=BY_HAND)
    producer.send(b"a")
    producer.close()
    producer.close()
    for call in (lambda: producer.send(b"b"), producer.flush, lambda: producer.send_batch(_one_row())):
        with pytest.raises(InvalidArgumentError, match="closed"):
            call()
    assert values(log, "orders") == [b"a"]


def _one_row() -> pa.RecordBatch:
    return pa.record_batch({"value": [b"x"]})


def test_producer_flushes_when_its_block_ends(log: Log) -> None:
    """Leave the block of a producer normally and by an exception; plain messages are stored both times."""
    log.create_topic("orders")
    with log.producer("orders", batching=BY_HAND) as producer:
        producer.send(b"a")
    left_by_an_error = log.producer("orders", batching=BY_HAND)
    left_by_an_error.send(b"b")
    with pytest.raises(InvalidArgumentError), left_by_an_error:
        left_by_an_error.send(b"c", event_time="noon")
    assert values(log, "orders") == [b"a", b"b"]


def test_names_of_producers_are_given_or_made_up(log: Log) -> None:
    """Open producers with a name, with a transactional id, and with neither."""
    log.create_topic("orders")
    assert log.producer("orders", name="mine").name == "mine"
    assert log.producer("orders", transactional_id="tellers").name == "tellers"
    made_up = {log.producer("orders").name for _ in range(3)}
    assert len(made_up) == 3
    with pytest.raises(InvalidArgumentError, match="empty"):
        log.producer("orders", transactional_id="")


def test_one_flush_reaches_more_partitions_than_segments_stay_open(log: Log) -> None:
    """Send a message to each of 130 partitions and flush once: all of them are there."""
    log.create_topic("wide", partitions=130)
    producer = log.producer("wide", batching=BY_HAND)
    for partition in range(130):
        producer.send(b"%d" % partition, partition=partition)
    assert len(producer.flush()) == 130
    assert values(log, "wide") == [b"%d" % partition for partition in range(130)]


def test_topic_that_is_deleted_while_its_file_is_made_is_not_found(
    embedded_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delete the topic with its folder between creating the folder and the file: the flush raises TOPIC_NOT_FOUND."""
    log = embedded_site.connect()
    log.create_topic("t")
    producer = log.producer("t")
    producer.send(b"1")
    make = segment.make_folder

    def making(folder: Path, below: Path) -> None:
        make(folder, below)
        if "t" in log.topics():
            log.delete_topic("t")
            shutil.rmtree(folder)

    monkeypatch.setattr(segment, "make_folder", making)
    with pytest.raises(TopicNotFoundError, match="was deleted"):
        producer.flush()
