"""What Pulsar offloaded as a format: columns, options and positions, named as the log's own where there are such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from txn_source.foreign.foreign_log import ForeignLog, PartitionName
from txn_source.foreign.formats import Folder, Format, parse_side
from txn_source.foreign.pulsar.columns import SCHEMA
from txn_source.foreign.pulsar.message_ids import point_of
from txn_source.foreign.pulsar.open_options import log_arguments
from txn_source.foreign.pulsar.pulsar_log import PulsarLog
from txn_source.model.errors import InvalidArgumentError, SchemaMismatchError
from txn_source.model.position import MessageId, Position
from txn_source.model.topic_name import TopicName
from txn_source.reading.options import selection_of, side_of
from txn_source.reading.places import Place, Side
from txn_source.reading.request import Selection

_DEFAULT = ("__partition", "__ledger_id", "__entry_id", "__batch_index", "__publish_time", "__event_time")
_PAYLOAD = ("key", "value")
_ALL = pa.schema([*SCHEMA, pa.field("__partition", pa.int32()), pa.field("__topic", pa.string())])
_METADATA = ("__partition", *[name for name in SCHEMA.names if name not in _PAYLOAD], "__topic")
_OWN_ENDS = ("__transaction_pending_ack",)
_OWN_STARTS = ("transaction_coordinator_assign", "transaction_coordinator_log", "loadbalancer-service-unit-state")
_HINT = 'Use earliest, latest, or JSON such as {"orders": {"0": "12:40"}}; -1 is the partition of a topic without.'


class PulsarFormat:
    """Pulsar's format."""

    name = "pulsar"
    open_options: tuple[str, ...] = ("managedLedgers", "transactionSnapshots", "encrypted", "schema", "badValues")
    read_options: tuple[str, ...] = ()
    batch_options: tuple[str, ...] = ()
    constants: Mapping[str, str] = {"__topic": "topic", "__partition": "partition"}
    never_null: tuple[str, ...] = (
        "__partition",
        "__ledger_id",
        "__entry_id",
        "__batch_index",
        "__publish_time",
        "__topic",
    )
    cheapest = "__entry_id"

    def open(self, places: Sequence[Folder], options: Mapping[str, str]) -> ForeignLog:
        """Return the log that lies in a folder, or below a prefix."""
        if len(places) != 1:
            raise InvalidArgumentError(f"{len(places)} places are given.", "Name one folder, or bucket and prefix.")
        return PulsarLog(*places[0], **log_arguments(options))

    def is_internal(self, topic: str) -> bool:
        """True for the brokers' own topics: of events, readers, load, and of transactions."""
        name = topic.rpartition("/")[2]
        return (
            name.startswith("__")
            or name.endswith(_OWN_ENDS)
            or name.startswith(_OWN_STARTS)
            or topic.startswith("persistent://pulsar/system/")
        )

    def find(self, text: str, there: Sequence[PartitionName]) -> list[PartitionName]:
        """Return the partitions of a topic, or the one that is named."""
        name = TopicName.parse(text)
        part = name.split_partition()
        found = [other for other in there if other.topic == str(name)]
        if not found and part is not None:
            found = [other for other in there if (other.topic, other.partition) == (str(part[0]), part[1])]
        return found

    def written(self, topic: str) -> Sequence[str]:
        """Return the name without what public/default and persistent leave out, and the whole one."""
        short = topic.removeprefix("persistent://public/default/")
        return (topic,) if short == topic else (short, topic)

    def columns(self, log: ForeignLog, topics: Sequence[str]) -> pa.Schema:
        """Return all columns; keys and values have the types of the topics' schema.

        Raises:
            SchemaMismatchError: topics that are read together have schemas that don't fit.
        """
        if not isinstance(log, PulsarLog):
            return _ALL
        types = {topic: log.types(topic) for topic in topics}
        found = next(iter(types.values()), {})
        for topic, others in types.items():
            if others != found:
                raise SchemaMismatchError(
                    f"The schemas of {next(iter(types))} and {topic} make other columns.",
                    "Read topics of different schemas by themselves, or give no schema.",
                )
        return pa.schema([pa.field(field.name, found.get(field.name, field.type)) for field in _ALL])

    def default_columns(
        self, columns: pa.Schema, choice: str, options: Mapping[str, str], *, several: bool
    ) -> Sequence[str]:
        """Return the payload's columns, and those of the others that are chosen."""
        payload = [name for name in columns.names if name not in _METADATA]
        names = [name.strip() for name in choice.split(",")]
        known = {name.lower(): name for name in _METADATA}
        match choice.strip().lower():
            case "none":
                return payload
            case "all":
                return [*payload, *_METADATA]
            case "default":
                return [*payload, *_DEFAULT, *(["__topic"] if several else [])]
        unknown = [name for name in names if name.lower() not in known]
        if unknown or len({name.lower() for name in names}) < len(names):
            raise InvalidArgumentError(
                f"{unknown[0]!r} is not a metadata column." if unknown else "A metadata column is named twice.",
                f"Use none, default, all, or some of {', '.join(_METADATA)}, each once.",
            )
        return [*payload, *(known[name.lower()] for name in names)]

    def renamed(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options as they are."""
        return dict(options)

    def selection(self, options: Mapping[str, str]) -> Selection:
        """Return which topics a read names."""
        return selection_of(options)

    def side(self, options: Mapping[str, str], which: str, default: str) -> Side:
        """Return where a read starts or ends."""
        return side_of(options, which, default, self.parse_side)

    def parse_side(self, value: Any, default: str) -> Side:
        """Return the side that a value means; positions are ``ledger:entry``."""
        return parse_side(value, default, point_of, _partition, _HINT)

    def offset(self, position: Position) -> Position:
        """Return the position as it is, ``ledger:entry``."""
        return position

    def shown(self, place: Place) -> str:
        """Return ``ledger:entry``, or the id of a message of a batch."""
        return f"{place.position}:-1:{place.batch_index}" if isinstance(place, MessageId) else str(place)


def _partition(topic: str, index: int) -> PartitionName:
    return PartitionName(str(TopicName.parse(topic)), index)


FORMAT: Format = PulsarFormat()
