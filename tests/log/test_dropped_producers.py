"""Producers that are dropped, not closed: what they took is written, or its loss is told; nothing of them stays."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.log.reading import BY_HAND, eventually, values
from tests.log.sites import Site, give_up_after
from txn_source import Batching, FailedError, Log
from txn_source.metadata.stub.metadata_stub import MetadataStub

pytestmark = pytest.mark.also("objects", "copies")

_FORGETFUL = """
import sys, txn_source
log = txn_source.connect(sys.argv[1])
producer = log.producer("orders", batching=txn_source.Batching(linger_s=1e6))
for _ in range(3):
    producer.send(b"x")
"""


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("txnlog-dropped")]


def _segments_open(log: Log) -> int:
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{fd}").startswith(str(log.root / "segments"))
        except FileNotFoundError:
            continue
    return found


@pytest.mark.long
@pytest.mark.files
def test_dropped_producers_take_their_threads_and_files_with_them(log: Log) -> None:
    """Drop 20 producers, half of them with messages that their threads are still to write."""
    log.create_topic("orders")
    for number in range(20):
        producer = log.producer("orders", name=f"dropped-{number}")
        producer.send(b"%d" % number)
        if number % 2:
            producer.flush()
    del producer
    eventually(lambda: not gc.collect() and not _threads())
    assert _segments_open(log) == 0
    assert sorted(values(log, "orders"), key=int) == [b"%d" % number for number in range(20)]


@pytest.mark.long
def test_failed_producer_takes_its_thread_with_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run out of memory in a flush, and drop the producer: its thread ends, though messages wait for days."""
    log.create_topic("orders")
    producer = log.producer("orders", name="dropped-failed", batching=BY_HAND)
    producer.send(b"a")

    def append(*_: Any, **__: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(MetadataStub, "append", append)
        with pytest.raises(MemoryError):
            producer.flush()
    with pytest.raises(FailedError):
        producer.send(b"b")
    assert _threads()
    del producer
    eventually(lambda: not gc.collect() and not _threads())


def test_lost_messages_of_a_dropped_producer_are_told(remote_site: Site) -> None:
    """Drop a producer whose service has gone: a warning names what is lost."""
    log = remote_site.connect()
    log.create_topic("orders")
    producer: Any = log.producer("orders", name="dropped", batching=Batching(linger_s=0.001))
    give_up_after(log, 0.5)
    remote_site.stop_server()
    producer.send(b"a")
    producer.send(b"b")
    gone = weakref.ref(producer)
    eventually(lambda: gone()._losses.kept is not None)
    held, producer = [producer], None
    said = "'dropped' was dropped: 2 messages to topic 'orders' .* are lost"
    with pytest.warns(ResourceWarning, match=said) as told:  # which keeps it, as what the warning is about
        eventually(lambda: held.clear() or len(told) > 0)


def test_messages_that_wait_keep_their_producer_for_the_log_to_flush(site: Site) -> None:
    """Drop a producer that lingers for days, and close the log."""
    log = site.open()
    log.create_topic("orders")
    log.producer("orders", batching=BY_HAND).send(b"a")
    gc.collect()
    log.close()
    assert values(site.connect(), "orders") == [b"a"]


def test_end_of_the_program_tells_what_was_not_flushed(tmp_path: Path) -> None:
    """End a program that forgot to close its producer."""
    with Site("embedded", tmp_path / "log") as site:
        site.connect().create_topic("orders")
        child = subprocess.run(
            [sys.executable, "-c", _FORGETFUL, str(site.root)], capture_output=True, text=True, timeout=120, check=True
        )
    assert "3 messages to topic 'orders' were not flushed and are lost. Close it first." in child.stderr
