"""Policies as people give them: for a topic, for a namespace, or for the broker."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict, cast

from txn_source.client.access import Access
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.policies import POLICIES, Scope, given_policies
from txn_source.model.read_priority import GivenPriority, ReadPriority
from txn_source.model.topic_name import TopicName, parse_namespace
from txn_source.storage.object_store import check_folder

GivenDuration: TypeAlias = float | str | timedelta
"""Seconds, or a text such as ``7d``."""


class GivenPolicies(TypedDict, total=False):
    """What can be set for a topic, a namespace or the broker; None removes one."""

    data_read_priority: GivenPriority | None
    offload_uri: str | None
    offload_compression_level: int | None
    offload_after_age: GivenDuration | None
    offload_after_bytes: int | str | None
    offload_deletion_lag: GivenDuration | None
    retention_age: GivenDuration | None
    retention_bytes: int | str | None
    hot_copies: str | None
    acknowledge_copies: int | None


class TopicPolicies(GivenPolicies, total=False):
    """What a new topic can be given: these, and when its open ledger is full."""

    ledger_max_entries: int
    ledger_max_bytes: int
    ledger_max_age: GivenDuration


def scope_of(topic: str | None, namespace: str | None) -> Scope:
    """Return the scope that is named: a topic, a namespace, or (neither) the broker."""
    if topic is not None and namespace is not None:
        raise InvalidArgumentError("Both a topic and a namespace are named.", "Name one, or neither for the broker.")
    return Scope(
        None if topic is None else TopicName.parse(topic), None if namespace is None else parse_namespace(namespace)
    )


def change_policies(access: Access, scope: Scope, policies: Mapping[str, Any]) -> None:
    """Set the policies of a scope that have values, and remove those that are None; all, or none if one can't be."""
    values = _checked({name: value for name, value in policies.items() if value is not None})
    access.metadata.change_policies(scope, values, [name for name, value in policies.items() if value is None])


def topic_policies(policies: Mapping[str, Any]) -> tuple[LedgerLimits, dict[str, str]]:
    """Return what a new topic's policies say of its ledgers, and the others for the service."""
    limits = LedgerLimits.of({k: v for k, v in policies.items() if k not in POLICIES})
    return limits, _checked({k: v for k, v in policies.items() if k in POLICIES and v is not None})


def read_priority(
    stub: MetadataStub, topic: str | None, namespace: str | None, *, applied: bool
) -> ReadPriority | None:
    """Return the read priority that is set just there, None if it is unset; ``applied``: the topic's effective one."""
    if applied and topic is not None:
        found: ReadPriority = stub.policies_in_force(TopicName.parse(topic))["data_read_priority"].value
        return found
    return cast("ReadPriority | None", stub.get_policies(scope_of(topic, namespace)).get("data_read_priority"))


def _checked(policies: Mapping[str, Any]) -> dict[str, str]:
    values = given_policies(policies)
    if values.get("offload_uri") is not None:
        check_folder(values["offload_uri"])
    return {name: str(value) for name, value in values.items()}
