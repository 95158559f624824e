"""The options of Kafka's own connector for Spark, so that a job changes only its format and path.

Where it has a name of its own for something that txnlog has, too, either name may be used. Which offsets it wants, and
which of two options counts, is its own matter and the same here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from txn_source.foreign.foreign_log import PartitionName
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.given_options import named
from txn_source.model.isolation import IsolationLevel
from txn_source.model.moments import time_us
from txn_source.model.position import EARLIEST
from txn_source.reading.options import selection_of
from txn_source.reading.places import Name, Side
from txn_source.reading.request import Selection

_log = logging.getLogger(__name__)
_SELECTING = ("topic", "topics", "topicsPattern", "subscribe", "subscribePattern", "assign")
_RENAMED = {"subscribe": "topics", "subscribepattern": "topicspattern"}
_LEVEL = "kafka.isolation.level"
_CONNECTION = (
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "kafkaConsumer.useDeprecatedOffsetFetching",
    "maxRecordsPerPartition",
)
READ_OPTIONS = (
    "includeHeaders",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    _LEVEL,
    "maxOffsetsPerTrigger",  # in batch queries it means nothing
    "minOffsetsPerTrigger",
    *_CONNECTION,
)
CLIENTS = "kafka."
"""What the names of the client's configuration begin with; only the isolation level means something here."""
BATCH_OPTIONS = ("endingOffsetsByTimestamp",)
_TIMES_HINT = 'Write {"orders": {"0": 1750000000000}}, milliseconds since 1970 for each partition.'
_COMPLETE = "$complete"
"""Noted among the options where the connector's names are used: it wants offsets of all partitions, or none."""
_IGNORED = {name.lower() for name in _CONNECTION}
_ignored: set[str] = set()


def renamed(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with txnlog's names; what is about a connection is left out, with a warning once."""
    found = dict(options)
    level = found.pop(_LEVEL, None)
    if level is not None:
        ours = found.setdefault("isolationlevel", level)
        if named("isolationLevel", lambda: IsolationLevel.parse(ours)) is not named(
            _LEVEL, lambda: IsolationLevel.parse(level)
        ):
            raise InvalidArgumentError(
                f"'isolationLevel' is {ours!r} and {_LEVEL!r} {level!r}.", "Give one of them, or the same twice."
            )
    given = [name for name in _SELECTING if name.lower() in found]
    if len(given) > 1:
        raise InvalidArgumentError(
            f"The query names what it reads by {' and by '.join(map(repr, given))}.", "Use one of these options."
        )
    for connectors, ours in _RENAMED.items():
        if connectors in found:
            found[ours] = found.pop(connectors)
            found[_COMPLETE] = "true"
    about_connection = [name for name in found if name.startswith(CLIENTS) or name in _IGNORED]
    for name in about_connection:
        del found[name]
    fresh = sorted(set(about_connection) - _ignored)
    if fresh:
        _ignored.update(fresh)
        _log.warning("files are read, and no broker is connected to: %s mean nothing here", ", ".join(fresh))
    return found


def selection(options: Mapping[str, str]) -> Selection:
    """Return which topics a read names, or which partitions of them by ``assign``."""
    text = options.get("assign")
    if text is None:
        return selection_of(options)
    return Selection(partitions=tuple(named("assign", lambda: _assigned(text))))


def side(options: Mapping[str, str], which: str, default: str, parse: Callable[[Any, str], Side]) -> Side:
    """Return where a read starts (``starting``) or ends (``ending``).

    A time of all partitions goes before times of each, and these before offsets. A start for which there is no record
    is refused, unless ``startingOffsetsByTimestampStrategy`` is ``latest``; as an end it stands for the latest offset.
    """
    complete = "assign" in options or _COMPLETE in options
    time, times, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    must_match = which == "starting" and _strict(options)
    if time.lower() in options:
        moment = named(time, lambda: time_us(options[time.lower()]))
        return Side(default, time_us=moment, must_match=must_match)
    if times.lower() in options:
        moments = named(times, lambda: _times(options[times.lower()]))
        return Side(default, times_us=moments, must_match=must_match, complete=complete)
    if offsets.lower() not in options:
        return Side(default)
    found = named(offsets, lambda: parse(options[offsets.lower()], default))
    if which == "ending" and EARLIEST in found.points.values():
        raise InvalidArgumentError("Option 'endingOffsets': a read can't end at earliest (-2).", "Use -1 for latest.")
    return replace(found, complete=complete)


def _strict(options: Mapping[str, str]) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    text = options.get(name.lower(), "error").strip().lower()
    if text not in ("error", "latest"):
        raise InvalidArgumentError(f"Option {name!r}: {text!r} is unknown.", "Use error or latest.")
    return text == "error"


def _assigned(text: str) -> list[PartitionName]:
    hint = 'Write {"orders": [0, 1]}.'
    found = _json(text, hint)
    names = []
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not all(_is_number(number) for number in numbers):
            raise InvalidArgumentError(f"The partitions of topic {topic!r} are {numbers!r:.80}.", hint)
        names += [PartitionName(topic, number) for number in numbers]
    if not names:
        raise InvalidArgumentError("No partition is named.", hint)
    return names


def _times(text: str) -> dict[Name, int]:
    """Return times in microseconds, which are given in milliseconds."""
    found: dict[Name, int] = {}
    for topic, times in _json(text, _TIMES_HINT).items():
        if not isinstance(times, dict):
            raise InvalidArgumentError(f"The times of topic {topic!r} are {times!r:.80}.", _TIMES_HINT)
        for number, time in times.items():
            if not (number.isascii() and number.isdigit()) or not _is_number(time):
                raise InvalidArgumentError(f"Partition {number!r} of topic {topic!r} has {time!r:.80}.", _TIMES_HINT)
            found[PartitionName(topic, int(number))] = time * 1000
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _json(text: str, hint: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{text!r:.120} is not JSON ({error}).", hint) from None
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"{text!r:.120} is no JSON object.", hint)
    return found
