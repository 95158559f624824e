"""A lively log for the console: open, aborted and committed transactions, two tiers, subscriptions with backlog.

``python -m tests.console.demo --root FOLDER`` makes one, and serves its console; ``--topics`` makes so many more.
"""

from __future__ import annotations

import argparse
import random
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from txn_source import Log, connect
from txn_source.client.target import open_service
from txn_source.console.serving import Console
from txn_source.storage.object_root import root_at

ORDERS = "orders"
PAYMENTS = "persistent://bank/emea/payments-of-the-quarter"
BOOKINGS = "bookings"


def fill(log: Log, *, topics: int = 0, messages: int = 200, timeout: float = 900.0) -> None:
    """Make topics of all kinds in a log. Its transactions stay open for ``timeout`` seconds."""
    log.create_topic(ORDERS, partitions=4, schema="id bigint not null, customer string, amount double, note string")
    log.create_topic(PAYMENTS, partitions=2)
    log.create_topic(BOOKINGS, partitions=3)
    log.create_topic("empty")
    log.create_subscription(ORDERS, "billing", initial_position="earliest")
    log.create_subscription(ORDERS, "search-index", "Shared", "read_uncommitted", initial_position="earliest")
    log.create_subscription(PAYMENTS, "ledger", initial_position="earliest")
    log.create_subscription(BOOKINGS, "mail", "Failover", initial_position="earliest")
    chance = random.Random(1)
    with log.producer(ORDERS, name="shop-frontend") as shop, log.producer(PAYMENTS, name="payments") as payments:
        for number in range(messages):
            row = {"id": number, "customer": f"c{number % 7}", "amount": chance.random() * 100, "note": None}
            shop.send(row, key=f"k{number}".encode(), partition=number % 4)
            if number % 40 == 39:
                with log.begin_transaction(timeout=timeout) as txn:
                    shop.send(row | {"note": "in a transaction"}, partition=number % 4, txn=txn)
                    payments.send(b"paid", key=b"k", txn=txn)
                aborted = log.begin_transaction(timeout=timeout)
                shop.send(row | {"note": "aborted"}, partition=number % 4, txn=aborted)
                shop.flush()
                aborted.abort()
            if number == messages // 2:
                shop.flush()
                log.roll_ledger(ORDERS)
                log.offload(ORDERS)
        hanging = log.begin_transaction(timeout=timeout)
        for partition in range(3):
            shop.send({"id": -1, "customer": "hangs", "amount": 0.0, "note": ""}, partition=partition, txn=hanging)
        payments.send(b"reserved", partition=0, txn=hanging)
        payments.flush()
        shop.flush()
        for number in range(messages // 2):
            shop.send({"id": number, "customer": "waits", "amount": 1.0, "note": None}, partition=number % 4)
            payments.send(f"later {number}".encode(), partition=0)
    with log.producer(BOOKINGS, name="<b>booking</b>") as bookings:
        short = log.begin_transaction(timeout=timeout)
        bookings.send(b"booked", key=b"\xff\x00", properties={"source": "desk"}, txn=short)
        bookings.flush()
        bookings.send(b"waits", key="Zürich ✈".encode())
    for number in range(topics):
        log.create_topic(f"persistent://many/topics/topic-{number:04}", partitions=5)


@contextmanager
def console_over(root: Path, port: int = 0) -> Iterator[Console]:
    """The console of a log that is there."""
    with ExitStack() as held:
        service = open_service(str(root), None)
        held.callback(service.close)
        yield held.enter_context(Console(service, root_at(root), "127.0.0.1", port))


def _go_on(root: Path, ended: threading.Event) -> None:
    """Send something now and then, so that there is a rate."""
    with connect(root) as log, log.producer(ORDERS, name="shop-frontend") as shop:
        number = 0
        while not ended.wait(0.5):
            if not log.transactions():  # those that hung have timed out
                shop.send({"id": -1, "customer": "hangs", "amount": 0.0}, partition=0, txn=log.begin_transaction(900))
            for _ in range(random.randrange(20)):
                number += 1
                shop.send({"id": number, "customer": f"c{number % 7}", "amount": 2.0, "note": "live"})
            shop.flush()


def main() -> None:
    """Make a log and serve it until it is told to stop."""
    parser = argparse.ArgumentParser(prog="python -m tests.console.demo")
    parser.add_argument("--root", type=Path, default=None, help="a new folder, or one that was made so")
    parser.add_argument("--topics", type=int, default=0)
    parser.add_argument("--port", type=int, default=6651)
    given = parser.parse_args()
    root = given.root or Path(tempfile.mkdtemp(prefix="txnlog-console-"))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    if not (root / "txnlog.json").exists():
        with connect(root) as log:
            fill(log, topics=given.topics)
    ended = threading.Event()
    writer = threading.Thread(target=_go_on, args=(root, ended))
    with console_over(root, given.port) as console:
        writer.start()
        print(f"The console of {root} is at {console.address}", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
        ended.set()
        writer.join()


if __name__ == "__main__":
    main()
