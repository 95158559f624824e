"""What an import reads, by its name: ``kafka:/folder,/folder`` or ``pulsar:/folder``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow.fs as fs

from txn_source.model.errors import InvalidArgumentError

if TYPE_CHECKING:
    from txn_source.foreign.kafka.kafka_log import KafkaLog
    from txn_source.foreign.pulsar.pulsar_log import PulsarLog

Source: TypeAlias = "KafkaLog | PulsarLog"
"""What can be imported."""


def open_source(text: str) -> Source:
    """Return the log that a text names.

    Raises:
        InvalidArgumentError: it is none of Kafka's or Pulsar's.
        LogNotFoundError: nothing of that kind lies there.
    """
    kind, _, places = text.partition(":")
    if kind == "kafka":
        from txn_source.foreign.kafka.kafka_log import Folder, KafkaLog

        return KafkaLog([Folder(fs.LocalFileSystem(), path) for path in places.split(",")])
    if kind == "pulsar":
        from txn_source.foreign.pulsar.pulsar_log import PulsarLog

        return PulsarLog(fs.LocalFileSystem(), places)
    raise InvalidArgumentError(
        f"{text!r} names no log of Kafka's or Pulsar's.", "Write kafka:/folder or pulsar:/folder."
    )
