"""Columns of a read: which metadata columns a choice means, and payload and metadata in any order."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.selection import for_each
from txn_source.client.reading.columns import METADATA_COLUMNS, metadata_columns, read_schema, select_columns
from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError
from txn_source.storage.schema import RAW_SCHEMA

PAYLOAD = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.binary())])
DEFAULT = ["__partition", "__ledger_id", "__entry_id", "__batch_index", "__publish_time", "__event_time"]
MORE = ["__topic", "__producer_name", "__sequence_id", "__txn_id", "__txn_status", "__properties", "__key"]
TYPES = {
    "__partition": pa.int32(),
    "__ledger_id": pa.int64(),
    "__entry_id": pa.int64(),
    "__batch_index": pa.int32(),
    "__publish_time": pa.timestamp("us", tz="UTC"),
    "__event_time": pa.timestamp("us", tz="UTC"),
    "__topic": pa.string(),
    "__producer_name": pa.string(),
    "__sequence_id": pa.int64(),
    "__txn_id": pa.string(),
    "__txn_status": pa.string(),
    "__properties": pa.map_(pa.string(), pa.string()),
    "__key": pa.binary(),
}


def test_metadata_columns_have_the_types_of_the_contract() -> None:
    """Compare names, order and types with the public contract."""
    assert [(name, field.name, field.type) for name, field in METADATA_COLUMNS.items()] == [
        (name, name, type_) for name, type_ in TYPES.items()
    ]


@for_each(
    ("choice", "one_topic", "several_topics"),
    [
        ("none", [], []),
        ("default", DEFAULT, [*DEFAULT, "__topic"]),
        ("all", [*DEFAULT, *MORE], [*DEFAULT, *MORE]),
        (" ALL ", [*DEFAULT, *MORE], [*DEFAULT, *MORE]),
        (["none"], [], []),
        ([], [], []),
        ("__txn_id", ["__txn_id"], ["__txn_id"]),
        (
            "__txn_id, __topic ,__partition",
            ["__txn_id", "__topic", "__partition"],
            ["__txn_id", "__topic", "__partition"],
        ),
        (["__topic", "__txn_id"], ["__topic", "__txn_id"], ["__topic", "__txn_id"]),
    ],
)
def test_choice_of_metadata_columns(choice: str | list[str], one_topic: list[str], several_topics: list[str]) -> None:
    """Choose by word, by commas and by list, for a read of one topic and of several."""
    assert metadata_columns(choice, several_topics=False) == one_topic
    assert metadata_columns(choice, several_topics=True) == several_topics


@for_each(
    ("choice", "wrong"),
    [
        ("", ""),
        ("topic", "topic"),
        ("all,__topic", "all"),
        ("__topic,", ""),
        (["__topic", "id"], "id"),
    ],
)
def test_name_that_is_no_metadata_column_is_refused(choice: str | list[str], wrong: str) -> None:
    """Choose what isn't there: the error names it and lists what is."""
    with pytest.raises(InvalidArgumentError) as caught:
        metadata_columns(choice, several_topics=False)
    assert str(caught.value) == (
        f"[TXNLOG_INVALID_ARGUMENT] {wrong!r} is not a metadata column."
        f" Use none, default, all, or some of {', '.join([*DEFAULT, *MORE])}."
    )


def test_metadata_column_that_is_named_twice_is_refused() -> None:
    """Choose one column twice."""
    with pytest.raises(InvalidArgumentError, match=r"A metadata column is named twice\. Name each once\."):
        metadata_columns("__topic,__txn_id,__topic", several_topics=False)


def test_metadata_follows_the_payload() -> None:
    """Make the schema of a read: the payload's fields as they are, then the metadata chosen."""
    schema = read_schema(PAYLOAD, "__txn_id,__partition", several_topics=False)
    assert list(schema) == [*PAYLOAD, METADATA_COLUMNS["__txn_id"], METADATA_COLUMNS["__partition"]]
    assert read_schema(PAYLOAD, "none", several_topics=True).equals(PAYLOAD)
    assert read_schema(PAYLOAD, "all", several_topics=True).names == ["id", "value", *TYPES]
    assert read_schema(RAW_SCHEMA, "all", several_topics=True).names == ["key", "value", *DEFAULT, *MORE[:-1]]
    assert read_schema(PAYLOAD, "default", several_topics=True).names == ["id", "value", *DEFAULT, "__topic"]


@pytest.mark.parametrize("names", [["value"], ["__entry_id"], ["__topic", "value", "__entry_id", "id"], [*TYPES, "id"]])
def test_columns_are_selected_in_the_order_asked_for(names: Sequence[str]) -> None:
    """Select payload and metadata columns in any order."""
    fields = {**{f.name: f for f in PAYLOAD}, **METADATA_COLUMNS}
    assert list(select_columns(PAYLOAD, names)) == [fields[name] for name in names]


@for_each("name", ["", "values", "Value", "topic"])
def test_column_that_is_not_there_is_refused(name: str) -> None:
    """Select a column that isn't there: the error names it and lists both kinds."""
    with pytest.raises(SchemaMismatchError) as caught:
        select_columns(PAYLOAD, ["id", name])
    assert str(caught.value) == (
        f"[TXNLOG_SCHEMA_MISMATCH] There is no column {name!r}. The payload columns are id, value;"
        f" metadata columns are {', '.join(TYPES)}."
    )


@pytest.mark.parametrize(
    ("names", "fact"),
    [
        (["id", "id"], "A column is asked for twice"),
        (["__topic", "id", "__topic"], "A column is asked for twice"),
        ([], "No column is asked for"),
    ],
)
def test_selection_of_none_or_twice_is_refused(names: list[str], fact: str) -> None:
    """Select nothing, which would lose the number of rows, and one column twice."""
    with pytest.raises(SchemaMismatchError, match=re.escape(f"[TXNLOG_SCHEMA_MISMATCH] {fact}.")):
        select_columns(PAYLOAD, names)


def test_metadata_columns_are_found_in_any_case() -> None:
    """Choose a column in another case, as Spark's users may; it comes under its own name."""
    assert metadata_columns("__TOPIC, __entry_ID", several_topics=False) == ["__topic", "__entry_id"]
