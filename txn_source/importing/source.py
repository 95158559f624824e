"""What an import reads, by its name: ``kafka:/folder,/folder`` or ``pulsar:s3://bucket/prefix``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias, cast

from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import InvalidArgumentError

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
    target = ForeignTarget.parse(source) if isinstance(source, str) else source
    if options:
        known = {name.lower() for name in target.rules.open_options}
        unknown = next((name for name in options if name.lower() not in known), None)
        if unknown is not None:
            raise InvalidArgumentError(
                f"Logs of {target.format.capitalize()}'s have no option {unknown!r}.",
                f"Use {', '.join(target.rules.open_options) or 'none'}.",
            )
        target = target.with_options({**dict(target.options), **options})
    return cast("Source", target.open())
