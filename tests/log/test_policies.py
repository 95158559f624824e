"""Policies of a log: set for topics, namespaces and the broker, in the log or in its configuration file; and the read
priority that comes of them, by what is read in fact."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.log.reading import send_each
from tests.log.sites import Site
from txn_source import InvalidArgumentError, Log, NamespaceNotFoundError, ReadPriority, TopicNotFoundError, connect
from txn_source.model.copies import Tier
from txn_source.model.policies import EffectivePolicy

TIERED, HOT = ReadPriority.TIERED_FIRST, ReadPriority.BOOKKEEPER_FIRST
SCOPES: dict[str, dict[str, str]] = {
    "topic": {"topic": "orders"},
    "namespace": {"namespace": "public/default"},
    "broker": {},
}


def tier_read(log: Log, topic: str = "orders", **options: object) -> Tier:
    """Return which tier a read of a topic with both copies takes."""
    reader = log.scan(topic, **options)  # type: ignore[arg-type]
    assert reader.read_all().num_rows == 1
    [tier] = [tier for tier, ledgers in log.copies_read(reader).ledgers.items() if ledgers]
    return tier


def offloaded(log: Log, topic: str = "orders") -> Log:
    """Make a topic with one message that lies in both tiers."""
    log.create_topic(topic)
    send_each(log.producer(topic), [b"x"])
    log.roll_ledger(topic)
    log.offload(topic)
    return log


def test_strongest_setting_decides_which_copy_is_read(log: Log) -> None:
    """Set every combination of the three scopes so that only the strongest says bookkeeper-first."""
    offloaded(log)
    for count in range(1, 4):
        for setters in itertools.combinations(SCOPES, count):
            for number, source in enumerate(setters):
                log.set_data_read_priority(TIERED if number else HOT, **SCOPES[source])  # type: ignore[arg-type]
            assert tier_read(log) is Tier.BOOKKEEPER
            assert log.policies("orders")["data_read_priority"] == EffectivePolicy(HOT, setters[0])
            assert log.get_data_read_priority("orders", applied=True) is HOT
            assert tier_read(log, read_priority="tiered-storage-first") is Tier.TIERED  # the read's own is stronger
            for source in setters:
                assert log.get_data_read_priority(**SCOPES[source]) is not None  # type: ignore[arg-type]
                log.remove_data_read_priority(**SCOPES[source])  # type: ignore[arg-type]
                assert log.get_data_read_priority(**SCOPES[source]) is None  # type: ignore[arg-type]
    assert tier_read(log) is Tier.TIERED


def test_setting_of_one_scope_is_not_seen_in_another(log: Log) -> None:
    """Set another topic's priority and another namespace's."""
    for topic in ("orders", "bills", "persistent://shop/eu/orders"):
        offloaded(log, topic)
    log.set_data_read_priority("bookkeeper-first", topic="bills")
    log.set_data_read_priority("bookkeeper-first", namespace="shop/eu")
    assert [tier_read(log, topic) for topic in ("orders", "bills", "persistent://shop/eu/orders")] == [
        Tier.TIERED, Tier.BOOKKEEPER, Tier.BOOKKEEPER,
    ]  # fmt: skip
    assert log.get_data_read_priority() is None


def test_policies_given_with_the_topic_are_the_topics(log: Log) -> None:
    """Create a topic with policies; delete it and make it again without: they are gone."""
    log.create_topic("orders", data_read_priority="bookkeeper-first", retention_age=60, offload_uri=None)
    found = log.stats("orders").policies
    assert found["data_read_priority"] == EffectivePolicy(HOT, "topic")
    assert found["retention_age"] == EffectivePolicy(60.0, "topic")
    assert found["offload_uri"] == EffectivePolicy(None, "default")
    log.delete_topic("orders")
    log.create_topic("orders")
    assert {policy.source for policy in log.policies("orders").values()} == {"default"}


@pytest.mark.kinds("embedded", "remote")
def test_policies_outlive_a_restart(site: Site) -> None:
    """Set one in each scope, restart, and look through a new connection."""
    log = site.connect()
    offloaded(log)
    log.set_policies("orders", retention_age=1.5)
    log.set_policies(namespace="public/default", retention_bytes=10)
    log.set_policies(data_read_priority="bookkeeper-first", offload_uri="/mnt/cold")
    if site.kind == "remote":
        site.stop_server()
        site.start_server()
    found = site.connect().policies("orders")
    assert {name: (p.value, p.source) for name, p in found.items() if p.source != "default"} == {
        "retention_age": (1.5, "topic"),
        "retention_bytes": (10, "namespace"),
        "data_read_priority": (HOT, "broker"),
        "offload_uri": ("/mnt/cold", "broker"),
    }


# What is refused


def test_scope_that_is_not_there_is_refused(log: Log) -> None:
    """Name a namespace without topics, a topic that isn't there, and both a topic and a namespace."""
    log.create_topic("orders")
    with pytest.raises(NamespaceNotFoundError, match=r"^\[TXNLOG_NAMESPACE_NOT_FOUND\] .*'shop/eu'.*topics list"):
        log.set_data_read_priority("tiered-first", namespace="shop/eu")
    with pytest.raises(NamespaceNotFoundError):
        log.get_data_read_priority(namespace="shop/eu")
    with pytest.raises(NamespaceNotFoundError):
        log.remove_data_read_priority(namespace="shop/eu")
    with pytest.raises(InvalidArgumentError, match="'a/b/c'"):
        log.set_data_read_priority("tiered-first", namespace="a/b/c")
    with pytest.raises(TopicNotFoundError):
        log.set_data_read_priority("tiered-first", topic="bills")
    with pytest.raises(InvalidArgumentError, match="Both a topic and a namespace"):
        log.set_data_read_priority("tiered-first", topic="orders", namespace="public/default")


def test_empty_default_namespace_may_have_policies(log: Log) -> None:
    """Set a policy of public/default before its first topic: that one has it."""
    log.set_data_read_priority("bookkeeper-first", namespace="public/default")
    log.create_topic("orders")
    assert log.policies("orders")["data_read_priority"] == EffectivePolicy(HOT, "namespace")


# The broker's configuration file


def configured(root: Path, text: str) -> Log:
    (root / "broker.conf").write_text(text)
    return connect(root, create=False)


def test_configuration_is_the_brokers(tmp_path: Path) -> None:
    """Write ``broker.conf`` into the root: it is in force, below what the log itself has set for the broker."""
    connect(tmp_path / "log").close()
    with configured(
        tmp_path / "log", "managedLedgerDataReadPriority=bookkeeper-first\nmanagedLedgerOffloadDeletionLagMs=1500\n"
    ) as log:
        offloaded(log)
        assert tier_read(log) is Tier.BOOKKEEPER
        assert log.policies("orders")["offload_deletion_lag"] == EffectivePolicy(1.5, "broker")
        assert log.get_data_read_priority() is HOT
        log.set_policies(namespace="public/default", retention_age=60)
        assert tier_read(log) is Tier.BOOKKEEPER
        log.set_data_read_priority("tiered-first")
        assert tier_read(log) is Tier.TIERED
        log.remove_data_read_priority()
        assert tier_read(log) is Tier.BOOKKEEPER


def test_wrong_configuration_is_told_by_file_and_line(tmp_path: Path) -> None:
    """Open a log whose file has a wrong value, a setting that isn't one, or isn't text."""
    connect(tmp_path / "log").close()
    for text, said in (
        ("# broker\nmanagedLedgerDataReadPriority=hot\n", r"broker\.conf: Line 2 .*'hot' is not a read priority"),
        (
            "managedLedgerReadPriority=tiered-first\n",
            r"broker\.conf: Line 1 .*'managedLedgerReadPriority', which is not",
        ),
    ):
        with pytest.raises(InvalidArgumentError, match=said):
            configured(tmp_path / "log", text)
    (tmp_path / "log" / "broker.conf").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgumentError, match=r"broker\.conf can't be read"):
        connect(tmp_path / "log", create=False)
