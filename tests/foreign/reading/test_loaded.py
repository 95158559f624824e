"""What a process loads that reads a log that others wrote: Spark starts several for each query."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.foreign.kafka import samples as kafka
from tests.foreign.pulsar import sample_cases as pulsar
from tests.test_repository import among, loaded_by

_READING = """
import sys
from txn_source.spark.source import TxnLogDataSource

source = TxnLogDataSource({"path": sys.argv[1], "topic": sys.argv[2]})
reader = source.reader(source.schema())
assert sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task)) > 0
"""
_CONNECTING = """
import sys
import txn_source

log = txn_source.connect(sys.argv[1])
assert log.scan(sys.argv[2]).read_all().num_rows > 0
"""
_UNNEEDED = ("google", "grpc", "pandas", "sqlalchemy", "sqlite3", "txn_source.client.target", "txn_source.metadata")


@pytest.mark.parametrize(
    ("of", "other"), [pytest.param("kafka", "pulsar", marks=pytest.mark.long), ("pulsar", "kafka")]
)
def test_reading_loads_one_format_and_no_service(of: str, other: str, tmp_path: Path) -> None:
    """Ask for the schema, plan and read in a new process; then connect and scan in another one."""
    if of == "kafka":
        place, topic = kafka.unpack("plain", tmp_path) / "log", "plain"
    else:
        place, topic = pulsar.unpack("plain-batch", tmp_path).folder / "objects", "persistent://lab/txn/plain-batch"
    loaded = loaded_by(_READING, f"{of}:{place}", topic)
    assert f"txn_source.foreign.{of}.format" in loaded
    assert among(loaded, (*_UNNEEDED, f"txn_source.foreign.{other}", "txn_source.spark.options")) == []
    loaded = loaded_by(_CONNECTING, f"{of}:{place}", topic)
    assert among(loaded, ("grpc", "pyspark", "sqlalchemy", f"txn_source.foreign.{other}")) == []
