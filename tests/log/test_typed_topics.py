"""Topics with an Arrow schema of their own: what fits is stored as it is, what doesn't is refused by its field."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import BY_HAND, rows
from txn_source import Log, SchemaMismatchError
from txn_source.model.routing import partition_of

TRANSFERS = pa.schema(
    [
        pa.field("account", pa.string(), nullable=False),
        pa.field("amount", pa.int64()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


def columns(log: Log, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows(log, "t", columns=names)]


def test_rows_of_many_types_come_back(log: Log) -> None:
    """Send one row as a dict and the same as a batch, with a column of every kind, and one of nulls."""
    schema = pa.schema(
        [
            ("flag", pa.bool_()),
            ("byte", pa.int8()),
            ("ratio", pa.float64()),
            ("price", pa.decimal128(12, 2)),
            ("name", pa.string()),
            ("long_name", pa.large_string()),
            ("data", pa.binary()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("list", pa.list_(pa.int32())),
            ("pair", pa.struct([("a", pa.int64()), ("b", pa.string())])),
            ("map", pa.map_(pa.string(), pa.int64())),
        ]
    )
    row = {
        "flag": True,
        "byte": -128,
        "ratio": 0.1,
        "price": Decimal("12.34"),
        "name": "ünï",
        "long_name": "x",
        "data": b"\x00",
        "day": date(2026, 1, 31),
        "at": datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC),
        "list": [1, None],
        "pair": {"a": 1, "b": None},
        "map": [("a", 1)],
    }
    nothing = dict.fromkeys(row)
    log.create_topic("t", schema=schema)
    assert log.schema("t") == schema
    with log.producer("t") as producer:
        producer.send(row)
        producer.send({})
        producer.flush()
        producer.send_batch(pa.Table.from_pylist([row, nothing], schema))
    table = log.scan("t", columns=schema.names).read_all()
    assert table.schema == schema
    assert table.to_pylist() == [row, nothing, row, nothing]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"account": "a", "amount": "ten"}, r"'amount'.*expected int64, came str 'ten'"),
        ({"account": "a", "amount": 1.5}, r"'amount'.*expected int64, came float 1.5"),
        ({"account": "a", "amount": 2**63}, r"'amount'.*expected int64, came int 9223372036854775808"),
        ({"account": 7}, r"'account'.*expected string, came int 7"),
        ({"account": "a", "tags": [7]}, r"'tags'.*expected list<.*string>, came list \[7\]"),
        ({"account": None}, r"'account'.*expected string and no null, came none"),
        ({"amount": 1}, r"'account'.*expected string and no null, came none"),
        ({"account": "a", "amuont": 1}, r"'amuont'.*account, amount, tags"),
        (b"raw", r"bytes.*account, amount, tags"),
        (None, r"NoneType.*account, amount, tags"),
    ],
    ids=repr,
)
def test_wrong_message_is_refused_with_field_expected_and_came(log: Log, value: Any, said: str) -> None:
    """Send it between two good ones to another partition: it is refused at once and they are stored."""
    log.create_topic("t", partitions=2, schema=TRANSFERS)
    producer = log.producer("t", batching=BY_HAND)
    producer.send({"account": "a"}, partition=0)
    with pytest.raises(SchemaMismatchError, match=r"^\[TXNLOG_SCHEMA_MISMATCH\] .*" + said):
        producer.send(value, partition=1)
    producer.send({"account": "b"}, partition=0)
    assert len(producer.flush()) == 2
    assert columns(log, "account") == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"account": ["a"], "amount": ["ten"], "tags": [["x"]]}, r"'amount'.*expected int64, came string"),
        ({"account": ["a"], "amount": [1.0], "tags": [["x"]]}, r"'amount'.*expected int64, came double"),
        ({"account": ["a", None], "amount": [1, 2], "tags": [["x"]] * 2}, r"'account'.*expected no nulls, came 1"),
        ({"account": ["a"], "amount": [1]}, r"no column 'tags'; expected list<"),
        ({"account": ["a"], "amount": [1], "tags": [["x"]], "more": [1]}, r"'more'.*account string"),
    ],
    ids=["text", "double", "null", "missing", "more"],
)
def test_wrong_batch_is_refused_whole(log: Log, batch: dict[str, Any], said: str) -> None:
    """Send it after a good one, in a table whose first chunk is good: only the good batch is stored."""
    log.create_topic("t", schema=TRANSFERS)
    producer = log.producer("t", batching=BY_HAND)
    good = {"account": ["a"], "amount": [1], "tags": [["x"]]}
    producer.send_batch(pa.table(good))
    with pytest.raises(SchemaMismatchError, match=said):
        producer.send_batch(pa.table(batch))
    assert len(producer.flush()) == 1
    assert columns(log, "account", "amount") == [("a", 1)]


def test_neither_table_nor_batch_is_refused(log: Log) -> None:
    """Send a list of dicts as a batch."""
    log.create_topic("t", schema=TRANSFERS)
    with pytest.raises(SchemaMismatchError, match="list"):
        log.producer("t").send_batch([{"account": "a"}])  # type: ignore[arg-type]


def test_message_that_is_changed_after_sending_is_stored_as_it_was(log: Log) -> None:
    """Send a dict and a list in it, then change both."""
    log.create_topic("t", schema=TRANSFERS)
    producer = log.producer("t", batching=BY_HAND)
    tags: list[Any] = ["x"]
    row = {"account": "a", "tags": tags}
    producer.send(row)
    tags.append(7)
    row["account"] = "changed"
    producer.send({"account": "b"})
    assert len(producer.flush()) == 2
    assert columns(log, "account", "tags") == [("a", ["x"]), ("b", None)]


def test_batch_is_brought_into_the_topics_order_and_widths(log: Log) -> None:
    """Send columns in another order, large text for text, and nulls of no type."""
    log.create_topic("t", schema=TRANSFERS)
    with log.producer("t") as producer:
        producer.send_batch(
            pa.table(
                {
                    "tags": pa.nulls(2),
                    "amount": pa.array([1, None], pa.int64()),
                    "account": pa.array(["a", "b"], pa.large_string()),
                }
            )
        )
    table = log.scan("t", columns=TRANSFERS.names).read_all()
    assert table.schema == TRANSFERS
    assert table.to_pylist() == [
        {"account": "a", "amount": 1, "tags": None},
        {"account": "b", "amount": None, "tags": None},
    ]


def test_key_routes_a_row_and_is_stored(log: Log) -> None:
    """Send keys beside rows, one by one and in a batch, copy them by ``message.key``, and read both from both tiers."""
    for topic in ("t", "copy"):
        log.create_topic(topic, partitions=4, schema=pa.schema([("account", pa.string())]))
    names = [f"account {i}" for i in range(20)]
    with log.producer("t") as producer:
        for name in names:
            producer.send({"account": name}, key=name)
        producer.send_batch(pa.table({"account": names, "__key": names}))
        producer.send({"account": "no key"})
    with log.subscribe("t", "s", initial_position="earliest") as consumer, log.producer("copy") as producer:
        for _ in range(2 * len(names) + 1):
            message = consumer.receive(30.0)
            assert message is not None
            producer.send(message.value, key=message.key)
    for tiered in (False, True):
        for topic in ("t", "copy"):
            if tiered:
                log.roll_ledger(topic)
                assert log.offload(topic).ledger_ids
            found = rows(log, topic, columns=["__partition", "account", "__key"])
            keys = {row["account"]: row["__key"] for row in found}
            assert keys == {name: name.encode() for name in names} | {"no key": None}
            assert all(row["__partition"] == partition_of(row["__key"], 4) for row in found if row["__key"])
            assert len(found) == 2 * len(names) + 1
    assert log.scan("t").schema.names[:2] == ["account", "__partition"]


def test_raw_topic_has_its_key_as_a_column_alone(log: Log) -> None:
    """Ask a raw topic for the metadata column of typed ones, and send it."""
    log.create_topic("raw")
    with pytest.raises(SchemaMismatchError, match="no column '__key'"):
        log.scan("raw", columns=["__key"])
    with log.producer("raw") as producer, pytest.raises(SchemaMismatchError, match="a column '__key'"):
        producer.send_batch(pa.table({"value": ["v"], "__key": ["k"]}))


def test_rows_with_and_without_optional_columns_are_read_together(log: Log) -> None:
    """Send batches with event times, with properties, with both and with none."""
    log.create_topic("t", schema=pa.schema([("n", pa.int64())]))
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    times = pa.array([noon], pa.timestamp("us", tz="UTC"))
    properties = pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string()))
    with log.producer("t") as producer:
        producer.send_batch(pa.table({"n": [1], "__event_time": times}))
        producer.send_batch(pa.table({"__properties": properties, "n": [2]}))
        producer.send_batch(pa.table({"n": [3], "__properties": properties, "__event_time": times}))
        producer.send_batch(pa.table({"n": [4]}))
    assert columns(log, "__event_time", "n", "__properties") == [
        (noon, 1, None),
        (None, 2, [("a", "b")]),
        (noon, 3, [("a", "b")]),
        (None, 4, None),
    ]
