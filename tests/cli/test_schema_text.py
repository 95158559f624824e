from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.selection import for_each
from txn_source.cli.schema_text import parse_schema
from txn_source.model.errors import InvalidArgumentError

UTC = pa.timestamp("us", tz="UTC")
TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "INT": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": UTC,
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
    "decimal(12, 2)": pa.decimal128(12, 2),
    "array<int>": pa.list_(pa.int32()),
    "map<string,array<bigint>>": pa.map_(pa.string(), pa.list_(pa.int64())),
    "struct<a:int,b:struct<c:string>>": pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))]),
}
"""Spark's names."""

ARROW_TYPES = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(),
    pa.large_string(), pa.binary(), pa.large_binary(), pa.date32(), pa.duration("us"), pa.decimal128(38, 9),
    pa.timestamp("ns"), pa.timestamp("ms", tz="Europe/Zurich"), pa.list_(pa.field("item", pa.string(), nullable=False)),
    pa.map_(pa.string(), pa.list_(pa.int64())), pa.struct([pa.field("a", pa.int64(), nullable=False), ("b", UTC)]),
]  # fmt: skip


@for_each(("text", "expected"), TYPES.items())
def test_spark_type_is_understood(text: str, expected: pa.DataType) -> None:
    """Each of Spark SQL's names becomes the type that Spark reads as the same: parse it as a column."""
    assert parse_schema(f"c {text}") == pa.schema([("c", expected)])


@for_each("kind", ARROW_TYPES)
def test_arrow_type_is_understood_as_it_prints(kind: pa.DataType) -> None:
    """What Arrow shows of a schema can be pasted: parse the text of each type."""
    assert parse_schema(f"c: {kind}") == pa.schema([("c", kind)])


def test_columns_are_written_in_several_ways() -> None:
    """Text, JSON and Spark's simpleString mean the same: parse one schema from each."""
    expected = pa.schema([pa.field("id", pa.int64(), nullable=False), ("first name", pa.string())])
    for text in (
        "id bigint NOT NULL, `first name` string",
        "id:long not null,`first name`:string",
        '{"id": "bigint not null", "first name": "string"}',
        "struct<id:bigint not null,`first name`:string>",
    ):
        assert parse_schema(text) == expected


def test_schema_is_taken_from_a_file(tmp_path: Path) -> None:
    """A Parquet file, an Arrow file and a text file give the schema that was written: parse their paths."""
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    pq.write_table(schema.empty_table(), tmp_path / "parquet")
    with pa.ipc.new_file(tmp_path / "arrow", schema):
        pass
    (tmp_path / "text").write_text("id bigint,\n  name string\n")
    for name in ("parquet", "arrow", "text"):
        assert parse_schema(str(tmp_path / name)).remove_metadata() == schema


@for_each(
    ("text", "why"),
    [
        ("", "a column's name is missing before the end"),
        ("id", "a type is missing before the end"),
        ("id bigint,", "a column's name is missing before the end"),
        ("id bigint name string", "'name' is not expected there"),
        ("id number", "'number' is not a type"),
        ("id bigint not", '"null" is missing after "not", before the end'),
        ("id array<int", "'>' is missing before the end"),
        ("id array int", "'<' is missing before 'int'"),
        ("id map<int>", "',' is missing before '>'"),
        ("id decimal(50,2)", "decimal(50,2) is not a type"),
        ("id decimal(x)", "decimal(x,0) is not a type"),
        ("id `bigint", "'`bigint' can't be read"),
        ("missing.parquet", "a type is missing before the end"),
        ("{id", "is not JSON"),
        ('{"id": 1}', "has a column whose type is not text"),
    ],
)
def test_schema_that_cannot_be_read_says_where(text: str, why: str) -> None:
    """The error names what is wrong and shows how to write it: parse each wrong text."""
    with pytest.raises(InvalidArgumentError) as caught:
        parse_schema(text)
    assert why in str(caught.value)


def test_file_without_a_schema_is_refused(tmp_path: Path) -> None:
    """A file that is neither is named in one error: parse a picture and a torn Parquet file."""
    for name, content in (("picture", b"\x89PNG\r\n\x1a\n\xff"), ("torn", b"PAR1....")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidArgumentError, match=rf"'{tmp_path}/{name}' can't be read"):
            parse_schema(str(tmp_path / name))
