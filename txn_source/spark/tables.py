"""SQL tables over the topics of a log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.topic_name import TopicName
from txn_source.spark.table_options import kept_options

if TYPE_CHECKING:
    from txn_source.client.log import Log

_MADE_BY_US = "table-of-topic"
"""An option that no query takes notice of; it tells these tables from those that were made by hand."""
_NOT_IN_NAMES = re.compile(r"\W")


def create_tables(
    spark: SparkSession,
    log: Log,
    namespace: str | None = None,
    database: str | None = None,
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Make, or make again, a table for every topic, and drop those that were made here for topics that are gone.

    Args:
        spark: the session.
        log: the log; it is named in the tables as it was connected to.
        namespace: ``tenant/namespace``; None: all topics.
        database: where the tables go, made if it isn't there; None: the current one.
        options: options of all tables, such as ``isolationLevel``.

    Returns:
        The topics by the names of their tables: the topic's name with ``_`` for what isn't a letter, a digit or ``_``;
        outside of ``public/default`` tenant and namespace stand before it.

    Raises:
        InvalidArgumentError: two topics would have one table, or there is a table of that name that wasn't made here.
    """
    topics = {topic: TopicName.parse(topic) for topic in log.topics(namespace)}
    names: dict[str, str] = {}
    for topic, parsed in topics.items():
        parts = (
            (parsed.name,) if parsed.in_namespace("public/default") else (parsed.tenant, parsed.namespace, parsed.name)
        )
        name = _NOT_IN_NAMES.sub("_", "_".join(parts)).lower()
        if name in names:
            raise InvalidArgumentError(
                f"Topics {names[name]!r} and {topic!r} would both be the table {name!r}.",
                "Make one of the two by hand, with CREATE TABLE ... USING txnlog OPTIONS (...).",
            )
        names[name] = topic
    if database is not None:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {_quoted(database)}")
    there = {table.name.lower() for table in spark.catalog.listTables(database) if not table.isTemporary}
    topics_of = {name: _topic_of(spark, database, name) for name in there}
    made = {name: topic for name, topic in topics_of.items() if topic is not None}
    foreign = sorted(names.keys() & there - made.keys())
    if foreign:
        raise InvalidArgumentError(
            f"There is a table {foreign[0]!r} that wasn't made for topic {names[foreign[0]]!r}.",
            "Rename it, or give a database of its own for the log's tables.",
        )
    for name, was_for in made.items():
        if name in names or namespace is None or TopicName.parse(was_for).in_namespace(namespace):
            spark.sql(f"DROP TABLE {_full(database, name)}")
    endpoint = log.target.endpoint
    shown = log.target.credentials.options()
    target = {"path": str(log.root)} if endpoint is None else {"endpoint": endpoint, **shown}
    for name, topic in names.items():
        given = {**target, "topic": topic, _MADE_BY_US: topic, **(options or {})}
        listed = ", ".join(f"{_quoted(key)} {_literal(value)}" for key, value in given.items())
        spark.sql(f"CREATE TABLE {_full(database, name)} USING txnlog OPTIONS ({listed})")
    return names


def _topic_of(spark: SparkSession, database: str | None, name: str) -> str | None:
    """Return the topic that a table was made for here; None of any other table."""
    return kept_options(spark.table(_full(database, name)).schema).get(_MADE_BY_US)


def _full(database: str | None, name: str) -> str:
    return f"{_quoted(database)}.{_quoted(name)}" if database is not None else _quoted(name)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
