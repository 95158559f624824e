"""Reading, consuming, sending, writing files and offloading load no pandas, though it is there: it takes a second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.log.reading import values
from tests.log.sites import Site

_READING = """
import sys
from txn_source.client.reading.columns import select_columns
from txn_source.reading.request import ReadRequest
from txn_source.reading.limits import StreamLimits
from txn_source.client.reading.own_log import OwnLog
from txn_source.client.streaming.own_guard import own_stream
from txn_source.reading.request import Selection
from txn_source.reading.stream import Stream
from txn_source.spark.connection import open_log
from txn_source.spark.source import TxnLogDataSource

place, target = sys.argv[1:]
for level in ("read_committed", "read_uncommitted"):
    for size in ("1", "1000000"):  # ledgers cut at entries, and whole ones
        options = {place: target, "topic": "orders", "metadataColumns": "all", "isolationLevel": level}
        source = TxnLogDataSource(options | {"maxPartitionBytes": size})
        reader = source.reader(source.schema())
        print(sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task)))
log = open_log(reader._options.target)
stream = own_stream(log, Selection.of("orders"), ReadRequest(), StreamLimits(max_messages=7))
start = stream.initial()
planned = stream.plan(start, stream.latest(start))
schema = select_columns(planned.payload, ["value", "__txn_status"])
print(sum(batch.num_rows for batch in planned.reader(OwnLog(log), schema).read(planned.parts)))
print(*(name for name in ("pandas",) if name in sys.modules))
"""

_WRITING = """
import sys
import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, MapType, StringType, StructType
from txn_source.spark.source import TxnLogDataSource

place, target, file = sys.argv[1:]
with pa.ipc.open_stream(file) as stream:
    batch = stream.read_next_batch()
schema = StructType().add("__topic", StringType()).add("key", BinaryType()).add("value", BinaryType())
schema = schema.add("__partition", IntegerType()).add("__properties", MapType(StringType(), StringType()))
writer = TxnLogDataSource({place: target}).writer(schema, False)
writer.commit([writer.write(iter([batch, batch]))])
print(*(name for name in ("pandas",) if name in sys.modules))
"""

_CONSUMING = """
import sys
from txn_source import connect

place, target = sys.argv[1:]
with connect(**{place: target}) as log:
    with log.subscribe("orders", "s", initial_position="earliest") as consumer:
        left = 13
        while left:
            batch = consumer.receive_batch(30)
            left -= len(batch)
            consumer.acknowledge(batch)
    print(len(log.offload("orders").ledger_ids))
    with log.producer("orders") as producer, log.begin_transaction() as transaction:
        producer.send(b"keyed", key=b"k")
        producer.send("without a key", txn=transaction)
        producer.send(None, key="k", txn=transaction)
print(*(name for name in ("pandas",) if name in sys.modules))
"""


@pytest.mark.long
def test_planning_and_reading_load_no_pandas(site: Site) -> None:
    """Read ledgers of both tiers, with transactions of every end, in a new process as Spark's tasks do."""
    pytest.importorskip("pandas")
    log = site.connect()
    log.create_topic("orders", partitions=2, ledger_max_entries=6)
    with log.producer("orders") as producer:
        for number in range(12):
            producer.send(b"%d" % number, properties={"a": "b"} if number % 2 else None, partition=number % 2)
            producer.flush()
            with log.begin_transaction() as committed:
                producer.send(b"committed", txn=committed, partition=0)
            aborted = log.begin_transaction()
            producer.send(b"aborted", txn=aborted, partition=1)
            producer.flush()
            aborted.abort()
        assert log.offload("orders").ledger_ids
        producer.send(b"last", partition=0)
    assert printed(site, _READING) == ["25", "25", "37", "37", "7", ""]


@pytest.mark.long
def test_writing_as_a_job_does_loads_no_pandas(site: Site, tmp_path: Path) -> None:
    """Write rows to two topics in a new process, by key and by partition, with properties, and commit them."""
    pytest.importorskip("pandas")
    log = site.connect()
    for topic in ("left", "right"):
        log.create_topic(topic, partitions=2)
    columns = {
        "__topic": pa.array(["left", "right", "left", "left"]),
        "key": pa.array([b"a", None, b"b", None], pa.binary()),
        "value": pa.array([b"1", b"2", b"3", b"4"], pa.binary()),
        "__partition": pa.array([None, 1, None, 0], pa.int32()),
        "__properties": pa.array([[("a", "b")], None, [], None], pa.map_(pa.string(), pa.string())),
    }
    batch = pa.record_batch(columns)
    with pa.ipc.new_stream(tmp_path / "batch.arrow", batch.schema) as stream:
        stream.write_batch(batch)
    assert printed(site, _WRITING, str(tmp_path / "batch.arrow")) == [""]
    assert sorted(values(log, "left")) == [b"1", b"1", b"3", b"3", b"4", b"4"]
    assert values(log, "right") == [b"2", b"2"]


@pytest.mark.long
def test_consuming_offloading_and_sending_load_no_pandas(site: Site) -> None:
    """Receive messages of closed ledgers and of the open one in a new process, offload the closed ones, send others."""
    pytest.importorskip("pandas")
    log = site.connect()
    log.create_topic("orders", ledger_max_entries=6)
    with log.producer("orders") as producer:
        for number in range(13):
            producer.send(b"%d" % number)
            producer.flush()
        aborted = log.begin_transaction()
        producer.send(b"aborted", txn=aborted)
        producer.flush()
        aborted.abort()
    assert printed(site, _CONSUMING) == ["2", ""]
    assert values(log, "orders")[-3:] == [b"keyed", b"without a key", None]


def printed(site: Site, program: str, *arguments: str) -> list[str]:
    """Run a program in a new process, and return its lines."""
    place, target = ("endpoint", site.endpoint) if site.kind == "remote" else ("path", str(site.root))
    command = [sys.executable, "-c", program, place, target, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()
