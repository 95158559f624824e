"""Scans: which topics, levels, columns and batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import BY_HAND, UNCOMMITTED, rows, send_each, values
from tests.log.sites import Site
from txn_source import (
    InvalidArgumentError,
    Log,
    SchemaMismatchError,
    SegmentUnreadableError,
    TopicNotFoundError,
)

pytestmark = pytest.mark.also("objects", "copies")

_DEFAULT = ["__partition", "__ledger_id", "__entry_id", "__batch_index", "__publish_time", "__event_time"]
_ALL = [*_DEFAULT, "__topic", "__producer_name", "__sequence_id", "__txn_id", "__txn_status", "__properties"]


def test_schema_is_payload_then_default_metadata(log: Log) -> None:
    """Look at the columns of one topic, of several, and of none of its rows."""
    for topic in ("orders", "bills"):
        log.create_topic(topic, schema=pa.schema([("b", pa.int64()), ("a", pa.string())]))
    assert log.scan("orders").schema.names == ["b", "a", *_DEFAULT]
    assert log.scan(["orders", "bills"]).schema.names == ["b", "a", *_DEFAULT, "__topic"]
    table = log.scan("orders").read_all()
    assert (table.num_rows, table.schema) == (0, log.scan("orders").schema)


def test_every_metadata_column_says_what_it_should(log: Log) -> None:
    """Read all columns of messages in each state, and compare with what is known of them."""
    log.create_topic("orders", partitions=2)
    producer = log.producer("orders", name="teller", batching=BY_HAND)
    states = {}
    for state, end in (("committed", "commit"), ("aborted", "abort"), ("open", None)):
        transaction = states[state] = log.begin_transaction()
        producer.send(state.encode(), partition=1, txn=transaction)
        producer.flush()
        if end:
            getattr(transaction, end)()
    producer.send(b"first", partition=0, properties={"a": "b"}, event_time=1_000)
    producer.send(b"plain", partition=0)
    producer.flush()
    schema = log.scan("orders", columns=["value", *_ALL]).schema
    assert schema.names == ["value", *_ALL]
    found = {row.pop("value").decode(): row for row in rows(log, "orders", UNCOMMITTED, ["value", *_ALL])}
    assert {row["__topic"] for row in found.values()} == {"orders"}
    assert {row["__producer_name"] for row in found.values()} == {"teller"}
    assert [found[n]["__sequence_id"] for n in (*states, "first", "plain")] == list(range(5))
    assert {name: row["__partition"] for name, row in found.items()} == {
        "first": 0, "plain": 0, "committed": 1, "aborted": 1, "open": 1
    }  # fmt: skip
    assert [(found[n]["__entry_id"], found[n]["__batch_index"]) for n in ("first", "plain")] == [(0, 0), (0, 1)]
    assert [found[n]["__entry_id"] for n in states] == [0, 2, 4]
    assert found["first"]["__properties"] == [("a", "b")]
    assert found["first"]["__event_time"].timestamp() == 1
    assert found["plain"]["__publish_time"] == found["first"]["__publish_time"] >= found["open"]["__publish_time"]
    for name, transaction in states.items():
        assert (found[name]["__txn_id"], found[name]["__txn_status"]) == (str(transaction.id), name)
    assert (found["plain"]["__txn_id"], found["plain"]["__txn_status"]) == (None, None)


def test_any_columns_in_any_order_are_those_of_the_full_read(log: Log) -> None:
    """Read some columns and all, over several partitions, ledgers and producers; the same rows come."""
    log.create_topic("orders", partitions=2, ledger_max_entries=3)
    for name in ("one", "two"):
        producer = log.producer("orders", name=name)
        for index in range(8):
            txn = log.begin_transaction() if index % 3 == 0 else None
            for part in range(index % 3 + 1):
                producer.send(b"%d" % part, key=b"%d" % index, txn=txn, properties={"n": name} if index % 2 else None)
            txn.commit() if txn else producer.flush()
    whole = log.scan("orders", UNCOMMITTED, ["key", "value", *_ALL]).read_all()
    assert whole.num_rows > 20
    pairs = [["value", "key"], ["__batch_index", "key", "__topic"], ["__properties", "__entry_id"], _ALL[::-1]]
    for columns in [*([name] for name in whole.column_names), *pairs]:
        assert log.scan("orders", UNCOMMITTED, columns).read_all() == whole.select(columns)


def test_several_topics_are_read_in_the_order_given(log: Log) -> None:
    """Read three topics in both orders, with the column that tells them apart."""
    topics = ["a", "b", "c"]
    for topic in topics:
        log.create_topic(topic, partitions=2)
        send_each(log.producer(topic), [topic.encode()], partition=1)
    for order in (topics, topics[::-1]):
        assert [(r["__topic"], r["value"]) for r in rows(log, order)] == [(t, t.encode()) for t in order]


def test_topics_with_different_schemas_are_read_by_what_they_share(log: Log) -> None:
    """Read two typed topics that differ in one column: together only by the columns that are equal."""
    shared = pa.field("n", pa.int64())
    log.create_topic("a", schema=pa.schema([shared, ("x", pa.string())]))
    log.create_topic("b", schema=pa.schema([("x", pa.int32()), shared]))
    log.create_topic("c", schema=pa.schema([shared]))
    for index, topic in enumerate(("a", "b", "c")):
        send_each(log.producer(topic), [{"n": index}])
    with pytest.raises(SchemaMismatchError, match=r"'a' and 'b' differ in column 'x': string against int32"):
        log.scan(["a", "b"])
    with pytest.raises(SchemaMismatchError, match=r"'a' and 'c' differ in column 'x': string against absent"):
        log.scan(["a", "c"], columns=["n", "x"])
    found = rows(log, ["a", "b", "c"], columns=["__topic", "n"])
    assert [tuple(row.values()) for row in found] == [("a", 0), ("b", 1), ("c", 2)]
    assert rows(log, ["a", "b"], columns=["__partition"]) == [{"__partition": 0}] * 2


def test_one_partition_is_read_by_its_name(log: Log) -> None:
    """Name partitions as topics."""
    log.create_topic("orders", partitions=3)
    producer = log.producer("orders")
    for partition in range(3):
        send_each(producer, [b"%d" % partition], partition=partition)
    assert values(log, "orders-partition-1") == [b"1"]
    assert values(log, "persistent://public/default/orders-partition-2") == [b"2"]
    with pytest.raises(TopicNotFoundError, match="no partition 3"):
        log.scan("orders-partition-3")


@pytest.mark.parametrize("topics", [[], ["orders", "orders"], ["orders", "none"], "none", ["bad name"]], ids=str)
def test_wrong_topics_are_refused(log: Log, topics: Any) -> None:
    """Scan no topic, one twice, and one that isn't there."""
    log.create_topic("orders")
    with pytest.raises((InvalidArgumentError, TopicNotFoundError)):
        log.scan(topics)


@pytest.mark.files
def test_damaged_segment_is_named_with_entry_and_checksums(site: Site) -> None:
    """Flip a byte of the second entry: the first one is read, the second is an error that names what is known."""
    log = site.connect()
    log.create_topic("orders")
    ids = send_each(log.producer("orders"), [b"first", b"second"])
    [segment] = (site.root / "segments").rglob("*.arrow")
    data = bytearray(segment.read_bytes())
    data[data.rindex(b"second")] ^= 1
    segment.write_bytes(data)
    end = {"orders": {0: ids[1].position}}
    assert values(log, "orders", end=end) == [b"first"]
    said = rf"^\[TXNLOG_SEGMENT_UNREADABLE\] .*{segment.name}.*entry {ids[1].position} has checksum [0-9a-f]{{8}} where"
    with pytest.raises(SegmentUnreadableError, match=said):
        log.scan("orders").read_all()
    segment.unlink()
    with pytest.raises(SegmentUnreadableError, match="No such file"):
        log.scan("orders").read_all()
    assert rows(log, "orders", columns=["__entry_id"]) == [{"__entry_id": 0}, {"__entry_id": 1}]
