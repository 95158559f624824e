from __future__ import annotations

import json
import os
import pty
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import txn_source


def test_create_makes_the_log_and_the_topic(txnlog: Any, root: Path) -> None:
    """The first topic of a new log: create it on a missing root with every option, then look at it through the API."""
    result = txnlog(
        *("topics", "create", "orders", "--partitions", "2", "--schema", "id bigint, name string"),
        *("--ledger-max-entries", "3", "--ledger-max-bytes", "1m", "--ledger-max-age", "1h"),
    )
    assert (result.exit_code, result.stdout) == (0, "Created topic 'orders' with 2 partitions.\n")
    with txn_source.connect(root, create=False) as log:
        assert log.schema("orders") == pa.schema([("id", pa.int64()), ("name", pa.string())])
        with log.producer("orders") as producer:
            for number in range(7):
                producer.send({"id": number}, partition=1)
                producer.flush()
        assert [ledger.entries for ledger in log.stats("orders").partitions[1].ledgers] == [3, 3, 1]


def test_update_adds_partitions_and_says_what_becomes_of_keys(txnlog: Any, log: txn_source.Log) -> None:
    """Go from two partitions to four, ask for as many once more, then for fewer: each is answered as it is."""
    log.create_topic("orders", partitions=2)
    assert txnlog("topics", "update", "public/default/orders", "--partitions", "4").stdout == (
        "orders has 4 partitions now; messages with a key may go to another partition from here on.\n"
    )
    again = txnlog("topics", "update", "orders", "--partitions", "4")
    assert (again.exit_code, again.stdout) == (0, "orders has 4 partitions already; nothing was changed.\n")
    fewer = txnlog("topics", "update", "orders", "--partitions", "3")
    assert fewer.exit_code == 2
    assert "has 4 partitions and can't have 3" in fewer.stderr
    [orders] = json.loads(txnlog("topics", "list", "--json").stdout)
    assert orders["partitions"] == 4
    assert "another partition" in " ".join(txnlog("topics", "update", "--help").stdout.split())


def test_list_shows_what_each_topic_holds(txnlog: Any, log: txn_source.Log) -> None:
    """People see a row for each topic and programs the same as JSON: list a raw and a typed topic both ways."""
    assert txnlog("topics", "list").stdout == "There are no topics.\n"
    log.create_topic("orders", partitions=3)
    log.create_topic("persistent://acme/eu/trades", schema=pa.schema([("id", pa.int64())]))
    with log.producer("orders") as producer:
        producer.send("a")
    stored = log.stats("orders").bytes
    header, _, trades, orders = txnlog("topics", "list").stdout.splitlines()
    assert header.split() == ["Topic", "Partitions", "Messages", "Size", "Columns"]
    assert orders.split() == ["orders", "3", "1", str(stored), "B", "raw"]
    assert trades.split() == ["persistent://acme/eu/trades", "1", "0", "0", "B", "id", "int64"]
    empty = {"partitions": 1, "messages": 0, "bytes": 0}
    typed = {"topic": "persistent://acme/eu/trades", **empty, "schema": {"id": "int64"}}
    raw = {"topic": "orders", "partitions": 3, "messages": 1, "bytes": stored, "schema": None}
    assert json.loads(txnlog("topics", "list", "--json").stdout) == [typed, raw]
    assert json.loads(txnlog("topics", "list", "--json", "--namespace", "acme/eu").stdout) == [typed]
    assert txnlog("topics", "list", "--namespace", "acme/us").stdout == "There are no topics in acme/us.\n"


def test_stats_show_bounds_and_what_an_open_transaction_holds_back(txnlog: Any, log: txn_source.Log) -> None:
    """An operator sees why a reader waits: leave a transaction open before plain messages and read table and JSON."""
    log.create_topic("orders", partitions=2)
    with log.producer("orders", name="transfers") as producer:
        producer.send("before", partition=1)
        producer.flush()
        txn = log.begin_transaction(600)
        producer.send("held", partition=1, txn=txn)
        producer.flush()
        producer.send("behind", partition=1)
        producer.flush()
    stats = log.stats("orders").partitions[1]
    text = txnlog("topics", "stats", "orders").stdout
    lines = [line.split() for line in text.splitlines()]
    bounds = [str(b) for b in (stats.log_start, stats.last_stable, stats.high_watermark, stats.log_end)]
    assert text.startswith("orders: 2 partitions, 3 messages, ")
    assert next(line for line in lines if line[:2] == ["1", bounds[0]])[1:7] == [
        *bounds,
        str(stats.max_read_position),
        "3",
    ]
    held = next(line for line in lines if str(txn.id) in line)
    assert [held[0], held[1], *held[4:6], held[-1]] == ["1", "(0,0)", str(stats.last_stable), "2", "transfers"]

    partition = json.loads(txnlog("topics", "stats", "orders", "--json").stdout)["partitions"][1]
    assert [partition[name] for name in ("log_start", "last_stable", "high_watermark", "log_end")] == bounds
    assert partition["ledgers"][0]["entries"] == 3
    ongoing = partition["ongoing_transactions"][0]
    assert (ongoing["id"], ongoing["first_position"], ongoing["messages_held_back"]) == ("(0,0)", bounds[1], 2)
    txn.abort()
    assert "No transaction is open" in txnlog("topics", "stats", "orders").stdout


def test_stats_table_lists_the_newest_ledgers_only(txnlog: Any, log: txn_source.Log) -> None:
    """A topic may have 100,000 ledgers: make 13 and find 10 in the table, 13 in JSON."""
    log.create_topic("orders", ledger_max_entries=1)
    with log.producer("orders") as producer:
        for number in range(13):
            producer.send(str(number))
            producer.flush()
    text = txnlog("topics", "stats", "orders").stdout
    ledgers = log.stats("orders").ledgers
    rows = [line.split()[1] for line in text.splitlines() if " closed " in line or " open " in line]
    assert rows == [str(ledger.ledger_id) for ledger in ledgers[-10:]]
    assert f"--json lists the {len(ledgers) - 10} older ones" in text
    assert len(json.loads(txnlog("topics", "stats", "orders", "--json").stdout)["partitions"][0]["ledgers"]) == len(
        ledgers
    )


def test_stats_tell_where_copies_lie_and_which_is_read_first(txnlog: Any, log: txn_source.Log) -> None:
    """An operator sees each ledger's tiers and who set the priority: have one ledger in each state, read both forms."""
    log.create_topic("orders", ledger_max_entries=1)
    with log.producer("orders") as producer:
        for offloaded in (True, True, False):
            producer.send("a")
            producer.flush()
            if offloaded:
                log.roll_ledger("orders")
                log.offload("orders")
            if len(log.stats("orders").ledgers) == 2:
                log.delete_hot("orders")
    log.roll_ledger("orders")
    text = txnlog("topics", "stats", "orders").stdout
    rows = [line.split() for line in text.splitlines() if " closed " in line or " open " in line]
    assert [row[2:4] for row in rows] == [["closed", "tiered"], ["closed", "both"], ["closed", "hot"], ["open", "hot"]]
    assert "\nRead priority: tiered-first (by default).\n" in text
    assert "Hot copies are deleted" not in text
    log.set_data_read_priority("bookkeeper-first", namespace="public/default")
    log.set_policies("orders", offload_deletion_lag=14_400)
    text = txnlog("topics", "stats", "orders").stdout
    assert "\nRead priority: bookkeeper-first (set for the namespace).\n" in text
    assert "\nHot copies are deleted 4h after the offload (set for the topic).\n" in text

    found = json.loads(txnlog("topics", "stats", "orders", "--json").stdout)
    ledgers = found["partitions"][0]["ledgers"]
    assert [ledger["tiers"] for ledger in ledgers[:2]] == [["tiered"], ["bookkeeper", "tiered"]]
    assert datetime.fromisoformat(ledgers[0]["offloaded_at"]) == log.stats("orders").ledgers[0].offloaded_at
    assert found["policies"]["data_read_priority"] == {"value": "bookkeeper-first", "source": "namespace"}
    assert found["policies"]["offload_deletion_lag"] == {"value": 14_400.0, "source": "topic"}


def test_delete_without_a_terminal_needs_yes(txnlog: Any, log: txn_source.Log) -> None:
    """A script can't answer a question, and must not delete by accident: run without and with --yes."""
    log.create_topic("orders")
    refused = txnlog("topics", "delete", "orders")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert log.topics() == ["orders"]
    assert txnlog("topics", "delete", "orders", "--yes").stdout == "Deleted topic 'orders'.\n"
    assert log.topics() == []
    assert txnlog("topics", "delete", "orders", "--yes").stderr.startswith("[TXNLOG_TOPIC_NOT_FOUND]")


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "status", "left"), [("y", 0, []), pytest.param("n", 1, ["orders"], marks=pytest.mark.long)]
)
def test_delete_asks_at_a_terminal(
    answer: str, status: int, left: list[str], spawn: Any, log: txn_source.Log, root: Path
) -> None:
    """The answer decides: give each at a pseudo-terminal."""
    log.create_topic("orders")
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        process = spawn("topics", "delete", "orders", "--root", root, stdin=theirs)
        _, errors = process.communicate()
    finally:
        os.close(ours)
        os.close(theirs)
    assert process.returncode == status
    assert b"Delete topic 'orders' with its 0 messages?" in errors
    assert log.topics() == left


def test_roll_closes_ledgers_that_are_not_empty(txnlog: Any, log: txn_source.Log) -> None:
    """Rolling names what it closed: roll one partition of two, then all, then nothing."""
    log.create_topic("orders", partitions=2)
    with log.producer("orders") as producer:
        for partition in (0, 1):
            producer.send("a", partition=partition)
    first, second = (p.ledgers[-1].ledger_id for p in log.stats("orders").partitions)
    assert txnlog("topics", "roll", "orders", "--partition", "1").stdout == f"Closed 1 ledger: {second}.\n"
    assert json.loads(txnlog("topics", "roll", "orders", "--json").stdout) == {"closed_ledgers": [first]}
    assert txnlog("topics", "roll", "orders").stdout == "Nothing to close: the open ledgers are empty.\n"
    assert txnlog("topics", "roll", "orders", "--partition", "2").stderr.startswith("[TXNLOG_TOPIC_NOT_FOUND]")
