"""Consumers and readers that nobody closed: of processes that ended, and of a program that forgot them."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

from tests.log.consuming import VALUES, WAIT_S, numbered, receive, subscribe, take
from tests.log.reading import eventually
from tests.log.sites import ManualClock, Site
from txn_source import InternalError, InvalidArgumentError
from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.convert import error_from_wire

_READ_AND_EXIT = """
import os, sys, txn_source
reader = txn_source.connect(sys.argv[1]).reader("t")
assert reader.read_next(30.0).value == b"0"
os._exit(0)
"""


def upkeepers() -> int:
    return sum(thread.name == "txnlog-due" for thread in threading.enumerate())


@pytest.mark.long
def test_readers_of_processes_that_ended_go_away(embedded_site: Site) -> None:
    """Read in processes that end without closing: whoever lists, or connects next, takes their subscriptions away."""
    log = embedded_site.connect()
    numbered(log)
    run = [sys.executable, "-c", _READ_AND_EXIT, str(embedded_site.root)]
    subprocess.run(run, check=True, timeout=60)
    assert log.subscriptions("t") == []
    subprocess.run(run, check=True, timeout=60)
    with log.reader("t"):  # connecting takes them away, too
        assert (
            len(log.metadata.transport.call("ListSubscriptions", pb.ListSubscriptionsRequest(topic="t")).subscriptions)
            == 1
        )  # type: ignore[union-attr]
    assert log.stats("t").subscriptions == {}


def test_readers_whose_leases_ended_go_away(clocked_site: Site, clock: ManualClock) -> None:
    """Let a reader's lease end: the next listing deletes its subscription. The reader may have made another one."""
    log = clocked_site.connect()
    numbered(log)
    reader = log.reader("t")
    assert reader.read_next(WAIT_S) is not None
    [before] = log.subscriptions("t")
    clock.advance(16)
    assert before.subscription_id not in [each.subscription_id for each in log.subscriptions("t")]


def test_forgotten_reader_goes_away(site: Site) -> None:
    """Drop a reader in a living process: its subscription and its thread go, without a garbage collection."""
    log = site.connect()
    numbered(log)
    gc.collect()
    eventually(lambda: upkeepers() == 0)
    gc.disable()
    try:
        for _ in range(3):
            message = log.reader("t").read_next(WAIT_S)
            assert message is not None
            assert message.value == b"0"
        eventually(lambda: log.subscriptions("t") == [])
        eventually(lambda: upkeepers() == 0)
    finally:
        gc.enable()


def test_forgotten_consumer_sends_what_it_acknowledged(site: Site) -> None:
    """Drop a consumer with acknowledgements that wait: they are stored, and the next consumer may connect."""
    log = site.connect()
    numbered(log)
    consumer = subscribe(log)
    messages = [receive(consumer) for _ in range(4)]
    for message in messages:
        consumer.acknowledge(message)
    del consumer
    eventually(lambda: log.subscription("t", "s").consumers == ())
    assert log.subscription("t", "s").partitions[0].backlog == 6
    assert take(subscribe(log), 6) == VALUES[4:]
    with log.begin_transaction() as transaction, pytest.raises(InvalidArgumentError, match="it was forgotten"):
        transaction.acknowledge(messages[0])


@pytest.mark.long
def test_iterating_over_a_consumer_keeps_it(site: Site) -> None:
    """Iterate over a consumer that has no other name, with a garbage collection at the first messages."""
    log = site.connect()
    numbered(log)
    found = []
    for message in subscribe(log):
        if len(found) < 3:
            gc.collect()
        found.append(message.value)
        if len(found) == 10:
            break
    assert found == VALUES


def test_code_of_a_newer_service_is_told() -> None:
    """Answer with a code that this release doesn't know: the error names it."""
    error = error_from_wire(pb.Error(code="FROM_THE_FUTURE", fact="It is so.", remedy="Do it."))
    assert isinstance(error, InternalError)
    assert "It is so." in str(error)
    assert "FROM_THE_FUTURE" in str(error)
