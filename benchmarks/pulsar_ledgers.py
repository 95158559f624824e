"""What Pulsar offloaded, read in place through Spark and by ``scan``, and imported."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import txn_source
from benchmarks.harness import Bench, Result, best_of, spark_session
from benchmarks.scan import drain
from tests.foreign.pulsar.offload_writer import LZ4, Frame, Sent, batch, write_ledger
from txn_source.importing import import_topics

_ROWS = 1_000
_TOPIC = "orders"
_LEDGERS = 4


def run(bench: Bench) -> Iterator[Result]:
    """Measure batches of 1,000 messages of 120 bytes in lz4, without and with a key and two properties."""
    entries = bench.size(1_500, 10)
    spark = spark_session()
    for name, with_properties, target in (("values alone", False, 1.5), ("key and two properties", True, 0.6)):
        folder = bench.folder / ("properties" if with_properties else "values")
        rows = write_topic(folder, entries, with_properties=with_properties)
        frame = spark.read.format("txnlog").option("topic", _TOPIC).load(f"pulsar:{folder}")
        assert bench.quick is False or frame.count() == rows
        [took] = best_of(bench.runs, lambda frame=frame: drain(frame))  # type: ignore[misc]
        what = f"Pulsar's ledgers through Spark, {name}"
        yield Result(what, rows / took / 1e6, "M rows/s", ("≥", target), f"{rows / 1e6:.1f} M rows")
        [took] = best_of(bench.runs, lambda folder=folder: _scan(folder))  # type: ignore[misc]
        yield Result(f"Pulsar's ledgers by scan, {name}", rows / took / 1e6, "M rows/s", None)
    with txn_source.connect(bench.folder / "target") as log:
        [took] = best_of(1, lambda: import_topics(f"pulsar:{folder}", _TOPIC, log))
    yield Result("import of Pulsar's ledgers, key and two properties", rows / took / 1e6, "M rows/s", None)


def write_topic(folder: Path, entries: int, *, with_properties: bool) -> int:
    """Write ledgers of so many entries each, and return how many messages they have."""
    folder.mkdir(parents=True)
    random.seed(1)
    messages = []
    for number in range(_ROWS):
        value = os.urandom(60).hex().encode()
        if with_properties:
            messages.append(Sent(value, b"key-%d" % number, properties={"a": "one", "b": str(number)}, sequence=number))
        else:
            messages.append(Sent(value, sequence=number))
    entry = batch(messages, Frame(codec=LZ4))
    for ledger in range(_LEDGERS):
        write_ledger(folder, ledger + 1, [entry] * entries)
    return _LEDGERS * entries * _ROWS


def _scan(folder: Path) -> None:
    with txn_source.connect(f"pulsar:{folder}") as log:
        for _ in log.scan(_TOPIC):
            pass
