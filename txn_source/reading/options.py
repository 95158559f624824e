"""The options of reads that all kinds of logs have: their names and their parsers.

Further options of one kind of log, and its form of places, stand in its own module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from txn_source.model.batch_shares import DEFAULT_DELAY_S
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.given_options import GivenOptions, named, offsets_or_time, positive, selecting, size
from txn_source.model.isolation import IsolationLevel
from txn_source.model.moments import time_us
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.units import parse_duration
from txn_source.reading.limits import StreamLimits
from txn_source.reading.places import Side
from txn_source.reading.request import MAX_PARTITION_BYTES, ReadRequest, Selection

READ = (
    "path",
    "topic",
    "topics",
    "topicsPattern",
    "isolationLevel",
    "startingOffsets",
    "startingTimestamp",
    "metadataColumns",
    "consistentCut",
    "minPartitions",
    "maxPartitionBytes",
    "failOnDataLoss",
    "lane",
)
"""Options of any read."""
LANES = ("auto", "python")
"""How Spark gets the rows: as the catalog does best, or all of them from the Python source."""
BATCH_ONLY = ("endingOffsets", "endingTimestamp")
STREAM_ONLY = ("maxMessagesPerTrigger", "maxBytesPerTrigger", "minMessagesPerTrigger", "maxTriggerDelay")
_NOTHING = {"starting": LATEST, "ending": EARLIEST}
"""A batch with this start, or this end, has no rows."""


def selection_of(options: Mapping[str, str]) -> Selection:
    """Return the selection that ``topic``, ``topics`` or ``topicsPattern`` names; exactly one must be given.

    Args:
        options: by lower-case names.
    """
    name, values = selecting(options)
    if name == "topicsPattern":
        return Selection(pattern=values[0])
    return Selection(tuple(value.strip() for value in values), several=name == "topics")


def side_of(options: Mapping[str, str], which: str, default: str, parse: Callable[[Any, str], Side]) -> Side:
    """Return the start (``starting``) or the end (``ending``) of a read.

    Args:
        options: by lower-case names.
        which: ``starting`` or ``ending``.
        default: ``earliest`` or ``latest``, if no option is given.
        parse: reads a place in the log's form.
    """
    given = offsets_or_time(options, which)
    if given is None:
        return Side(default)
    name, text = given
    if name.endswith("Timestamp"):
        return Side(default, time_us=named(name, lambda: time_us(text)))
    return named(name, lambda: parse(text, default))


def check_side(side: Side, which: str, default: str) -> None:
    """Refuse a side of a batch that leaves no rows. A stream may start at ``latest``, its default."""
    if default != _NOTHING[which] and side == Side(_NOTHING[which]):
        raise InvalidArgumentError(
            f"'{which}Offsets' can't be {_NOTHING[which]!r} in a batch query: it would read nothing.",
            f"Use {default!r}, positions, or '{which}Timestamp'.",
        )


def request_of(given: GivenOptions, start: Side, end: Side) -> ReadRequest:
    """Return the request to read between two sides."""
    given.optional("lane", lane)
    return ReadRequest(
        isolation_level=given.optional("isolationLevel", IsolationLevel.parse) or IsolationLevel.READ_COMMITTED,
        start=start,
        end=end,
        consistent_cut=given.flag("consistentCut", default=True),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        min_partitions=given.optional("minPartitions", positive),
        max_partition_bytes=given.optional("maxPartitionBytes", size) or MAX_PARTITION_BYTES,
    )


def lane(text: str) -> str:
    """Return one of ``LANES``."""
    if text.strip().lower() in LANES:
        return text.strip().lower()
    raise InvalidArgumentError(f"{text!r} is no lane.", f"Use {' or '.join(LANES)}.")


def limits_of(given: GivenOptions, *, bare_ms: bool = False) -> StreamLimits:
    """Return the limits of a stream's batches; ``bare_ms``: a delay without a unit is milliseconds, as in Kafka.

    Raises:
        InvalidArgumentError: a value that isn't a limit, or limits that contradict each other.
    """
    limits = StreamLimits(
        given.optional("maxMessagesPerTrigger", positive),
        given.optional("maxBytesPerTrigger", size),
        given.optional("minMessagesPerTrigger", positive),
        given.optional("maxTriggerDelay", lambda text: _delay(text, bare_ms)) or DEFAULT_DELAY_S,
        given.optional("maxOffsetsPerTrigger", positive),
        given.optional("minOffsetsPerTrigger", positive),
    )
    for what, least, most in (
        ("Offsets", limits.min_offsets, limits.max_offsets),
        ("Messages", limits.min_messages, limits.max_messages),
    ):
        if least is not None and most is not None and least > most:
            raise InvalidArgumentError(
                f"'min{what}PerTrigger' is {least} and 'max{what}PerTrigger' {most}.",
                "Let the first be at most the second.",
            )
    if given.get("maxTriggerDelay") is not None and not limits.patient:
        raise InvalidArgumentError(
            "'maxTriggerDelay' means nothing without a least number of messages.",
            "Give 'minMessagesPerTrigger' too, or leave it out.",
        )
    return limits


def _delay(text: str, bare_ms: bool) -> float:
    plain = re.sub(r"\s+(?=[a-z])", "", text.strip().lower()).replace("min", "m")
    with suppress(InvalidArgumentError):
        found = parse_duration(f"{plain}ms" if bare_ms and plain.isdecimal() else plain)
        if found > 0:
            return found
    raise InvalidArgumentError(f"{text!r} is not a duration.", "Use a number with ms, s, m or h, such as 15m.")
