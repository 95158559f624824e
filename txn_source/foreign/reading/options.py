"""The options of reads, as Spark hands them over: which there are, and what they mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from txn_source.foreign.formats import Format
from txn_source.foreign.target import ForeignTarget
from txn_source.model.given_options import GivenOptions
from txn_source.model.position import EARLIEST, LATEST
from txn_source.reading.limits import StreamLimits
from txn_source.reading.options import BATCH_ONLY, READ, STREAM_ONLY, check_side, limits_of, request_of
from txn_source.reading.request import ReadRequest, Selection

_INTERNAL = ("__pushedFilters", "__limit", "__cutStart")
"""Options that a catalog sends along. The first two are hints: a read that ignores them has more rows than it needs."""
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
        sides = []
        for which, usual in (("starting", EARLIEST if kind == BATCH else LATEST), ("ending", LATEST)):
            side = rules.side(given, which, usual)
            check_side(side, which, usual)
            sides.append(side)
        meant = GivenOptions(given)
        began = meant.optional("__cutStart", lambda text: rules.parse_side(text, EARLIEST))
        request = replace(request_of(meant, *sides), began=began)
        choice = given.get("metadatacolumns", "default")
        limits = StreamLimits() if kind == BATCH else limits_of(meant, bare_ms=True)
        return cls(target.with_options(own), rules.selection(given), request, limits, choice, given)


def checked(rules: Format, options: Mapping[str, str], kind: str, properties: Collection[str] = ()) -> GivenOptions:
    """Return options of a kind of query; those that mean something elsewhere, and unknown ones, are refused."""
    batch, stream = {*BATCH_ONLY, *rules.batch_options}, set(STREAM_ONLY)
    given = GivenOptions(options, properties)
    elsewhere = {
        "streaming queries only": stream,
        "batch queries only: a stream has no end": batch,
        "logs of txnlog's own": _OWN_LOGS,
    }
    kinds = {BATCH: batch, STREAM: stream, SCHEMA: batch | stream}
    given.check({*READ, *_INTERNAL, *rules.open_options, *rules.read_options, *kinds[kind]}, elsewhere)
    return given


def names_of(rules: Format) -> set[str]:
    """Return the lower-case names of all options of reads."""
    every = (*READ, *BATCH_ONLY, *STREAM_ONLY, *rules.open_options, *rules.read_options)
    return {name.lower() for name in (*every, *rules.batch_options)}
