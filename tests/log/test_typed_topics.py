"""Topics with an Arrow schema of their own: what fits is stored as it is, what doesn't is refused by its field."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.log.reading import rows
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
