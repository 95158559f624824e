"""What a process loads that reads a log that others wrote: Spark starts several for each query."""

from __future__ import annotations

from pathlib import Path

from tests.foreign.pulsar.sample_cases import unpack
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


def test_reading_loads_one_format_and_no_service(tmp_path: Path) -> None:
    """Ask for the schema, plan and read in a new process; then connect and scan in another one."""
    place, topic = unpack("plain-batch", tmp_path).folder / "objects", "persistent://lab/txn/plain-batch"
    loaded = loaded_by(_READING, f"pulsar:{place}", topic)
    assert "txn_source.foreign.pulsar.format" in loaded
    assert among(loaded, (*_UNNEEDED, "txn_source.foreign.kafka", "txn_source.spark.options")) == []
    loaded = loaded_by(_CONNECTING, f"pulsar:{place}", topic)
    assert among(loaded, ("grpc", "pyspark", "sqlalchemy", "txn_source.foreign.kafka")) == []
