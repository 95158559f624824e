"""What a process does that forks with a producer in its hands; the first argument picks it. It prints JSON."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import pyarrow as pa

from tests.log.child import opened
from tests.log.reading import BY_HAND
from txn_source import Log, TxnLogError
from txn_source.client.writing.task_writer import BulkWriter
from txn_source.model.topic_name import TopicName
from txn_source.storage import forks


def _batch() -> pa.RecordBatch:
    return pa.record_batch({"value": [b"of the child"]})


def said(call: Callable[[], Any]) -> str:
    """Return what a call raises, or that it succeeds."""
    try:
        call()
    except TxnLogError as error:
        return str(error)
    return "succeeded"


def inherit(kind: str, target: str) -> Any:
    """Fork while threads are inside of the producer's calls; use everything in the child, then leave it by its end."""
    log = opened(kind, target)
    producer = log.producer("orders", transactional_id="orders")
    with log.begin_transaction() as transaction:
        producer.send(b"of the parent, committed", txn=transaction)
        bulk = BulkWriter(log.access, TopicName.parse("orders"))
        bulk.write(_batch())
        waiting = log.producer("orders", batching=BY_HAND)
        waiting.send(b"of the parent, gathered before")
        over = threading.Event()
        threads = [threading.Thread(target=_send_until, args=(producer, over, i)) for i in range(4)]
        for thread in threads:
            thread.start()
        answers = [_forked(lambda: _use_all(log, producer, waiting, transaction, bulk)) for _ in range(3)]
        over.set()
        for thread in threads:
            thread.join()
    bulk.finish()
    waiting.send(b"of the parent, gathered after")
    ids = waiting.flush()
    log.close()
    return {"answers": answers, "ids": len(ids)}


def _send_until(producer: Any, over: threading.Event, thread: int) -> None:
    number = 0
    while not over.wait(0.02) or not number:
        producer.send(b"thread %d-%d" % (thread, number))
        producer.flush()
        number += 1


def _use_all(log: Log, producer: Any, waiting: Any, transaction: Any, bulk: BulkWriter) -> Any:
    answer: dict[str, Any] = {
        "send": said(lambda: producer.send(b"of the child")),
        "send of another": said(lambda: waiting.send(b"of the child")),
        "send_batch": said(lambda: producer.send_batch(_batch())),
        "flush": said(producer.flush),
        "commit": said(transaction.commit),
        "abort": said(transaction.abort),
        "write": said(lambda: bulk.write(_batch())),
        "finish": said(bulk.finish),
    }
    for harmless in (producer.close, waiting.close, bulk.discard):
        harmless()
    with log.producer("orders") as own:
        answer["inherited transaction"] = said(lambda: own.send(b"of the child", txn=transaction))
        with log.begin_transaction() as txn:
            own.send(b"of the child's own", txn=txn)
    log.close()
    answer["topics"] = log.topics()
    gc.collect()
    return answer


def _forked(call: Callable[[], Any]) -> Any:
    """Return what a call returns in a forked child, which ends as a program does."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, json.dumps(call()).encode())
        sys.exit(0)
    os.close(writer)
    with open(reader, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(pid, 0)
    return {"exit": os.waitstatus_to_exitcode(status), **json.loads(answer or b"{}")}


def pool(kind: str, target: str) -> Any:
    """Let a pool of forks use one inherited producer, and each one of its own."""
    log = opened(kind, target)
    producer = log.producer("orders", transactional_id="pooled", batching=BY_HAND)
    producer.send(b"before")
    producer.flush()
    global _shared
    _shared = (log, producer)
    with multiprocessing.get_context("fork").Pool(4) as workers:
        answers = workers.map(_work, range(40), chunksize=2)
    producer.send(b"after")
    producer.flush()
    log.close()
    return answers


_shared: Any = None


def _work(number: int) -> list[str]:
    log, inherited = _shared
    refused = said(lambda: inherited.send(b"inherited %d" % number))
    with log.producer("orders") as own:
        own.send(b"own %d" % number)
        [at] = own.flush()
    return [refused, str(at)]


def leave_a_block(kind: str, target: str) -> Any:
    """Leave the parent's blocks in the child, by an exit."""
    with (
        opened(kind, target) as log,
        log.producer("orders", batching=BY_HAND) as producer,
        log.begin_transaction() as transaction,
    ):
        producer.send(b"committed", txn=transaction)
        pid = os.fork()
        if pid == 0:
            sys.exit(7)
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)


def outlive(kind: str, target: str) -> Any:
    """Close the log in the parent while the child goes on writing to it, as a daemon's child does."""
    log = opened(kind, target)
    with log.producer("orders") as producer:
        producer.send(b"of the parent")
    began, go_on = os.pipe(), os.pipe()

    def write() -> Any:
        with log.producer("orders") as own:
            own.send(b"of the child")
            own.flush()
            os.write(began[1], b"x")
            os.read(go_on[0], 1)
            own.send(b"of the child, left alone")
            return {"acknowledged": len(own.flush())}

    thread = threading.Thread(target=_close_when_told, args=(log, began[0], go_on[1]))
    thread.start()
    answer = _forked(write)
    thread.join()
    return answer


def _close_when_told(log: Log, told: int, tell: int) -> None:
    os.read(told, 1)
    log.close()
    os.write(tell, b"x")


def consume(kind: str, target: str) -> Any:
    """Fork while a consumer is connected; use the log in the child."""
    with opened(kind, target) as log, log.subscribe("orders", "s", initial_position="earliest") as consumer:
        with log.producer("orders") as producer:
            producer.send(b"x")
        assert consumer.receive(timeout=60) is not None
        return _forked(lambda: {"topics": said(log.topics), "again": said(lambda: opened(kind, target).topics())})


def amid(kind: str, target: str) -> Any:
    """Fork while another thread's call is under way: one that ends once it has begun, and one that goes on."""
    log = opened(kind, target)
    log.topics()
    return {"short": _forked_amid(log, endless=False), "endless": _forked_amid(log, endless=True)}


def _forked_amid(log: Log, endless: bool) -> Any:
    forks._FORK_PATIENCE_S = 0.01 if endless else 100.0
    inside, over = threading.Event(), threading.Event()

    def call() -> None:
        with forks.no_fork():
            inside.set()
            while not over.wait(0.001) and (endless or forks._over.is_set()):
                pass

    thread = threading.Thread(target=call)
    thread.start()
    inside.wait()
    answer = _forked(lambda: {"amid": forks.forked_amid_calls(), "topics": said(log.topics)})
    over.set()
    thread.join()
    return answer


def importing(kind: str, target: str) -> Any:
    """Fork while another thread's first array has pandas imported, and while one's import goes on, twice."""
    log = opened(kind, target)
    log.topics()
    forks._FORK_PATIENCE_S = 100.0
    with log.producer("orders", batching=BY_HAND) as producer:  # which has made no array yet
        producer.send(b"of the parent", properties={"a": "b"})  # plain bytes need no pandas
        imported = _forked_importing(producer.flush, lambda: _sent(log), endless=False)
    forks._FORK_PATIENCE_S = 0.01
    endless = _forked_importing(lambda: import_module("endless"), dict, endless=True)
    return {"imported": imported, "endless": endless}


def _sent(log: Log) -> Any:
    signal.alarm(60)  # what waits for a lock of a thread that isn't there
    with log.producer("orders") as own:
        own.send(b"of the child", properties={"a": "b"})
        return {"acknowledged": len(own.flush())}


def _forked_importing(imports: Callable[[], Any], call: Callable[[], Any], endless: bool) -> Any:
    """Return what a call returns in a child forked amid an import; if that is endless, of two children."""
    sys.modules["during_import"] = during = ModuleType("during_import")
    inside, over = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        while not over.wait(0.001) and (endless or forks._over.is_set()):
            pass

    during.wait = wait  # type: ignore[attr-defined]
    thread = threading.Thread(target=imports)
    thread.start()
    assert inside.wait(60)
    answer = _forked(call)
    if endless:
        forks._FORK_PATIENCE_S = 1000.0
        answer = [answer, _forked(call)]
    over.set()
    thread.join()
    return answer


if __name__ == "__main__":
    outcome = globals()[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(outcome))
