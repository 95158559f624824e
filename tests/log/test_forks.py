"""A fork: what writes belongs to the process that opened it, and the log can be opened anew in the child."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.log.reading import UNCOMMITTED, values
from tests.log.sites import Site

FORKING = """
import json, os, sys
from txn_source import TxnLogError, connect

def said(call):
    try:
        call()
    except TxnLogError as error:
        return str(error)
    return "succeeded"

log = connect(sys.argv[1])
producer = log.producer("orders")
transaction = log.begin_transaction()
producer.send(b"of the parent", txn=transaction)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    inherited = {
        "send": lambda: producer.send(b"of the child"),
        "flush": producer.flush,
        "commit": transaction.commit,
        "abort": transaction.abort,
    }
    answers = {name: said(call) for name, call in inherited.items()}
    producer.close()
    log.close()
    with connect(sys.argv[1]) as own, own.producer("orders") as opened:
        opened.send(b"of the child's own")
    os.write(writer, json.dumps(answers).encode())
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
transaction.commit()
log.close()
print(os.read(reader, 1 << 16).decode())
"""


def test_inherited_writers_are_refused_and_the_log_can_be_opened_anew(embedded_site: Site) -> None:
    """Fork amid a transaction: the child can't touch what it inherits, writes by itself, and the parent commits."""
    log = embedded_site.connect()
    log.create_topic("orders")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, str(embedded_site.root)]
    found = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=200, check=True)
    answers = json.loads(found.stdout)
    assert sorted(answers) == ["abort", "commit", "flush", "send"]
    for said in answers.values():
        assert "[TXNLOG_INVALID_ARGUMENT]" in said
        assert "belongs to the process that opened it" in said
    assert sorted(values(log, "orders", UNCOMMITTED)) == [b"of the child's own", b"of the parent"]
