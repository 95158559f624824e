"""A program writes under Ctrl-C every few milliseconds: each confirmed message is stored exactly once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.log.reading import UNCOMMITTED, values
from tests.log.sites import Site

WRITING = """
import json, os, random, signal, sys, threading, time
from txn_source import Batching, FailedError, connect

log = connect(**json.loads(sys.argv[1]))
order = random.Random(int(sys.argv[2]))
told = {"flushed": [], "committed": [], "aborted": [], "failures": 0, "interrupts": 0}
armed, over = [], threading.Event()

def interrupt(number, frame):
    if armed:
        armed.clear()  # once for each call: what this program does between them isn't the matter
        raise KeyboardInterrupt

def press():
    while not over.wait(order.uniform(0.001, 0.006)):
        for _ in range(2 if order.random() < 0.2 else 1):
            os.kill(os.getpid(), signal.SIGINT)

def called(call):
    # True if it has returned, False if it was interrupted.
    armed.append(True)
    try:
        call()
        armed.clear()
        return True
    except KeyboardInterrupt:
        told["interrupts"] += 1
        return False
    finally:
        armed.clear()

def opened():
    return log.producer("orders", batching=Batching(linger_s=0.005, max_messages=7))

def work(number, producer):
    names = [f"{number}-{i}" for i in range(order.randint(1, 10))]
    txn = log.begin_transaction() if number % 3 else None
    sent = [name for name in names if called(lambda: producer.send(name.encode(), txn=txn))]
    what = ("flushed", "aborted", "committed")[number % 3]
    while not called(producer.flush if txn is None else txn.abort if what == "aborted" else txn.commit):
        pass
    told[what] += sent

def write_on(name):
    # Other threads share the connection, and nothing interrupts them.
    with log.producer("others") as producer:
        while not over.is_set():
            with log.begin_transaction() as txn:
                producer.send(name, txn=txn)

signal.signal(signal.SIGINT, interrupt)
others = [threading.Thread(target=write_on, args=(name,), daemon=True) for name in (b"a", b"b")]
thread = threading.Thread(target=press)
for each in (thread, *others):
    each.start()
producer, number, until = opened(), 0, time.monotonic() + float(sys.argv[3])
while time.monotonic() < until or told["interrupts"] < 11 or not told["committed"]:
    number += 1
    try:
        work(number, producer)
    except FailedError:
        told["failures"] += 1
        producer = opened()
over.set()
thread.join()
for each in others:
    each.join(30)
told["others"] = sum(each.is_alive() for each in others)
try:
    log.close()
except FailedError:
    pass
print(json.dumps(told))
"""


@pytest.mark.also("remote")
def test_what_was_acknowledged_under_interrupts_is_stored_once(site: Site, request: pytest.FixtureRequest) -> None:
    """Send, flush, commit and abort under single and double Ctrl-C: no acknowledged message is lost or doubled."""
    log = site.connect()
    log.create_topic("orders")
    log.create_topic("others")
    target = {"endpoint": site.endpoint} if site.kind == "remote" else {"path": str(site.root)}
    command = [sys.executable, "-W", "ignore", "-c", WRITING, json.dumps(target), "7", "1.5"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert found.returncode == 0, found.stderr
    told = json.loads(found.stdout)
    assert told["interrupts"] > 10
    assert told["others"] == 0
    assert told["committed"]
    for transaction in log.transactions():
        log.abort_transaction(transaction.id)
    stored = [value.decode() for value in values(log, "orders")]
    assert len(stored) == len(set(stored))
    assert set(told["flushed"]) | set(told["committed"]) <= set(stored)
    assert not set(told["aborted"]) & set(stored)
    whole: dict[str, int] = {}
    for name in values(log, "orders", UNCOMMITTED):
        whole[name.decode()] = whole.get(name.decode(), 0) + 1
    assert set(whole.values()) == {1}
