"""Policies in the database: what is set for the broker, a namespace or a topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select

from txn_source.metadata.store import topics
from txn_source.metadata.store.prepared import Lookup
from txn_source.metadata.store.tables import policies
from txn_source.metadata.store.tables import topics as topic_table
from txn_source.model.errors import NamespaceNotFoundError
from txn_source.model.policies import POLICIES, EffectivePolicy, Scope, effective, parse_policies, parse_policy
from txn_source.model.topic_name import TopicName

DEFAULT_NAMESPACE = "public/default"


def change(connection: Connection, scope: Scope, values: Mapping[str, str], removed: Sequence[str]) -> None:
    """Set some policies and remove others; all of them or, if one can't be, none.

    Raises:
        InvalidArgumentError: a policy or a value that can't be.
        TopicNotFoundError, NamespaceNotFoundError: there is no such scope.
    """
    parsed = parse_policies(values)
    for name in removed:
        if name not in POLICIES:
            parse_policy(name, None)
    key = _key(connection, scope)
    for name in {*values, *removed}:
        connection.execute(delete(policies).where(policies.c.scope == key, policies.c.name == name))
    for name, value in parsed.items():
        connection.execute(insert(policies).values(scope=key, name=name, value=str(value)))


def set_in(connection: Connection, scope: Scope) -> dict[str, Any]:
    """Return the policies that are set for a scope, and no others."""
    key = _key(connection, scope)
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


def remove_topic(connection: Connection, topic_id: int) -> None:
    """Remove what is set for a topic that is being deleted."""
    connection.execute(delete(policies).where(policies.c.scope == f"topic:{topic_id}"))


def set_for_new_topic(connection: Connection, topic_id: int, values: Mapping[str, str]) -> None:
    """Set the policies that a topic is created with."""
    for name, value in parse_policies(values).items():
        connection.execute(insert(policies).values(scope=f"topic:{topic_id}", name=name, value=str(value)))


def _of_scope(rows: Iterable[tuple[Any, ...]], key: str) -> dict[str, Any]:
    return {name: parse_policy(name, value) for scope, name, value in rows if scope == key and name in POLICIES}


_SET = Lookup(
    lambda names: select(policies.c.scope, policies.c.name, policies.c.value).where(
        policies.c.scope.in_([bindparam(name) for name in names])
    )
)


def _key(connection: Connection, scope: Scope) -> str:
    if scope.topic is not None:
        return f"topic:{topics.find(connection, scope.topic).topic_id}"
    if scope.namespace is None:
        return "broker"
    if scope.namespace != DEFAULT_NAMESPACE:
        known = connection.execute(select(topic_table.c.name)).scalars()
        if not any(TopicName.parse(name).in_namespace(scope.namespace) for name in known):
            raise NamespaceNotFoundError(
                f"There is no namespace {scope.namespace!r}: no topic of this log lies in it.",
                "Check it against `txnlog topics list`, or create a topic in it first.",
            )
    return f"namespace:{scope.namespace}"
