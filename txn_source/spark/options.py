"""The options of ``spark.read.format("txnlog")``: which there are, and what they mean.

An option that doesn't apply to a kind of query is refused, and so is an unknown one, but for those that Spark itself
adds: a query that takes no notice of an option would do something else than it says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from txn_source.client.places import parse_side, side_at
from txn_source.client.reading.columns import METADATA_COLUMNS, metadata_columns
from txn_source.client.target import Target
from txn_source.metadata.stub.credentials import OPTIONS
from txn_source.model.errors import InvalidArgumentError
from txn_source.model.given_options import (
    CATALOG_DEFAULTS,
    GivenOptions,
    natural,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.read_priority import ReadPriority
from txn_source.model.spark_commit import AppVersion
from txn_source.model.topic_name import TopicName
from txn_source.reading.filters import Filters
from txn_source.reading.limits import StreamLimits
from txn_source.reading.options import (
    BATCH_ONLY,
    READ,
    STREAM_ONLY,
    check_side,
    lane,
    limits_of,
    request_of,
    selection_of,
    side_of,
)
from txn_source.reading.places import Side
from txn_source.reading.request import ReadRequest, Selection, check_as_of
from txn_source.spark.foreign_options import foreign_option
from txn_source.storage.log_tables import check_table

T = TypeVar("T")
Elsewhere = dict[str, tuple[str, ...]]
"""Options that mean something only for what the keys say."""
TOPIC = METADATA_COLUMNS["__topic"]
"""As a column of a write it names the topic of each row."""

_TARGET = ("path", "endpoint", *OPTIONS.values())
_INTERNAL = ("__pushedFilters", "__limit", "__cutStart")
"""Options that the catalog hands over; they aren't for users."""
_BATCH_ONLY = (*BATCH_ONLY, "asOfTimestamp", "metadataTable", *_INTERNAL)
_BATCH_READ = (
    *dict.fromkeys((*_TARGET, *READ)),
    *_BATCH_ONLY,
    "dataReadPriority",
)
_STREAM_ONLY = (*STREAM_ONLY, "subscription")
_TABLE_READ = (*_TARGET, "topic", "metadataTable", "__pushedFilters", "__limit")
_WRITE = (*_TARGET, "topic", "transactionalId")
_BATCH_WRITE = ("txnAppId", "txnVersion")
_TABLE = ("insertable",)
_STREAM_READ = tuple(name for name in (*_BATCH_READ, *_STREAM_ONLY) if name not in _BATCH_ONLY)
NATIVE_READS = "nativeTieredReads"
"""``false`` keeps Spark's Parquet reader from reading objects."""
BATCH_READ, STREAM_READ, WRITE = (
    {name.lower(): name for name in names} for names in (_BATCH_READ, _STREAM_READ, _WRITE)
)
"""The options of each kind of query that a table may carry, by their lower-case names."""
_STREAMS_ONLY: Elsewhere = {"streaming queries only": _STREAM_ONLY}
_WRITES_ONLY: Elsewhere = {"writing only": _WRITE, "batch writes only": _BATCH_WRITE}
_TABLES_ONLY: Elsewhere = {"CREATE TABLE only": _TABLE}
_LEAVE_OUT = {
    "streaming queries only": "Leave it out, or use spark.readStream.",
    "batch writes only: a stream's write is exactly once by itself": "Leave it out.",
}
_VERSION_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class ColumnOptions:
    """What decides on the columns of a read, batch or stream: Spark asks for the schema without saying which it is."""

    target: Target
    selection: Selection
    metadata_columns: str
    insertable: bool
    """Of a table: ``INSERT`` is to find its way by itself."""

    @classmethod
    def parse(
        cls, options: Mapping[str, str], *, for_table: bool = False, properties: Collection[str] = ()
    ) -> ColumnOptions:
        """Return the options' meaning, or raise INVALID_ARGUMENT for the first that can't be.

        ``properties``: names, in lower case, that may be a table's properties; unknown ones are allowed.
        """
        given = _Given(options, properties)
        elsewhere: Elsewhere = {"batch writes only": _BATCH_WRITE}
        if for_table:
            given.check((*_BATCH_READ, *_STREAM_ONLY, *_WRITE, *_TABLE), elsewhere)
        else:
            given.check((*_BATCH_READ, *_STREAM_ONLY, *_WRITE), elsewhere | _TABLES_ONLY)
        selection = selection_of(given.values)
        # Whatever is wrong for both kinds of query is told now, and not when the query runs.
        given.request(LATEST)
        given.as_of()
        given.filters()
        limits_of(given)
        given.subscription()
        insertable = given.flag("insertable", default=False)
        return cls(given.target(), selection, given.metadata_columns(), insertable)


@dataclass(frozen=True, slots=True)
class BatchReadOptions:
    """What a batch read was asked for."""

    target: Target
    selection: Selection
    request: ReadRequest

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> BatchReadOptions:
        """Return the options' meaning, or raise INVALID_ARGUMENT for the first that can't be."""
        given = _Given(options)
        given.check(_BATCH_READ, _STREAMS_ONLY | _WRITES_ONLY | _TABLES_ONLY)
        selection = selection_of(given.values)
        request = given.request(EARLIEST)
        as_of = given.as_of()
        if as_of is not None:
            check_as_of(request.isolation_level, request.end != Side(LATEST))
            request = replace(request, as_of_us=as_of)
        request = replace(request, filters=given.filters(), limit=given.optional("__limit", natural))
        request = replace(request, began=given.optional("__cutStart", lambda text: parse_side(text, EARLIEST)))
        given.metadata_columns()
        return cls(given.target(), selection, request)


@dataclass(frozen=True, slots=True)
class MetadataTableOptions:
    """What a read of a table about the log was asked for; ``topic`` None: all topics."""

    target: Target
    table: str
    topic: str | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> MetadataTableOptions | None:
        """Return the options' meaning, or raise INVALID_ARGUMENT; None if no such table is named."""
        given = _Given(options)
        table = given.optional("metadataTable", check_table)
        if table is None:
            return None
        others = tuple(name for name in _BATCH_READ if name not in _TABLE_READ)
        given.check(_TABLE_READ, {"reading messages only": others} | _STREAMS_ONLY | _WRITES_ONLY | _TABLES_ONLY)
        topic = given.optional("topic", TopicName.parse)
        return cls(given.target(), table, None if topic is None else str(topic))


@dataclass(frozen=True, slots=True)
class StreamReadOptions:
    """What a streaming read was asked for."""

    target: Target
    selection: Selection
    request: ReadRequest
    limits: StreamLimits
    subscription: str | None
    subscription_level: IsolationLevel | None
    """The level that it must have, None if none was asked for."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamReadOptions:
        """Return the options' meaning, or raise INVALID_ARGUMENT for the first that can't be."""
        given = _Given(options)
        no_end: Elsewhere = {"batch queries only: a stream has no end": _BATCH_ONLY}
        given.check(_STREAM_READ, no_end | _WRITES_ONLY | _TABLES_ONLY)
        selection = selection_of(given.values)
        given.metadata_columns()
        return cls(
            given.target(),
            selection,
            given.request(LATEST),
            limits_of(given),
            given.subscription(),
            given.optional("isolationLevel", IsolationLevel.parse),
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a batch or streaming write was asked for; ``topic`` is None if each row names its own."""

    target: Target
    topic: TopicName | None
    transactional_id: str | None
    app: AppVersion | None = None
    through_catalog: bool = False
    """Spark knows where the topic is, and its columns."""

    @classmethod
    def parse(cls, options: Mapping[str, str], columns: Sequence[str], *, stream: bool = False) -> WriteOptions:
        """Return the options' meaning for a frame with some columns, or raise INVALID_ARGUMENT."""
        given = _Given(options)
        reads: Elsewhere = {"reading only": _BATCH_READ, "streaming reads only": _STREAM_ONLY}
        elsewhere = reads | _TABLES_ONLY
        if stream:
            by_itself: Elsewhere = {"batch writes only: a stream's write is exactly once by itself": _BATCH_WRITE}
            given.check(_WRITE, elsewhere | by_itself)
        else:
            given.check((*_WRITE, *_BATCH_WRITE), elsewhere)
        target = given.target()
        topic = given.optional("topic", TopicName.parse)
        fans_out = TOPIC.name in columns
        if (topic is None) == (not fans_out):
            said = f"both the option 'topic' and a column {TOPIC.name}" if fans_out else f"no topic and no {TOPIC.name}"
            raise InvalidArgumentError(
                f"The write has {said}.",
                f'Give .option("topic", "orders"), or a text column {TOPIC.name} that names a topic in each row.',
            )
        transactional_id = given.get("transactionalId")
        if transactional_id is not None and (not transactional_id or fans_out):
            raise InvalidArgumentError(
                "The option 'transactionalId' is empty." if not transactional_id
                else f"'transactionalId' belongs to one topic, and column {TOPIC.name} names many.",
                "Give an id together with the option 'topic', or leave it out: a write is exactly once without it.",
            )  # fmt: skip
        return cls(target, topic, transactional_id, given.app(), through_catalog(options))


def native_reads_wanted(options: dict[str, str]) -> bool:
    """Take the option ``nativeTieredReads`` out of some, and return whether Spark's Parquet reader may read objects."""
    names = [name for name in options if name.lower() == NATIVE_READS.lower()]
    wanted = _Given({name: options[name] for name in names}).flag(NATIVE_READS, default=True)
    for name in names:
        del options[name]
    return wanted


def through_catalog(options: Mapping[str, str]) -> bool:
    """True if a query names its topic by a catalog."""
    return any(name.lower() == CATALOG_DEFAULTS for name in options)


def check_catalog_options(options: Mapping[str, str]) -> None:
    """Raise INVALID_ARGUMENT for an option of a catalog that is close to a known one, or that names a topic."""
    topics: Elsewhere = {"queries: the tables of a catalog are topics": ("topic", "topics", "topicsPattern")}
    own = (*_TARGET, "allowDrop", NATIVE_READS)
    given = _Given(options)
    known = {*_BATCH_READ, *_STREAM_ONLY, *_WRITE, *_BATCH_WRITE, *own} - {"topic", "topics", "topicsPattern"}
    given.check(sorted(known), topics | _TABLES_ONLY)
    given.flag("allowDrop", default=False)
    given.optional("lane", lane)
    given.flag(NATIVE_READS, default=True)


class _Given(GivenOptions):
    """The options of a query of a log of our own."""

    def check(self, allowed: Collection[str], elsewhere: Mapping[str, Collection[str]]) -> None:  # type: ignore[override]
        super().check(allowed, elsewhere, foreign_option, _LEAVE_OUT)

    def metadata_columns(self) -> str:
        """Return the choice of metadata columns, checked here too: ``.schema`` makes it idle, but never right."""
        choice = self.get("metadataColumns") or "default"
        self.optional("metadataColumns", lambda _: metadata_columns(choice, several_topics=False))
        return choice

    def request(self, default: str) -> ReadRequest:
        """Return how to read; ``default`` is where a read starts if no option says it."""
        sides = []
        for which, usual in (("starting", default), ("ending", LATEST)):
            side = side_of(self.values, which, usual, parse_side)
            check_side(side, which, usual)
            sides.append(side)
        request = request_of(self, *sides)
        return replace(request, read_priority=self.optional("dataReadPriority", ReadPriority.parse))

    def as_of(self) -> int | None:
        """Return the time of ``asOfTimestamp`` in microseconds."""
        return self.optional("asOfTimestamp", lambda text: side_at(text, LATEST).time_us)

    def filters(self) -> Filters:
        """Return the filters of the query, which the catalog hands over for skipping."""
        return self.optional("__pushedFilters", Filters.parse) or Filters()

    def subscription(self) -> str | None:
        """Return the name of the subscription that the query follows; it belongs to one topic, with all partitions."""
        name = self.get("subscription")
        if name == "":
            raise InvalidArgumentError("The option 'subscription' is empty.", "Give its name, or leave it out.")
        topic = self.get("topic")
        if name is not None and (topic is None or TopicName.parse(topic).split_partition() is not None):
            raise InvalidArgumentError(
                f"Subscription {name!r} belongs to one whole topic, and the query names "
                + ("others." if topic is None else f"one partition, {topic!r}."),
                'Name its topic alone: .option("topic", "orders").',
            )
        return name

    def app(self) -> AppVersion | None:
        """Return the version that a batch write has as one of its application's, None if it is none."""
        app_id, version = self.get("txnAppId"), self.optional("txnVersion", _version)
        if (app_id is None) != (version is None) or app_id == "":
            has = "an empty 'txnAppId'" if app_id == "" else "one of 'txnAppId' and 'txnVersion'"
            raise InvalidArgumentError(
                f"The write has {has}, and a version belongs to an application.",
                'Give both, such as .option("txnAppId", "orders-to-bills").option("txnVersion", batch_id).',
            )
        return None if app_id is None or version is None else AppVersion(app_id, version)

    def target(self) -> Target:
        path, endpoint = self.get("path"), self.get("endpoint")
        if (path is None) == (endpoint is None):
            given = (
                "neither the option 'path' nor 'endpoint'" if path is None else "both the options 'path' and 'endpoint'"
            )
            raise InvalidArgumentError(
                f"The query has {given}.",
                'Give .load("/path/of/the/log") for an embedded log, or .option("endpoint", "host:port").',
            )
        return Target.of(path, endpoint, credentials={name: self.get(option) for name, option in OPTIONS.items()})


def _version(text: str) -> int:
    if text.strip().isascii() and text.strip().isdigit() and int(text) <= _VERSION_MAX:
        return int(text)
    raise InvalidArgumentError(f"{text!r} is not a version.", "Use a number from 0, such as the id of the batch.")
