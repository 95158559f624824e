from __future__ import annotations

import json
from typing import Any

import pytest

import txn_source


def write(log: txn_source.Log, topic: str = "orders") -> txn_source.Transaction:
    """Leave a transaction open that has one message."""
    txn = log.begin_transaction(600)
    with log.producer(topic, name="transfers") as producer:
        producer.send("a", txn=txn)
    return txn


@pytest.fixture
def ended(log: txn_source.Log) -> dict[str, str]:
    """One transaction in each state on two topics; ids by state."""
    log.create_topic("orders")
    log.create_topic("trades")
    committed, aborted, still_open = write(log), write(log), write(log, "trades")
    committed.commit()
    aborted.abort()
    return {"committed": str(committed.id), "aborted": str(aborted.id), "open": str(still_open.id)}


def listed(result: Any) -> list[tuple[str, str]]:
    return [(txn["id"], txn["state"]) for txn in json.loads(result.stdout)]


def test_list_takes_state_and_topic(txnlog: Any, ended: dict[str, str]) -> None:
    """Open ones by default, others by name: list one transaction of each state through every filter."""
    one = {state: [(id, state)] for state, id in ended.items()}
    everything = one["open"] + one["aborted"] + one["committed"]  # newest first
    assert listed(txnlog("transactions", "list", "--json")) == one["open"]
    for state in ended:
        assert listed(txnlog("transactions", "list", "--json", "--state", state)) == one[state]
    assert listed(txnlog("transactions", "list", "--json", "--state", "all")) == everything
    assert listed(txnlog("transactions", "list", "--json", "--state", "all", "--topic", "orders")) == everything[1:]
    assert txnlog("transactions", "list", "--topic", "orders").stdout == "There are no open transactions.\n"


def test_list_table_names_owner_and_partitions(txnlog: Any, ended: dict[str, str]) -> None:
    """A row says whom to ask about a hanging transaction: find owner and partition beside the id."""
    row = txnlog("transactions", "list").stdout.splitlines()[-1].split()
    assert [row[0], row[1], *row[4:7]] == [ended["open"], "open", "trades-partition-0", "transfers", "1"]


def test_list_says_when_it_leaves_some_out(txnlog: Any, ended: dict[str, str]) -> None:
    """A short list must not look complete, and a note must not break the JSON: list one of three."""
    result = txnlog("transactions", "list", "--state", "all", "--limit", "1", "--json")
    assert listed(result) == [(ended["open"], "open")]
    assert "newest 1" in result.stderr


def test_list_begins_with_the_oldest_open_one(txnlog: Any, log: txn_source.Log, ended: dict[str, str]) -> None:
    """Open more, and list fewer than there are: who holds back the longest is among them, the rest is counted."""
    newest = [str(log.begin_transaction().id) for _ in range(3)]
    result = txnlog("transactions", "list", "--limit", "2", "--json")
    assert listed(result) == [(ended["open"], "open"), (newest[0], "open")]
    assert "oldest 2 are listed, there are 2 more" in result.stderr
    result = txnlog("transactions", "list", "--limit", "2", "--json", "--first", "newest")
    assert listed(result) == [(newest[2], "open"), (newest[1], "open")]


def test_show_tells_where_it_wrote(txnlog: Any, log: txn_source.Log, ended: dict[str, str]) -> None:
    """Show a committed transaction by each form of its id, and compare the JSON with the API."""
    for form in ("(0,0)", "0,0", "0:0"):
        shown = json.loads(txnlog("transactions", "show", form, "--json").stdout)
        assert (shown["id"], shown["state"], shown["end_reason"]) == (ended["committed"], "committed", "client")
        [expected] = log.transaction(form).partitions
        [partition] = shown["partitions"]
        assert partition["topic"] == "orders"
        assert partition["first_position"] == str(expected.first_position)
        assert partition["marker_position"] == str(expected.marker_position)
    text = txnlog("transactions", "show", "0:0").stdout
    assert "committed" in text
    assert str(expected.marker_position) in text


def test_abort_ends_an_open_transaction_by_force(txnlog: Any, log: txn_source.Log, ended: dict[str, str]) -> None:
    """An operator can end what hangs, and only that: abort the open, the aborted and the committed one."""
    result = txnlog("transactions", "abort", ended["open"])
    assert (result.exit_code, result.stdout) == (0, f"Transaction {ended['open']} is aborted.\n")
    assert log.transaction(ended["open"]).end_reason == "forced"
    assert txnlog("transactions", "abort", ended["aborted"]).exit_code == 0
    assert txnlog("transactions", "abort", ended["committed"]).stderr.startswith("[TXNLOG_TXN_ENDED]")
    assert txnlog("transactions", "abort", "0:999").stderr.startswith("[TXNLOG_TXN_NOT_FOUND]")
    assert log.transaction(ended["committed"]).state.value == "committed"
