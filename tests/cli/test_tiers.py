from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.log.reading import eventually
from txn_source.cli.units import format_size
from txn_source.model.copies import Tier


@pytest.fixture
def closed(log: txn_source.Log) -> txn_source.Log:
    """A topic with two closed ledgers of two messages on its only partition, and an empty open one."""
    log.create_topic("orders", ledger_max_entries=2)
    with log.producer("orders") as producer:
        for value in ("a", "b", "c", "d"):
            producer.send(value)
            producer.flush()
    log.roll_ledger("orders")
    return log


def ledger_ids(log: txn_source.Log) -> list[int]:
    return [ledger.ledger_id for ledger in log.stats("orders").ledgers]


def tiers(log: txn_source.Log) -> list[tuple[Tier, ...]]:
    return [ledger.tiers for ledger in log.stats("orders").ledgers]


HOT, TIERED, BOTH = (Tier.BOOKKEEPER,), (Tier.TIERED,), (Tier.BOOKKEEPER, Tier.TIERED)


def test_offload_tells_what_it_did(txnlog: Any, closed: txn_source.Log) -> None:
    """People see counts and sizes in one line, and no progress bar in a pipe: offload, then again."""
    hot = format_size(closed.stats("orders").bytes)
    result = txnlog("topics", "offload", "orders")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Offloaded 2 ledgers with 4 messages of topic 'orders': {hot} hot -> ")
    assert result.stdout.endswith(" tiered.\n")
    assert tiers(closed) == [BOTH, BOTH, HOT]
    again = txnlog("topics", "offload", "orders")
    assert (again.exit_code, again.stdout) == (0, "Nothing to offload in topic 'orders'.\n")


def test_offload_says_what_waits_and_what_to_do(txnlog: Any, closed: txn_source.Log) -> None:
    """An open transaction holds a closed ledger back, and the open ledger is no candidate: offload with both there,
    for a program, which gets ids and exact numbers, and again for a reader."""
    hot = closed.stats("orders").bytes
    with closed.producer("orders") as producer:
        producer.send("undecided", txn=closed.begin_transaction(600))
        producer.flush()
        closed.roll_ledger("orders")
        producer.send("newest")
    first, second, waiting, still_open = ledger_ids(closed)
    found = json.loads(txnlog("topics", "offload", "orders", "--json").stdout)
    assert found.pop("tiered_bytes") > 0
    assert found == {
        "topic": "orders",
        "ledger_ids": [first, second],
        "skipped": [],
        "messages": 4,
        "hot_bytes": hot,
        "waiting_for_transactions": [waiting],
        "still_open": [still_open],
    }
    _, waits, is_open = txnlog("topics", "offload", "orders").stdout.splitlines()
    assert waits.startswith(f"Ledger {waiting} waits for an open transaction to end: see `txnlog transactions list")
    assert is_open == f"Ledger {still_open} is still open: close with `txnlog topics roll orders`."


def test_offload_that_fails_half_way_tells_what_stays(txnlog: Any, closed: txn_source.Log, root: Path) -> None:
    """What was offloaded before stays: damage the second ledger's segment, and offload as text and as JSON."""
    [segment] = root.glob(f"segments/*/*/{ledger_ids(closed)[1]}-*")
    content = bytearray(segment.read_bytes())
    last = content.rindex(b"d")
    content[last] ^= 0xFF
    segment.write_bytes(content)
    result = txnlog("topics", "offload", "orders")
    assert (result.exit_code, result.stdout) == (1, "Offloaded 1 of 2 ledgers. The copies made so far stay.\n")
    assert "[TXNLOG_SEGMENT_UNREADABLE]" in result.stderr
    assert tiers(closed) == [BOTH, HOT, HOT]
    assert txnlog("topics", "offload", "orders", "--json").stdout == ""


def test_copies_are_deleted_tier_by_tier(txnlog: Any, closed: txn_source.Log) -> None:
    """Each command takes one tier, and the last copy is kept: delete the tiered ones, offload anew, delete the hot."""
    closed.offload("orders")
    deleted = txnlog("topics", "delete-offloaded", "orders", "--yes")
    assert deleted.stdout == "Deleted the tiered copies of 2 ledgers of topic 'orders'.\n"
    assert tiers(closed) == [HOT, HOT, HOT]
    closed.offload("orders")
    deleted = txnlog("topics", "delete-hot", "orders", "--yes")
    assert deleted.stdout == "Deleted the hot copies of 2 ledgers of topic 'orders'.\n"
    assert tiers(closed) == [TIERED, TIERED, HOT]
    refused = txnlog("topics", "delete-offloaded", "orders", "--yes")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("[TXNLOG_ONLY_COPY]")
    assert txnlog("consume", "orders").stdout == "a\nb\nc\nd\n"
    again = txnlog("topics", "delete-hot", "orders", "--yes", "--json")
    assert json.loads(again.stdout) == {"topic": "orders", "deleted": 0}


def test_hot_copies_go_after_the_lag(txnlog: Any, closed: txn_source.Log) -> None:
    """The policy says when: ask without a lag, with one that hasn't passed, and with none to wait for."""
    closed.offload("orders")
    unset = txnlog("topics", "delete-hot", "orders", "--after-lag", "--yes")
    assert unset.exit_code == 2
    assert "No deletion lag is set for topic 'orders'" in " ".join(unset.stderr.replace("│", " ").split())
    closed.set_policies("orders", offload_deletion_lag=3600)
    assert txnlog("topics", "delete-hot", "orders", "--after-lag", "--yes").stdout.split()[:6] == [
        *("Deleted", "the", "hot", "copies", "of", "0"),
    ]
    assert tiers(closed) == [BOTH, BOTH, HOT]
    closed.set_policies("orders", offload_deletion_lag=0)

    def lag_has_passed() -> bool:
        txnlog("topics", "delete-hot", "orders", "--after-lag", "--yes")
        return tiers(closed) == [TIERED, TIERED, HOT]

    eventually(lag_has_passed)


def test_trim_prints_what_went_and_where_the_log_starts(txnlog: Any, closed: txn_source.Log) -> None:
    """Whole ledgers go: trim before a position in the second ledger, which keeps that one, then by bytes and age."""
    _, second, still_open = ledger_ids(closed)
    result = txnlog("topics", "trim", "orders", "--before", f"{second}:1", "--yes")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Trimmed 1 ledger, 2 messages, ")
    assert (lines[-1].split()[:3], lines[-1].split()[-1]) == (["0", "1", "2"], f"{second}:0")
    assert ledger_ids(closed) == [second, still_open]

    nothing = txnlog("topics", "trim", "orders", "--older-than", "7d", "--keep-bytes", "1g", "--yes")
    assert nothing.stdout.startswith("Nothing to trim in topic 'orders'.\n")
    assert nothing.stdout.split()[-1] == f"{second}:0"
    done = json.loads(txnlog("topics", "trim", "orders", "--keep-bytes", "0", "--yes", "--json").stdout)
    [partition] = done["partitions"]
    assert (done["topic"], partition["partition"], partition["ledgers"], partition["messages"]) == ("orders", 0, 1, 2)
    assert partition["log_start"] == f"{still_open}:0"
    assert ledger_ids(closed) == [still_open]
    assert txnlog("consume", "orders").stdout == ""


@pytest.mark.parametrize("before", ['{"orders": {"0": "latest"}}', "2999-01-01T00:00:00Z", "32472144000000", "latest"])
def test_trim_takes_every_form_of_a_place(before: str, txnlog: Any, closed: txn_source.Log) -> None:
    """All of these lie behind the last message: trim before each, and only the open ledger is left."""
    assert txnlog("topics", "trim", "orders", "--before", before, "--yes").exit_code == 0
    assert len(ledger_ids(closed)) == 1


def test_trim_by_the_topics_retention(txnlog: Any, closed: txn_source.Log) -> None:
    """Without an option the policies decide, and without policies there is nothing to go by: trim with and without."""
    refused = txnlog("topics", "trim", "orders", "--yes")
    assert refused.exit_code == 2
    assert "Topic 'orders' has no retention policy" in " ".join(refused.stderr.replace("│", " ").split())
    closed.set_policies("orders", retention_bytes=0)
    assert txnlog("topics", "trim", "orders", "--yes").stdout.startswith("Trimmed 2 ledgers, 4 messages, ")


@pytest.mark.parametrize(
    "command",
    [("delete-offloaded", "orders"), ("delete-hot", "orders"), ("trim", "orders", "--keep-bytes", "0")],
    ids=lambda command: command[0],
)
def test_deleting_without_a_terminal_needs_yes(command: tuple[str, ...], txnlog: Any, closed: txn_source.Log) -> None:
    """A script must not delete by accident: run each command that deletes without --yes."""
    closed.offload("orders")
    refused = txnlog("topics", *command)
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert tiers(closed) == [BOTH, BOTH, HOT]
