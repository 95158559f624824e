"""A log that others wrote, as ``txn_source.connect`` gives it: it can be looked at and read, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import pyarrow as pa

from txn_source.foreign.foreign_log import ForeignTransaction
from txn_source.foreign.message_reader import ForeignReader
from txn_source.foreign.reading.topics import ForeignLook, SeenPartition, names_of, topics_of
from txn_source.foreign.scan import count, scan, schema_of
from txn_source.foreign.source import ForeignSource
from txn_source.foreign.target import ForeignTarget
from txn_source.model.door import guarded
from txn_source.model.errors import InvalidArgumentError, TxnLogError
from txn_source.model.isolation import GivenLevel, IsolationLevel
from txn_source.model.position import EARLIEST, LATEST, Position, PositionRange
from txn_source.model.transaction import GivenState, TransactionState
from txn_source.reading.follow import Follower
from txn_source.reading.places import Cut
from txn_source.reading.plan import plan
from txn_source.reading.ranges import cuts_of
from txn_source.reading.request import ReadRequest, Selection

_log = logging.getLogger(__name__)
WRITES = (
    "abort_transaction", "add_root", "begin_transaction", "collect_garbage", "copies_read", "create_subscription",
    "create_topic", "delete_hot", "delete_offloaded", "delete_subscription", "delete_topic", "delete_unknown",
    "export_iceberg",
    "get_data_read_priority", "maintain", "metadata_table", "offload", "policies", "producer",
    "remove_data_read_priority", "remove_root", "roll_ledger", "roots", "seek", "set_data_read_priority",
    "set_policies", "set_subscription_isolation_level", "subscribe", "subscription", "subscriptions", "transaction",
    "trim", "unknown_files", "update_topic",
)  # fmt: skip
"""What a log of txnlog's own does besides; here it is refused."""
_UNIT_BYTES = 128 << 20
Offset = int | Position
"""As the format has positions: Kafka's are numbers."""


@dataclass(frozen=True, slots=True)
class TransactionOnPartition:
    """A transaction on one partition.

    Of formats that don't know producers by id, ``producer_id`` and ``producer_epoch`` are the two parts of the
    transaction's id. ``first`` and ``last`` are its first and last data, ``marker`` is where it ended; None: unknown,
    or not yet. Of an open one ``held_back`` and ``held_back_bytes`` are about how many messages, markers among them,
    and stored bytes lie from its first data up to the high watermark: readers at read_committed wait for them.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    state: TransactionState
    first: Offset
    last: Offset | None
    marker: Offset | None
    held_back: int | None = None
    held_back_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ForeignPartitionStats:
    """A partition: its bounds (exclusive but ``log_start``), and what its open transactions hold back.

    ``positions`` and ``bytes`` are about how many messages, markers among them, and stored bytes there are.
    """

    partition: int
    log_start: Offset
    last_stable: Offset
    high_watermark: Offset
    log_end: Offset
    positions: int
    bytes: int
    topic_id: str | None
    ongoing_transactions: tuple[TransactionOnPartition, ...]


@dataclass(frozen=True, slots=True)
class ForeignTopicStats:
    """A topic and its partitions."""

    topic: str
    partitions: tuple[ForeignPartitionStats, ...]

    @property
    def bytes(self) -> int:
        """About so many bytes are stored."""
        return sum(p.bytes for p in self.partitions)

    @property
    def positions(self) -> int:
        """About so many messages, markers among them."""
        return sum(p.positions for p in self.partitions)

    @property
    def ongoing_transactions(self) -> tuple[TransactionOnPartition, ...]:
        """The open transactions of all partitions; one that wrote to several is there for each."""
        return tuple(txn for p in self.partitions for txn in p.ongoing_transactions)


@guarded
class ReadOnlyLog:
    """A log that others wrote. Each call looks at what is there then; nothing needs to be closed.

    It can be pickled and used after a fork.
    """

    def __init__(self, target: ForeignTarget) -> None:
        self._target = target
        self._rules = target.rules
        target.open()

    def __reduce__(self) -> tuple[type[Self], tuple[ForeignTarget]]:
        return type(self), (self._target,)

    def __repr__(self) -> str:
        return f"<ReadOnlyLog {self._target}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name in WRITES:
            return lambda *_, **__: self._refuse(name)
        raise AttributeError(f"'ReadOnlyLog' object has no attribute {name!r}")

    def _refuse(self, name: str) -> NoReturn:
        raise InvalidArgumentError(
            f"{self._target} is {self._rules.name.capitalize()}'s and only read: there is no {name}().",
            "Import its topics to a log of txnlog's own.",
        )

    def close(self) -> None:
        """Nothing is open."""

    @property
    def target(self) -> ForeignTarget:
        """What was connected to: a value that other processes can open."""
        return self._target

    def topics(self, namespace: str | None = None) -> list[str]:
        """Return the names of all topics but the system's own, or of those of one ``tenant/namespace``, sorted."""
        found = [self._rules.written(topic) for topic in topics_of(self._target.open(), self._rules)]
        return sorted(
            names[0] for names in found if namespace is None or f"/{namespace.strip('/')}/" in f"/{names[-1]}"
        )

    def list_topics(self) -> list[str]:
        """Return the names of all topics but the system's own, sorted."""
        return self.topics()

    def schema(self, topic: str) -> pa.Schema:
        """Return the columns that a read of a topic has by itself."""
        return schema_of(self._target, self._look_at((topic,)))

    def stats(self, name: str) -> ForeignTopicStats:
        """Return a topic's bounds and open transactions, or raise ``TopicNotFoundError``."""
        partitions = self._look_at((name,)).partitions
        written = self._rules.written(partitions[0].name.topic)[0]
        return ForeignTopicStats(written, tuple(self._partition_stats(of) for of in partitions))

    def transactions(
        self, state: GivenState | None = "open", topic: str | None = None, limit: int = 0, *, oldest_first: bool = False
    ) -> list[TransactionOnPartition]:
        """Return transactions as they are on each partition, those with the highest positions first.

        Args:
            state: ``open``, ``committed``, ``aborted``, or None for all; all but ``open`` need a look at the whole log.
            topic: only those of this topic; None: of all but the system's own, and those that can't be read, which
                are logged.
            limit: how many at most; 0: all.
            oldest_first: those with the lowest positions come first.
        """
        wanted = None if state is None else _state(state)
        source, log = ForeignSource(self._target), self._target.open()
        topics = [topic] if topic is not None else list(topics_of(log, self._rules))
        found: list[TransactionOnPartition] = []
        for name in topics:
            try:
                for of in source.look_at(log, names_of(log, self._rules, Selection((name,)))).partitions:
                    some = self._transactions(of, wanted is TransactionState.OPEN)
                    found += [txn for txn in some if wanted in (None, txn.state)]
            except TxnLogError as error:
                if topic is not None:
                    raise
                _log.warning("the transactions of topic %s are left out: %s", name, error)
        found.sort(key=lambda txn: txn.first, reverse=not oldest_first)
        return found[:limit] if limit else found

    def scan(
        self,
        topic: str | Sequence[str],
        isolation_level: GivenLevel = IsolationLevel.READ_COMMITTED,
        columns: Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
        consistent_cut: bool = True,
    ) -> pa.RecordBatchReader:
        """Read what is there now; DuckDB, Polars and pandas take the result as it is.

        Args:
            topic: a name or several.
            isolation_level: ``read_committed`` or ``read_uncommitted``.
            columns: in this order; None: those that Spark shows by default.
            start: first position to read, inclusive: ``earliest``, a position of the format's (if one partition is
                read), a mapping ``{"orders": {0: 42}}``, or a datetime, which stands for the first message of that time
                or a later one.
            end: where to stop, exclusive, likewise; ``latest`` is the level's bound now.
            consistent_cut: see whole transactions only over several partitions, where the format tells which they are.

        Raises:
            TopicNotFoundError: there is no such topic.
            InvalidArgumentError: a level, column, place or time that can't be.
            OutOfRangeError: a position outside the log.
            DataLossError: one that was deleted, or what was planned is gone.
            SegmentUnreadableError: what is stored is damaged.
        """
        selection = Selection.of(topic)
        request = self._request(isolation_level, start, end, consistent_cut)
        return scan(self._target, selection, request, columns)

    def count(
        self,
        topic: str | Sequence[str],
        isolation_level: GivenLevel = IsolationLevel.READ_COMMITTED,
        start: Any = None,
        end: Any = None,
        consistent_cut: bool = True,
    ) -> int:
        """Return how many messages ``scan`` would read with the same arguments.

        Kafka's are counted by the headers of their batches: damage behind those of large ones isn't found. Pulsar's
        are read.
        """
        source = ForeignSource(self._target)
        look = source.look(Selection.of(topic))
        request = self._request(isolation_level, start, end, consistent_cut)
        return count(source, self._target, look, plan(source, look, request))

    def cut(self, topics: str | Sequence[str], isolation_level: GivenLevel = IsolationLevel.READ_COMMITTED) -> Cut:
        """Return up to where topics could be read now, so that several reads end at the same place.

        ``scan(topic, end=cut)`` reads any of the topics up to there, and Spark with ``endingOffsets`` set to
        ``cut.json()``.
        """
        level = IsolationLevel.parse(isolation_level)
        return cuts_of(ForeignSource(self._target), Selection.of(topics), [level])[level]

    def every_column(self, topic: str) -> list[str]:
        """Return the names of all columns that ``scan`` can read of a topic."""
        return list(self._look_at((topic,)).payload.names)

    def reader(
        self,
        topic: str,
        start: Any = EARLIEST,
        isolation_level: GivenLevel = IsolationLevel.READ_COMMITTED,
    ) -> ForeignReader:
        """Open a reader: it reads a topic message by message from anywhere on, and what is added meanwhile, too.

        Args:
            topic: whose messages.
            start: the first one to read: whatever ``scan`` takes.
            isolation_level: what it sees.

        Raises:
            TopicNotFoundError: there is no such topic.
            InvalidArgumentError: a place that can't be.
        """
        level, columns = IsolationLevel.parse(isolation_level), self.every_column(topic)
        return ForeignReader(topic, lambda at: self.follow(topic, level, columns, at), start)

    def follow(
        self,
        topic: str,
        level: IsolationLevel,
        columns: Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
    ) -> Follower[ForeignLook]:
        """Return a place in a topic that is read from again and again."""
        request = self._request(level, start, end, True)
        return Follower(
            ForeignSource(self._target),
            Selection.of(topic),
            request,
            lambda look: schema_of(self._target, look, columns),
        )

    def _request(self, level: GivenLevel, start: Any, end: Any, cut: bool) -> ReadRequest:
        sides = self._rules.parse_side(start, EARLIEST), self._rules.parse_side(end, LATEST)
        return ReadRequest(IsolationLevel.parse(level), *sides, cut)

    def _look_at(self, topics: tuple[str, ...]) -> ForeignLook:
        return ForeignSource(self._target).look(Selection(topics))

    def _partition_stats(self, of: SeenPartition) -> ForeignPartitionStats:
        bounds, offset = of.bounds, self._rules.offset
        units = of.partition.units(PositionRange(bounds.log_start, bounds.high_watermark), _UNIT_BYTES)
        return ForeignPartitionStats(
            of.name.partition,
            offset(bounds.log_start),
            offset(bounds.last_stable),
            offset(bounds.high_watermark),
            offset(bounds.log_end),
            sum(unit.rows for unit in units),
            sum(unit.bytes for unit in units),
            of.partition.identity,
            tuple(txn for txn in self._transactions(of, True) if txn.state is TransactionState.OPEN),
        )

    def _transactions(self, of: SeenPartition, undecided: bool) -> list[TransactionOnPartition]:
        """Return the transactions of a partition, or just those that can be open."""
        bounds = of.bounds
        start = bounds.last_stable if undecided else bounds.log_start
        found = of.partition.transactions(PositionRange(start, bounds.high_watermark))
        return [self._shown(of, txn) for txn in found]

    def _shown(self, of: SeenPartition, txn: ForeignTransaction) -> TransactionOnPartition:
        name, end = of.name, of.bounds.high_watermark
        held = [] if txn.marker or txn.first >= end else of.partition.units(PositionRange(txn.first, end), _UNIT_BYTES)
        is_open = txn.state is TransactionState.OPEN
        last, marker = (None if at is None else self._rules.offset(at) for at in (txn.last, txn.marker))
        return TransactionOnPartition(
            self._rules.written(name.topic)[0],
            name.partition,
            txn.producer_id,
            txn.producer_epoch,
            txn.state,
            self._rules.offset(txn.first),
            last,
            marker,
            sum(unit.rows for unit in held) if is_open else None,
            sum(unit.bytes for unit in held) if is_open else None,
        )


def _state(text: str) -> TransactionState:
    try:
        return TransactionState(text)
    except ValueError:
        raise InvalidArgumentError(
            f"{text!r} is no state of a transaction.", "Use open, committed, aborted, or None for all."
        ) from None
