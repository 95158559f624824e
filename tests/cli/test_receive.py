from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import txn_source
from tests.log.reading import BY_HAND, eventually


def send(log: txn_source.Log, *values: str, **options: Any) -> None:
    """Send messages to a topic, one entry."""
    with log.producer("orders", batching=BY_HAND) as producer:
        for value in values:
            producer.send(value, **options)


def backlog(log: txn_source.Log, name: str = "booking") -> int:
    return sum(p.backlog for p in log.subscription("orders", name).partitions)


@pytest.fixture
def orders(log: txn_source.Log) -> txn_source.Log:
    """A topic with an entry of three messages and one of two."""
    log.create_topic("orders")
    send(log, "a", "b", "c")
    send(log, "d", "e")
    return log


def test_subscription_goes_on_where_it_stands(txnlog: Any, orders: txn_source.Log) -> None:
    """Print in two steps that end inside an entry, then all that is left, then nothing: each message once."""
    consume = ("consume", "orders", "--subscription", "booking")
    assert txnlog(*consume, "--max-messages", "2").stdout == "a\nb\n"
    assert backlog(orders) == 3
    assert txnlog(*consume, "--max-messages", "2").stdout == "c\nd\n"
    assert txnlog(*consume).stdout == "e\n"
    nothing = txnlog(*consume)
    assert (nothing.exit_code, nothing.stdout, backlog(orders)) == (0, "", 0)


def test_new_subscription_takes_type_level_and_start(txnlog: Any, orders: txn_source.Log) -> None:
    """Without options it is exclusive, read_committed and earliest; with them what they say."""
    txnlog("consume", "orders", "--subscription", "plain")
    options = ("--subscription-type", "shared", "--isolation-level", "read_uncommitted", "--start", "latest")
    assert txnlog("consume", "orders", "--subscription", "given", *options).stdout == ""
    found = {s.name: (s.type.value, s.isolation_level.value) for s in orders.subscriptions("orders")}
    assert found == {"plain": ("exclusive", "read_committed"), "given": ("shared", "read_uncommitted")}


def test_existing_subscription_has_its_own_type_and_level(txnlog: Any, orders: txn_source.Log) -> None:
    """Print from a shared, read_uncommitted one without saying so: an open transaction is printed, too."""
    orders.create_subscription("orders", "monitor", "shared", "read_uncommitted", "earliest")
    send(orders, "open", txn=orders.begin_transaction(600))
    assert txnlog("consume", "orders", "--subscription", "monitor").stdout == "a\nb\nc\nd\ne\nopen\n"


def test_committed_subscription_ends_at_an_open_transaction(txnlog: Any, orders: txn_source.Log) -> None:
    """What waits behind it is not left for this run: print, abort the transaction, and print the rest."""
    txn = orders.begin_transaction(600)
    send(orders, "open", txn=txn)
    send(orders, "behind")
    consume = ("consume", "orders", "--subscription", "booking")
    assert txnlog(*consume).stdout == "a\nb\nc\nd\ne\n"
    txn.abort()
    assert txnlog(*consume).stdout == "behind\n"
    assert backlog(orders) == 0


def test_run_ends_when_the_rest_is_with_other_consumers(txnlog: Any, orders: txn_source.Log) -> None:
    """Let another consumer of a shared subscription hold an entry: the command prints the other one, and ends."""
    with orders.subscribe("orders", "team", "shared", initial_position="earliest", queue_size=1) as other:
        held = other.receive(10)
        printed = txnlog("consume", "orders", "--subscription", "team").stdout.split()
        assert held is not None
        assert held.value == b"a"
        assert printed == ["d", "e"]
        assert backlog(orders, "team") == 3


def test_run_waits_for_what_is_late(txnlog: Any, orders: txn_source.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as there is a backlog a pause is not the end: let the first three looks find nothing."""
    looks = iter([True, True, True])
    receive = txn_source.Consumer.receive_batch

    def late(consumer: txn_source.Consumer, timeout: float | None) -> txn_source.MessageBatch | None:
        return None if next(looks, False) else receive(consumer, timeout)

    monkeypatch.setattr(txn_source.Consumer, "receive_batch", late)
    assert txnlog("consume", "orders", "--subscription", "booking").stdout == "a\nb\nc\nd\ne\n"


def test_json_tells_what_a_consumer_knows(txnlog: Any, orders: txn_source.Log) -> None:
    """Print JSON of a raw topic: ids, place and value are there, and the next message is another one."""
    consume = ("consume", "orders", "--subscription", "booking", "--format", "json", "--max-messages", "1")
    first, second = (json.loads(txnlog(*consume).stdout) for _ in range(2))
    names = "message_id topic partition publish_time event_time properties txn_id key value"
    assert list(first) == names.split()
    start = orders.stats("orders").partitions[0].log_start
    assert (first["message_id"], first["topic"], first["partition"]) == (f"{start}:0", "orders", 0)
    assert (second["message_id"], second["value"]) == (f"{start}:1", "b")


@pytest.mark.long
def test_follow_prints_and_acknowledges_what_arrives(spawn: Any, orders: txn_source.Log, root: Path) -> None:
    """Read the pipe of a process while messages arrive; acknowledged is all soon after. Then interrupt it."""
    process = spawn("consume", "orders", "--subscription", "booking", "--follow", "--root", root)
    assert [process.stdout.readline() for _ in "abcde"] == [b"a\n", b"b\n", b"c\n", b"d\n", b"e\n"]
    with orders.begin_transaction() as txn:
        send(orders, "f", txn=txn)
    assert process.stdout.readline() == b"f\n"
    eventually(lambda: backlog(orders) == 0)
    process.send_signal(signal.SIGINT)
    assert process.communicate() == (b"", b"")
    assert process.returncode == 0
    assert orders.subscription("orders", "booking").consumers == ()


def test_what_nobody_read_is_not_acknowledged(spawn: Any, log: txn_source.Log, root: Path) -> None:
    """More than a pipe holds: read a line, close it, and find the batch that could not be written in the backlog."""
    log.create_topic("orders")
    send(log, *["x" * 1000] * 5_000)
    process = spawn("consume", "orders", "--subscription", "booking", "--root", root)
    assert process.stdout.readline() == b"x" * 1000 + b"\n"
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr.read() == b""
    assert backlog(log) == 5_000


@pytest.mark.long
def test_follower_that_waits_notices_that_its_reader_is_gone(spawn: Any, orders: txn_source.Log, root: Path) -> None:
    """No message need arrive for that: read all there is, close the pipe, and wait for the end."""
    process = spawn("consume", "orders", "--subscription", "booking", "--root", root, "--follow")
    assert [process.stdout.readline() for _ in "abcde"][-1] == b"e\n"
    process.stdout.close()
    assert process.wait() == 0
    assert process.stderr.read() == b""


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_full_disk_under_the_output_acknowledges_nothing(spawn: Any, orders: txn_source.Log, root: Path) -> None:
    """Print to /dev/full: one line says so, and all messages are still to come."""
    with open("/dev/full", "wb") as full:
        process = spawn("consume", "orders", "--subscription", "booking", "--root", root, stdout=full)
        _, errors = process.communicate()
    assert (process.returncode, errors) == (1, b"The output can't be written: No space left on device.\n")
    assert backlog(orders) == 5


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--subscription", "booking", "--start", "earliest"], "'booking' exists and goes on where it stands"),
        (["--subscription", "booking", "--end", "latest"], "'--end': A subscription has none"),
        (["--subscription", "booking", "-drp", "tiered-first"], "'--data-read-priority': A subscription reads at"),
        (["--subscription-type", "shared"], "'--subscription-type': It is for --subscription."),
    ],
)
def test_option_that_does_not_fit_is_wrong_usage(
    options: list[str], text: str, txnlog: Any, orders: txn_source.Log
) -> None:
    """Nothing is ignored silently: give each, and find the reason; the subscription has not moved."""
    orders.create_subscription("orders", "booking", initial_position="earliest")
    result = txnlog("consume", "orders", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in " ".join(result.stderr.replace("│", " ").split())
    assert backlog(orders) == 5


def test_subscription_of_another_level_or_in_use_is_refused(txnlog: Any, orders: txn_source.Log) -> None:
    """Ask for the other level, another type, and a place that is taken."""
    orders.create_subscription("orders", "booking", initial_position="earliest")
    consume = ("consume", "orders", "--subscription", "booking")
    level = txnlog(*consume, "--isolation-level", "read_uncommitted")
    assert (level.exit_code, level.stdout) == (1, "")
    assert level.stderr.startswith("[TXNLOG_SUBSCRIPTION_ISOLATION_MISMATCH] Subscription 'booking' is read_committed")
    assert txnlog(*consume, "--subscription-type", "shared").exit_code == 2
    with orders.subscribe("orders", "booking"):
        busy = txnlog(*consume)
    assert (busy.exit_code, busy.stdout) == (1, "")
    assert busy.stderr.startswith("[TXNLOG_SUBSCRIPTION_BUSY] Subscription 'booking' is exclusive, and consumer")
