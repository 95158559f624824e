"""Policies in the database: what is set for the broker, a namespace or a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from txn_source.metadata.store import topics
from txn_source.metadata.store.prepared import Lookup
from txn_source.model.errors import NamespaceNotFoundError
from txn_source.model.policies import POLICIES, EffectivePolicy, Scope, effective, parse_policy
from txn_source.model.topic_name import TopicName

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection

DEFAULT_NAMESPACE = "public/default"


def set_in(connection: Connection, scope: Scope) -> dict[str, Any]:
    """Return the policies that are set for a scope, and no others."""
    key = key_of(connection, scope)
    return _of_scope(_SET.rows(connection, [key]), key)


def in_force(
    connection: Connection, name: TopicName, topic_id: int, configured: Mapping[str, Any]
) -> dict[str, EffectivePolicy]:
    """Return every policy of a topic with where it comes from; ``configured`` is the broker's configuration."""
    topic, namespace = f"topic:{topic_id}", f"namespace:{name.tenant}/{name.namespace}"
    rows = _SET.rows(connection, (topic, namespace, "broker"))
    return effective(
        {
            "topic": _of_scope(rows, topic),
            "namespace": _of_scope(rows, namespace),
            "broker": {**configured, **_of_scope(rows, "broker")},
        }
    )


def _of_scope(rows: Iterable[tuple[Any, ...]], key: str) -> dict[str, Any]:
    return {name: parse_policy(name, value) for scope, name, value in rows if scope == key and name in POLICIES}


def key_of(connection: Connection, scope: Scope) -> str:
    """Return what a scope is called in the database."""
    if scope.topic is not None:
        return f"topic:{topics.find(connection, scope.topic).topic_id}"
    if scope.namespace is None:
        return "broker"
    if scope.namespace != DEFAULT_NAMESPACE and not topics.names(connection, scope.namespace):
        raise NamespaceNotFoundError(
            f"There is no namespace {scope.namespace!r}: no topic of this log lies in it.",
            "Check it against `txnlog topics list`, or create a topic in it first.",
        )
    return f"namespace:{scope.namespace}"


_SET = Lookup("SELECT scope, name, value FROM policies WHERE scope IN (:values)")
