"""The options of reads that all kinds of logs have: their names, and what they mean.

What a kind of log has besides, and how it writes places, its own module of options says.
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
)
"""Of any read."""
BATCH_ONLY = ("endingOffsets", "endingTimestamp")
STREAM_ONLY = ("maxMessagesPerTrigger", "maxBytesPerTrigger", "minMessagesPerTrigger", "maxTriggerDelay")
_NOTHING = {"starting": LATEST, "ending": EARLIEST}
"""Where a batch that starts, or ends, there has nothing."""


def selection_of(options: Mapping[str, str]) -> Selection:
    """Return what ``topic``, ``topics`` or ``topicsPattern`` name; exactly one must be given.

    Args:
        options: by lower-case names.
    """
    name, values = selecting(options)
    if name == "topicsPattern":
        return Selection(pattern=values[0])
    return Selection(tuple(value.strip() for value in values), several=name == "topics")


def side_of(options: Mapping[str, str], which: str, default: str, parse: Callable[[Any, str], Side]) -> Side:
    """Return where a read starts (``starting``) or ends (``ending``).

    Args:
        options: by lower-case names.
        which: the side.
        default: where it is if no option says it.
        parse: reads a place as the log writes it.
    """
    given = offsets_or_time(options, which)
    if given is None:
        return Side(default)
    name, text = given
    if name.endswith("Timestamp"):
        return Side(default, time_us=named(name, lambda: time_us(text)))
    return named(name, lambda: parse(text, default))


def check_side(side: Side, which: str, default: str) -> None:
    """Refuse a side of a batch that would leave nothing to read; a stream's default is where nothing is yet."""
    if default != _NOTHING[which] and side == Side(_NOTHING[which]):
        raise InvalidArgumentError(
            f"'{which}Offsets' can't be {_NOTHING[which]!r} in a batch query: it would read nothing.",
            f"Use {default!r}, positions, or '{which}Timestamp'.",
        )


def request_of(given: GivenOptions, start: Side, end: Side) -> ReadRequest:
    """Return how to read between two sides."""
    return ReadRequest(
        isolation_level=given.optional("isolationLevel", IsolationLevel.parse) or IsolationLevel.READ_COMMITTED,
        start=start,
        end=end,
        consistent_cut=given.flag("consistentCut", default=True),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        min_partitions=given.optional("minPartitions", positive),
        max_partition_bytes=given.optional("maxPartitionBytes", size) or MAX_PARTITION_BYTES,
    )


def limits_of(given: GivenOptions, *, bare_ms: bool = False) -> StreamLimits:
    """Return how much a stream's batch takes; ``bare_ms``: a delay without a unit is milliseconds, as for Kafka's.

    Raises:
        InvalidArgumentError: one that can't be, or they contradict each other.
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
