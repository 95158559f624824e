"""Importing topics that others wrote as a Spark job: its tasks read and write, the driver registers.

The order, the transactions and how far the import has come are the driver's alone, as without Spark. So a task may run
twice, and what it wrote then is garbage.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession

from txn_source.foreign.target import ForeignTarget
from txn_source.importing.batch_writer import BatchWriter
from txn_source.importing.course import Lane
from txn_source.importing.feed import Feed
from txn_source.importing.import_topics import ImportReport
from txn_source.importing.import_topics import import_topics as import_here
from txn_source.importing.source import target_of
from txn_source.importing.written import PartToWrite, Recipe, WrittenFeed, write_part
from txn_source.model.errors import ERROR_CLASSES, StaleSegmentError, TxnLogError
from txn_source.spark.connection import open_log

if TYPE_CHECKING:
    from txn_source.client.log import Log
    from txn_source.client.target import Target

_ATTEMPTS = 3
_PARTS_FOR_A_CORE = 2
_TOLD = "number int, steps binary, code string, fact string, remedy string"
_ARROW = pa.schema(
    [
        pa.field("number", pa.int32()),
        pa.field("steps", pa.binary()),
        *(pa.field(name, pa.string()) for name in ("code", "fact", "remedy")),
    ]
)


def import_topics(
    spark: SparkSession,
    source: str | ForeignTarget,
    topics: str | Sequence[str],
    log: Log,
    *,
    names: Sequence[str] | None = None,
    undecided: str = "leave",
    options: Mapping[str, str] | None = None,
    progress: Callable[[int], object] | None = None,
    metadata: str | Sequence[str] = (),
    typed: bool = False,
) -> ImportReport:
    """Import topics of Kafka's or Pulsar's into a log, as ``txn_source.importing.import_topics``, by tasks of Spark's.

    Either goes on where the other was stopped. The executors must reach the source, the log and its folder, or bucket,
    as the driver does.

    Raises:
        TxnLogError: as without Spark; what a task failed with.
    """
    target = target_of(source, options)
    some = (topics,) if isinstance(topics, str) else tuple(topics)
    kept = (metadata,) if isinstance(metadata, str) else tuple(metadata)
    job = _Job(spark, log.target, Recipe(target, some, kept, typed))
    told = 0

    def tell(messages: int) -> None:
        nonlocal told
        told = messages
        if progress is not None:
            progress(before + messages)

    before = 0
    for attempt in range(_ATTEMPTS):
        try:
            report = import_here(
                target,
                some,
                log,
                names=names,
                undecided=undecided,
                progress=tell,
                metadata=kept,
                typed=typed,
                feeds_of=job.feeds,
            )
            return ImportReport(report.parts, report.transactions, before + report.messages)
        except StaleSegmentError:  # a ledger was offloaded while tasks wrote to its files: go on from what counts
            if attempt == _ATTEMPTS - 1:
                raise
            before, told = before + told, 0
    raise AssertionError("unreachable")


class _Job:
    """Has parts written, as many at once as there are cores for, and hands them to their feeds."""

    def __init__(self, spark: SparkSession, target: Target, recipe: Recipe) -> None:
        self._spark = spark
        self._task = _task(target, recipe)
        self._feeds: list[WrittenFeed] = []
        self._writer: BatchWriter | None = None
        self._identities = [topic.identity for topic in recipe.open()]
        self._most = _PARTS_FOR_A_CORE * max(_cores(spark), 1)

    def feeds(self, lanes: Sequence[Lane], writer: BatchWriter) -> Sequence[Feed]:
        """Return the feeds of lanes whose entries are those of a writer's producers."""
        self._writer = writer
        self._feeds = [WrittenFeed(lane, self._fill) for lane in lanes]
        return self._feeds

    def _fill(self, asking: WrittenFeed) -> None:
        """Have the next parts written, of the one that asks and of others that are as far behind."""
        assert self._writer is not None
        owners = self._writer.owners
        others = sorted((of for of in self._feeds if of.is_waiting and of is not asking), key=lambda of: of.fraction)
        waiting = [asking, *others]
        parts: list[tuple[WrittenFeed, PartToWrite]] = []
        while waiting and len(parts) < self._most:
            feed = waiting.pop(0)
            view, producer = owners[feed.lane.topic]
            identity = self._identities[feed.lane.topic]
            part = feed.next_part(identity, view.topic.name, view.topic.topic_id, producer.producer_id)
            if part is not None:
                parts.append((feed, part))
                waiting.append(feed)
        rows = [(number, pickle.dumps(part)) for number, (_, part) in enumerate(parts)]
        asked = self._spark.createDataFrame(rows, "number int, part binary").repartition(len(rows))
        done = asked.mapInArrow(self._task, _TOLD).collect()
        for (feed, _), row in zip(parts, sorted(done, key=lambda row: row.number), strict=True):
            if row.code is not None:
                raise ERROR_CLASSES[row.code](row.fact, row.remedy)
            feed.take(pickle.loads(row.steps))


def _cores(spark: SparkSession) -> int:
    """Return how many tasks run at once, as far as is told: over Spark Connect it isn't."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:
        return 4


def _task(target: Target, recipe: Recipe) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        access, topics = open_log(target), None
        for batch in batches:
            for row in batch.to_pylist():
                done: dict[str, object] = dict.fromkeys(_ARROW.names) | {"number": row["number"]}
                try:
                    topics = topics or recipe.open()
                    done["steps"] = pickle.dumps(write_part(access, topics, pickle.loads(row["part"])))
                except TxnLogError as error:
                    done |= {"code": error.code, "fact": error.fact, "remedy": error.remedy}
                yield pa.RecordBatch.from_pylist([done], schema=_ARROW)

    return run
