"""What a producer takes as a batch."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.selection import for_each
from txn_source import InvalidArgumentError, Log, SchemaMismatchError

SCHEMA = "id bigint not null, name string, raw binary"
ROWS = {"id": [1, 2], "name": ["a", None], "raw": [b"x", b""]}


@pytest.fixture
def typed(log: Log) -> Log:
    log.create_topic("orders", schema=SCHEMA)
    return log


def stream() -> Any:
    """An object that gives Arrow's stream and nothing else."""
    table = pa.table(ROWS)

    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return table.__arrow_c_stream__(requested_schema)

    return Stream()


@pytest.mark.parametrize(
    "batch",
    [
        pa.table(ROWS),
        pa.RecordBatch.from_pydict(ROWS),
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, index=["x", "y"]),
        pl.DataFrame(ROWS),
        stream(),
    ],
    ids=["table", "batch", "pandas", "pandas-index", "polars", "stream"],
)
def test_tables_of_any_kind_are_sent(typed: Log, batch: Any) -> None:
    with typed.producer("orders") as producer:
        producer.send_batch(batch)
    assert typed.scan("orders", columns=["id", "name", "raw"]).read_all().to_pydict() == ROWS


@for_each(
    ("batch", "said"),
    [
        ([{"id": 1}], "The batch is a list. Send a pyarrow.RecordBatch or Table, or a DataFrame of pandas or Polars."),
        (pd.DataFrame({"id": [1, "x"], "name": ["a", "b"], "raw": [b"", b""]}), "The DataFrame can't be sent: "),
        (pd.DataFrame({"id": [1.5], "name": ["a"], "raw": [b""]}), "Column 'id' doesn't fit: expected int64"),
        (pl.DataFrame({"id": [1]}), "The batch has no column 'name'"),
    ],
)
def test_what_does_not_fit_is_refused_whole(typed: Log, batch: Any, said: str) -> None:
    with typed.producer("orders") as producer, pytest.raises(SchemaMismatchError) as caught:
        producer.send_batch(batch)
    assert said in str(caught.value)
    assert typed.count("orders") == 0


def test_a_schema_is_text_too(log: Log) -> None:
    log.create_topic("orders", schema=SCHEMA)
    assert log.schema("orders") == pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("raw", pa.binary())]
    )
    log.create_topic("of_spark", schema="struct<id:bigint,tags:array<string>>")
    assert log.schema("of_spark") == pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])
    for wrong in ("id", "id wrong", "", "id bigint,"):
        with pytest.raises(InvalidArgumentError, match="The schema"):
            log.create_topic("wrong", schema=wrong)
    assert log.topics() == ["of_spark", "orders"]
