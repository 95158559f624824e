"""A bank on one log: two streaming queries read the same requests at two isolation levels.

The story is that of Apache Pulsar's PIP-298. Clients A1 send deposits and withdrawals as plain messages. Clients A2
send transfers between accounts, each a transaction over several partitions: debit one account, credit another. Some
are aborted between the two, one is forgotten until it times out, and one, which pays all salaries, hangs for a while.

Meanwhile monitor D reads ``read_uncommitted``: it sees every request at once, also those that will be aborted.
Bookkeeper E reads ``read_committed``: it waits behind the hanging transfer and then catches up. It writes the balances
that a micro-batch changes to the topic ``balances``, exactly once: in the end it is made to repeat one. After
each micro-batch all balances sum to 0, for money only moves. Without a consistent cut they don't, as is shown last.

Run ``python examples/bank.py``; ``--help`` lists the options. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bank_books import Books, create_books, read_books
from bank_clients import (
    TOPIC,
    Booked,
    deposits_and_withdrawals,
    forgotten_transfer,
    hanging_transfer,
    open_accounts,
    pay_interest,
    transfers,
)
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

import txn_source

if __name__ != "__mp_main__":  # the clients' processes import this file as well, and need neither Spark nor pictures
    from bank_alarm import alarms
    from bank_picture import Told, draw
    from bank_readers import CASH_DESK, Reader, Seen, bookkeeper, monitor
    from quiet_spark import quiet_spark

SECONDS = 15.0
QUICK_SECONDS = 3.0
HANG_FROM, HANG_FOR = 0.3, 0.4
"""When the hanging transfer begins and how long it stays open, as shares of the seconds: 6 of 15."""
FORGET_FROM, FORGET_FOR = 0.8, 0.1
"""Likewise the one that times out."""
MESSAGES_PER_S = 120
"""About how many messages the clients send in each of the seconds."""
BATCHES, QUICK_BATCHES = 6, 3
"""About how many micro-batches E has, and has again without a cut, however long the demo takes."""
PATIENCE_S = 60.0
"""How much longer than they should a client may take before something must be wrong."""
BALANCES, WITHOUT_CUT = "balances", "balances-without-cut"

console = Console()


def main() -> int:
    """Run the demo and return its exit status."""
    parser = argparse.ArgumentParser(
        description="Two streaming queries over one bank's requests, at two isolation levels."
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the clients write (%(default)g)")
    parser.add_argument("--out", type=Path, default=Path("bank.png"), help="where to draw the picture (%(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"only {QUICK_SECONDS:g} s and few micro-batches")
    options = parser.parse_args()
    if not 0 < options.seconds < 3600:
        parser.error("--seconds must be above 0 and below 3600")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # looked at where it suits, so that no call is torn
        signal.signal(number, lambda *_: stop.set())
    try:
        seconds, batches = (QUICK_SECONDS, QUICK_BATCHES) if options.quick else (options.seconds, BATCHES)
        status = run(seconds, batches, options.out, stop)
    except Exception:
        if not stop.is_set():
            raise  # else Ctrl-C has ended Spark's workers, too, and Spark complains
    if stop.is_set():
        console.print("Interrupted; everything is cleaned up.")
        return 130
    return status


def run(seconds: float, batches: int, picture: Path, stop: threading.Event) -> int:
    """Let clients write and queries read, draw the picture and check what was read."""
    console.print("Starting Spark and two streaming queries ...")
    with (
        TemporaryDirectory(prefix="txnlog-bank-") as folder,
        txn_source.connect(Path(folder) / "log") as log,
        client_processes() as clients,
        quiet_spark("bank") as spark,
    ):
        spark.conf.set("spark.sql.shuffle.partitions", 1)  # a few accounts: less to do for each micro-batch
        booked, limit, checkpoints = open_accounts(log), max(1, round(seconds * MESSAGES_PER_S / batches)), Path(folder)
        create_books(log, BALANCES, WITHOUT_CUT)
        with (
            closing(monitor(spark, log, checkpoints)) as d,
            closing(bookkeeper(spark, log, checkpoints, BALANCES, limit, cut=True)) as e,
        ):
            for reader in (d, e):  # what takes Spark seconds the first time is done now
                if not stop.is_set():
                    reader.catch_up()
            if stop.is_set():
                return 130
            console.print(f"Clients write for {seconds:g} s, in processes of their own, while D and E read.")
            started = time.time()
            writing = start_clients(clients, str(log.root), seconds)
            log_end = watch(log, d, e, writing, seconds, stop)
            if stop.is_set():
                return 130
            *by_clients, (paid, *hang) = [client.get(timeout=0) for client in writing]
            for by_client in (*by_clients, paid):
                booked.add(by_client)
            e.catch_up()
            booked.add(
                pay_interest(log)
            )  # so that E's last micro-batch has messages, not only the ends of transactions
            d.catch_up()
            e.catch_up()
            log_end.append((time.time(), log.stats(TOPIC).messages))
            d.close()

            console.print("E repeats a micro-batch; its job runs once more, without a consistent cut ...")
            limit = max(1, log.stats(TOPIC).messages // batches)
            with closing(bookkeeper(spark, log, checkpoints, WITHOUT_CUT, limit, cut=False)) as without:
                repeated = e.repeat_last_batch()
                without.finish()
        books, wrong_books = read_books(log, BALANCES), read_books(log, WITHOUT_CUT)
        console.print(table((d, None), (e, books), (without, wrong_books)))
        passed = check(d, e, repeated, booked, books, wrong_books)
        console.print(alarms(spark, log, checkpoints), highlight=False)
        draw(picture, Told(started, log_end, hang), d, (e, books), (without, wrong_books))
    console.print(f"The picture is in {picture.resolve()}", soft_wrap=True)
    return 0 if passed else 1


def client_processes() -> Pool:
    """Return four processes, which Ctrl-C leaves alone: it is for this one, which then ends them."""
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited
    try:
        return multiprocessing.get_context("spawn").Pool(4)
    finally:
        signal.signal(signal.SIGINT, usual)


def start_clients(clients: Pool, root: str, seconds: float) -> list[AsyncResult[Any]]:
    """Let all clients begin; the last one is the one that hangs."""
    return [
        clients.apply_async(deposits_and_withdrawals, (root, seconds)),
        clients.apply_async(transfers, (root, seconds)),
        clients.apply_async(forgotten_transfer, (root, seconds * FORGET_FROM, seconds * FORGET_FOR)),
        clients.apply_async(hanging_transfer, (root, seconds * HANG_FROM, seconds * HANG_FOR)),
    ]


def watch(
    log: txn_source.Log, d: Reader, e: Reader, writing: list[AsyncResult[Any]], seconds: float, stop: threading.Event
) -> list[tuple[float, int]]:
    """Show how far D and E are until all clients are done; return when the log had how many messages."""
    log_end: list[tuple[float, int]] = []
    deadline = time.time() + seconds + PATIENCE_S
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not stop.wait(0.25) and time.time() < deadline:
            log_end.append((time.time(), log.stats(TOPIC).messages))
            for reader in (d, e):
                reader.look(log_end[-1][1])
            live.update(Group(table((d, None), (e, read_books(log, BALANCES))), oldest_open(log)), refresh=True)
            if all(client.ready() for client in writing):
                break
    return log_end


def table(*readers: tuple[Reader, Books | None]) -> Table:
    """Return what the readers have seen so far, and the sums of the books that they keep."""
    shown = Table("", *(f"{reader.name}\n{reader.what}" for reader, _ in readers))
    for column in shown.columns[1:]:
        column.justify = "right"
    rows: dict[str, Callable[[Reader, list[Seen], Books | None], object]] = {
        "micro-batches": lambda _, seen, books: len(seen),
        "messages read": lambda _, seen, books: seen[-1].messages,
        "… of open transactions": lambda _, seen, books: seen[-1].open,
        "behind the log, at worst": lambda reader, _, books: max(reader.behind, default=""),
        "sum of all balances": lambda _, seen, books: money(books.sums[-1]) if books and books.sums else "",
        "… at worst": lambda _, seen, books: money(max(books.sums, key=abs, default=0)) if books else "",
        "… was wrong after": lambda _, seen, books: f"{len(books.off)} of {len(books.sums)}" if books else "",
    }
    seen = [reader.seen() for reader, _ in readers]
    for label, value in rows.items():
        cells = (value(r, s, books) if s else "" for (r, books), s in zip(readers, seen, strict=True))
        shown.add_row(label, *map(str, cells))
    return shown


def oldest_open(log: txn_source.Log) -> RenderableType:
    """Return a line on the transaction that has been open longest: what an operator asks first."""
    found = log.transactions("open", TOPIC)
    if not found:
        return "No transaction is open."
    oldest = max(found, key=lambda txn: txn.age)
    return (
        f"Open for {oldest.age:.1f} s: transaction {oldest.id} of {', '.join(oldest.producers)},"
        f" which holds back {oldest.held_back_messages} messages."
    )


def check(d: Reader, e: Reader, repeated: int, booked: Booked, books: Books, wrong_books: Books) -> bool:
    """Check what was read against what the clients know, and say so; return whether all of it is right."""
    written, aborted = booked.messages.total(), booked.messages["aborted"]
    by_d, by_e = d.seen(), e.seen()
    moved = booked.cents.total()
    due = {**booked.accounts, CASH_DESK: -moved}
    checks = {
        f"D saw all {written} messages, {aborted} of them of transfers that were aborted": by_d[-1].messages == written,
        f"E saw the {written - aborted} plain and committed ones, and never an open or aborted one": (
            by_e[-1].messages == written - aborted and not by_e[-1].open and not by_e[-1].aborted
        ),
        f"after each of E's {len(by_e)} micro-batches all balances sum to 0; each is one transaction of the log,"
        f" also number {repeated}, which ran twice": (len(books.sums) == len(by_e) and not books.off),
        f"E's {len(books.balances)} balances are what the clients booked, to the cent ({money(moved)} in accounts)": (
            books.balances == due
        ),
        f"without a consistent cut the sum is wrong after {len(wrong_books.off)} of {len(wrong_books.sums)}"
        f" micro-batches, and right in the end": bool(wrong_books.off) and wrong_books.balances == due,
    }
    for text, passed in checks.items():
        console.print(f"checked: {text}" if passed else f"[bold red]WRONG:[/] {text}", highlight=False, soft_wrap=True)
    return all(checks.values())


def money(cents: int) -> str:
    return f"{cents / 100:,.2f}"


if __name__ == "__main__":
    sys.exit(main())
