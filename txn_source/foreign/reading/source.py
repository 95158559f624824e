"""Which partitions a read takes, as they are at one moment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from txn_source.foreign.foreign_log import ForeignLog, ForeignPartition, PartitionName
from txn_source.foreign.formats import Format
from txn_source.foreign.reading.request import Selection
from txn_source.model.bounds import Bounds
from txn_source.model.errors import InvalidArgumentError, TopicNotFoundError
from txn_source.model.values import dataclass

_NAMED = 8


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """A partition of a read, and its bounds when the read was planned."""

    partition: ForeignPartition
    bounds: Bounds

    @property
    def name(self) -> PartitionName:
        """Topic and number."""
        return self.partition.name


def topics_of(log: ForeignLog, rules: Format) -> dict[str, list[PartitionName]]:
    """Return the partitions of each topic that isn't the system's own, in order."""
    found: dict[str, list[PartitionName]] = {}
    for name in log.partitions():
        if not rules.is_internal(name.topic):
            found.setdefault(name.topic, []).append(name)
    return found


def names_of(log: ForeignLog, rules: Format, selection: Selection) -> list[PartitionName]:
    """Return the partitions that a selection takes, in the order of their topics' names in it.

    Raises:
        TopicNotFoundError: there is no topic, or no partition, of a name.
        InvalidArgumentError: the pattern is none.
    """
    there = log.partitions()
    if selection.pattern is not None:
        try:
            pattern = re.compile(selection.pattern)
        except re.error as error:
            raise InvalidArgumentError(
                f"{selection.pattern!r} is not a regular expression: {error}.", "Use one such as orders-.*."
            ) from None
        matching = [t for t in topics_of(log, rules) if any(map(pattern.fullmatch, rules.written(t)))]
        if not matching:
            raise TopicNotFoundError(f"No topic matches {selection.pattern!r}.", _there(log, rules))
        return [name for name in there if name.topic in matching]
    if selection.partitions is not None:
        missing = [name for name in selection.partitions if name not in there]
        if missing:
            raise TopicNotFoundError(f"There is no partition {missing[0]}.", _there(log, rules))
        return sorted(set(selection.partitions))
    found: dict[PartitionName, None] = {}
    for text in selection.topics or ():
        names = rules.find(text, there)
        if not names:
            raise TopicNotFoundError(f"There is no topic {text!r}.", _there(log, rules))
        found |= dict.fromkeys(names)
    return list(found)


def topics_read(log: ForeignLog, rules: Format, selection: Selection) -> list[str]:
    """Return the topics that a selection takes, or partitions of, by their whole names."""
    return list(dict.fromkeys(name.topic for name in names_of(log, rules, selection)))


def look_at(
    log: ForeignLog, names: Sequence[PartitionName], before: Mapping[PartitionName, ForeignPartition] | None = None
) -> list[SourcePartition]:
    """Return partitions with the bounds that they have now; ``before`` are those of an earlier look."""
    partitions = [log.partition(name) for name in names]
    for partition in partitions:
        if before is not None and (known := before.get(partition.name)) is not None:
            partition.resume(known)
    return [SourcePartition(partition, partition.bounds()) for partition in partitions]


def _there(log: ForeignLog, rules: Format) -> str:
    topics = list(topics_of(log, rules))
    more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
    return f"There are {', '.join(topics[:_NAMED])}{more}." if topics else "There are none but the system's own."
