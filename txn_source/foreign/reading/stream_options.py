"""The options of streams: how much a batch takes."""

from __future__ import annotations

from collections.abc import Mapping

from txn_source.model.batch_shares import DEFAULT_DELAY_S
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.given_options import GivenOptions, positive, size
from txn_source.model.units import parse_duration
from txn_source.reading.limits import StreamLimits


def limits_of(given: Mapping[str, str]) -> StreamLimits:
    """Return the limits that options say, by lower-case names.

    Raises:
        InvalidArgumentError: one that can't be, or they contradict each other.
    """
    meant = GivenOptions(given)
    limits = StreamLimits(
        meant.optional("maxMessagesPerTrigger", positive),
        meant.optional("maxBytesPerTrigger", size),
        meant.optional("minMessagesPerTrigger", positive),
        meant.optional("maxTriggerDelay", _delay) or DEFAULT_DELAY_S,
        meant.optional("maxOffsetsPerTrigger", positive),
        meant.optional("minOffsetsPerTrigger", positive),
    )
    for what, least, most in (
        ("Offsets", limits.min_offsets, limits.max_offsets),
        ("Messages", limits.min_messages, limits.max_messages),
    ):
        if least is not None and most is not None and least > most:
            raise InvalidArgumentError(
                f"'min{what}PerTrigger' is {least} and 'max{what}PerTrigger' {most}.", "Let the first be the smaller."
            )
    if "maxtriggerdelay" in given and not limits.patient:
        raise InvalidArgumentError(
            "'maxTriggerDelay' means nothing without a least number of messages or offsets.",
            "Give 'minMessagesPerTrigger' too, or leave it out.",
        )
    return limits


def _delay(text: str) -> float:
    if text.strip().isdigit():  # as Spark reads a time without a unit
        return int(text) / 1000
    return parse_duration(text.strip())
