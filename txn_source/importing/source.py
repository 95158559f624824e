"""What an import reads, by its name: ``kafka:/folder,/folder`` or ``pulsar:s3://bucket/prefix``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from txn_source.foreign.target import ForeignTarget
from txn_source.importing.history import SourceTopic
from txn_source.model.errors import InvalidArgumentError

if TYPE_CHECKING:
    from txn_source.foreign.kafka.kafka_log import KafkaLog
    from txn_source.foreign.pulsar.pulsar_log import PulsarLog

Source: TypeAlias = "KafkaLog | PulsarLog"
"""What can be imported."""


def target_of(source: str | ForeignTarget, options: Mapping[str, str] | None = None) -> ForeignTarget:
    """Return the log that a text, with options of its format, or a target names.

    Raises:
        InvalidArgumentError: it is none of Kafka's or Pulsar's.
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
    return target


def open_source(source: str | ForeignTarget, options: Mapping[str, str] | None = None) -> Source:
    """Open what ``target_of`` returns.

    Raises:
        InvalidArgumentError: it is none of Kafka's or Pulsar's.
        LogNotFoundError: nothing of that kind lies there.
    """
    return cast("Source", target_of(source, options).open())


def topics_of(source: Source, topics: Sequence[str], metadata: Sequence[str], *, typed: bool) -> list[SourceTopic]:
    """Return topics of a log as an import takes them; arguments as of ``import_topics``."""
    from txn_source.foreign.kafka.kafka_log import KafkaLog

    if isinstance(source, KafkaLog):
        if metadata or typed:
            raise InvalidArgumentError(
                "Metadata and types are kept of Pulsar's topics only.", "Leave out 'metadata' and 'typed'."
            )
        from txn_source.importing.kafka_source import kafka_topics

        return kafka_topics(source, topics)
    from txn_source.foreign.pulsar.pulsar_log import PulsarLog
    from txn_source.importing.pulsar_source import pulsar_topics

    if isinstance(source, PulsarLog):
        return pulsar_topics(source, topics, metadata, typed=typed)
    raise InvalidArgumentError(f"A {type(source).__name__} can't be imported.", "Give a log of Kafka's or Pulsar's.")
