"""Making, enlarging and deleting topics, and closing their open ledgers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.hot_roots import places_of
from txn_source.client.policies import topic_policies
from txn_source.client.tiering.deletion import delete_doomed_files
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.model.errors import InvalidArgumentError, TopicNotFoundError
from txn_source.model.topic_name import TopicName
from txn_source.model.units import is_whole
from txn_source.storage.schema import check_topic_schema, serialize_schema


def create_topic(
    access: Access, name: TopicName, partitions: int, schema: pa.Schema | str | None, policies: Mapping[str, Any]
) -> None:
    """Create a topic; ``Log.create_topic`` has the arguments' meaning."""
    _check_count(partitions)
    if isinstance(schema, str):
        from txn_source.storage.schema_text import schema_of_text  # which few need

        schema = schema_of_text(schema)
    if schema is not None:
        schema = check_topic_schema(schema)
    limits, given = topic_policies(policies)
    access.metadata.create_topic(name, partitions, serialize_schema(schema), limits, given)


def update_topic(access: Access, name: TopicName, partitions: int) -> int:
    """Add partitions to a topic; ``Log.update_topic`` has the arguments' meaning."""
    _check_count(partitions)
    return access.metadata.update_topic(name, partitions)


def _check_count(partitions: int) -> None:
    if not is_whole(partitions) or not 0 < partitions < 1 << 31:
        raise InvalidArgumentError(f"{partitions!r} is not a number of partitions.", "Use 1 or more.")


def delete_topic(access: Access, name: TopicName) -> None:
    """Delete a topic with all its messages, and its files."""
    topic_id = access.metadata.delete_topic(name)
    delete_doomed_files(access)
    for place in places_of(access):
        place.segments.delete_topic(topic_id)  # what stays is garbage for `txnlog gc`


def roll_ledger(stub: MetadataStub, topic: str, partition: int | None) -> list[int]:
    """Close the open ledger of each partition, or of one; return the ids of those that weren't empty."""
    if partition is not None and (not is_whole(partition) or abs(partition) >= 1 << 31):
        raise TopicNotFoundError(f"Topic {topic!r} has no partition {partition!r}.", "They are numbered from 0.")
    return stub.roll_ledger(TopicName.parse(topic), partition)
