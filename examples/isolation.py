"""Two systems on one topic, each with the isolation level that it needs, and a rewind that really rewinds.

The two systems are those of Apache Pulsar's PIP-298. A monitor subscribes ``read_uncommitted``: it sees every request
at once, also those that will be aborted. A booking system subscribes ``read_committed``: it books only what is
committed, and each request exactly once, because it acknowledges in the transaction that it writes to its books with.
Once it fails between the two, and nothing is missing and nothing twice.

A Spark stream bound to a third subscription writes statements. While it runs, an operator moves the subscription back
to the start, as in PIP-194: the stream goes on from there in a new epoch.

Run ``python examples/isolation.py``. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from quiet_spark import quiet_spark
from rich.console import Console
from rich.table import Table

import txn_source
from txn_source import Consumer, Log, Message, Producer, StaleEpochError, SubscriptionIsolationMismatchError

REQUESTS, BOOKS, PARTITIONS = "requests", "books", 2
MONITOR, BOOKING, STATEMENTS = "monitor", "booking", "statements"
PATIENCE_S = 30.0
HONEST, FRAUD = ["alice -30", "bob +30"], ["alice -999", "mallory +999"]

console = Console(highlight=False, soft_wrap=True)


@dataclass
class Day:
    """What happened, in the order of the clients' steps: what each system got after each of them."""

    steps: list[str] = field(default_factory=list)
    monitored: list[list[str]] = field(default_factory=list)
    booked: list[list[str]] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


def main() -> int:
    """Run the example and return its exit status."""
    argparse.ArgumentParser(description="Two isolation levels side by side, and a rewind of a stream.").parse_args()
    try:
        with (
            quiet_spark("isolation") as spark,
            TemporaryDirectory(prefix="txnlog-isolation-") as folder,
            txn_source.connect(Path(folder) / "log") as log,
        ):
            return 0 if run(spark, log, Path(folder) / "checkpoint") else 1
    except KeyboardInterrupt:
        console.print("Interrupted; everything is cleaned up.")
        return 130


def run(spark: SparkSession, log: Log, checkpoint: Path) -> bool:
    """Let the two systems work, then rewind a stream, and check what was seen."""
    for topic in (REQUESTS, BOOKS):
        log.create_topic(topic, PARTITIONS)
    log.create_subscription(REQUESTS, STATEMENTS, initial_position="earliest")
    day, refused = side_by_side(log)
    console.print("Two subscriptions of one topic, one read_uncommitted and one read_committed:\n", table_of(day))
    console.print(f"A consumer that wants it otherwise is refused: {refused}\n")
    checks = check_levels(day, refused) | check_books(log, day)

    batches = rewind(spark, log, checkpoint)
    console.print(table_of_batches(batches), "")
    checks |= check_rewind(batches, [request for step in day.booked for request in step])
    for text, passed in checks.items():
        console.print(f"checked: {text}" if passed else f"[bold red]WRONG:[/] {text}")
    return all(checks.values())


# The two systems


def side_by_side(log: Log) -> tuple[Day, str]:
    """Let clients send requests, and both systems look after each step; return also why the wrong level is refused."""
    day = Day()
    with (
        log.subscribe(REQUESTS, MONITOR, isolation_level="read_uncommitted") as monitor,
        log.subscribe(REQUESTS, BOOKING, isolation_level="read_committed") as booking,
        log.producer(REQUESTS) as clients,
        log.producer(BOOKS) as books,
    ):

        def step(text: str) -> None:
            clients.flush()
            day.steps.append(text)
            day.monitored.append(received(log, monitor, lambda message: monitor.acknowledge(message)))
            day.booked.append(received(log, booking, lambda message: book(log, message, books)))
            day.held.append(", ".join(map(str, log.subscription(REQUESTS, BOOKING).held_by)))

        send(clients, "alice +100")
        step("a deposit")
        transfer = log.begin_transaction()
        send(clients, *HONEST, txn=transfer)
        step(f"transfer {transfer.id} begins")
        send(clients, "carol +50")
        step("a deposit behind it")
        transfer.commit()
        step(f"{transfer.id} is committed")
        fraud = log.begin_transaction()
        send(clients, *FRAUD, txn=fraud)
        step(f"transfer {fraud.id} begins")
        fraud.abort()
        step(f"{fraud.id} is aborted")

        try:
            log.subscribe(REQUESTS, BOOKING, isolation_level="read_uncommitted")
        except SubscriptionIsolationMismatchError as error:
            return day, error.fact
    return day, ""


def send(clients: Producer, *requests: str, txn: txn_source.Transaction | None = None) -> None:
    """Send requests; the account decides on the partition."""
    for request in requests:
        clients.send(request, key=request.split()[0], txn=txn)


def received(log: Log, consumer: Consumer, process: Callable[[Message], None]) -> list[str]:
    """Receive and process until the subscription has no backlog, and return what came."""
    found: list[str] = []
    while True:
        consumer.flush()
        if not sum(p.backlog for p in log.subscription(REQUESTS, consumer.subscription).partitions):
            return sorted(found)
        message = consumer.receive(PATIENCE_S)
        if message is None:
            raise TimeoutError(f"{consumer.subscription} has a backlog and gets nothing")
        try:
            process(message)
        except (PowerCut, StaleEpochError):
            continue  # it comes again, and so does what was delivered with it: that is stale
        found.append(message.value.decode())


class PowerCut(Exception):
    """The booking system fails in the middle of its work."""


def book(log: Log, message: Message, books: Producer) -> None:
    """Write a request to the books and acknowledge it, both or neither; fail once between the two and the commit."""
    with log.begin_transaction() as txn:  # aborts if the block raises
        books.send(message.value, key=message.key, txn=txn)
        txn.acknowledge(message)
        if message.value == b"bob +30" and not message.epoch:  # the redelivery is in a new epoch
            books.flush()
            raise PowerCut


# The stream


@dataclass(frozen=True)
class Batch:
    """A micro-batch of the stream: in which epoch of the subscription it was read, and what it had."""

    number: int
    epoch: int
    requests: list[str]


def rewind(spark: SparkSession, log: Log, checkpoint: Path) -> list[Batch]:
    """Run a stream on a subscription, move that to the start while the stream runs, and return the batches."""
    found: dict[int, list[str]] = {}

    def note(frame: DataFrame, number: int) -> None:
        found[number] = sorted(bytes(row.value).decode() for row in frame.select("value").collect())

    stream = spark.readStream.format("txnlog").option("topic", REQUESTS).option("subscription", STATEMENTS)
    query = stream.load(str(log.root)).writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(note)
    running = query.start()
    try:
        running.processAllAvailable()
        sought = log.seek(REQUESTS, STATEMENTS, "earliest")
        console.print(f"An operator moves subscription {STATEMENTS!r} to the start: it is in epoch {sought.epoch}.\n")
        running.processAllAvailable()
        with log.producer(REQUESTS) as clients:
            send(clients, "dora +1")
        running.processAllAvailable()
        epochs = {p.batchId: _epoch(p.sources[0].endOffset) for p in running.recentProgress}
    finally:
        running.stop()
    return [Batch(number, epochs[number], requests) for number, requests in sorted(found.items()) if requests]


def _epoch(offset: str) -> int:
    return int(json.loads(offset)["epoch"])


# What came of it


def table_of(day: Day) -> Table:
    """Return who saw what after each step."""
    shown = Table("what clients do", "the monitor sees", "the booking system books", "waits for")
    for step, seen, booked, held in zip(day.steps, day.monitored, day.booked, day.held, strict=True):
        shown.add_row(step, ", ".join(seen), ", ".join(booked), held)
    return shown


def table_of_batches(batches: list[Batch]) -> Table:
    """Return what each micro-batch of the stream had."""
    shown = Table("micro-batch", "epoch", "requests")
    for batch in batches:
        shown.add_row(str(batch.number), str(batch.epoch), ", ".join(batch.requests))
    return shown


def check_levels(day: Day, refused: str) -> dict[str, bool]:
    """Check what the levels promise."""
    monitored, booked = ([request for step in steps for request in step] for steps in (day.monitored, day.booked))
    return {
        "the monitor saw every request at once, those of the open and of the aborted transfer, too": (
            day.monitored == [["alice +100"], HONEST, ["carol +50"], [], FRAUD, []]
        ),
        "the booking system waited for the open transfer, and never saw the aborted one": (
            day.booked == [["alice +100"], [], [], sorted([*HONEST, "carol +50"]), [], []]
            and set(FRAUD) == set(monitored) - set(booked)
        ),
        "a consumer that asks for the other level is refused": refused != "",
    }


def check_books(log: Log, day: Day) -> dict[str, bool]:
    """Check that each committed request stands in the books once, and that the failure left something behind it."""
    booked = [request for step in day.booked for request in step]
    committed, everything = (
        sorted(value.decode() for value in log.scan(BOOKS, level, columns=["value"]).read_all()["value"].to_pylist())
        for level in ("read_committed", "read_uncommitted")
    )
    return {
        "the books have each committed request exactly once, though the booking system failed in between": (
            committed == sorted(booked) and len(everything) > len(committed)
        )
    }


def check_rewind(batches: list[Batch], committed: list[str]) -> dict[str, bool]:
    """Check that the stream read all committed requests in both epochs, and went on from there."""
    before, after = ([r for b in batches if b.epoch == epoch for r in b.requests] for epoch in (0, 1))
    return {
        "the running stream read all committed requests again after the rewind, and then what came": (
            sorted(before) == sorted(committed) and sorted(after) == sorted([*committed, "dora +1"])
        )
    }


if __name__ == "__main__":
    sys.exit(main())
