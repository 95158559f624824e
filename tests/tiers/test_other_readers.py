"""Objects are plain Parquet files: readers that know nothing of the log get its rows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.log.reading import COMMITTED, UNCOMMITTED
from tests.log.tiers import closed_ledgers, write_ledgers
from tests.tiers.stores import Bucket
from txn_source import Log, Position
from txn_source.storage import tiered

SCHEMA = pa.schema(
    [
        pa.field("account", pa.string(), nullable=False),
        pa.field("cents", pa.int64()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
COLUMNS = [*SCHEMA.names, "__partition", "__ledger_id", "__entry_id", "__producer_name", "__sequence_id", "__txn_id"]
COLUMNS += ["__txn_status", "__publish_time", "__event_time"]


def order(source: Random) -> dict[str, Any]:
    return {
        "account": f"account {source.randrange(5)}",
        "cents": source.choice([None, source.randrange(1000)]),
        "tags": source.choice([None, [], ["a", None]]),
    }


@pytest.fixture
def offloaded(log: Log, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the objects of a typed topic, downloaded from a bucket."""
    monkeypatch.setattr(tiered, "ROW_GROUP_ROWS", 5)
    log.create_topic("orders", schema=SCHEMA, offload_uri=bucket.uri)
    write_ledgers(log, value=order)
    log.offload("orders")
    bucket.download(tmp_path / "objects")
    return tmp_path / "objects"


@pytest.fixture
def expected(log: Log, offloaded: Path) -> dict[str, pa.Table]:
    """What each level sees of the offloaded ledgers, from their hot copies."""
    end = Position(closed_ledgers(log, "orders")[-1] + 1, 0)
    return {
        level: log.scan("orders", level, COLUMNS, end=end, read_priority="bookkeeper-first").read_all()
        for level in (COMMITTED, UNCOMMITTED)
    }


def test_duckdb_sees_what_each_level_sees(offloaded: Path, expected: dict[str, pa.Table]) -> None:
    """Ask DuckDB for the objects' rows, and for those of the second files, too: they are those of the two levels."""
    by = "ORDER BY __ledger_id, __entry_id, __index"
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for level, files in ((COMMITTED, ("*.parquet",)), (UNCOMMITTED, ("*.parquet", "_*.aborted"))):
            paths = ", ".join(f"'{offloaded}/**/{name}'" for name in files)
            query = f"SELECT {', '.join(COLUMNS)} FROM read_parquet([{paths}]) {by}"
            found = database.sql(query).to_arrow_table()
            assert found.num_rows > 20
            assert found.cast(expected[level].schema.remove_metadata()).to_pylist() == expected[level].to_pylist()
    assert expected[COMMITTED].num_rows < expected[UNCOMMITTED].num_rows


READERS: dict[str, Callable[[Path], pa.Table]] = {
    "pyarrow's file reader": lambda path: pq.ParquetFile(path).read(COLUMNS),
    "polars": lambda path: pl.read_parquet(path, columns=COLUMNS).select(COLUMNS).to_arrow(),
    "pyarrow's table reader": lambda path: pq.read_table(path, columns=COLUMNS),
    "pyarrow's datasets": lambda path: ds.dataset(path).to_table(columns=COLUMNS),
    "pandas": lambda path: pa.Table.from_pandas(pd.read_parquet(path, columns=["cents"])),
}
FOLDER_READERS: dict[str, Callable[[Path], pa.Table]] = {
    "duckdb": lambda folder: duckdb.sql(f"FROM '{folder}/**/*.parquet'").to_arrow_table(),
    "polars": lambda folder: pl.read_parquet(folder / "**/*.parquet").to_arrow(),
    "pyarrow's table reader": pq.read_table,
    "pyarrow's datasets": lambda folder: ds.dataset(folder).to_table(),
    "pandas": lambda folder: pa.Table.from_pandas(pd.read_parquet(folder)),
}


def of(each_time: str, readers: Iterable[str]) -> list[Any]:
    """Return readers as parameters; all but one are for long runs."""
    return [name if name == each_time else pytest.param(name, marks=pytest.mark.long) for name in readers]


@pytest.mark.parametrize("reader", of("pyarrow's file reader", READERS))
def test_other_readers_see_what_read_committed_sees(
    offloaded: Path, expected: dict[str, pa.Table], reader: str
) -> None:
    """Read each object: together they are the rows of the level."""
    paths = sorted(offloaded.rglob("*.parquet"), key=lambda path: int(path.name.split("-")[1]))
    found = [row for path in paths for row in READERS[reader](path).to_pylist()]
    assert found == expected[COMMITTED].select(list(found[0])).to_pylist()


@pytest.mark.parametrize("reader", of("duckdb", FOLDER_READERS))
def test_readers_of_folders_see_no_second_files(offloaded: Path, expected: dict[str, pa.Table], reader: str) -> None:
    """Read the folder with all files, as each tool does by itself: there are the rows of the level, and no more."""
    found = FOLDER_READERS[reader](offloaded)
    places = zip(found["__ledger_id"].to_pylist(), found["__entry_id"].to_pylist(), strict=True)
    known = expected[COMMITTED]
    assert sorted(places) == list(zip(known["__ledger_id"].to_pylist(), known["__entry_id"].to_pylist(), strict=True))
    assert set(found["__txn_status"].to_pylist()) == {None, "committed"}
