"""What an import reads, by its name: ``kafka:/folder,/folder`` or ``pulsar:s3://bucket/prefix``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, cast

from txn_source.foreign.target import ForeignTarget

if TYPE_CHECKING:
    from txn_source.foreign.kafka.kafka_log import KafkaLog
    from txn_source.foreign.pulsar.pulsar_log import PulsarLog

Source: TypeAlias = "KafkaLog | PulsarLog"
"""What can be imported."""


def open_source(source: str | ForeignTarget, options: Mapping[str, str] | None = None) -> Source:
    """Return the log that a text, with options of its format, or a target names.

    Raises:
        InvalidArgumentError: it is none of Kafka's or Pulsar's.
        LogNotFoundError: nothing of that kind lies there.
    """
    target = ForeignTarget.parse(source, options) if isinstance(source, str) else source
    return cast("Source", target.open())
