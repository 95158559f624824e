"""Changes of the policies in the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, insert

from txn_source.metadata.store.policies import key_of
from txn_source.metadata.store.tables import policies
from txn_source.model.policies import POLICIES, Scope, parse_policies, parse_policy


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
    key = key_of(connection, scope)
    for name in {*values, *removed}:
        connection.execute(delete(policies).where(policies.c.scope == key, policies.c.name == name))
    for name, value in parsed.items():
        connection.execute(insert(policies).values(scope=key, name=name, value=str(value)))


def remove_topic(connection: Connection, topic_id: int) -> None:
    """Remove what is set for a topic that is being deleted."""
    connection.execute(delete(policies).where(policies.c.scope == f"topic:{topic_id}"))


def set_for_new_topic(connection: Connection, topic_id: int, values: Mapping[str, str]) -> None:
    """Set the policies that a topic is created with."""
    for name, value in parse_policies(values).items():
        connection.execute(insert(policies).values(scope=f"topic:{topic_id}", name=name, value=str(value)))
