"""A transaction hangs: who is on duty is alerted, finds it in the console and aborts it, and the stream goes on.

All of it is real: the service is a process of its own, the books are kept by a Spark stream, the alert is looked for in
what the service exports, and the console is used in a browser.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from pyspark.sql import DataFrame, SparkSession

from tests.console.browser import browsing
from tests.log.reading import eventually
from tests.log.sites import ClockedTarget, ManualClock
from tests.story.alerting import firing, scraped
from txn_source import Log, Producer, TransactionEndedError, connect

AGO_S = 400.0
"""So long ago the teller hung; the alert is about five minutes."""


class Books:
    """What the stream has booked: the transfers of each batch, which is booked once however often it comes."""

    def __init__(self) -> None:
        self._batches: dict[int, list[str]] = {}

    def book(self, rows: DataFrame, number: int) -> None:
        self._batches[number] = sorted(bytes(row["value"]).decode() for row in rows.collect())

    @property
    def booked(self) -> list[str]:
        return sorted(value for batch in self._batches.values() for value in batch)


def transfer(log: Log, producer: Producer, name: str) -> list[str]:
    """Move money: two messages on two partitions, committed. Return what is to be booked."""
    with log.begin_transaction() as txn:
        producer.send(f"{name} debit".encode(), partition=0, txn=txn)
        producer.send(f"{name} credit".encode(), partition=1, txn=txn)
    return [f"{name} credit", f"{name} debit"]


@contextmanager
def booking(spark: SparkSession, endpoint: str, checkpoint: Path) -> Iterator[Books]:
    """Run the stream that books transfers, at read_committed."""
    books = Books()
    reader = spark.readStream.format("txnlog").options(endpoint=endpoint, topic="transfers")
    writer = reader.option("startingOffsets", "earliest").load().writeStream.foreachBatch(books.book)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="200 milliseconds").start()
    try:
        yield books
        assert query.exception() is None
    finally:
        query.stop()


def addresses(process: subprocess.Popen[bytes]) -> tuple[str, str, str]:
    """Return where a service serves, has its metrics, and its console, as its log says."""
    assert process.stderr is not None
    found = {}
    while len(found) < 3:
        line = process.stderr.readline().decode()
        assert line, "the service ended"
        if told := re.search(r"INFO (serving|metrics|console) on (?:http://)?([\d.]+:\d+)", line):
            found[told[1]] = told[2]
    return found["serving"], found["metrics"], found["console"]


@pytest.mark.long
def test_a_transaction_hangs_and_the_stream_goes_on(
    browser: Browser, spark: SparkSession, spawn: Any, tmp_path: Path
) -> None:
    """Let a teller hang in a transfer while others go on; be alerted, abort it in the console, and look at the books:
    every other transfer is there once, also what had waited, nothing of the aborted one, and then its repetition."""
    clock = ManualClock()
    clock.now_us = time.time_ns() // 1000 - round(AGO_S * 1e6)
    connect(tmp_path / "log").close()
    with Log(ClockedTarget(tmp_path / "log", clock)) as at_the_teller:
        at_the_teller.create_topic("transfers", partitions=2)
        at_the_teller.create_subscription("transfers", "audit")
        teller = at_the_teller.producer("transfers", name="teller-7")
        others = at_the_teller.producer("transfers")
        before = transfer(at_the_teller, others, "before")
        hanging = at_the_teller.begin_transaction(timeout=900)
        teller.send(b"lost debit", partition=0, txn=hanging)
        teller.flush()  # and there it hangs
        behind = transfer(at_the_teller, others, "behind 1")
        clock.now_us = time.time_ns() // 1000

        served = spawn("serve", "--root", tmp_path / "log", "--port", "0", "--metrics-port", "0", "--console-port", "0")
        endpoint, metrics, console = addresses(served)
        with connect(endpoint=endpoint) as log, booking(spark, endpoint, tmp_path / "checkpoint") as books:
            producer = log.producer("transfers")
            behind += transfer(log, producer, "behind 2")

            # The stream stands still: one partition goes on to nowhere, lest a transfer be seen by half.
            eventually(lambda: books.booked == before, within_s=200)
            eventually(lambda: "txnlog_topic_held_back_seconds" in scraped(metrics))
            [alert] = firing("TxnlogHangingTransaction", scraped(metrics))
            assert alert == {"topic": "transfers", "job": "txnlog"}
            assert books.booked == before

            abort_in_the_console(browser, f"http://{console}/", str(hanging.id))

            # What had waited is booked, and what comes now.
            after = transfer(log, producer, "after")
            eventually(lambda: books.booked == sorted(before + behind + after), within_s=200)

            # The teller wakes, is told, and transfers anew.
            with pytest.raises(TransactionEndedError):
                hanging.commit()
            again = transfer(log, producer, "again")
            eventually(lambda: books.booked == sorted(before + behind + after + again), within_s=200)
            eventually(lambda: firing("TxnlogHangingTransaction", scraped(metrics)) == [])
            assert log.subscription("transfers", "audit").backlog == len(books.booked)


def abort_in_the_console(browser: Browser, address: str, txn: str) -> None:
    """Go from the overview to the transaction, see whom it blocks and whose it is, and abort it."""
    context = browser.new_context(viewport=browsing.DESKTOP, base_url=address, reduced_motion="reduce")
    try:
        watch = browsing.Watch(context, address)
        page = context.new_page()
        page.goto("./")
        page.get_by_role("link", name=re.compile(re.escape(f"Transaction {txn} holds back"))).click()
        expect(page.get_by_role("heading", name="Who blocks whom")).to_be_visible()
        card = page.get_by_role("article").filter(has_text=f"Transaction {txn}")
        expect(card).to_contain_text("teller-7")
        expect(card).to_contain_text("audit")
        expect(card).to_contain_text(re.compile(r"open for\s*\d+ min"))
        card.get_by_role("button", name="Abort").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("Lost: 1 message of its own")
        dialog.get_by_role("button", name=f"Abort transaction {txn}").click()
        expect(page.get_by_text(f"Transaction {txn} is aborted")).to_be_visible()
        expect(page.get_by_text("No transaction is open.")).to_be_visible()
        watch.check()
    finally:
        context.close()
