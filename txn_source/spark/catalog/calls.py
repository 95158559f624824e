"""The questions of a catalog about one log, answered with values that JSON can carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from txn_source.client.log import Log
from txn_source.client.reading.columns import METADATA_COLUMNS
from txn_source.model.errors import InvalidArgumentError, TopicNotFoundError
from txn_source.model.topic_name import TopicName
from txn_source.spark.catalog.read_calls import ReadCalls
from txn_source.spark.schema import to_spark

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
            "namespaces": self.namespaces,
            "topics": self.topics,
            "table": self.table,
            "create": self.create,
            "drop": self.drop,
            "set": self.set,
            "metadataColumns": self.metadata_columns,
            **ReadCalls(log).by_name,
        }

    def namespaces(self) -> list[list[str]]:
        """Return tenant and namespace of each topic, once, and the default ones."""
        names = {(topic.tenant, topic.namespace) for topic in map(TopicName.parse, self._log.topics())}
        return [list(name) for name in sorted(names | {_DEFAULT})]

    def topics(self, namespace: Sequence[str]) -> list[str]:
        """Return the topics of a namespace."""
        of = topic_of(namespace, "t")
        return [TopicName.parse(name).name for name in self._log.topics(f"{of.tenant}/{of.namespace}")]

    def table(self, namespace: Sequence[str], name: str) -> dict[str, Any]:
        """Return a topic's columns and properties."""
        topic = topic_of(namespace, name)
        stats = self._log.stats(str(topic))
        properties = {"partitions": str(len(stats.partitions))}
        for policy, found in self._log.policies(str(topic)).items():
            if found.value is not None:
                properties[policy] = f"{found.value} ({found.source})"
        return {
            "topic": str(topic),
            "schema": to_spark(self._log.schema(str(topic))).json(),
            "properties": properties,
            "rows": sum(partition.messages for partition in stats.partitions),
            "bytes": sum(partition.bytes for partition in stats.partitions),
        }

    def create(self, namespace: Sequence[str], name: str, schema: str, properties: Mapping[str, str]) -> None:
        """Create a topic; its columns are Spark's, ``key binary, value binary`` is a raw one."""
        given = dict(properties)
        partitions = int(given.pop("partitions", "1"))
        columns = to_arrow_schema(StructType.fromJson(__import__("json").loads(schema)))
        raw = columns.equals(pa.schema([("key", pa.binary()), ("value", pa.binary())]))
        self._log.create_topic(str(topic_of(namespace, name)), partitions, None if raw else columns, **given)

    def drop(self, namespace: Sequence[str], name: str) -> bool:
        """Delete a topic; return False if there is none."""
        try:
            self._log.delete_topic(str(topic_of(namespace, name)))
        except TopicNotFoundError:
            return False
        return True

    def set(self, namespace: Sequence[str], name: str, properties: Mapping[str, str | None]) -> None:
        """Set policies of a topic, or remove those that are null."""
        self._log.set_policies(str(topic_of(namespace, name)), **properties)

    def metadata_columns(self) -> str:
        """Return the columns that each table has besides its own."""
        return to_spark(pa.schema(list(METADATA_COLUMNS.values()))).json()
