"""A bank's orders in two tiers: what is old moves to a bucket, and every reader chooses which copy to read.

Monday's ledgers were offloaded to S3, and their hot copies deleted once the deletion lag had passed. Tuesday's have
just been offloaded, so they lie in both tiers. Wednesday's are hot only. A reader with ``tiered-first`` takes what it
can from the bucket, one with ``bookkeeper-first`` from the hot copies, and both see the same orders.

An offloaded ledger is a Parquet file, so DuckDB reads them without the log. At last somebody overwrites an
object: a reader that comes to it goes on with the hot copy and says so, and that copy can't be deleted any more.

The bucket belongs to moto, a stand-in for S3 that runs inside the example; the client and HTTP are the real ones.

Run ``python examples/tiers.py``; ``--help`` lists the options. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.fs as fs
from moto.server import ThreadedMotoServer
from rich.console import Console
from rich.table import Table

import txn_source
from txn_source import Log, OnlyCopyError

TOPIC, PARTITIONS = "orders", 2
SCHEMA = pa.schema([("day", pa.string()), ("account", pa.string()), ("cents", pa.int64())])
FOLDER = "bank-archive/2026"
LAG_S = 1.0
"""The deletion lag. A bank would say hours."""
PATIENCE_S = 60.0
TRANSACTIONS, QUICK_TRANSACTIONS = 60, 15
ORDERS_EACH, ABORTED_SHARE = 2000, 0.1

console = Console(highlight=False)


@dataclass(frozen=True)
class Answer:
    """What somebody found: how many orders, their sum, and from which copies they came."""

    asked: str
    orders: int
    cents: int
    hot: int | None = None
    tiered: int | None = None
    failed: int | None = None


def main() -> int:
    """Run the example and return its exit status."""
    parser = argparse.ArgumentParser(description="A bank's orders, hot and in a bucket, read from either copy.")
    parser.add_argument("--quick", action="store_true", help="write a quarter of the orders")
    options = parser.parse_args()
    try:
        return run(QUICK_TRANSACTIONS if options.quick else TRANSACTIONS)
    except KeyboardInterrupt:
        console.print("Interrupted; everything is cleaned up.")
        return 130


def run(transactions: int) -> int:
    """Write three days, offload two, read them in every way, and check what was read."""
    with (
        TemporaryDirectory(prefix="txnlog-tiers-") as folder,
        stand_in_for_s3() as (bucket, uri),
        txn_source.connect(Path(folder) / "log") as log,
        warnings_on_console(),
    ):
        log.create_topic(TOPIC, PARTITIONS, SCHEMA, offload_uri=uri, offload_deletion_lag=LAG_S)
        booked = Answer("booked by the clients", 0, 0)
        for day in ("Monday", "Tuesday", "Wednesday"):
            booked = write(log, day, transactions, booked)
            if day != "Wednesday":
                offload(log, day)
            if day == "Monday":
                delete_hot_after_lag(log)

        answers = [booked]
        answers += [ask(log, priority, priority) for priority in ("tiered-first", "bookkeeper-first")]
        archived = [
            ask(log, "tiered-first, no Wednesday", "tiered-first", "day <> 'Wednesday'"),
            ask_duckdb(bucket, Path(folder)),
        ]
        overwrite(log, bucket)
        answers.append(ask(log, "tiered-first, one overwritten", "tiered-first"))
        refused = refusal(log)
        console.print(table(answers[:3] + archived + answers[3:]))
    return 0 if check(answers, archived, refused) else 1


# The bucket


@contextmanager
def stand_in_for_s3() -> Iterator[tuple[fs.S3FileSystem, str]]:
    """Run moto and make a bucket; give a bare way to it, and the URI that the log is told."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # one line for each request otherwise
    os.environ |= {"AWS_ACCESS_KEY_ID": "example", "AWS_SECRET_ACCESS_KEY": "example"}  # where the SDK looks for them
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        endpoint = "{}:{}".format(*server.get_host_and_port())
        system = fs.S3FileSystem(
            endpoint_override=endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        system.create_dir(FOLDER.partition("/")[0])
        yield system, f"s3://{FOLDER}?endpoint_override=http://{endpoint}"
    finally:
        server.stop()


def objects(bucket: fs.S3FileSystem) -> list[fs.FileInfo]:
    """Return the bucket's objects, in the order of partitions and ledgers."""
    found = [info for info in bucket.get_file_info(fs.FileSelector(FOLDER, recursive=True)) if info.is_file]
    return sorted(found, key=lambda info: (Path(info.path).parent, int(info.base_name.split("-")[1])))


def overwrite(log: Log, bucket: fs.S3FileSystem) -> None:
    """Put something else in the place of Tuesday's object of the first partition."""
    tuesday = log.stats(TOPIC).partitions[0].ledgers[1]
    [info] = [info for info in objects(bucket) if info.base_name.startswith(f"ledger-{tuesday.ledger_id}-")]
    with bucket.open_output_stream(info.path) as stream:
        stream.write(b"Minutes of the meeting on archiving")
    console.print(f"Somebody overwrites {info.base_name}.")


# Writing


def write(log: Log, day: str, transactions: int, booked: Answer) -> Answer:
    """Write a day's orders, a few transactions of them aborted; add the others to what is booked."""
    source = random.Random(day)
    orders, cents = booked.orders, booked.cents
    with log.producer(TOPIC) as producer:
        for _ in range(transactions):
            amounts = [source.randrange(-50_000, 50_000) for _ in range(ORDERS_EACH)]
            accounts = [f"account {source.randrange(10_000)}" for _ in amounts]
            txn = log.begin_transaction()
            batch = pa.table([[day] * len(amounts), accounts, amounts], schema=SCHEMA)
            producer.send_batch(batch.append_column("__key", batch["account"]), txn=txn)
            producer.flush()
            if source.random() < ABORTED_SHARE:
                txn.abort()
            else:
                txn.commit()
                orders, cents = orders + len(amounts), cents + sum(amounts)
    return Answer(booked.asked, orders, cents)


def offload(log: Log, day: str) -> None:
    """Close the day's ledgers and offload them."""
    log.roll_ledger(TOPIC)
    report = log.offload(TOPIC)
    console.print(
        f"{day}'s {len(report.ledger_ids)} ledgers are offloaded: {report.messages:,} orders,"
        f" {report.hot_bytes / 1e6:.1f} MB hot, {report.tiered_bytes / 1e6:.1f} MB in the bucket.",
        soft_wrap=True,
    )


def delete_hot_after_lag(log: Log) -> None:
    """Do what ``txnlog serve`` does in the background until the hot copies are gone."""
    deadline = time.monotonic() + PATIENCE_S
    deleted = 0
    while deleted < PARTITIONS:
        deleted += log.maintain().hot_copies_deleted
        if time.monotonic() > deadline:
            raise TimeoutError(f"the hot copies are still there after {PATIENCE_S:g} s")
        time.sleep(0.1)
    console.print(f"The deletion lag of {LAG_S:g} s is over: {deleted} hot copies are deleted.")


# Reading


def ask(log: Log, asked: str, priority: str, where: str = "true") -> Answer:
    """Count and sum what read_committed sees, and note which copies were read."""
    reader = log.scan(TOPIC, "read_committed", SCHEMA.names, read_priority=priority)
    with duckdb.connect() as database:
        orders, cents = _one(database.execute(f"SELECT count(*), sum(cents)::BIGINT FROM reader WHERE {where}"))
    copies = log.copies_read(reader)
    return Answer(asked, orders, cents, copies.hot_ledgers, copies.tiered_ledgers, len(copies.failures))


def ask_duckdb(bucket: fs.S3FileSystem, folder: Path) -> Answer:
    """Ask the same of the objects themselves, downloaded: no log is involved, only Parquet files and their columns."""
    for info in objects(bucket):
        with bucket.open_input_file(info.path) as stream:
            (folder / info.base_name).write_bytes(stream.read())
    query = f"SELECT count(*), sum(cents)::BIGINT FROM read_parquet('{folder}/*.parquet')"
    with duckdb.connect() as database:
        return Answer("DuckDB, on the bucket's files", *_one(database.execute(query)))


def _one(result: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    [(orders, cents)] = result.fetchall()
    return orders, cents


def refusal(log: Log) -> str:
    """Try to delete all hot copies, and return why the log doesn't."""
    try:
        log.delete_hot(TOPIC)
    except OnlyCopyError as error:
        console.print(f"Deleting the hot copies is refused: {error.fact}", soft_wrap=True)
        return error.code
    return ""


@contextmanager
def warnings_on_console() -> Iterator[None]:
    """Print what the log warns of."""
    handler = logging.Handler()
    handler.emit = lambda record: console.print(f"[yellow]warning:[/] {record.getMessage()}", soft_wrap=True)  # type: ignore[method-assign]
    logger = logging.getLogger("txn_source")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


# What came of it


def table(answers: list[Answer]) -> Table:
    """Return who found what, and from which copies."""
    shown = Table("", "orders", "sum", "hot", "bucket", "failed", title="Ledgers read from …", title_justify="right")
    shown.columns[0].no_wrap = True
    for column in shown.columns[1:]:
        column.justify = "right"
    for answer in answers:
        copies = (answer.hot, answer.tiered, answer.failed)
        counts = ("" if count is None else str(count) for count in copies)
        shown.add_row(answer.asked, f"{answer.orders:,}", f"{answer.cents / 100:,.2f}", *counts)
    return shown


def check(answers: list[Answer], archived: list[Answer], refused: str) -> bool:
    """Check what was found, and say so; return whether all of it is right."""
    booked, tiered_first, bookkeeper_first, fallen_back = answers
    checks = {
        "both priorities, and the read with an object overwritten, found what the clients booked": (
            len({(a.orders, a.cents) for a in answers}) == 1
        ),
        "DuckDB found in the bucket what read_committed shows of Monday and Tuesday": (
            len({(a.orders, a.cents) for a in archived}) == 1 and 0 < archived[0].orders < booked.orders
        ),
        "tiered-first read Monday and Tuesday from the bucket, bookkeeper-first only Monday": (
            (tiered_first.hot, tiered_first.tiered) == (2, 4)
            and (bookkeeper_first.hot, bookkeeper_first.tiered) == (4, 2)
        ),
        "where the object was overwritten, the hot copy was read instead": (
            (fallen_back.hot, fallen_back.tiered, fallen_back.failed) == (3, 3, 1)
        ),
        "the only readable copy was not deleted": refused == OnlyCopyError.code,
    }
    for text, passed in checks.items():
        console.print(f"checked: {text}" if passed else f"[bold red]WRONG:[/] {text}", soft_wrap=True)
    return all(checks.values())


if __name__ == "__main__":
    sys.exit(main())
