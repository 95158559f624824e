"""The options of reads, as Spark hands them over: which there are, and what they mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from txn_source.foreign.formats import Format
from txn_source.foreign.reading.stream_options import limits_of
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.given_options import GivenOptions, positive, size
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.values import dataclass
from txn_source.reading.limits import StreamLimits
from txn_source.reading.places import Side
from txn_source.reading.request import MAX_PARTITION_BYTES, ReadRequest, Selection

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
_HINTS = ("__pushedFilters", "__limit")
"""A catalog sends them along; whoever takes no notice of them reads more than it must."""
_OWN_LOGS = (
    "endpoint",
    "asOfTimestamp",
    "dataReadPriority",
    "subscription",
    "metadataTable",
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
    request: ReadRequest
    limits: StreamLimits
    metadata_columns: str
    given: Mapping[str, str]

    @classmethod
    def parse(cls, options: Mapping[str, str], kind: str, properties: Collection[str] = ()) -> ForeignOptions:
        """Return the options' meaning, or raise INVALID_ARGUMENT for the first that can't be.

        Args:
            options: as they were given; ``path`` names the log.
            kind: ``batch``, ``stream`` or ``schema``, which Spark asks for without saying for which of the two.
            properties: names, in lower case, that may be a table's properties; unknown ones are allowed.
        """
        path = next((value for name, value in options.items() if name.lower() == "path"), "")
        target = ForeignTarget.parse(path)
        rules = target.rules
        given = rules.renamed(checked(rules, options, kind, properties).values)
        own = {name: given[name.lower()] for name in rules.open_options if name.lower() in given}
        default = LATEST if kind == STREAM else EARLIEST
        start, end = rules.side(given, "starting", default), rules.side(given, "ending", LATEST)
        if kind == BATCH:
            _check_side("startingOffsets", start, LATEST, EARLIEST)
            _check_side("endingOffsets", end, EARLIEST, LATEST)
        meant = GivenOptions(given)
        request = ReadRequest(
            meant.optional("isolationLevel", IsolationLevel.parse) or IsolationLevel.READ_COMMITTED,
            start,
            end,
            meant.flag("consistentCut", default=True),
            meant.flag("failOnDataLoss", default=True),
            meant.optional("minPartitions", positive),
            meant.optional("maxPartitionBytes", size) or MAX_PARTITION_BYTES,
        )
        choice = given.get("metadatacolumns", "default")
        limits = StreamLimits() if kind == BATCH else limits_of(given)
        return cls(target.with_options(own), rules.selection(given), request, limits, choice, given)


def checked(rules: Format, options: Mapping[str, str], kind: str, properties: Collection[str] = ()) -> GivenOptions:
    """Return options of a kind of query; those that mean something elsewhere, and unknown ones, are refused."""
    batch, stream = {*_BATCH_ONLY, *rules.batch_options}, {*_STREAM_ONLY, *rules.stream_options}
    given = GivenOptions(options, properties)
    elsewhere = {
        "streaming queries only": stream,
        "batch queries only: a stream has no end": batch,
        "logs of txnlog's own": _OWN_LOGS,
    }
    kinds = {BATCH: batch, STREAM: stream, SCHEMA: batch | stream}
    given.check({*_READ, *_HINTS, *rules.open_options, *rules.read_options, *kinds[kind]}, elsewhere)
    return given


def names_of(rules: Format) -> set[str]:
    """Return the lower-case names of all options of reads."""
    every = (*_READ, *_BATCH_ONLY, *_STREAM_ONLY, *rules.open_options, *rules.read_options)
    return {name.lower() for name in (*every, *rules.batch_options, *rules.stream_options)}


def _check_side(name: str, side: Side, refused: str, usual: str) -> None:
    if side == Side(refused):
        raise InvalidArgumentError(
            f"{name!r} can't be {refused!r} in a batch query: it would read nothing.",
            f"Use {usual!r}, offsets, or a time.",
        )
