"""Kafka's log as a format: columns, options and offsets as Kafka's own connector for Spark has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from txn_source.foreign.foreign_log import ForeignLog, PartitionName
from txn_source.foreign.formats import Folder as Where
from txn_source.foreign.formats import Format, parse_side
from txn_source.foreign.kafka import connector_options
from txn_source.foreign.kafka.kafka_log import KafkaLog
from txn_source.foreign.kafka.partition_folders import Folder
from txn_source.foreign.kafka.records import COLUMNS
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.position import EARLIEST, LATEST, Position
from txn_source.reading.places import Place, Side
from txn_source.reading.request import Selection

_TRUST = "trustTransactionIndexes"
_INTERNAL = (
    "__consumer_offsets",
    "__transaction_state",
    "__cluster_metadata",
    "__remote_log_metadata",
    "__share_group_state",
)
_CONNECTORS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_METADATA = ("__producer_id", "__producer_epoch", "__sequence", "__leader_epoch", "__txn_status")
_SCHEMA = pa.schema(
    [pa.field(name, COLUMNS[name]) for name in ("key", "value")]
    + [pa.field("topic", pa.string()), pa.field("partition", pa.int32())]
    + [pa.field(name, COLUMNS[name]) for name in ("offset", "timestamp", "timestampType", "headers", *_METADATA)]
)
_HINT = 'Use earliest, latest, or JSON such as {"orders": {"0": 42}}, where -2 is earliest and -1 latest.'
_WORDS = {-2: EARLIEST, -1: LATEST}


class KafkaFormat:
    """Kafka's format."""

    name = "kafka"
    open_options: tuple[str, ...] = (_TRUST,)
    read_options: tuple[str, ...] = (*connector_options.READ_OPTIONS, connector_options.CLIENTS)
    batch_options: tuple[str, ...] = connector_options.BATCH_OPTIONS
    constants: Mapping[str, str] = {"topic": "topic", "partition": "partition"}
    never_null: tuple[str, ...] = ("topic", "partition", "offset", "timestamp", "timestampType")
    cheapest = "offset"

    def open(self, places: Sequence[Where], options: Mapping[str, str]) -> ForeignLog:
        """Return the log that lies in some folders."""
        trust = options.get(_TRUST.lower(), "true").strip().lower()
        if trust not in ("true", "false"):
            raise InvalidArgumentError(f"Option {_TRUST!r}: {trust!r} is neither true nor false.", "Use one of them.")
        return KafkaLog([Folder(system, path) for system, path in places], trust_indexes=trust == "true")

    def is_internal(self, topic: str) -> bool:
        """True for the brokers' own topics."""
        return topic in _INTERNAL

    def find(self, text: str, there: Sequence[PartitionName]) -> list[PartitionName]:
        """Return the partitions of a topic."""
        return [name for name in there if name.topic == text]

    def written(self, topic: str) -> Sequence[str]:
        """Return the name."""
        return (topic,)

    def columns(self, log: ForeignLog, topics: Sequence[str]) -> pa.Schema:
        """Return all columns."""
        return _SCHEMA

    def default_columns(
        self, columns: pa.Schema, choice: str, options: Mapping[str, str], *, several: bool
    ) -> Sequence[str]:
        """Return the connector's columns, and those of ours that are chosen."""
        names = [name.strip() for name in choice.split(",")]
        known = {name.lower(): name for name in _METADATA}
        own = {"none": (), "default": (), "all": _METADATA}.get(choice.strip().lower())
        if own is None:
            unknown = [name for name in names if name.lower() not in known]
            if unknown or len({name.lower() for name in names}) < len(names):
                raise InvalidArgumentError(
                    f"{unknown[0]!r} is not a metadata column." if unknown else "A metadata column is named twice.",
                    f"Use none, default, all, or some of {', '.join(_METADATA)}, each once.",
                )
            own = tuple(known[name.lower()] for name in names)
        with_headers = options.get("includeheaders", "true").strip().lower()
        if with_headers not in ("true", "false"):
            raise InvalidArgumentError(
                f"Option 'includeHeaders': {with_headers!r} is neither true nor false.", "Use one of them."
            )
        return [name for name in _CONNECTORS if name != "headers" or with_headers == "true"] + list(own)

    def renamed(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options with txnlog's own names."""
        return connector_options.renamed(options)

    def selection(self, options: Mapping[str, str]) -> Selection:
        """Return which topics a read names."""
        return connector_options.selection(options)

    def side(self, options: Mapping[str, str], which: str, default: str) -> Side:
        """Return where a read starts or ends."""
        return connector_options.side(options, which, default, self.parse_side)

    def parse_side(self, value: Any, default: str) -> Side:
        """Return the side that a value means; positions are offsets."""
        return parse_side(value, default, _point, PartitionName, _HINT)

    def offset(self, position: Position) -> int:
        """Return the offset."""
        return position.key

    def shown(self, place: Place) -> int:
        """Return the offset."""
        assert isinstance(place, Position)
        return place.key


def _point(value: Any) -> Position | str:
    if isinstance(value, Position):
        return value
    if isinstance(value, int) and value in _WORDS:
        return _WORDS[value]
    text = str(value).strip() if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 63):
        raise InvalidArgumentError(f"{value!r:.80} is not an offset.", _HINT)
    return Position.from_key(int(text))


FORMAT: Format = KafkaFormat()
