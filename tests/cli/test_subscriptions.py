from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.log.sites import Site
from tests.selection import for_each


def send(log: txn_source.Log, *values: str, **options: Any) -> None:
    """Send messages to partition 0, one entry."""
    with log.producer("orders", name="transfers") as producer:
        for value in values:
            producer.send(value, partition=options.pop("partition", 0), **options)


@pytest.fixture
def orders(log: txn_source.Log) -> txn_source.Log:
    """A topic with an entry of three messages, one of two, and a subscription ``booking`` before them."""
    log.create_topic("orders", partitions=2)
    log.create_subscription("orders", "booking", initial_position="earliest")
    send(log, "a", "b", "c")
    send(log, "d", "e")
    return log


@pytest.fixture
def consumer(orders: txn_source.Log) -> Iterator[Any]:
    """A consumer of ``booking`` that has got three messages, and acknowledged the second."""
    with orders.subscribe("orders", "booking", options=txn_source.ConsumerOptions("desk")) as connected:
        got = [message for _ in range(3) if (message := connected.receive(10))]
        connected.acknowledge(got[1])
        connected.flush()
        yield connected


def ledger(log: txn_source.Log) -> int:
    return log.stats("orders").partitions[0].log_start.ledger_id


def stats(txnlog: Any, name: str = "booking") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(txnlog("subscriptions", "stats", "orders", name, "--json").stdout)
    return found


def test_created_subscription_is_what_was_asked_for(txnlog: Any, orders: txn_source.Log) -> None:
    """Create one with all options and one with none, and look at both; the second begins where the topic ends."""
    result = txnlog(
        *("subscriptions", "create", "orders", "monitor", "--type", "shared"),
        *("--isolation-level", "read-uncommitted", "--at", f"{ledger(orders)}:0:2"),
    )
    said = "Created subscription 'monitor' of topic 'orders': shared, read_uncommitted.\n"
    assert (result.exit_code, result.stdout) == (0, said)
    txnlog("subscriptions", "create", "orders", "late")
    names = ("type", "subscriptionIsolationLevel", "durable", "epoch", "backlog")
    assert [stats(txnlog, "monitor")[n] for n in names] == ["shared", "read_uncommitted", True, 0, 3]
    assert [stats(txnlog, "late")[n] for n in names] == ["exclusive", "read_committed", True, 0, 0]


def test_list_has_a_row_for_each(txnlog: Any, consumer: Any, orders: txn_source.Log) -> None:
    """List a subscription with a consumer beside one without, as text and as JSON."""
    orders.create_subscription("orders", "monitor", "shared", "read_uncommitted", "earliest")
    rows = [line.split() for line in txnlog("subscriptions", "list", "orders").stdout.splitlines()[2:]]
    assert [rows[0][i] for i in (0, 1, 2, 3, 4, 6)] == ["booking", "exclusive", "read_committed", "0", "4", "desk"]
    assert rows[1] == ["monitor", "shared", "read_uncommitted", "0", "5", "0", "none"]
    listed = json.loads(txnlog("subscriptions", "list", "orders", "--json").stdout)
    assert [(s["subscription"], s["backlog"]) for s in listed] == [("booking", 4), ("monitor", 5)]
    orders.create_topic("empty")
    assert txnlog("subscriptions", "list", "empty").stdout == "Topic 'empty' has no subscriptions.\n"


def test_without_a_topic_those_of_all_are_listed(txnlog: Any, orders: txn_source.Log) -> None:
    """List them of a log without any, and with two topics of which one has a name in its own namespace."""
    orders.delete_subscription("orders", "booking")
    assert txnlog("subscriptions", "list").stdout == "No topic has subscriptions.\n"
    assert json.loads(txnlog("subscriptions", "list", "--json").stdout) == []
    orders.create_topic("persistent://shop/eu/bills")
    orders.create_subscription("persistent://shop/eu/bills", "paying")
    orders.create_subscription("orders", "booking", initial_position="earliest")
    head, _, *rows = (line.split() for line in txnlog("subscriptions", "list").stdout.splitlines())
    assert head[:2] == ["Topic", "Subscription"]
    assert sorted(row[:3] for row in rows) == [
        ["orders", "booking", "exclusive"],
        ["persistent://shop/eu/bills", "paying", "exclusive"],
    ]
    listed = json.loads(txnlog("subscriptions", "list", "--json").stdout)
    assert {(s["topic"], s["subscription"], s["backlog"]) for s in listed} == {
        ("orders", "booking", 5),
        ("persistent://shop/eu/bills", "paying", 0),
    }
    refused = txnlog("subscriptions", "list", "nope")
    assert (refused.exit_code, refused.stderr[:24]) == (1, "[TXNLOG_TOPIC_NOT_FOUND]")


def test_stats_tell_where_it_stands_and_who_consumes(txnlog: Any, consumer: Any, orders: txn_source.Log) -> None:
    """Of five messages the second is acknowledged: look for mark, range, backlog and consumer."""
    found, at = stats(txnlog), ledger(orders)
    assert (found["backlog"], found["ignored_acknowledgements"], found["held_by"]) == (4, 0, [])
    first, second = found["partitions"]
    assert (first["partition"], first["mark"], first["backlog"]) == (0, f"{at}:0:0", 4)
    assert first["acknowledged_above_mark"] == [{"start": f"{at}:0:1", "end": f"{at}:0:2", "messages": 1}]
    assert first["bound"] == str(orders.stats("orders").partitions[0].last_stable)
    assert (second["partition"], second["backlog"]) == (1, 0)
    assert [(c["name"], c["active"]) for c in found["consumers"]] == [("desk", True)]
    text = txnlog("subscriptions", "stats", "orders", "booking").stdout
    assert f"{at}:0:0" in text
    assert next(line for line in text.splitlines() if line.startswith("desk")).split()[:2] == ["desk", "active"]


def test_stats_of_a_service_count_what_consumers_hold(bare: Any, root: Path) -> None:
    """Deliver three messages, acknowledge one, and ask the service that delivered them."""
    with Site("remote", root) as site, site.connect() as log:
        log.create_topic("orders")
        with log.subscribe("orders", "booking", initial_position="earliest") as consumer:
            send(log, "a", "b", "c")
            consumer.acknowledge(next(iter(consumer)))
            consumer.flush()
            result = bare("--endpoint", site.endpoint, "subscriptions", "stats", "orders", "booking", "--json")
    found = json.loads(result.stdout)
    assert [c["unacknowledged"] for c in found["consumers"]] == [found["unacknowledged_messages"]] == [2]


def test_waiting_consumer_is_told_from_the_active_one(txnlog: Any, orders: txn_source.Log) -> None:
    """Connect two to a failover subscription, and look for who waits."""
    named = [txn_source.ConsumerOptions(name) for name in ("first", "second")]
    with (
        orders.subscribe("orders", "pair", "failover", options=named[0]),
        orders.subscribe("orders", "pair", "failover", options=named[1]),
    ):
        assert [(c["name"], c["active"]) for c in stats(txnlog, "pair")["consumers"]] == [
            ("first", True),
            ("second", False),
        ]
        assert "waits for its turn" in txnlog("subscriptions", "stats", "orders", "pair").stdout
        assert "second (waits)" in txnlog("subscriptions", "list", "orders").stdout


def test_stats_name_the_transaction_that_holds_the_backlog(txnlog: Any, orders: txn_source.Log) -> None:
    """Leave a transaction open: only the read_committed subscription waits for it, until it is aborted."""
    orders.create_subscription("orders", "monitor", isolation_level="read_uncommitted", initial_position="earliest")
    txn = orders.begin_transaction(600)
    send(orders, "open", txn=txn)
    send(orders, "behind")
    found = stats(txnlog)
    [holding] = found["held_by"]
    assert (holding["id"], holding["producers"], holding["held_back_messages"]) == (str(txn.id), ["transfers"], 2)
    assert 0 <= holding["age"] < holding["timeout"] == 600
    assert found["backlog"] == 5
    assert (stats(txnlog, "monitor")["held_by"], stats(txnlog, "monitor")["backlog"]) == ([], 7)
    text = txnlog("subscriptions", "stats", "orders", "booking").stdout
    row = next(line.split() for line in text.splitlines() if line.startswith(str(txn.id)))
    assert row[-1] == "transfers"
    txnlog("transactions", "abort", txn.id)
    assert (stats(txnlog)["held_by"], stats(txnlog)["backlog"]) == ([], 6)


def test_topic_stats_show_its_subscriptions(txnlog: Any, orders: txn_source.Log) -> None:
    """The same facts stand under the topic, by name; a topic without has no table of them."""
    assert json.loads(txnlog("topics", "stats", "orders", "--json").stdout)["subscriptions"] == {
        "booking": stats(txnlog)
    }
    assert "\nSubscriptions" in txnlog("topics", "stats", "orders").stdout
    orders.create_topic("empty")
    assert "Subscriptions" not in txnlog("topics", "stats", "empty").stdout


@pytest.mark.parametrize("form", ["id", "json", "iso"])
def test_seek_takes_forms_of_a_place(form: str, txnlog: Any, orders: txn_source.Log) -> None:
    """Move by each, and compare the answer with where the subscription then stands."""
    at = ledger(orders)
    second = orders.stats("orders").partitions[1].log_start
    place, expected = {
        "id": (f"{at}:0:2", f"{at}:0:2"),
        "json": (json.dumps({"orders": {"0": f"{at}:0:1"}}), f"{at}:0:1"),
        "iso": ("2000-01-01T00:00:00Z", f"{at}:0:0"),
    }[form]
    result = txnlog("subscriptions", "seek", "orders", "booking", "--to", place, "--json")
    assert json.loads(result.stdout) == {
        "topic": "orders",
        "subscription": "booking",
        "epoch": 1,
        "positions": {"0": expected, "1": f"{second}:0"},
        "nearest_taken": [],
    }
    found = stats(txnlog)
    assert (found["epoch"], found["partitions"][0]["mark"]) == (1, expected)


def test_seek_says_when_the_nearest_place_was_taken(txnlog: Any, orders: txn_source.Log) -> None:
    """Ask for a place beyond the end, as text and as JSON; the other partition stays without a remark."""
    at = ledger(orders)
    beyond = json.dumps({"orders": {"0": f"{at}:99"}})
    lines = txnlog("subscriptions", "seek", "orders", "booking", "--to", beyond).stdout.splitlines()
    assert lines[0] == "Subscription 'booking' of topic 'orders' is in epoch 1."
    assert lines[-2].split()[:4] == ["0", f"{at}:2:0", "the", "nearest"]
    assert len(lines[-1].split()) == 2
    again = json.loads(txnlog("subscriptions", "seek", "orders", "booking", "--to", beyond, "--json").stdout)
    assert (again["epoch"], again["nearest_taken"]) == (2, [0])


def test_isolation_level_changes_while_nobody_is_connected(txnlog: Any, orders: txn_source.Log) -> None:
    """Change it with a consumer, which is refused, and without."""
    command = ("subscriptions", "set-isolation-level", "orders", "booking", "READ-UNCOMMITTED")
    with orders.subscribe("orders", "booking"):
        refused = txnlog(*command)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("[TXNLOG_SUBSCRIPTION_BUSY] Subscription 'booking' can't change its isolation")
    assert txnlog(*command).stdout == "Subscription 'booking' of topic 'orders' is read_uncommitted.\n"
    assert stats(txnlog)["subscriptionIsolationLevel"] == "read_uncommitted"


def test_delete_asks_and_spares_one_in_use(txnlog: Any, orders: txn_source.Log) -> None:
    """Delete without a terminal, with a consumer connected, and without one."""
    command = ("subscriptions", "delete", "orders", "booking")
    assert txnlog(*command).exit_code == 2
    with orders.subscribe("orders", "booking"):
        busy = txnlog(*command, "--yes")
    assert (busy.exit_code, busy.stdout) == (1, "")
    assert busy.stderr.startswith("[TXNLOG_SUBSCRIPTION_BUSY] Subscription 'booking' can't be deleted")
    assert txnlog(*command, "--yes").stdout == "Deleted subscription 'booking' of topic 'orders'.\n"
    assert orders.subscriptions("orders") == []


@for_each(
    ("arguments", "status", "error"),
    [
        (("stats", "orders", "x"), 1, "[TXNLOG_SUBSCRIPTION_NOT_FOUND] "),
        (("delete", "orders", "x", "--yes"), 1, "[TXNLOG_SUBSCRIPTION_NOT_FOUND] "),
        (("seek", "orders", "x", "--to", "earliest"), 1, "[TXNLOG_SUBSCRIPTION_NOT_FOUND] "),
        (("set-isolation-level", "orders", "x", "read_committed"), 1, "[TXNLOG_SUBSCRIPTION_NOT_FOUND] "),
        (("list", "x"), 1, "[TXNLOG_TOPIC_NOT_FOUND] "),
        (("create", "x", "s"), 1, "[TXNLOG_TOPIC_NOT_FOUND] "),
        (("create", "orders", "booking"), 1, "[TXNLOG_SUBSCRIPTION_EXISTS] Subscription 'booking' already exists."),
        (("create", "orders", " "), 2, "[TXNLOG_INVALID_ARGUMENT] ' ' can't be the name of a subscription."),
        (("create", "orders", "s", "--isolation-level", "x"), 2, "[TXNLOG_INVALID_ARGUMENT] 'x' is not an isolation"),
        (("create", "orders", "s", "--at", "x"), 2, "[TXNLOG_INVALID_ARGUMENT] 'x' is no place in a topic."),
        (("create", "orders", "s", "--type", "x"), 2, "Usage:"),
        (("seek", "orders", "booking"), 2, "Usage:"),
        (("seek", "orders", "booking", "--to", "2026-13-01"), 2, "[TXNLOG_INVALID_ARGUMENT] '2026-13-01' is no place"),
        (("seek", "orders", "booking", "--to", "{"), 2, "[TXNLOG_INVALID_ARGUMENT] '{' is not JSON"),
        (
            ("seek", "orders", "booking", "--to", '{"x": {}}'),
            2,
            "[TXNLOG_INVALID_ARGUMENT] '{\"x\": {}}' doesn't name topic",
        ),
        (("seek", "orders", "booking", "--to", "9:9:9"), 2, "[TXNLOG_INVALID_ARGUMENT] No partition of topic 'orders'"),
        (("set-isolation-level", "orders", "booking", "x"), 2, "[TXNLOG_INVALID_ARGUMENT] 'x' is not an isolation"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: tuple[str, ...], status: int, error: str, txnlog: Any, orders: txn_source.Log
) -> None:
    """Status 1 where the log refuses, 2 where the command is wrong; and nothing has changed."""
    before = orders.subscriptions("orders")
    result = txnlog("subscriptions", *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr.startswith(error)
    assert orders.subscriptions("orders") == before


def test_seek_with_an_old_epoch_is_refused(txnlog: Any, orders: txn_source.Log) -> None:
    """Two operators who both looked at epoch 0: the second one's seek is refused, and says so."""
    command = ("subscriptions", "seek", "orders", "booking", "--epoch", "1", "--to")
    assert txnlog(*command, "latest").exit_code == 0
    refused = txnlog(*command, "earliest")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("[TXNLOG_STALE_EPOCH] Subscription 'booking' has epoch 1, and the call carries 1.")
    assert stats(txnlog)["backlog"] == 0
