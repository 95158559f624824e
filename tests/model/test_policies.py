"""Policies: their values, who sets them, and the broker's configuration file."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from tests.selection import for_each
from txn_source.client.policies import GivenPolicies, TopicPolicies
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.ledger_limits import NAMES, LedgerLimits
from txn_source.model.policies import (
    POLICIES,
    SOURCES,
    EffectivePolicy,
    effective,
    given_policies,
    parse_configuration,
    parse_policies,
    parse_policy,
)
from txn_source.model.read_priority import ReadPriority

GOOD: list[tuple[str, Any, Any]] = [
    ("data_read_priority", "tiered-storage-first", ReadPriority.TIERED_FIRST),
    ("data_read_priority", ReadPriority.BOOKKEEPER_FIRST, ReadPriority.BOOKKEEPER_FIRST),
    ("offload_uri", " /mnt/cold ", "/mnt/cold"),
    ("offload_uri", "s3://bucket/folder?region=eu-west-1", "s3://bucket/folder?region=eu-west-1"),
    ("offload_compression_level", "22", 22),
    ("offload_compression_level", 1, 1),
    ("offload_after_age", "0.5", 0.5),
    ("offload_after_age", 0, 0.0),
    ("offload_after_age", timedelta(hours=2), 7200.0),
    ("offload_deletion_lag", "1h30m", 5400.0),
    ("retention_age", "7d", 604_800.0),
    ("retention_bytes", "10GB", 10 << 30),
    ("offload_after_bytes", "128m", 128 << 20),
    ("offload_after_bytes", "1000", 1000),
    ("offload_after_bytes", 0, 0),
    ("offload_deletion_lag", 1e9, 1e9),
    ("retention_age", "60", 60.0),
    ("retention_bytes", (1 << 62) - 1, (1 << 62) - 1),
    ("retention_bytes", 5.0, 5),
]
BAD: list[tuple[str, Any, str]] = [
    ("data_read_priority", "hot-first", "'hot-first' is not a read priority.*tiered-first.*bookkeeper-first"),
    ("data_read_priority", "", "'' is not a read priority"),
    ("data_read_priority", None, "None is not a read priority"),
    ("offload_uri", "", "not an offload target"),
    ("offload_uri", "  ", "not an offload target"),
    ("offload_uri", 7, "7 is not an offload target"),
    *(
        ("offload_compression_level", value, "not a compression level of zstd.*Use 1 to 22")
        for value in (0, 23, 1.5, "high", True, None)
    ),
    *(
        (name, value, "is not a time.*seconds, 0 or more")
        for name in ("offload_after_age", "offload_deletion_lag", "retention_age")
        for value in (-1, "-0.001", "nan", "inf", 1e12, "soon", True, None, [])
    ),
    *(
        (name, value, "is not a size.*bytes, 0 or more")
        for name in ("offload_after_bytes", "retention_bytes")
        for value in (-1, 1.5, "1.5", "1x", 1 << 62, float("inf"), float("nan"), True, None)
    ),
]


@for_each(("name", "value", "parsed"), GOOD)
def test_value_and_its_text_are_parsed(name: str, value: Any, parsed: Any) -> None:
    """Parse a value, and its text as the log stores it: both give the same, in the policy's type."""
    found = parse_policy(name, value)
    assert (found, type(found)) == (parsed, type(parsed))
    assert parse_policy(name, str(found)) == parsed


@for_each(("name", "value", "said"), BAD)
def test_other_value_is_refused_by_name(name: str, value: Any, said: str) -> None:
    """Parse what can't be: the error names the policy, the value and what may be."""
    with pytest.raises(InvalidArgumentError, match=rf"^\[TXNLOG_INVALID_ARGUMENT\] Policy '{name}': .*{said}"):
        parse_policy(name, value)


@for_each(
    "uri",
    [
        "s3://key:secret@bucket/folder",
        "s3://key@bucket",
        "hdfs://user:password@host:9000/folder",
        "s3://bucket/folder?access_key=AK&secret_key=SK",
        "s3://bucket?SECRET_KEY=SK",
        "s3://bucket/folder?session_token=T",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(uri: str) -> None:
    """Give a target with a secret in it: the error says where credentials come from, and shows none."""
    with pytest.raises(InvalidArgumentError, match=r"has credentials in it.*taken from the environment") as caught:
        parse_policy("offload_uri", uri)
    assert uri not in str(caught.value)
    assert not any(secret in str(caught.value) for secret in ("SK", "key:secret", "user:password"))


def test_at_sign_in_a_path_is_no_credential() -> None:
    """Use folders with an at sign in their names."""
    for uri in ("/mnt/user@host/cold", "s3://bucket/user@host", "file:///mnt/a@b"):
        assert parse_policy("offload_uri", uri) == uri


@pytest.mark.parametrize("name", ["offload_after_age", "offload_deletion_lag", "retention_age"])
def test_text_of_a_time_needs_a_unit_where_people_give_it(name: str) -> None:
    """Give 7 as a text: it may mean days, and seconds would lose data. As a number it is seconds, as documented."""
    with pytest.raises(InvalidArgumentError) as caught:
        given_policies({name: "7"})
    assert str(caught.value) == (
        f"[TXNLOG_INVALID_ARGUMENT] Policy '{name}': '7' has no unit. Write 7d, 7h, 7m, 7s or 7ms."
    )
    assert given_policies({name: 7, "retention_bytes": "7"}) == {name: 7.0, "retention_bytes": 7}
    assert given_policies({name: "0"}) == {name: 0.0}


def test_unknown_policy_is_refused_with_the_names() -> None:
    """Misspell one of two policies: the error lists all names."""
    with pytest.raises(
        InvalidArgumentError, match=r"'retention' is not a policy\. Did you mean retention_age or retention_bytes\?"
    ):
        parse_policies({"retention_age": 1, "retention": 1})


# Who sets them


@for_each("setters", [s for n in range(4) for s in itertools.combinations(SOURCES, n)])
def test_strongest_who_sets_a_policy_wins(setters: tuple[str, ...]) -> None:
    """Let every combination of topic, namespace and broker set another value each."""
    values = {"topic": 1, "namespace": 2, "broker": 3}
    layers = {source: {"retention_bytes": values[source]} for source in setters}
    strongest = next((s for s in ("topic", "namespace", "broker") if s in setters), None)
    expected = EffectivePolicy(values[strongest], strongest) if strongest else EffectivePolicy(None, "default")
    assert effective(layers)["retention_bytes"] == expected


def test_layer_that_sets_other_policies_masks_nothing() -> None:
    """Let topic and namespace set what isn't the priority: the broker's priority is in force (Pulsar #24151)."""
    found = effective(
        {
            "topic": {"retention_age": 1.0},
            "namespace": {"offload_deletion_lag": 0.0, "retention_bytes": 0},
            "broker": {"data_read_priority": ReadPriority.BOOKKEEPER_FIRST},
        }
    )
    assert found["data_read_priority"] == EffectivePolicy(ReadPriority.BOOKKEEPER_FIRST, "broker")
    assert found["offload_deletion_lag"] == EffectivePolicy(0.0, "namespace")
    assert found["offload_uri"] == EffectivePolicy(None, "default")


def test_every_policy_has_a_default() -> None:
    """Set nothing: all policies are there; nothing is offloaded, deleted or trimmed by itself."""
    found = effective({})
    assert list(found) == list(POLICIES)
    set_by_default = {name: policy.value for name, policy in found.items() if policy.value is not None}
    assert set_by_default == {
        "data_read_priority": ReadPriority.TIERED_FIRST,
        "offload_compression_level": 1,
        "hot_copies": "main",
    }
    assert {policy.source for policy in found.values()} == {"default"}


# The configuration file


def test_configuration_is_read_in_its_own_units() -> None:
    """Read a file with comments, spaces, unset values, and every setting."""
    text = """\
        # the broker's configuration
        ! another comment

        managedLedgerDataReadPriority = tiered-storage-first
        managedLedgerOffloadUri=s3://bucket/a=b?region=x
        managedLedgerOffloadCompressionLevel=3
        managedLedgerOffloadThresholdInSeconds=90
        managedLedgerOffloadAutoTriggerSizeThresholdBytes=1000
        managedLedgerOffloadDeletionLagMs=1500
        defaultRetentionTimeInMinutes=2
        defaultRetentionSizeInMB=3
        managedLedgerHotCopies=main, b
        managedLedgerAcknowledgeCopies=2
    """
    assert parse_configuration(text) == {
        "data_read_priority": ReadPriority.TIERED_FIRST,
        "offload_uri": "s3://bucket/a=b?region=x",
        "offload_compression_level": 3,
        "offload_after_age": 90.0,
        "offload_after_bytes": 1000,
        "offload_deletion_lag": 1.5,
        "retention_age": 120.0,
        "retention_bytes": 3 << 20,
        "hot_copies": "main,b",
        "acknowledge_copies": 2,
    }
    assert {policy.setting for policy in POLICIES.values()} <= {part.split("=")[0].strip() for part in text.split("\n")}


def test_configuration_takes_units_too() -> None:
    """Give values that bring their own unit: that counts, not the one of the setting's name."""
    text = """
        managedLedgerOffloadThresholdInSeconds=2h
        managedLedgerOffloadAutoTriggerSizeThresholdBytes=10g
        managedLedgerOffloadDeletionLagMs=4h
        defaultRetentionTimeInMinutes=7d
        defaultRetentionSizeInMB=10GB
    """
    assert parse_configuration(text) == {
        "offload_after_age": 7200.0,
        "offload_after_bytes": 10 << 30,
        "offload_deletion_lag": 14_400.0,
        "retention_age": 604_800.0,
        "retention_bytes": 10 << 30,
    }


@pytest.mark.parametrize("value", ["", "-1", "  "])
def test_empty_and_minus_one_are_unset(value: str) -> None:
    """Leave settings empty, or at Pulsar's -1."""
    settings = "\n".join(f"{policy.setting}={value}" for policy in POLICIES.values())
    assert parse_configuration(settings) == {}


@for_each(
    ("line", "said"),
    [
        ("managedLedgerDataReadPriority=hot", "Line 3 .*managedLedgerDataReadPriority: 'hot' is not a read priority"),
        ("managedLedgerOffloadDeletionLagMs=soon", "Line 3 .*managedLedgerOffloadDeletionLagMs: 'soon' is not a time"),
        ("managedLedgerOffloadUri=s3://a:b@c", "Line 3 .*managedLedgerOffloadUri: .*credentials"),
        ("managedLedgerDataReadPriorty=x", "Line 3 .*'managedLedgerDataReadPriorty', which is not a setting.*Use man"),
        ("just words", "Line 3 .*'just words', which is not a setting"),
    ],
)
def test_wrong_line_is_named(line: str, said: str) -> None:
    """Put a wrong line behind a good one and a comment."""
    with pytest.raises(InvalidArgumentError, match=said):
        parse_configuration(f"# comment\ndefaultRetentionSizeInMB=1\n{line}\n")


def test_calls_name_every_policy() -> None:
    """What an editor proposes is what there is, of a topic's own ones, too."""
    assert list(GivenPolicies.__annotations__) == list(POLICIES)
    assert set(TopicPolicies.__annotations__) - set(GivenPolicies.__annotations__) == set(NAMES)


def test_a_topic_is_told_what_was_meant() -> None:
    """Write ``partition`` for ``partitions``, and a name that is near none."""
    with pytest.raises(
        InvalidArgumentError, match=r"'partition' is not a policy of topics\. Did you mean partitions\?"
    ):
        LedgerLimits.of({"partition": 3})
    with pytest.raises(InvalidArgumentError, match=r"'nope' is not a policy of topics\. Use partitions, ledger_max"):
        LedgerLimits.of({"nope": 3})
