"""Planning and reading load no pandas, though it is installed: Spark starts processes for each query that only read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.log.sites import Site

_READING = """
import sys
from txn_source.client.reading.columns import select_columns
from txn_source.client.reading.request import ReadRequest
from txn_source.client.streaming.batch_limits import StreamLimits
from txn_source.client.streaming.stream import StreamedTopics, TopicStream
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
stream = TopicStream(log, StreamedTopics(["orders"], None, None), ReadRequest(), StreamLimits(max_messages=7))
start = stream.initial()
planned = stream.plan(start, stream.latest(start))
schema = select_columns(planned.payload, ["value", "__txn_status"])
pieces = [piece for task in planned.tasks for piece in task]
print(sum(batch.num_rows for batch in planned.reader(log, schema).read(pieces)))
print(*(name for name in ("pandas",) if name in sys.modules))
"""


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
    place, target = ("endpoint", site.endpoint) if site.kind == "remote" else ("path", str(site.root))
    run = subprocess.run([sys.executable, "-c", _READING, place, target], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["25", "25", "37", "37", "7", ""]
