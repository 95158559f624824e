"""The options of reads, as Spark hands them over: which there are, and what they mean."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from txn_source.foreign.formats import Format
from txn_source.foreign.reading.given import named
from txn_source.foreign.reading.request import MAX_PARTITION_BYTES, ForeignRequest, Selection, Side
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.units import parse_size
from txn_source.model.values import dataclass

T = TypeVar("T")
_log = logging.getLogger(__name__)
_READ = (
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
_BATCH_ONLY = ("endingOffsets", "endingTimestamp")
_STREAM_ONLY = ("maxMessagesPerTrigger", "maxBytesPerTrigger", "minMessagesPerTrigger", "maxTriggerDelay")
_HINTS = ("pushedFilters", "limit")
"""A catalog sends them along; whoever takes no notice of them reads more than it must."""
_OWN_LOGS = (
    "endpoint",
    "asOfTimestamp",
    "dataReadPriority",
    "subscription",
    "metadataTable",
    "ranges",
    "transactionalId",
    "txnAppId",
    "txnVersion",
    "insertable",
    "nativeTieredReads",
)
BATCH, STREAM, SCHEMA = "batch", "stream", "schema"


@dataclass(frozen=True, slots=True)
class ForeignOptions:
    """What a read was asked for. ``given`` are all options, by lower-case names, as the format has them."""

    target: ForeignTarget
    selection: Selection
    request: ForeignRequest
    metadata_columns: str
    given: Mapping[str, str]

    @classmethod
    def parse(cls, options: Mapping[str, str], kind: str) -> ForeignOptions:
        """Return the options' meaning, or raise INVALID_ARGUMENT for the first that can't be.

        Args:
            options: as they were given; ``path`` names the log.
            kind: ``batch``, ``stream`` or ``schema``, which Spark asks for without saying for which of the two.
        """
        path = next((value for name, value in options.items() if name.lower() == "path"), "")
        target = ForeignTarget.parse(path)
        rules = target.rules
        given = rules.renamed(checked(rules, options, kind))
        own = {name: given[name.lower()] for name in rules.open_options if name.lower() in given}
        default = LATEST if kind == STREAM else EARLIEST
        start, end = rules.side(given, "starting", default), rules.side(given, "ending", LATEST)
        if kind == BATCH:
            _check_side("startingOffsets", start, LATEST, EARLIEST)
            _check_side("endingOffsets", end, EARLIEST, LATEST)
        request = ForeignRequest(
            optional(given, "isolationLevel", IsolationLevel.parse) or IsolationLevel.READ_COMMITTED,
            start,
            end,
            flag(given, "consistentCut", default=True),
            flag(given, "failOnDataLoss", default=True),
            optional(given, "minPartitions", positive),
            optional(given, "maxPartitionBytes", size) or MAX_PARTITION_BYTES,
        )
        choice = given.get("metadatacolumns", "default")
        return cls(target.with_options(own), rules.selection(given), request, choice, given)


def checked(rules: Format, options: Mapping[str, str], kind: str) -> dict[str, str]:
    """Return options by lower-case names; those that mean something elsewhere, or are misspelt, are refused."""
    given = {name.lower(): value for name, value in options.items()}
    defaults = set(given.pop("catalogdefaults", "").split(","))
    here = {*_READ, *_HINTS, *rules.open_options, *rules.read_options}
    batch, stream = {*_BATCH_ONLY, *rules.batch_options}, {*_STREAM_ONLY, *rules.stream_options}
    here |= {BATCH: batch, STREAM: stream, SCHEMA: batch | stream}[kind]
    known = {name.lower(): name for name in here}
    elsewhere = {name.lower(): (name, "streaming queries only") for name in stream}
    elsewhere |= {name.lower(): (name, "batch queries only: a stream has no end") for name in batch}
    elsewhere |= {name.lower(): (name, "logs of txnlog's own") for name in _OWN_LOGS}
    for lower in list(given):
        if lower in known:
            continue
        if lower in defaults:
            del given[lower]
        elif lower in elsewhere:
            name, what = elsewhere[lower]
            raise InvalidArgumentError(f"The option {name!r} is for {what}.", "Leave it out.")
        elif near := difflib.get_close_matches(lower, known, n=1, cutoff=0.75):
            raise InvalidArgumentError(f"There is no option {lower!r}.", f"Did you mean {known[near[0]]!r}?")
    return given


def optional(given: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    """Return the meaning of an option, None if it isn't given."""
    value = given.get(name.lower())
    return None if value is None else named(name, lambda: parse(value))


def flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return an option that is true or false."""
    found = optional(given, name, _truth)
    return default if found is None else found


def _check_side(name: str, side: Side, refused: str, usual: str) -> None:
    if side == Side(refused):
        raise InvalidArgumentError(
            f"{name!r} can't be {refused!r} in a batch query: it would read nothing.",
            f"Use {usual!r}, offsets, or a time.",
        )


def _truth(text: str) -> bool:
    if text.strip().lower() in ("true", "false"):
        return text.strip().lower() == "true"
    raise InvalidArgumentError(f"{text!r} is neither true nor false.", "Use one of them.")


def positive(text: str) -> int:
    """Return a whole number above 0."""
    if text.strip().isascii() and text.strip().isdigit() and int(text) > 0:
        return int(text)
    raise InvalidArgumentError(f"{text!r} is not a number above 0.", "Use one, such as 8.")


def size(text: str) -> int:
    """Return a number of bytes above 0."""
    found = parse_size(text)
    if found > 0:
        return found
    raise InvalidArgumentError(f"{text!r} is not a size.", "Use bytes, or a number with k, m or g, such as 128m.")
