from __future__ import annotations

import json
from typing import Any

import pytest

import txn_source
from tests.selection import for_each
from txn_source.cli.policies import POLICY_TEXTS
from txn_source.model.policies import POLICIES

OPTIONS = (
    *("--offload-uri", "file:///archive", "--offload-after-age", "1h", "--offload-after-bytes", "10g"),
    *("--offload-deletion-lag", "4h", "--offload-compression-level", "3"),
    *("--retention-age", "7d", "--retention-bytes", "1536k", "--data-read-priority", "bookkeeper-first"),
    *("--hot-copies", "main", "--acknowledge-copies", "1"),
)
VALUES = {
    "data_read_priority": "bookkeeper-first",
    "offload_uri": "file:///archive",
    "offload_compression_level": 3,
    "offload_after_age": 3600.0,
    "offload_after_bytes": 10 << 30,
    "offload_deletion_lag": 14_400.0,
    "retention_age": 604_800.0,
    "retention_bytes": 1536 << 10,
    "hot_copies": "main",
    "acknowledge_copies": 1,
}
TEXTS = {
    "data_read_priority": "bookkeeper-first",
    "offload_uri": "file:///archive",
    "offload_compression_level": "3",
    "offload_after_age": "1h",
    "offload_after_bytes": "10.0 GiB",
    "offload_deletion_lag": "4h",
    "retention_age": "7d",
    "retention_bytes": "1.5 MiB",
    "hot_copies": "main",
    "acknowledge_copies": "1",
}
PLACES = {"topics": ("orders",), "namespaces": ("public/default",), "brokers": ()}
"""What each noun's commands name; all of them reach the topic ``orders``."""


@pytest.fixture
def orders(log: txn_source.Log) -> txn_source.Log:
    """A log with one topic that has no policies."""
    log.create_topic("orders")
    return log


def rows_of(table: str) -> list[list[str]]:
    """Return the rows of a printed table, cells split where two blanks or more are."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table.splitlines()[2:]]


def test_every_policy_has_an_option() -> None:
    """A policy without one couldn't be set here: compare the names."""
    assert list(POLICY_TEXTS) == list(POLICIES) == list(VALUES)


@pytest.mark.parametrize("noun", PLACES)
def test_policies_are_set_shown_and_unset(noun: str, txnlog: Any, orders: txn_source.Log) -> None:
    """The whole way for each place: set all, read them as table and JSON, and in force on the topic; then unset."""
    place = PLACES[noun]
    assert txnlog(noun, "set-policies", *place, *OPTIONS).exit_code == 0
    found = json.loads(txnlog(noun, "get-policies", *place, "--json").stdout)
    if noun == "topics":
        assert {policy["source"] for policy in found.values()} == {"topic"}
        found = {name: policy["value"] for name, policy in found.items()}
    assert found == VALUES
    rows = rows_of(txnlog(noun, "get-policies", *place).stdout)
    assert {row[0]: row[1] for row in rows} == TEXTS
    assert {policy.source for policy in orders.policies("orders").values()} == {noun.removesuffix("s")}

    names = [name.replace("_", "-") for name in POLICIES]
    removal = [argument for name in names for argument in ("--remove", name)]
    assert txnlog(noun, "set-policies", *place, *removal).exit_code == 0
    assert {policy.source for policy in orders.policies("orders").values()} == {"default"}


def test_setting_says_what_is_set(txnlog: Any, orders: txn_source.Log) -> None:
    """The answer repeats what was understood: set one policy and unset another by its name with underscores."""
    result = txnlog("topics", "set-policies", "orders", "--offload-after-age", "90m", "--remove", "retention_age")
    assert result.stdout == "Policies of topic 'orders': offload_after_age = 1h 30m, retention_age is unset.\n"


def test_table_says_where_each_value_comes_from(txnlog: Any, orders: txn_source.Log) -> None:
    """The strongest place wins, policy by policy: set one at each place and read the topic's table."""
    txnlog("brokers", "set-policies", "--retention-age", "7d", "--offload-after-age", "1d")
    txnlog("namespaces", "set-policies", "public/default", "--offload-after-age", "2h", "--offload-uri", "archive")
    txnlog("topics", "set-policies", "orders", "--offload-uri", "elsewhere")
    assert rows_of(txnlog("topics", "get-policies", "orders").stdout) == [
        ["data_read_priority", "tiered-first", "default"],
        ["offload_uri", "elsewhere", "topic"],
        ["offload_compression_level", "1", "default"],
        ["offload_after_age", "2h", "namespace"],
        ["offload_after_bytes", "not by size", "default"],
        ["offload_deletion_lag", "never", "default"],
        ["retention_age", "7d", "broker"],
        ["retention_bytes", "not by size", "default"],
        ["hot_copies", "main", "default"],
        ["acknowledge_copies", "all of hot_copies", "default"],
    ]


def test_nothing_set_is_said(txnlog: Any, orders: txn_source.Log) -> None:
    """An empty table would look like a fault: read namespace and broker without policies."""
    empty = txnlog("namespaces", "get-policies", "public/default")
    assert empty.stdout == "No policy is set for namespace 'public/default'.\n"
    assert txnlog("brokers", "get-policies").stdout == "No policy is set for the broker.\n"
    assert json.loads(txnlog("brokers", "get-policies", "--json").stdout) == {}


def test_create_takes_policies(txnlog: Any, log: txn_source.Log) -> None:
    """A topic can have them from its first message: create one with all of them."""
    assert txnlog("topics", "create", "orders", "--ledger-max-entries", "5", *OPTIONS).exit_code == 0
    assert {name: policy.value for name, policy in log.policies("orders").items()} == VALUES
    assert {policy.source for policy in log.policies("orders").values()} == {"topic"}


@for_each(
    ("options", "error"),
    [
        (("--offload-after-age", "soon"), "--offload-after-age: 'soon' is not a duration."),
        (("--retention-bytes", "big"), "--retention-bytes: 'big' is not a size."),
        (
            ("--offload-compression-level", "23"),
            "--offload-compression-level: '23' is not a compression level of zstd.",
        ),
        (
            ("--offload-uri", "s3://key:secret@bucket/folder"),
            "--offload-uri: The offload target has credentials in it",
        ),
        (("--offload-uri", "ftp://host/folder"), "for ftp://host"),
        (("--data-read-priority", "warm"), "--data-read-priority: 'warm' is not a read"),
    ],
)
def test_value_that_cannot_be_used_changes_nothing(
    options: tuple[str, ...], error: str, txnlog: Any, orders: txn_source.Log
) -> None:
    """The error names the option and gives no secret away: give a bad value beside a good one."""
    result = txnlog("topics", "set-policies", "orders", "--offload-deletion-lag", "1h", *options)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith("[TXNLOG_INVALID_ARGUMENT] ")
    assert error in result.stderr
    assert "secret" not in result.stderr
    assert orders.topics() == ["orders"]
    assert {policy.source for policy in orders.policies("orders").values()} == {"default"}


@for_each(
    ("options", "error"),
    [
        ((), "No policy is given."),
        (("--remove", "offload-speed"), "'offload_speed' is not a policy. Use data_read_priority, offload_uri,"),
        (("--remove", "topic"), "'topic' is not a policy."),
        (("--retention-age", "1d", "--remove", "retention-age"), "retention_age is to be set, too."),
    ],
)
def test_change_that_makes_no_sense_is_wrong_usage(
    options: tuple[str, ...], error: str, txnlog: Any, orders: txn_source.Log
) -> None:
    """Give nothing to change, unset what there isn't, and set and unset the same."""
    result = txnlog("topics", "set-policies", "orders", *options)
    assert result.exit_code == 2
    assert error in " ".join(result.stderr.replace("│", " ").split())


@for_each(
    ("command", "code"),
    [
        (("namespaces", "set-policies", "acme/eu", "--retention-age", "1d"), "NAMESPACE_NOT_FOUND"),
        (("namespaces", "get-policies", "acme/eu"), "NAMESPACE_NOT_FOUND"),
        (("namespaces", "set-data-read-priority", "acme/eu", "tiered-first"), "NAMESPACE_NOT_FOUND"),
        (("namespaces", "remove-data-read-priority", "acme/eu"), "NAMESPACE_NOT_FOUND"),
        (("topics", "set-policies", "payments", "--retention-age", "1d"), "TOPIC_NOT_FOUND"),
        (("topics", "get-data-read-priority", "payments"), "TOPIC_NOT_FOUND"),
    ],
)
def test_place_that_is_not_there_is_refused(
    command: tuple[str, ...], code: str, txnlog: Any, orders: txn_source.Log
) -> None:
    """A typing error must not be stored for later: name a namespace and a topic that don't exist."""
    result = txnlog(*command)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"[TXNLOG_{code}]")


@pytest.mark.parametrize(
    ("noun", "given"),
    [
        ("topics", ("bookkeeper-first",)),
        ("namespaces", ("--data-read-priority", "bookkeeper-first")),
        ("brokers", ("-drp", "BookKeeper-First")),
    ],
)
def test_read_priority_is_set_read_and_removed(
    noun: str, given: tuple[str, ...], txnlog: Any, orders: txn_source.Log
) -> None:
    """Set it at each place, as an argument or as Pulsar's option, see it there and on the topic, and remove it."""
    place = PLACES[noun]
    assert txnlog(noun, "get-data-read-priority", *place).stdout == "unset\n"
    assert txnlog(noun, "set-data-read-priority", *place, *given).stdout.endswith(": bookkeeper-first.\n")
    assert txnlog(noun, "get-data-read-priority", *place).stdout == "bookkeeper-first\n"
    in_force = orders.policies("orders")["data_read_priority"]
    assert (in_force.value, in_force.source) == ("bookkeeper-first", noun.removesuffix("s"))
    assert txnlog(noun, "remove-data-read-priority", *place).stdout.endswith(": unset.\n")
    empty = txnlog(noun, "get-data-read-priority", *place, "--json")
    assert json.loads(empty.stdout) == {"value": None, "source": None}


def test_applied_read_priority_is_that_in_force(txnlog: Any, orders: txn_source.Log) -> None:
    """Unset on the topic isn't unset at all: set it for the namespace, and ask the topic for both."""
    txnlog("namespaces", "set-data-read-priority", "public/default", "bookkeeper-first")
    assert txnlog("topics", "get-data-read-priority", "orders").stdout == "unset\n"
    assert txnlog("topics", "get-data-read-priority", "orders", "--applied").stdout == "bookkeeper-first\n"
    applied = txnlog("topics", "get-data-read-priority", "orders", "-ap", "--json")
    assert json.loads(applied.stdout) == {"value": "bookkeeper-first", "source": "namespace"}
    txnlog("topics", "set-data-read-priority", "orders", "tiered-storage-first")
    assert txnlog("topics", "get-data-read-priority", "orders").stdout == "tiered-first\n"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("warm",), "'warm' is not a read priority. Use tiered-first (also spelled tiered-storage-first) or"),
        ((), "Neither is given."),
        (("tiered-first", "-drp", "tiered-first"), "Both are given."),
    ],
)
def test_read_priority_must_be_one_of_those_allowed(
    given: tuple[str, ...], error: str, txnlog: Any, orders: txn_source.Log
) -> None:
    """The error lists them: set an unknown one, none and two."""
    result = txnlog("topics", "set-data-read-priority", "orders", *given)
    assert result.exit_code == 2
    assert error in " ".join(result.stderr.replace("│", " ").split())
    assert orders.get_data_read_priority("orders") is None
