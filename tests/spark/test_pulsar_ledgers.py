"""Ledgers that Pulsar offloads, read by Spark: typed columns, and a query that goes on as they come."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.pulsar.offload_writer import LZ4, Frame, Sent, batch, marker, single, write_ledger
from tests.spark import plain
from tests.spark.plain import Query, logs_closed

PLACE = ("__ledger_id", "__entry_id", "__batch_index")
_ROW = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "m", "type": {"type": "map", "values": "double"}},
    ],
}


def test_typed_columns(tmp_path: Path) -> None:
    """Read JSON as columns; a bad value ends the query, or is null."""
    values = [b'{"a": 1, "tags": ["x", "y"], "m": {"k": 2}}', b'{"a": 2, "m": {}}']
    write_ledger(tmp_path, 3, [batch([*map(Sent, values), Sent(None)], Frame(codec=LZ4))])
    schema = {"type": "JSON", "schema": json.dumps(_ROW), "properties": {}}
    options = {"path": f"pulsar:{tmp_path}", "topic": "orders", "schema": json.dumps(schema)}
    with logs_closed():
        shown = dict(plain.Frame(options).dtypes)
    assert shown["value"] == "struct<a:bigint,tags:array<string>,m:map<string,double>>"
    rows = [{"a": 1, "tags": ["x", "y"], "m": [("k", 2.0)]}, {"a": 2, "tags": None, "m": []}, None]
    assert read_values(**options) == rows
    write_ledger(tmp_path, 4, [single(Sent(b"[]"))])
    with pytest.raises(Exception, match=r"TXNLOG_MESSAGE_UNREADABLE.*message at 4:0 in"):
        read_values(**options)
    found = read_values(**options, badValues="null")
    assert found.count(None) == 2


def read_values(**options: str) -> list[Any]:
    """Return the values, in the order of the messages."""
    with logs_closed():
        table = plain.Frame(options).toArrow()
    return table.sort_by([(name, "ascending") for name in PLACE])["value"].to_pylist()  # type: ignore[no-any-return]


def test_stream_goes_on_as_ledgers_come(query: Query, tmp_path: Path) -> None:
    """Offload ledgers one by one under a query that is stopped and started: each message once, when it is decided."""
    place = tmp_path / "bucket"
    place.mkdir()
    options = {"topic": "orders", "path": f"pulsar:{place}"}
    write_ledger(
        place, 3, [single(Sent(b"0")), single(Sent(b"1"), Frame(txn=(0, 1))), single(Sent(b"2"))], name=uuid.UUID(int=1)
    )
    query.run(**options)
    assert query.values() == [["0"]]
    query.start(**options).process()
    ledger = [single(Sent(b"3"), Frame(txn=(0, 2))), marker((0, 1), commit=True), batch([Sent(b"4"), Sent(b"5")])]
    write_ledger(place, 5, ledger, name=uuid.UUID(int=2))
    query.process()
    assert query.values() == [["0"], ["1", "2"]]
    write_ledger(place, 9, [marker((0, 2), commit=False), single(Sent(b"6"))], name=uuid.UUID(int=3))
    for _ in range(2):
        query.run(**options)
        assert query.values() == [["0"], ["1", "2"], ["4", "5", "6"]]


def test_offsets_inside_a_batch(query: Query, tmp_path: Path) -> None:
    """Read from and up to messages inside batches: as a batch, and as a stream whose batch is repeated."""
    place, many = tmp_path / "bucket", [Sent(b"%d" % at) for at in range(4)]
    place.mkdir()
    write_ledger(place, 3, [batch(many), single(Sent(b"s")), batch(many, Frame(codec=LZ4))], name=uuid.UUID(int=1))
    options = {"topic": "orders", "path": f"pulsar:{place}"}
    start = '{"orders": {"-1": "3:0:-1:2"}}'
    between = read_values(**options, startingOffsets=start, endingOffsets="(3,2,-1,1)")
    assert between == [b"2", b"3", b"s", b"0"]
    assert read_values(**options, startingOffsets="CAMQAiADKAQ=", minPartitions="3") == [b"3"]
    query.run(**options, startingOffsets=start)
    assert query.values() == [sorted("23s0123")]
    (query.checkpoint / "commits" / "0").unlink()
    write_ledger(place, 5, [batch(many)], name=uuid.UUID(int=2))
    query.run(**options, startingOffsets=start)
    assert query.values() == [sorted("23s0123"), list("0123")]
