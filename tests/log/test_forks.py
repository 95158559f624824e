"""Forks: the child refuses its parent's objects and opens a log of its own; the parent continues."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.log.reading import UNCOMMITTED, values
from tests.log.sites import Site
from tests.selection import mostly_long

FORKING = """
import json, os, sys, threading
from txn_source import TxnLogError, connect

def said(call):
    try:
        call()
    except TxnLogError as error:
        return str(error)
    return "succeeded"

target, with_consumers = json.loads(sys.argv[1]), sys.argv[2] == "consuming"
log = connect(**target)
producer = log.producer("orders")
transaction = log.begin_transaction()
consumer = log.subscribe("orders", "s") if with_consumers else None
reader = log.reader("orders", start="earliest") if with_consumers else None
if consumer is not None:
    message = consumer.receive(timeout=60)
    waiting = threading.Thread(target=lambda: said(consumer.receive), daemon=True)
    waiting.start()
producer.send(b"of the parent", txn=transaction)
source, sink = os.pipe()
child = os.fork()
if child == 0:
    calls = {
        "topics": log.topics,
        "scan": lambda: log.scan("orders"),
        "producer": lambda: log.producer("orders"),
        "begin": lambda: log.begin_transaction().id,
        "send": lambda: producer.send(b"of the child"),
        "flush": producer.flush,
        "id": lambda: transaction.id,
        "commit": transaction.commit,
        "abort": transaction.abort,
    }
    if consumer is not None:
        calls |= {
            "receive": consumer.receive,
            "receive_batch": consumer.receive_batch,
            "acknowledge": lambda: consumer.acknowledge(message),
            "acknowledge_cumulative": lambda: consumer.acknowledge_cumulative(message),
            "negative_acknowledge": lambda: consumer.negative_acknowledge(message),
            "flush of acknowledgements": consumer.flush,
            "seek": lambda: consumer.seek("earliest"),
            "redeliver": consumer.redeliver,
            "unsubscribe": consumer.unsubscribe,
            "read_next": reader.read_next,
            "has_message_available": reader.has_message_available,
        }
    answers = {name: said(call) for name, call in calls.items()}
    for each in (producer, consumer, reader, log):
        if each is not None:
            each.close()

    def work():
        with connect(**target) as own, own.producer("orders") as opened:
            opened.send(b"of the child's own")

    answers["anew"] = said(work)
    os.write(sink, json.dumps(answers).encode())
    del producer, consumer, reader, transaction, log
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
transaction.commit()
if consumer is not None:
    consumer.acknowledge(message)
    consumer.flush()
    assert reader.read_next(timeout=60) is not None
log.close()
print(os.read(source, 1 << 16).decode())
"""


def forked(site: Site, how: str) -> dict[str, str]:
    """Fork with open objects; return the answers of the child's calls."""
    target = json.dumps({"endpoint": site.endpoint} if site.kind == "remote" else {"path": str(site.root)})
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, target, how]
    found = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=200, check=False)
    assert found.returncode == 0, found.stderr
    assert "txn_source" not in found.stderr
    answers: dict[str, str] = json.loads(found.stdout)
    return answers


@pytest.mark.parametrize("how", mostly_long(["writing", "consuming"], "writing"))
@pytest.mark.also("remote")
def test_child_is_refused_at_once_what_its_parent_opened(site: Site, how: str) -> None:
    """Fork during a transaction, and while a consumer waits: the child changes nothing, and the parent continues."""
    log = site.connect()
    log.create_topic("orders")
    log.create_subscription("orders", "s")
    with log.producer("orders") as producer:
        producer.send(b"before")
    answers = forked(site, how)
    anew = answers.pop("anew")
    assert len(answers) == (9 if how == "writing" else 20)
    for said in answers.values():
        assert "[TXNLOG_INVALID_ARGUMENT]" in said
        assert "belongs to the process that opened it" in said
    stored = [b"before", b"of the child's own", b"of the parent"]
    if how == "consuming":
        what = "SQLite" if site.kind == "embedded" else "A service"
        assert f"{what} was in use when this process was forked" in anew
        stored.remove(b"of the child's own")
    else:
        assert anew == "succeeded"
    assert sorted(values(log, "orders", UNCOMMITTED)) == stored
    if how == "consuming":  # and the child has acknowledged nothing
        assert log.subscription("orders", "s").backlog == len(stored) - 1
