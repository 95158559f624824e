"""What a catalog's statements ask of a log that others wrote: its topics as tables that are only read."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.types import StructType

from txn_source.foreign.foreign_log import ForeignLog
from txn_source.foreign.reading.options import BATCH, SCHEMA, ForeignOptions, checked
from txn_source.foreign.reading.topics import label, topics_of
from txn_source.foreign.scan import count
from txn_source.foreign.source import ForeignSource
from txn_source.foreign.target import ForeignTarget
from txn_source.model.errors import InvalidArgumentError, TopicNotFoundError
from txn_source.model.packing import OPENING_COST_BYTES
from txn_source.model.topic_name import TopicName
from txn_source.reading.plan import plan
from txn_source.spark.batch import batch_tasks
from txn_source.spark.catalog.lanes import lanes
from txn_source.spark.catalog.read_calls import query_cut
from txn_source.spark.catalog.stream_calls import STREAM_CALLS
from txn_source.spark.schema import to_spark

_DEFAULT = ("public", "default")
_OWN = ("path", "allowdrop", "nativetieredreads")
_SHOWN_MAX = 4


class ForeignCatalogCalls:
    """The calls by their names; each takes the arguments that the catalog sends, and returns its answer.

    A topic's table has the columns of a read without an option; its hidden columns are all others.
    """

    def __init__(self, target: ForeignTarget) -> None:
        self._target = target
        self._rules = target.rules
        refused = dict.fromkeys(("create", "drop", "dropEmpty", "set", "change"), self._refuse)
        self.by_name: Mapping[str, Callable[..., Any]] = {
            "checkOptions": self.check_options,
            "namespaces": self.namespaces,
            "topics": self.topics,
            "table": self.table,
            "version": self.version,
            "asOf": self.as_of,
            "cut": self.cut,
            "outlook": self.outlook,
            "count": self.count,
            "plan": self.plan,
            **STREAM_CALLS,
            **refused,
        }

    def check_options(self, options: Mapping[str, str]) -> None:
        """Refuse what no query takes; what the format has to be told counts for all calls from then on."""
        given = {name: value for name, value in options.items() if name.lower() not in _OWN}
        for name in ("topic", "topics", "topicsPattern"):
            if name.lower() in {other.lower() for other in given}:
                raise InvalidArgumentError(
                    f"The option {name!r} is for queries: the tables of a catalog are topics.", "Leave it out."
                )
        known = checked(self._rules, given, SCHEMA).values
        told = {name: known[name.lower()] for name in self._rules.open_options if name.lower() in known}
        self._target = self._target.with_options(told)

    def namespaces(self) -> list[list[str]]:
        """Return tenant and namespace of each topic, once, and the default ones."""
        return [list(name) for name in sorted({self._place(topic)[:2] for topic in self._topics()} | {_DEFAULT})]

    def topics(self, namespace: Sequence[str]) -> list[str]:
        """Return the topics of a namespace; none if there is no such namespace."""
        if len(namespace) > 2:
            return []
        within = (*namespace, *_DEFAULT[len(namespace) :])
        return [name for *place, name in map(self._place, self._topics()) if tuple(place) == within]

    def table(self, namespace: Sequence[str], name: str) -> dict[str, Any]:
        """Return a topic's columns and properties; if there is none, just the error if names are ``near``, or ""."""
        log = self._target.open()
        topic = self._topic(namespace, name, log)
        if topic is None:
            here = {other.lower(): other for other in self.topics(namespace)}
            near = difflib.get_close_matches(name.lower(), here, n=2, cutoff=0.75)
            told = f"Did you mean {' or '.join(here[other] for other in near)}?"
            return {"near": str(TopicNotFoundError(f"There is no topic {name!r}.", told)) if near else ""}
        every = self._rules.columns(log, [topic])
        columns = self._rules.default_columns(every, "none", {}, several=False)
        schema = to_spark(pa.schema([every.field(column) for column in columns]))
        partitions = topics_of(log, self._rules)[topic]
        return {
            "topic": self._rules.written(topic)[0],
            "schema": schema.json(),
            "metadata": to_spark(pa.schema([field for field in every if field.name.startswith("__")])).json(),
            "properties": {"partitions": str(len(partitions)), "format": self._rules.name},
        }

    def version(self, namespace: Sequence[str], name: str, version: str) -> str:
        """Return the offsets at which a version of a topic ends: JSON, or the position of its only partition."""
        return version.strip()

    def as_of(self, **_: Any) -> NoReturn:
        """Refuse: when a transaction was committed is no part of the plan of a log that others wrote."""
        raise InvalidArgumentError(
            f"{self._target} can't be read as of a time: its files don't say when a transaction was committed.",
            "Use VERSION AS OF with offsets, or WITH (endingTimestamp = '...'), which goes by the messages' times.",
        )

    def cut(self, topics: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
        """Return options of the scans of a query, by isolation level: where they end, and began then, at one moment."""
        return query_cut(ForeignSource(self._target), topics)

    def outlook(self, options: Mapping[str, str]) -> dict[str, Any]:
        """Return what a batch read would find now; rows are at most so many."""
        given = ForeignOptions.parse(options, BATCH)
        unsure: list[str | None] = []
        source = ForeignSource(given.target)
        planned = plan(source, source.look(given.selection), given.request, unsure.append)
        units = [piece.unit for piece in planned.parts]
        size = sum(unit.bytes for unit in units)
        bounds = [
            f"{label(name)}: [{self._rules.offset(reach.start)}, {self._rules.offset(reach.end)})"
            for name, reach in planned.ranges[:_SHOWN_MAX]
        ]
        more = len(planned.ranges) - len(bounds)
        cut = "".join(f"; no consistent cut: {said}" for said in unsure if said)
        return {
            "rows": sum(unit.rows for unit in units),
            "bytes": size,
            "bounds": ", ".join(bounds) + (f" and {more} more" if more else "") + cut,
            "ledgers": f"about {size >> 20} MiB" if size > OPENING_COST_BYTES else f"about {size} bytes",
            "tasks": len(planned.tasks) or min(os.cpu_count() or 1, 1),
        }

    def count(self, options: Mapping[str, str]) -> int:
        """Return how many messages a batch read has."""
        given = ForeignOptions.parse(options, BATCH)
        source = ForeignSource(given.target)
        look = source.look(given.selection)
        return count(source, given.target, look, plan(source, look, given.request))

    def plan(self, options: Mapping[str, str], schema: str, objects: bool) -> dict[str, Any]:
        """Return the tasks of a batch read as ``lanes`` does; ``schema`` is Spark's, as JSON."""
        given = ForeignOptions.parse(options, BATCH)
        return lanes(batch_tasks(ForeignSource(given.target), given, StructType.fromJson(json.loads(schema))))

    def _topics(self) -> list[str]:
        return list(topics_of(self._target.open(), self._rules))

    def _place(self, topic: str) -> tuple[str, str, str]:
        """Return tenant, namespace and name of a topic; what has none of its own is in public.default."""
        if "://" not in topic:
            return (*_DEFAULT, topic)
        name = TopicName.parse(topic)
        return name.tenant, name.namespace, name.name

    def _topic(self, namespace: Sequence[str], name: str, log: ForeignLog) -> str | None:
        if len(namespace) > 2:
            return None
        wanted = (*namespace, *_DEFAULT[len(namespace) :], name)
        return next((topic for topic in topics_of(log, self._rules) if self._place(topic) == wanted), None)

    def _refuse(self, **_: Any) -> NoReturn:
        raise InvalidArgumentError(
            f"{self._target} is {self._rules.name.capitalize()}'s and only read.",
            "Import its topics to a log of txnlog's own.",
        )
