"""Topics in the database (``topic_changes.py`` makes and deletes them)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from txn_source.metadata.store.prepared import Lookup, Prepared
from txn_source.model.errors import TopicNotFoundError
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.topic import Topic
from txn_source.model.topic_name import TopicName

if TYPE_CHECKING:
    from txn_source.metadata.store.connection import Connection


def find(connection: Connection, name: TopicName) -> Topic:
    """Return the topic of a name, or raise TOPIC_NOT_FOUND."""
    return find_all(connection, [name])[0]


def find_all(connection: Connection, names: Sequence[TopicName]) -> list[Topic]:
    """Return the topics, in the order of the names, or raise TOPIC_NOT_FOUND; a statement for each few hundred."""
    found = {row[1]: row for row in _NAMED.rows(connection, dict.fromkeys(map(str, names)))}
    for name in names:
        if str(name) not in found:
            raise TopicNotFoundError(
                f"There is no topic {name.short!r} in this log.",
                "Check the name against `txnlog topics list`, or create it first.",
            )
    return [_topic_of(found[str(name)]) for name in names]


def of_partition(connection: Connection, partition_id: int) -> Topic | None:
    """Return the topic that a partition belongs to; None if there is no such partition."""
    rows = _OF_PARTITION.rows(connection, {"partition_id": partition_id})
    return _topic_of(rows[0]) if rows else None


def names(connection: Connection, namespace: str | None) -> list[str]:
    """Return the full names of all topics, or those of one ``tenant/namespace``, sorted."""
    found = [name for (name,) in _NAMES.rows(connection, {})]
    return [n for n in found if namespace is None or TopicName.parse(n).in_namespace(namespace)]


def _topic_of(row: tuple[Any, ...]) -> Topic:
    topic_id, name, schema, max_entries, max_bytes, max_age_ms, created_at_ms = row
    return Topic(
        topic_id, TopicName.parse(name), schema, LedgerLimits(max_entries, max_bytes, max_age_ms), created_at_ms
    )


_COLUMNS = ", ".join(
    f"topics.{name}"
    for name in (
        "topic_id",
        "name",
        "schema",
        "ledger_max_entries",
        "ledger_max_bytes",
        "ledger_max_age_ms",
        "created_at_ms",
    )
)
_NAMED = Lookup(f"SELECT {_COLUMNS} FROM topics WHERE name IN (:values)")
_OF_PARTITION = Prepared(
    f"""
    SELECT {_COLUMNS} FROM topics JOIN partitions ON partitions.topic_id = topics.topic_id
    WHERE partition_id = :partition_id"""
)
_NAMES = Prepared("SELECT name FROM topics ORDER BY name")
