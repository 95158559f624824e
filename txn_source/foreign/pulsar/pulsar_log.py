"""A place that Pulsar offloaded to, as a log that others wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs

from txn_source.foreign.foreign_log import PartitionName
from txn_source.foreign.pulsar.listing import in_order, list_ledgers, partition_of
from txn_source.foreign.pulsar.managed_ledger import Snapshot, parse_info, parse_snapshots
from txn_source.foreign.pulsar.own_snapshots import snapshots_in, system_topics
from txn_source.foreign.pulsar.partition import PulsarPartition
from txn_source.foreign.pulsar.schema_option import parse_schema
from txn_source.foreign.pulsar.value_schema import TopicSchema
from txn_source.model.errors import (
    InvalidArgumentError,
    LogNotFoundError,
    TopicNotFoundError,
    shown,
)


class PulsarLog:
    """The topics that lie in a folder or below a prefix; what is offloaded later needs a new one.

    Args:
        system: where it lies.
        folder: the folder, or bucket and prefix.
        ledgers: by full name of a topic, its ``internalInfo``, as JSON: it tells which ledgers there should be. One
            without a name is that of the only topic that is read.
        snapshots: of the topics' transaction buffers, as JSON.
        keep_encrypted: read encrypted entries as they are; else they are refused.
        schema: what keys and values are, in one of the forms that ``parse_schema`` takes; else they are bytes.
        bad_values: ``error`` or ``null``: what becomes of a key or value that isn't of the schema.

    Raises:
        LogNotFoundError: nothing that Pulsar offloaded lies there.
        InvalidArgumentError: both encrypted entries and a schema are asked for.
    """

    def __init__(
        self,
        system: fs.FileSystem,
        folder: str,
        *,
        ledgers: Mapping[str, str | Mapping[str, Any]] | None = None,
        snapshots: Sequence[str | Mapping[str, Any]] = (),
        keep_encrypted: bool = False,
        schema: str | Mapping[str, Any] | Sequence[Any] | None = None,
        bad_values: str = "error",
    ) -> None:
        if keep_encrypted and schema is not None:
            raise InvalidArgumentError(
                "Encrypted values are bytes, and a schema is given.", "Leave out one of 'schema' and 'encrypted'."
            )
        if bad_values not in ("error", "null"):
            raise InvalidArgumentError(f"badValues is {shown(bad_values)}.", "Use error or null.")
        self._schema = schema
        self._bad_as_null = bad_values == "null"
        self._system = system
        self._folder = folder
        self._listing = list_ledgers(system, folder)
        self._listed = dict(ledgers or {})
        self._named = {topic for topic in self._listed if "://" in topic}
        self._snapshots = parse_snapshots(snapshots)
        self._own: dict[tuple[str, ...], dict[str, Snapshot]] = {}
        self._keep_encrypted = keep_encrypted

    @property
    def identity(self) -> None:
        """Nothing in the files tells one cluster from another."""
        return None

    def partitions(self) -> list[PartitionName]:
        """Return all partitions, in order; a topic without partitions has the one with number -1.

        Those are among them that have a list of ledgers, and no objects yet, or none that are left.

        Raises:
            SegmentUnreadableError: no ledger can be read; of several that can't, the first one's error.
            LogNotFoundError: none names its topic, and no list does.
        """
        if not self._listing.ledgers and not self._named:
            if not self._listing.unreadable:
                raise LogNotFoundError(
                    f"The ledgers in {self._folder} don't say whose they are, as old brokers wrote them.",
                    "Give the lists of their topics' ledgers by the topics' full names (option managedLedgers).",
                )
            raise self._listing.unreadable[min(self._listing.unreadable)].error
        return sorted({partition_of(topic) for topic in (*self._listing.ledgers, *self._named)})

    def partition(self, name: PartitionName) -> PulsarPartition:
        """Return one.

        Raises:
            TopicNotFoundError: it isn't there.
            SegmentUnreadableError: an index is damaged that may be one of its ledgers'.
            InvalidArgumentError: a ledger has two objects, and nothing tells which is the right one; or one has no name
                of its topic, and there is no list.
        """
        topic = name.topic if name.partition < 0 else f"{name.topic}-partition-{name.partition}"
        if topic not in self._listing.ledgers and topic not in self._named:
            raise TopicNotFoundError(
                f"{self._folder} has no ledgers of {topic}.",
                f"There are {', '.join(sorted(self._listing.ledgers)[:10]) or 'none that can be read'}.",
            )
        given = self._listed.get(topic, self._listed.get(name.topic, self._listed.get("")))
        listed = None if given is None else parse_info(given, topic)
        ledgers = self._listing.of_topic(topic, listed)
        found = in_order(topic, ledgers, listed, self._listing.unfinished(topic, listed))
        return PulsarPartition(
            self._system,
            name,
            topic,
            found,
            self._snapshots.get(topic),
            keep_encrypted=self._keep_encrypted,
            schema=self.topic_schema(topic),
            own_snapshot=lambda: self._own_snapshots(topic).get(topic),
        )

    def _own_snapshots(self, topic: str) -> dict[str, Snapshot]:
        """Return what is known of snapshots by the topics that the brokers keep them in; read once for a namespace."""
        own = system_topics(topic)
        if own and own not in self._own:
            there = [name for name in map(partition_of, self._listing.ledgers) if name.topic in own]
            self._own[own] = snapshots_in(self._system_partition(name) for name in sorted(there))
        return self._own.get(own, {})

    def _system_partition(self, name: PartitionName) -> PulsarPartition:
        partition = self.partition(name)
        partition.schema = None
        return partition

    def topic_schema(self, topic: str) -> TopicSchema | None:
        """Return what keys and values of a topic are; None: bytes."""
        found = None if self._schema is None else parse_schema(self._schema, topic)
        return found and replace(found, bad_as_null=self._bad_as_null)

    def types(self, topic: str) -> dict[str, pa.DataType]:
        """Return the types of a topic's keys and values where they aren't bytes."""
        found = self.topic_schema(topic)
        return {} if found is None else found.types()
