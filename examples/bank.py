"""A bank on one log: two Spark readers look at the same requests at two isolation levels.

The story is that of Apache Pulsar's PIP-298. Clients A1 send deposits and withdrawals as plain messages. Clients A2
send transfers between accounts, each a transaction over several partitions: debit one account, credit another. Some
are aborted between the two, and one, which pays all salaries, hangs for a while before it commits.

Meanwhile monitor D reads ``read_uncommitted``: it sees every request at once, also those that will be aborted.
Booking system E reads ``read_committed``: it sees only what is decided, so it waits behind the hanging transfer and
then catches up. In the end E's balances are, to the cent, what the clients have booked.

Run ``python examples/bank.py``; ``--help`` lists the options. The exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import Pool
from pathlib import Path
from tempfile import TemporaryDirectory

from bank_clients import TOPIC, Booked, deposits_and_withdrawals, hanging_transfer, open_accounts, transfers
from bank_picture import draw
from bank_readers import BALANCES, BY_KIND, Reader, Seen
from quiet_spark import quiet_spark
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

import txn_source

SECONDS = 20.0
QUICK_SECONDS = 3.0
HANG_FROM, HANG_FOR = 0.2, 0.4
"""When the hanging transfer begins and how long it stays open, as shares of the seconds: 8 of 20."""
PATIENCE_S = 60.0
"""How much longer than they should a client may take before something must be wrong."""

console = Console()


def main() -> int:
    """Run the demo and return its exit status."""
    parser = argparse.ArgumentParser(description="Two Spark readers of one bank's requests, at two isolation levels.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the clients write (%(default)g)")
    parser.add_argument("--out", type=Path, default=Path("bank.png"), help="where to draw the picture (%(default)s)")
    parser.add_argument("--quick", action="store_true", help=f"let the clients write for {QUICK_SECONDS:g} s only")
    options = parser.parse_args()
    if not 0 < options.seconds < 3600:
        parser.error("--seconds must be above 0 and below 3600")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # looked at where it suits, so that no call is torn
        signal.signal(number, lambda *_: stop.set())
    try:
        status = run(QUICK_SECONDS if options.quick else options.seconds, options.out, stop)
    except Exception:
        if not stop.is_set():
            raise  # else Ctrl-C has ended Spark's workers, too, and Spark complains
    if stop.is_set():
        console.print("Interrupted; everything is cleaned up.")
        return 130
    return status


def run(seconds: float, picture: Path, stop: threading.Event) -> int:
    """Let clients write and readers read, draw the picture and check what was read."""
    console.print("Starting Spark ...")
    over = threading.Event()
    with (
        TemporaryDirectory(prefix="txnlog-bank-") as folder,
        txn_source.connect(Path(folder) / "log") as log,
        client_processes() as clients,
        quiet_spark("bank") as spark,
        ThreadPoolExecutor(2) as threads,
    ):
        booked = open_accounts(log)
        monitor = Reader(spark, log, "D monitor", "read_uncommitted")
        booking = Reader(spark, log, "E booking", "read_committed")
        if not stop.is_set():
            list(threads.map(Reader.warm_up, (monitor, booking)))
        if stop.is_set():
            return 130

        console.print(f"Clients write for {seconds:g} s, in processes of their own, while D and E read.")
        root, started = str(log.root), time.time()
        a1 = clients.apply_async(deposits_and_withdrawals, (root, seconds))
        a2 = clients.apply_async(transfers, (root, seconds))
        salaries = clients.apply_async(hanging_transfer, (root, seconds * HANG_FROM, seconds * HANG_FOR))
        reading = [threads.submit(reader.keep_reading, started, over) for reader in (monitor, booking)]
        deadline = time.time() + seconds + PATIENCE_S
        try:
            with Live(console=console, auto_refresh=False, transient=True) as live:
                while not stop.wait(0.25) and not all(c.ready() for c in (a1, a2, salaries)) and time.time() < deadline:
                    live.update(Group(table(monitor, booking), oldest_open(log)), refresh=True)
        finally:
            over.set()
        if stop.is_set():
            return 130
        paid, *hang = salaries.get(timeout=0)
        for by_client in (paid, a1.get(timeout=0), a2.get(timeout=0)):
            booked.add(by_client)
        for reader in reading:
            reader.result()

        console.print(table(monitor, booking))
        passed = threads.submit(check, monitor, booking, booked).result()
        draw(picture, monitor.seen, booking.seen, [at - started for at in hang])
    console.print(f"The picture is in {picture.resolve()}", soft_wrap=True)
    return 0 if passed else 1


def client_processes() -> Pool:
    """Return three processes, which Ctrl-C leaves alone: it is for this one, which then ends them."""
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited
    try:
        return multiprocessing.get_context("spawn").Pool(3)
    finally:
        signal.signal(signal.SIGINT, usual)


def table(*readers: Reader) -> Table:
    """Return what the readers have seen so far.

    Debit and credit of a transfer cancel out. D is off by the debits that were aborted before their credit. E is off
    for a moment where one half lies below a partition's bound already: each partition has a bound of its own.
    """
    shown = Table("", *(f"{reader.name}\n{reader.isolation_level}" for reader in readers))
    for column in shown.columns[1:]:
        column.justify = "right"
    rows: dict[str, Callable[[list[Seen]], object]] = {
        "reads": len,
        "messages seen": lambda reads: reads[-1].messages,
        "behind the end of the log": lambda reads: reads[-1].behind,
        "… at its worst": lambda reads: max(read.behind for read in reads),
        "seen of open transactions, at its worst": lambda reads: max(read.open for read in reads),
        "seen of aborted transactions": lambda reads: reads[-1].aborted,
        "sum of all transfers": lambda reads: money(reads[-1].transfers_cents),
    }
    for label, value in rows.items():
        shown.add_row(label, *(str(value(reader.seen)) if reader.seen else "" for reader in readers))
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


def check(monitor: Reader, booking: Reader, booked: Booked) -> bool:
    """Check what was read against what the clients know, and say so; return whether all of it is right."""
    balances = {row.account: row.cents for row in booking.ask(BALANCES)}
    cents = Counter({row.kind: row.cents for row in booking.ask(BY_KIND)})
    written, committed = booked.messages.total(), booked.messages.total() - booked.messages["aborted"]
    checks = {
        f"D saw all {written} messages, {booked.messages['aborted']} of them aborted": (
            monitor.seen[-1].messages == written and monitor.seen[-1].aborted == booked.messages["aborted"]
        ),
        f"E saw the {committed} plain and committed ones, and in no read an open or aborted one": (
            booking.seen[-1].messages == committed and not any(seen.open or seen.aborted for seen in booking.seen)
        ),
        f"each of E's {len(booking.seen)} reads was, in every partition, the beginning of what it reads now": (
            booking.changed_since() == 0
        ),
        f"the {booked.transfers['committed']} transfers that E books sum to {money(cents['transfer'])}": (
            cents["transfer"] == 0
        ),
        f"opening {money(cents['opening'])} + deposits {money(cents['deposit'])}"
        f" − withdrawals {money(-cents['withdrawal'])} = balances {money(sum(balances.values()))}": (
            cents["opening"] + cents["deposit"] + cents["withdrawal"] == sum(balances.values())
        ),
        f"E's balances of {len(balances)} accounts are what the clients booked": balances == booked.accounts,
    }
    for text, passed in checks.items():
        console.print(f"checked: {text}" if passed else f"[bold red]WRONG:[/] {text}", highlight=False, soft_wrap=True)
    return all(checks.values())


def money(cents: int) -> str:
    return f"{cents / 100:,.2f}"


if __name__ == "__main__":
    sys.exit(main())
