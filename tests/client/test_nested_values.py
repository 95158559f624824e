"""Typed messages with nested columns: what Arrow would bend without a word is refused before it is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from txn_source import connect
from txn_source.client.writing.batch_buffer import Buffer
from txn_source.model.errors import SchemaMismatchError

SCHEMA = pa.schema(
    [
        pa.field("s", pa.struct([pa.field("a", pa.int64())])),
        pa.field("l", pa.list_(pa.int64())),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
    ]
)


@pytest.mark.parametrize(
    ("column", "value"),
    [("s", {"a": 2.5}), ("s", {"b": 1}), ("l", [1, 2.5]), ("m", {"k": 2.5}), ("m", [("k", 2.5)])],
)
def test_value_that_arrow_would_bend_is_refused(column: str, value: Any) -> None:
    """Send a nested value with a part that doesn't fit; the error names the column and nothing was taken."""
    buffer = Buffer(SCHEMA, 0)
    with pytest.raises(SchemaMismatchError, match=f"Column '{column}' doesn't fit"):
        buffer.add({column: value}, None, None, None)
    assert buffer.messages == 0


def test_nested_values_that_fit_are_taken_as_they_are() -> None:
    """Send nested values, nulls inside among them, and compare the entry."""
    buffer = Buffer(SCHEMA, 0)
    row = {"s": {"a": None}, "l": [1, None], "m": {"k": 3}}
    buffer.add(row, None, None, None)
    [batch] = buffer.entries()
    assert batch.to_pylist() == [{"s": {"a": None}, "l": [1, None], "m": [("k", 3)]}]


def test_nulls_inside_of_nested_values_are_kept(tmp_path: Path) -> None:
    """Send lists and maps with nulls inside of lists and maps: nothing is lost, and nothing bent."""
    schema = pa.schema(
        [
            ("a", pa.list_(pa.list_(pa.int32()))),
            ("b", pa.map_(pa.string(), pa.list_(pa.string()))),
            ("c", pa.list_(pa.map_(pa.string(), pa.int64()))),
        ]
    )
    rows = [
        {"a": [None, [1, None], []], "b": {"x": None, "y": ["z", None]}, "c": [None, {"k": None}]},
        {"a": None, "b": None, "c": None},
    ]
    with connect(tmp_path / "log") as log:
        log.create_topic("t", schema=schema)
        with log.producer("t") as producer:
            for row in rows:
                producer.send(row)
        found = log.scan("t", columns=schema.names).read_all().to_pylist(maps_as_pydicts="strict")
    assert found == rows
