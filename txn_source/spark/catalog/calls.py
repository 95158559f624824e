"""What a catalog's statements ask of a log, answered with values that JSON can carry."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from txn_source.client.log import Log
from txn_source.client.places import parse_side
from txn_source.client.reading.as_of import check_made
from txn_source.client.reading.columns import columns_beside
from txn_source.model.errors import InvalidArgumentError, OutOfRangeError, TopicNotFoundError
from txn_source.model.moments import LAST_US, shown_time
from txn_source.model.position import LATEST, Position
from txn_source.model.topic import TopicView
from txn_source.model.topic_name import TopicName
from txn_source.spark.catalog.definitions import (
    INHERITED,
    PARTITIONS,
    partitions_of,
    policies_of,
    properties_of,
    topic_columns,
)
from txn_source.spark.catalog.read_calls import ReadCalls
from txn_source.spark.catalog.stream_calls import STREAM_CALLS
from txn_source.spark.options import check_catalog_options
from txn_source.spark.schema import to_spark, with_comments
from txn_source.storage.log_tables import LOG_TABLES

_DEFAULT = ("public", "default")


def topic_of(namespace: Sequence[str], name: str) -> TopicName:
    """Return the topic that an identifier of the catalog means: ``tenant`` alone stands for its namespace default."""
    if len(namespace) > 2:
        raise InvalidArgumentError(
            f"{'.'.join([*namespace, name])} is not a topic.",
            "Write <tenant>.<namespace>.<topic>, or <tenant>.<topic>.",
        )
    tenant, inner = [*namespace, *_DEFAULT[len(namespace) :]]
    return TopicName.parse(f"{tenant}/{inner}/{name}")


class CatalogCalls:
    """The calls by their names; each takes the arguments that the catalog sends, and returns its answer."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.by_name: Mapping[str, Callable[..., Any]] = {
            "checkOptions": check_catalog_options,
            "namespaces": self.namespaces,
            "topics": self.topics,
            "table": self.table,
            "version": self.version,
            "asOf": self.as_of,
            "create": self.create,
            "drop": self.drop,
            "dropEmpty": self.drop_empty,
            "set": self.set,
            "change": lambda: None,
            **ReadCalls(log).by_name,
            **STREAM_CALLS,
        }

    def namespaces(self) -> list[list[str]]:
        """Return tenant and namespace of each topic, once, and the default ones."""
        names = {(topic.tenant, topic.namespace) for topic in map(TopicName.parse, self._log.topics())}
        return [list(name) for name in sorted(names | {_DEFAULT})]

    def topics(self, namespace: Sequence[str]) -> list[str]:
        """Return the topics of a namespace; none if there is no such namespace."""
        if len(namespace) > 2:
            return []
        of = topic_of(namespace, "t")
        return [TopicName.parse(name).name for name in self._log.topics(f"{of.tenant}/{of.namespace}")]

    def table(self, namespace: Sequence[str], name: str) -> dict[str, Any]:
        """Return a topic's columns and properties; if there is none, just the error if names are ``near``, or "".

        With a name that no topic can have the error is ``refused``.

        Below a topic lie tables about it: ``public.orders.transactions``, unless there is a topic of that name.
        """
        try:
            topic = topic_of(namespace, name)
            [view] = self._log.access.metadata.get_view([topic]).topics
            columns, policies = self._log.schema(str(topic)), self._log.policies(str(topic))
        except (TopicNotFoundError, InvalidArgumentError) as error:
            about = self._about_topic(namespace, name)
            if about is not None:
                return about
            if not isinstance(error, TopicNotFoundError):
                return {"refused": str(error)}
            near = self._near(topic)
            told = TopicNotFoundError(error.fact, f"Did you mean {' or '.join(near)}?")
            return {"near": str(told) if near else ""}
        return {
            "topic": topic.short,
            "schema": with_comments(to_spark(columns), columns).json(),
            "metadata": to_spark(pa.schema(list(columns_beside(columns).values()))).json(),
            "properties": properties_of(view, columns, policies),
        }

    def _about_topic(self, namespace: Sequence[str], name: str) -> dict[str, Any] | None:
        """Return the columns of a table about the topic that a namespace names as well; None if there is none."""
        if not namespace or len(namespace) > 3 or name.lower() not in LOG_TABLES:
            return None
        topic = topic_of(namespace[:-1], namespace[-1])
        try:
            self._log.access.metadata.get_view([topic])
        except TopicNotFoundError:
            return None
        schema = to_spark(LOG_TABLES[name.lower()]).json()
        none = to_spark(pa.schema([])).json()
        found = {"topic": topic.short, "schema": schema, "metadata": none, "properties": {}}
        return found | {"metadataTable": name.lower()}

    def _check_not_about(self, namespace: Sequence[str], name: str) -> None:
        if self._about_topic(namespace, name) is not None:
            raise InvalidArgumentError(
                f"{'.'.join([*namespace, name])} shows what the log knows of a topic, and can't be changed.",
                "Change or drop the topic itself.",
            )

    def _near(self, topic: TopicName) -> list[str]:
        """Return identifiers of topics that somebody may have meant: of the same name elsewhere, or much like it."""
        topics = [TopicName.parse(name) for name in self._log.topics()]
        here = {t.name.lower(): t for t in topics if (t.tenant, t.namespace) == (topic.tenant, topic.namespace)}
        near = [here[name] for name in difflib.get_close_matches(topic.name.lower(), here, n=2, cutoff=0.75)]
        elsewhere = sorted((t for t in topics if t.name == topic.name), key=lambda t: t.tenant != topic.tenant)
        return [_identifier(t) for t in (near or elsewhere)[:2]]

    def version(self, namespace: Sequence[str], name: str, version: str) -> str:
        """Return the offsets at which a version of a topic ends: JSON, or the position of its only partition.

        Raises:
            OutOfRangeError: what the topic had then was trimmed.
        """
        topic = topic_of(namespace, name)
        text = version.strip()
        try:
            [view] = self._log.access.metadata.get_view([topic]).topics
        except TopicNotFoundError:
            return text  # the table is looked for next
        if not text.startswith("{"):
            if len(view.partitions) > 1:
                raise InvalidArgumentError(
                    f"VERSION AS OF {version!r} is one position, and {topic.short} has {len(view.partitions)}"
                    " partitions.",
                    f"""Give one for each: VERSION AS OF '{{"{topic.short}": {{"0": "12:40", "1": "13:7"}}}}'.""",
                )
            text = json.dumps({str(topic): {"0": text}})
        _check_kept(view, text)
        return text

    def as_of(self, namespace: Sequence[str], name: str, micros: int) -> str:
        """Return a time, in microseconds since 1970, as ``asOfTimestamp`` takes it; a missing topic is found later.

        Raises:
            InvalidArgumentError: no such time can be told.
            OutOfRangeError: the topic wasn't there yet.
        """
        topic = topic_of(namespace, name)
        if micros > LAST_US:
            raise InvalidArgumentError("TIMESTAMP AS OF is after the year 9999.", "Use an earlier time.")
        with suppress(TopicNotFoundError):
            [view] = self._log.access.metadata.get_view([topic]).topics
            check_made(view.topic, micros)
        return shown_time(micros)

    def create(self, namespace: Sequence[str], name: str, schema: str, properties: Mapping[str, str]) -> None:
        """Create a topic; its columns are Spark's, ``key binary, value binary`` is a raw one."""
        columns = topic_columns(json.loads(schema), properties.get("comment"))
        partitions, policies = partitions_of(properties), policies_of(properties)
        self._log.create_topic(str(topic_of(namespace, name)), partitions or 1, columns, **policies)

    def drop(self, namespace: Sequence[str], name: str) -> bool:
        """Delete a topic; return False if there is none."""
        try:
            self._log.delete_topic(str(topic_of(namespace, name)))
        except TopicNotFoundError:
            self._check_not_about(namespace, name)
            return False
        return True

    def drop_empty(self, namespace: Sequence[str], name: str) -> bool:
        """Delete a topic unless it has messages; return whether it did."""
        try:
            [view] = self._log.access.metadata.get_view([topic_of(namespace, name)]).topics
        except TopicNotFoundError:
            return False
        return not any(partition.messages for partition in view.partitions) and self.drop(namespace, name)

    def set(self, namespace: Sequence[str], name: str, properties: Mapping[str, str | None]) -> None:
        """Set policies of a topic, or remove those that are null; ``partitions`` may be more than there are."""
        topic = topic_of(namespace, name)
        if "comment" in properties:
            raise InvalidArgumentError("A topic's comment stays as it was made.", "Leave it out.")
        if PARTITIONS in properties and properties[PARTITIONS] is None:
            raise InvalidArgumentError("A topic always has partitions.", f"SET TBLPROPERTIES ('{PARTITIONS}' = '8').")
        if any(name.startswith(INHERITED) for name in properties):
            raise InvalidArgumentError(
                f"Properties that begin with {INHERITED!r} show what others say.",
                f"Set the policy itself, without {INHERITED!r}, which then is the topic's own.",
            )
        given = {name: value for name, value in properties.items() if value is not None}
        partitions, policies = partitions_of(given), {n: None for n, v in properties.items() if v is None}
        try:
            [view] = self._log.access.metadata.get_view([topic]).topics
        except TopicNotFoundError:
            self._check_not_about(namespace, name)
            raise
        if partitions is not None and partitions < len(view.partitions):
            raise InvalidArgumentError(
                f"{topic.short} has {len(view.partitions)} partitions, which is more than {partitions}.",
                "Partitions are never removed.",
            )
        policies |= policies_of(given)
        if policies:
            self._log.set_policies(str(topic), **policies)
        if partitions is not None:
            self._log.update_topic(str(topic), partitions)


def _check_kept(view: TopicView, text: str) -> None:
    with suppress(InvalidArgumentError):  # which the read tells
        named = parse_side(text, LATEST).points
        for partition in view.partitions:
            at = named.get((view.topic.name, partition.index))
            if isinstance(at, Position) and at < partition.bounds.log_start and partition.trimmed_end.ledger_id:
                raise OutOfRangeError(
                    f"VERSION AS OF {at} is before all that partition {partition.index} of topic"
                    f" {view.topic.name.short!r} still has, which begins at {partition.bounds.log_start}.",
                    "Use a later position.",
                )


def _identifier(topic: TopicName) -> str:
    """Return a topic's name as SQL writes it, without the catalog."""
    parts = [topic.tenant, *([] if topic.namespace == _DEFAULT[1] else [topic.namespace]), topic.name]
    return ".".join(part if part.isidentifier() else f"`{part}`" for part in parts)
