"""The log: topics, producers, transactions and reads, embedded or remote."""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import pyarrow as pa

from txn_source.client.access import Access
from txn_source.client.consuming.admin import SubscriptionCalls
from txn_source.client.reading.columns import read_schema, select_columns
from txn_source.client.reading.copy_fallback import CopiesRead
from txn_source.client.reading.offsets import Cut, Offsets
from txn_source.client.reading.plan import plan
from txn_source.client.reading.ranges import cut_of, start_positions
from txn_source.client.reading.request import ReadRequest, check_as_of
from txn_source.client.reading.source import resolve
from txn_source.client.target import Target
from txn_source.client.tiering.copy_deletion import Deletion
from txn_source.client.tiering.maintenance import MaintenanceReport, maintain
from txn_source.client.tiering.offload import Offloader, OffloadReport, delete_doomed_files
from txn_source.client.tiering.segment_garbage import DEFAULT_AGE_S, Garbage, collect_garbage
from txn_source.client.topic_stats import TopicStats, topic_stats
from txn_source.client.transaction import Transaction
from txn_source.client.writing.batching import Batching
from txn_source.client.writing.producer import Producer
from txn_source.metadata.stub.metadata_stub import MetadataStub, TransactionInfo
from txn_source.model.copies import OffloadableLedger, Tier
from txn_source.model.door import guard, guarded
from txn_source.model.errors import InvalidArgumentError, TopicNotFoundError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.ledger_limits import LedgerLimits
from txn_source.model.policies import POLICIES, EffectivePolicy, Scope, given_policies
from txn_source.model.position import EARLIEST, LATEST, Position
from txn_source.model.read_priority import ReadPriority
from txn_source.model.retention import Trimmed
from txn_source.model.topic_name import TopicName, parse_namespace
from txn_source.model.transaction import TransactionState, TxnId
from txn_source.model.units import given_duration
from txn_source.storage.object_store import check_folder
from txn_source.storage.schema import check_topic_schema, deserialize_schema, serialize_schema
from txn_source.storage.segment import topic_folder

_COPIES_READ: weakref.WeakKeyDictionary[pa.RecordBatchReader, CopiesRead] = weakref.WeakKeyDictionary()


@guarded(but=("offload",))  # its ``progress`` is the caller's
class Log(SubscriptionCalls):
    """A log that was connected to. Thread-safe; a context manager that closes its producers.

    It can be pickled and used after a fork: each process opens what it needs by itself.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._access = Access.open(target)
        self._stub, self._root = self._access.metadata, self._access.root
        self._producers: weakref.WeakSet[Producer] = weakref.WeakSet()
        self._consumers = weakref.WeakSet()

    def __reduce__(self) -> tuple[type[Log], tuple[Target]]:
        return Log, (self._target,)

    def __repr__(self) -> str:
        return f"<Log {self._target}>"

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the producers and consumers that are still open, which flushes them, and the connection."""
        with ExitStack() as stack:  # one that fails keeps no other from being flushed
            stack.callback(self._access.close)
            for producer in list(self._producers):
                stack.callback(producer.close)
            for consumer in list(self._consumers):
                stack.callback(consumer.close)

    # Topics

    def create_topic(self, name: str, partitions: int = 1, schema: pa.Schema | None = None, **policies: Any) -> None:
        """Create a topic.

        Args:
            name: ``orders`` or ``persistent://tenant/namespace/orders``.
            partitions: how many, 1 or more; it is fixed.
            schema: the payload columns; None is a raw topic with ``key binary, value binary``.
            policies: when the open ledger is rolled: ``ledger_max_entries``, ``ledger_max_bytes``, and
                ``ledger_max_age`` in seconds; and any of those that ``set_policies`` takes.

        Raises:
            TopicExistsError: there is one of that name.
            InvalidArgumentError: a name, number, type or policy that can't be.
        """
        if not isinstance(partitions, int) or isinstance(partitions, bool) or not 0 < partitions < 1 << 31:
            raise InvalidArgumentError(f"{partitions!r} is not a number of partitions.", "Use 1 or more.")
        if schema is not None:
            schema = check_topic_schema(schema)
        limits = LedgerLimits.of({k: v for k, v in policies.items() if k not in POLICIES})
        layered = given_policies({k: v for k, v in policies.items() if k in POLICIES and v is not None})
        if "offload_uri" in layered:
            check_folder(layered["offload_uri"])
        self._stub.create_topic(TopicName.parse(name), partitions, serialize_schema(schema), limits, _texts(layered))

    def topics(self, namespace: str | None = None) -> list[str]:
        """Return the names of all topics, or of those of one ``tenant/namespace``, sorted."""
        return [name.short for name in self._stub.list_topics(namespace)]

    def schema(self, topic: str) -> pa.Schema:
        """Return the payload columns of a topic."""
        [view] = self._stub.get_view([TopicName.parse(topic)]).topics
        return deserialize_schema(view.topic.schema)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages. Transactions that wrote to it go on elsewhere."""
        topic_id = self._stub.delete_topic(TopicName.parse(name))
        delete_doomed_files(self._access)
        shutil.rmtree(topic_folder(self._root, topic_id), ignore_errors=True)  # what stays is garbage for `txnlog gc`

    def stats(self, name: str) -> TopicStats:
        """Return a topic's bounds, ledgers and open transactions, with what each of these holds back."""
        return topic_stats(self._stub, TopicName.parse(name))

    def roll_ledger(self, topic: str, partition: int | None = None) -> list[int]:
        """Close the open ledger of each partition, or of one, now; return the ids of those that weren't empty."""
        if partition is not None and (not isinstance(partition, int) or abs(partition) >= 1 << 31):
            raise TopicNotFoundError(f"Topic {topic!r} has no partition {partition!r}.", "They are numbered from 0.")
        return self._stub.roll_ledger(TopicName.parse(topic), partition)

    def collect_garbage(self, older_than: float | timedelta | str = DEFAULT_AGE_S, dry_run: bool = False) -> Garbage:
        """Remove segment files that nothing refers to and that were last written so many seconds ago."""
        return collect_garbage(self._access, given_duration(older_than), dry_run=dry_run)

    # Tiers

    def offload(self, topic: str, progress: Callable[[OffloadableLedger], object] | None = None) -> OffloadReport:
        """Offload all closed ledgers that are wholly decided and have no tiered copy yet, oldest first.

        Ledgers with messages of an open transaction wait for its end. ``roll_ledger`` closes the open one.

        Args:
            topic: whose.
            progress: is told of each ledger when it is done.

        Raises:
            StorageWriteError: the target can't be written. What was offloaded before stays.
        """
        name = TopicName.parse(topic)
        ledgers, _ = self._stub.list_offloadable(name)
        report = Offloader(self._access, name).offload(ledgers, progress)
        delete_doomed_files(self._access)
        return report

    def delete_offloaded(self, topic: str) -> int:
        """Delete the tiered copies of a topic and return how many; its ledgers can be offloaded again.

        Raises:
            OnlyCopyError: the hot copy of one of them is gone or can't be read. None is deleted then.
        """
        count = Deletion(self._access, TopicName.parse(topic), Tier.TIERED).delete_all()
        delete_doomed_files(self._access)
        return count

    def delete_hot(self, topic: str, after_lag: bool = False) -> int:
        """Delete the hot copies of offloaded ledgers now, or those whose deletion lag has passed; return how many.

        Raises:
            OnlyCopyError: the object of one of them can't be read. None is deleted then; ``after_lag`` keeps just
                those.
        """
        deletion = Deletion(self._access, TopicName.parse(topic), Tier.BOOKKEEPER)
        count = deletion.delete_due()[0] if after_lag else deletion.delete_all()
        delete_doomed_files(self._access)
        return count

    def trim(
        self,
        topic: str,
        before: Any = None,
        older_than: float | timedelta | str | None = None,
        keep_bytes: int | str | None = None,
    ) -> list[Trimmed]:
        """Delete whole ledgers from the start of each partition, for any of the reasons given.

        A ledger with messages of an open transaction, or behind one, stays, and so does the open ledger. Without any
        reason the topic's retention policies apply.

        Args:
            topic: whose.
            before: a position (if there is one partition), a mapping ``{"orders": {0: "12:40"}}``, or a datetime:
                ledgers wholly before it go.
            older_than: seconds since a ledger was closed, a ``timedelta``, or a text such as ``7d``.
            keep_bytes: the oldest ledgers of a partition that has more go.

        Returns:
            What went from each partition, and where it starts now.
        """
        if before is None and older_than is None and keep_bytes is None:
            done = self._stub.trim_topic(TopicName.parse(topic), {}, None, None, apply_retention=True)
        else:
            limits = {"retention_age": older_than, "retention_bytes": keep_bytes}
            parsed = given_policies({name: value for name, value in limits.items() if value is not None})
            older_than_ms = None if older_than is None else int(parsed["retention_age"] * 1000)
            keep = parsed.get("retention_bytes")
            positions = {} if before is None else self._positions(topic, before)
            done = self._stub.trim_topic(TopicName.parse(topic), positions, older_than_ms, keep)
        delete_doomed_files(self._access)
        return done

    def maintain(self) -> MaintenanceReport:
        """Offload, delete and trim what the topics' policies say; ``txnlog serve`` does it in the background."""
        return maintain(self._access)

    def _positions(self, topic: str, at: Any) -> dict[int, Position]:
        source = resolve(self._stub, [topic])
        request = ReadRequest(IsolationLevel.READ_UNCOMMITTED, Offsets.parse(at, EARLIEST))
        starts = start_positions(self._access, source, request)
        return {p.view.index: start for p, start in zip(source.partitions, starts, strict=True)}

    # Policies

    def set_policies(self, topic: str | None = None, namespace: str | None = None, **policies: Any) -> None:
        """Set policies for a topic, for a namespace, or (neither) for the broker; None removes one.

        Args:
            topic: a name.
            namespace: ``tenant/namespace``.
            policies: ``data_read_priority``, ``offload_uri``, ``offload_compression_level``, ``offload_after_age``,
                ``offload_after_bytes``, ``offload_deletion_lag``, ``retention_age``, ``retention_bytes``; ages and lags
                in seconds, a ``timedelta``, or a text such as ``7d`` or ``12h``; sizes in bytes, or ``10GB``.

        Raises:
            InvalidArgumentError: a policy or a value that can't be. Nothing was changed.
            TopicNotFoundError, NamespaceNotFoundError: there is no such scope.
        """
        values = given_policies({name: value for name, value in policies.items() if value is not None})
        if values.get("offload_uri") is not None:
            check_folder(values["offload_uri"])
        removed = [name for name, value in policies.items() if value is None]
        self._stub.change_policies(_scope(topic, namespace), _texts(values), removed)

    def policies(self, topic: str) -> dict[str, EffectivePolicy]:
        """Return every policy of a topic as it is in force, and where it comes from."""
        return self._stub.policies_in_force(TopicName.parse(topic))

    def set_data_read_priority(
        self, value: ReadPriority | str, topic: str | None = None, namespace: str | None = None
    ) -> None:
        """Set which copy of a ledger is read first: of a topic, of a namespace's topics, or (neither) of all.

        Raises:
            InvalidArgumentError: it is neither ``tiered-first`` (``tiered-storage-first``) nor ``bookkeeper-first``.
            TopicNotFoundError, NamespaceNotFoundError: there is no such topic or namespace.
        """
        self.set_policies(topic, namespace, data_read_priority=ReadPriority.parse(value))

    def get_data_read_priority(
        self, topic: str | None = None, namespace: str | None = None, applied: bool = False
    ) -> ReadPriority | None:
        """Return the read priority set just there, None if it is unset; ``applied``: the topic's effective one."""
        if applied and topic is not None:
            found: ReadPriority = self.policies(topic)["data_read_priority"].value
            return found
        return cast("ReadPriority | None", self._stub.get_policies(_scope(topic, namespace)).get("data_read_priority"))

    def remove_data_read_priority(self, topic: str | None = None, namespace: str | None = None) -> None:
        """Unset the read priority; what is next in turn (topic, namespace, broker, tiered-first) applies again."""
        self.set_policies(topic, namespace, data_read_priority=None)

    # Writing

    def producer(
        self,
        topic: str,
        transactional_id: str | None = None,
        name: str | None = None,
        *,
        batching: Batching | None = None,
    ) -> Producer:
        """Open a producer of one topic.

        With a ``transactional_id`` it takes over from the older producer of the topic with that id: the older one is
        fenced, and the transactions that it left open are aborted. ``name`` shows in ``__producer_name``.
        """
        producer = Producer(self._access, TopicName.parse(topic), transactional_id, name, batching)
        self._producers.add(producer)
        return producer

    def begin_transaction(self, timeout: float = 60.0) -> Transaction:
        """Begin a transaction; the service aborts it once ``timeout`` seconds have passed."""
        if not isinstance(timeout, int | float) or not 0 < timeout < 1e9:
            raise InvalidArgumentError(f"{timeout!r} is not a timeout.", "Use seconds, more than 0.")
        return Transaction(self._stub, self._stub.begin_transaction(max(1, round(timeout * 1000))), timeout)

    def transactions(
        self, state: str | None = "open", topic: str | None = None, limit: int = 0, *, oldest_first: bool = False
    ) -> list[TransactionInfo]:
        """Return transactions, newest first: ``open``, ``committed``, ``aborted`` ones, or all (None).

        Args:
            state: which.
            topic: only those that wrote to it.
            limit: how many at most; 0: all.
            oldest_first: begin with the one that began first, which holds readers back the longest.
        """
        if not isinstance(limit, int) or limit < 0:
            raise InvalidArgumentError(f"{limit!r} is not a number of transactions.", "Use 1 or more, or 0 for all.")
        found, _ = self._stub.first_transactions(
            None if state is None else _state(state),
            None if topic is None else TopicName.parse(topic),
            limit,
            oldest_first=oldest_first,
        )
        return found

    def transaction(self, id: TxnId | str) -> TransactionInfo:
        """Return one transaction."""
        return self._stub.get_transaction(TxnId.parse(id))

    def abort_transaction(self, id: TxnId | str) -> None:
        """Abort an open transaction by force, as an operator; its owner's next call is refused."""
        self._stub.end_transaction(TxnId.parse(id), commit=False, forced=True)

    # Reading

    def scan(
        self,
        topic: str | Sequence[str],
        isolation_level: IsolationLevel | str = IsolationLevel.READ_COMMITTED,
        columns: Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
        read_priority: ReadPriority | str | None = None,
        consistent_cut: bool = True,
        as_of: Any = None,
    ) -> pa.RecordBatchReader:
        """Read what is there now; DuckDB, Polars and pandas take the result as it is.

        Args:
            topic: a name or several; ``orders-partition-3`` is one partition.
            isolation_level: ``read_committed`` or ``read_uncommitted``.
            columns: payload and metadata columns, in this order; None: the payload and the default metadata.
            start: first position to read, inclusive: ``earliest``, a position (if one partition is read), a mapping
                ``{"orders": {0: "12:40"}}``, a datetime, which stands for the first message published then or after, or
                what ``cut`` has returned.
            end: where to stop, exclusive, likewise; ``latest`` is the level's bound now.
            read_priority: which copy of a ledger to read first; None is each topic's own. ``copies_read`` tells which
                were taken.
            consistent_cut: see whole transactions only over several partitions.
            as_of: a datetime with a time zone, or ISO 8601: read what read_committed would have seen then, by the times
                of commits; instead of ``end``.

        Returns:
            Batches of about 64k rows, partition after partition, each in the order of its positions.
        """
        topics = [topic] if isinstance(topic, str) else list(topic)
        source = resolve(self._stub, topics, columns=columns)
        if columns is None:
            schema = read_schema(source.payload, "default", several_topics=not isinstance(topic, str))
        else:
            schema = select_columns(source.payload, columns)
        level = IsolationLevel.parse(isolation_level)
        request = ReadRequest(
            level,
            Offsets.parse(start, EARLIEST),
            Offsets.parse(end, LATEST),
            consistent_cut,
            read_priority=None if read_priority is None else ReadPriority.parse(read_priority),
            as_of_us=_as_of(as_of, level, end),
        )
        planned = plan(self._access, source, request)
        reader = planned.reader(self._access, schema)
        batches = pa.RecordBatchReader.from_batches(
            schema, reader.read(piece for task in planned.tasks for piece in task)
        )
        _COPIES_READ[batches] = reader.copies_read
        return batches

    def cut(
        self, topics: str | Sequence[str], isolation_level: IsolationLevel | str = IsolationLevel.READ_COMMITTED
    ) -> Cut:
        """Return up to where topics could be read now, so that several reads see the same moment.

        ``scan(topic, end=cut)`` reads any of the topics up to there, and Spark with ``endingOffsets`` set to
        ``cut.json()``. Reads of several topics see each transaction in all of them, or in none.
        """
        names = [topics] if isinstance(topics, str) else list(topics)
        return cut_of(self._stub, names, IsolationLevel.parse(isolation_level))

    def copies_read(self, scanned: pa.RecordBatchReader) -> CopiesRead:
        """Return which copies a ``scan`` has read so far: ledgers by tier, and the copies that failed, with reasons."""
        found = _COPIES_READ.get(scanned) if isinstance(scanned, pa.RecordBatchReader) else None
        if found is None:
            raise InvalidArgumentError("That is not what scan() returned.", "Give the reader that came from scan().")
        return found

    @property
    def target(self) -> Target:
        """What was connected to: a value that other processes can open."""
        return self._target

    @property
    def access(self) -> Access:
        """The service's calls and the folder of the segments together, for the layers above."""
        return self._access

    @property
    def root(self) -> Path:
        """The folder that holds the segments."""
        return self._root

    @property
    def metadata(self) -> MetadataStub:
        """The service's calls, for the layers above."""
        return self._stub


@guard
def connect(
    path: str | os.PathLike[str] | None = None,
    *,
    endpoint: str | None = None,
    create: bool = True,
    timeout: float = 30.0,
) -> Log:
    """Open a log.

    Args:
        path: the root of an embedded log; nothing needs to run, and many processes may use it at once.
        endpoint: ``host:port`` of a metadata service (``txnlog serve``), instead of a path.
        create: make a new log at the path if the folder is missing or empty.
        timeout: deadline of each call to a service, in seconds.

    Raises:
        LogNotFoundError: no log lies at the path, and none was to be made.
        UnavailableError: the service didn't answer.
    """
    return Log(Target.of(path, endpoint, create=create, timeout_s=timeout))


def _as_of(value: Any, level: IsolationLevel, end: Any) -> int | None:
    if value is None:
        return None
    check_as_of(level, end is not None)
    text = isinstance(value, str)
    return (Offsets.at_time(value, LATEST) if text else Offsets.parse(value, LATEST)).publish_time_us


def _texts(policies: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in policies.items()}


def _scope(topic: str | None, namespace: str | None) -> Scope:
    if topic is not None and namespace is not None:
        raise InvalidArgumentError("Both a topic and a namespace are named.", "Name one, or neither for the broker.")
    return Scope(
        None if topic is None else TopicName.parse(topic), None if namespace is None else parse_namespace(namespace)
    )


def _state(text: str) -> TransactionState:
    try:
        return TransactionState(text.lower())
    except (ValueError, AttributeError):
        raise InvalidArgumentError(
            f"{text!r} is not a state of transactions.", "Use open, committed or aborted."
        ) from None
