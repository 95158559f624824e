"""The log: topics, producers, transactions and reads, embedded or remote."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Unpack

import pyarrow as pa

from txn_source.client.consuming.consumer import Consumer
from txn_source.client.consuming.options import ConsumerOptions
from txn_source.client.consuming.reader import Reader
from txn_source.client.dead_letter_topic import send_dead_letter
from txn_source.client.metadata_tables import TableName, metadata_table
from txn_source.client.places import GivenPlace, Sought
from txn_source.client.policies import GivenPolicies, TopicPolicies, change_policies, read_priority, scope_of
from txn_source.client.rooted import Rooted
from txn_source.client.scan import copies_read, count_messages, cut, scan
from txn_source.client.subscriptions import Unset, given_options
from txn_source.client.tiering.iceberg import IcebergReport, export_iceberg
from txn_source.client.tiering.maintenance import MaintenanceReport, maintain
from txn_source.client.tiering.offload import OffloadReport
from txn_source.client.tiering.topic_copies import delete_hot_copies, delete_tiered_copies, offload_topic
from txn_source.client.tiering.trimming import trim
from txn_source.client.topic_stats import TopicStats, topic_stats
from txn_source.client.topics import create_topic, delete_topic, roll_ledger, update_topic
from txn_source.client.transactions import begin_transaction, list_transactions
from txn_source.client.writing.batching import Batching
from txn_source.client.writing.producer import Producer
from txn_source.client.writing.transaction import Transaction
from txn_source.metadata.stub.metadata_stub import TransactionInfo
from txn_source.metadata.stub.subscriptions import SubscriptionInfo
from txn_source.model.copies import CopiesRead
from txn_source.model.door import guarded
from txn_source.model.isolation import GivenLevel, IsolationLevel
from txn_source.model.ledger import OffloadableLedger
from txn_source.model.policies import EffectivePolicy
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.read_priority import GivenPriority, ReadPriority
from txn_source.model.retention import Trimmed
from txn_source.model.subscription import GivenType, SubscriptionType
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import GivenState, TxnId
from txn_source.reading.places import Cut
from txn_source.storage.schema import commented_schema


@guarded(but=("offload",))  # its ``progress`` is the caller's
class Log(Rooted):
    """A log that was connected to. Thread-safe; a context manager that closes its producers.

    It can be pickled. In a forked child it is refused, and another one can be opened.
    """

    # Topics

    def create_topic(
        self, name: str, partitions: int = 1, schema: pa.Schema | str | None = None, **policies: Unpack[TopicPolicies]
    ) -> None:
        """Create a topic.

        Args:
            name: ``orders`` or ``persistent://tenant/namespace/orders``.
            partitions: how many, 1 or more; ``update_topic`` adds some.
            schema: the payload columns, also as text, ``id bigint not null, name string``; None is a raw topic with
                ``key binary, value binary``. Of its metadata ``comment`` is kept, the schema's and each column's.
            policies: when the open ledger is rolled: ``ledger_max_entries``, ``ledger_max_bytes``, and
                ``ledger_max_age`` in seconds; and any of those that ``set_policies`` takes.

        Raises:
            TopicExistsError: there is one of that name.
            InvalidArgumentError: a name, number, type or policy that can't be.
        """
        create_topic(self._access, TopicName.parse(name), partitions, schema, policies)

    def update_topic(self, name: str, partitions: int) -> int:
        """Add partitions to a topic until it has so many; return how many were added, 0 if it had as many.

        Whoever reads the topic, streams and consumers that run among them, reads the new ones from their start. From
        then on messages with a key may go to another partition than those before them.

        Raises:
            InvalidArgumentError: it has more, or no topic can have so many. Nothing was changed.
        """
        return update_topic(self._access, TopicName.parse(name), partitions)

    def topics(self, namespace: str | None = None) -> list[str]:
        """Return the names of all topics, or of those of one ``tenant/namespace``, sorted."""
        return [name.short for name in self._stub.list_topics(namespace)]

    def schema(self, topic: str) -> pa.Schema:
        """Return the payload columns of a topic, with the comments that it was made with."""
        [view] = self._stub.get_view([TopicName.parse(topic)]).topics
        return commented_schema(view.topic.schema)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages. Transactions that wrote to it go on elsewhere."""
        delete_topic(self._access, TopicName.parse(name))

    def stats(self, name: str) -> TopicStats:
        """Return a topic's bounds, ledgers and open transactions, with what each of these holds back; sizes in bytes.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        return topic_stats(self._stub, TopicName.parse(name))

    def roll_ledger(self, topic: str, partition: int | None = None) -> list[int]:
        """Close the open ledger of each partition, or of one, now; return the ids of those that weren't empty."""
        return roll_ledger(self._stub, topic, partition)

    # Tiers

    def offload(self, topic: str, progress: Callable[[OffloadableLedger], object] | None = None) -> OffloadReport:
        """Offload all closed ledgers that are wholly decided and have no tiered copy yet, oldest first.

        Ledgers with messages of an open transaction wait for its end. ``roll_ledger`` closes the open one. ``progress``
        is told of each ledger when it is done.

        Raises:
            StorageWriteError: the target can't be written. What was offloaded before stays.
        """
        return offload_topic(self._access, TopicName.parse(topic), progress)

    def export_iceberg(self, topic: str, catalog: Any, table: str) -> IcebergReport:
        """Bring an Iceberg table up to date with what is offloaded of a topic, as read_committed shows it up to a cut.

        Objects are registered as they are; what was trimmed, or offloaded anew, is removed. It can be repeated, and
        run in two places at once. Objects that are deleted or trimmed are missing in the table until the next run.

        Args:
            topic: whose.
            catalog: a PyIceberg catalog, the name of one in its configuration, or a catalog's properties.
            table: ``namespace.table``, made if it isn't there.

        Raises:
            InvalidArgumentError: PyIceberg isn't installed, the table shows something else, or an object that an older
                release wrote has aborted messages in it. Nothing was changed.
            SchemaMismatchError: the topic has a column that Iceberg can't have. Nothing was changed.
            SegmentUnreadableError: an object can't be read. Nothing was changed.
            UnavailableError: the catalog or the table's store failed, or others changed the table all the time.
        """
        return export_iceberg(self._access, TopicName.parse(topic), catalog, table)

    def delete_offloaded(self, topic: str, ledgers: Collection[int] | None = None) -> int:
        """Delete the tiered copies of a topic, or of some of its ledgers, and return how many; they can be offloaded
        again. Every byte of their hot copies is read first.

        Raises:
            OnlyCopyError: the hot copy of one of them is gone or damaged. None is deleted then.
            InvalidArgumentError: one of ``ledgers`` isn't offloaded.
        """
        return delete_tiered_copies(self._access, TopicName.parse(topic), ledgers)

    def delete_hot(self, topic: str, after_lag: bool = False, ledgers: Collection[int] | None = None) -> int:
        """Delete the hot copies of offloaded ledgers now, or those whose deletion lag has passed; return how many.

        Every byte of their objects is read first.

        Args:
            after_lag: only those whose deletion lag has passed.
            ledgers: only these, by their ids; of no use with ``after_lag``.

        Raises:
            OnlyCopyError: the object of one of them is damaged. None is deleted then; ``after_lag`` keeps just those.
            InvalidArgumentError: one of ``ledgers`` has no such copy, or isn't offloaded.
        """
        return delete_hot_copies(self._access, TopicName.parse(topic), ledgers, after_lag=after_lag)

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
        return trim(self._access, TopicName.parse(topic), before, older_than, keep_bytes)

    def maintain(self, verify: bool = False) -> MaintenanceReport:
        """Do what the topics' policies say, as ``txnlog serve`` in the background; ``verify`` checks all hot copies."""
        return maintain(self._access, verify=verify)

    # Policies

    def set_policies(
        self, topic: str | None = None, namespace: str | None = None, **policies: Unpack[GivenPolicies]
    ) -> None:
        """Set policies for a topic, for a namespace, or (neither) for the broker; None removes one.

        Args:
            topic, namespace: a name, or ``tenant/namespace``.
            policies: ``data_read_priority``, ``offload_uri``, ``offload_compression_level``, ``offload_after_age``,
                ``offload_after_bytes``, ``offload_deletion_lag``, ``retention_age``, ``retention_bytes``,
                ``hot_copies``, ``acknowledge_copies``. Ages: seconds, a ``timedelta``, ``7d``; sizes: bytes, ``10GB``.

        Raises:
            InvalidArgumentError: a policy or a value that can't be. Nothing was changed.
            TopicNotFoundError, NamespaceNotFoundError: there is no such scope.
        """
        change_policies(self._access, scope_of(topic, namespace), policies)

    def policies(self, topic: str) -> dict[str, EffectivePolicy]:
        """Return every policy of a topic as it is in force, and where it comes from."""
        return self._stub.policies_in_force(TopicName.parse(topic))

    def set_data_read_priority(
        self, value: GivenPriority, topic: str | None = None, namespace: str | None = None
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
        return read_priority(self._stub, topic, namespace, applied=applied)

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

        Args:
            topic: where its messages go.
            transactional_id: take over from the topic's older producer with this id: that one is fenced, and the
                transactions that it left open are aborted.
            name: shows in ``__producer_name``; None makes one up.
            batching: when messages are written without ``flush``.

        Raises:
            TopicNotFoundError: there is no such topic.
            InvalidArgumentError: a name or an id that can't be.
        """
        return self._open.add_producer(Producer(self._access, TopicName.parse(topic), transactional_id, name, batching))

    def begin_transaction(self, timeout: float = 60.0) -> Transaction:
        """Begin a transaction; the service aborts it once ``timeout`` seconds have passed, 900 (15 minutes) at most.

        Raises:
            InvalidArgumentError: the timeout is longer, or not above 0.
        """
        return begin_transaction(self._stub, timeout)

    def transactions(
        self, state: GivenState | None = "open", topic: str | None = None, limit: int = 0, *, oldest_first: bool = False
    ) -> list[TransactionInfo]:
        """Return transactions, newest first: ``open``, ``committed``, ``aborted`` ones, or all (None).

        Args:
            state: which.
            topic: only those that wrote to it.
            limit: how many at most; 0: all.
            oldest_first: begin with the one that began first, which holds readers back the longest.

        Raises:
            InvalidArgumentError: a state or a limit that can't be.
            TopicNotFoundError: there is no such topic.
        """
        return list_transactions(self._stub, state, topic, limit, oldest_first=oldest_first)

    def transaction(self, id: TxnId | str) -> TransactionInfo:
        """Return one transaction."""
        return self._stub.get_transaction(TxnId.parse(id))

    def abort_transaction(self, id: TxnId | str) -> None:
        """Abort an open transaction by force, as an operator; its owner's next call is refused."""
        self._stub.end_transaction(TxnId.parse(id), commit=False, forced=True)

    # Subscriptions

    def subscribe(
        self,
        topic: str,
        name: str,
        type: GivenType = SubscriptionType.EXCLUSIVE,
        isolation_level: GivenLevel | Unset | None = Unset.LEVEL,
        initial_position: GivenPlace = LATEST,
        durable: bool = True,
        *,
        options: ConsumerOptions | None = None,
        **named: Any,
    ) -> Consumer:
        """Connect a consumer to a subscription, which is made if it isn't there.

        Args:
            topic: whose messages.
            name: the subscription's.
            type: ``exclusive`` (one consumer), ``failover`` (one at a time, others wait) or ``shared`` (all get some).
            isolation_level: fixed by the first subscribe, which is ``read_committed`` unless it says otherwise, and
                stored; later ones take the stored one, or ask for it. None never makes a subscription.
            initial_position: where a new subscription begins: whatever ``Consumer.seek`` takes.
            durable: False makes a subscription that goes with its consumers.
            options: how the consumer behaves; or give the fields of ``ConsumerOptions`` by name.

        Raises:
            SubscriptionIsolationMismatchError: the subscription has the other level.
            SubscriptionBusyError: it is exclusive, and has a consumer.
            InvalidArgumentError: it is of another type, or a value can't be.
        """
        given, send = given_options(options, named), partial(send_dead_letter, self)
        where = topic, name, type, isolation_level, initial_position, durable
        return self._subscriptions.subscribe(*where, given, send)

    def reader(
        self,
        topic: str,
        start: GivenPlace = EARLIEST,
        isolation_level: GivenLevel = IsolationLevel.READ_COMMITTED,
        *,
        queue_size: int | None = None,
    ) -> Reader:
        """Open a reader: it reads a topic from anywhere on, and leaves nothing behind.

        Args:
            topic: whose messages.
            start: the first message to read: whatever ``Consumer.seek`` takes.
            isolation_level: what it sees.
            queue_size: so many messages are delivered ahead of the caller; None is 100,000.

        Raises:
            TopicNotFoundError: there is no such topic.
        """
        return self._subscriptions.reader(topic, start, isolation_level, queue_size)

    def create_subscription(
        self,
        topic: str,
        name: str,
        type: GivenType = SubscriptionType.EXCLUSIVE,
        isolation_level: GivenLevel = IsolationLevel.READ_COMMITTED,
        initial_position: GivenPlace = LATEST,
    ) -> None:
        """Make a subscription without connecting a consumer: from now on it keeps what isn't acknowledged.

        Args:
            topic, name, type: as ``subscribe`` has them.
            isolation_level: stays with it; ``set_subscription_isolation_level`` changes it.
            initial_position: its first message: whatever ``Consumer.seek`` takes.

        Raises:
            SubscriptionExistsError: there is one of that name.
            TopicNotFoundError: there is no such topic.
            InvalidArgumentError: a value can't be.
        """
        self._subscriptions.create(topic, name, type, isolation_level, initial_position)

    def subscriptions(self, topic: str) -> list[SubscriptionInfo]:
        """Return the subscriptions of a topic, by name."""
        return self._subscriptions.all_of(topic)

    def subscription(self, topic: str, name: str) -> SubscriptionInfo:
        """Return one subscription, or raise ``SubscriptionNotFoundError``."""
        return self._subscriptions.one(topic, name)

    def seek(self, topic: str, name: str, to: GivenPlace, epoch: int | None = None) -> Sought:
        """Move a subscription as an operator; consumers that are connected go on from there in a new epoch.

        Args:
            topic, name: the subscription's.
            to: as ``Consumer.seek`` takes it.
            epoch: the new epoch, which must be larger than the current one; None is the next.

        Raises:
            StaleEpochError: the epoch isn't larger.
            SubscriptionNotFoundError: there is no such subscription.
            InvalidArgumentError: it is no place in the topic. Nothing was changed.
        """
        return self._subscriptions.seek(topic, name, to, epoch)

    def set_subscription_isolation_level(self, topic: str, name: str, level: GivenLevel) -> None:
        """Change the isolation level of a subscription that no consumer is connected to.

        What it has acknowledged stays so. A change to ``read_committed`` is refused where it would tear a transaction:
        where a part of an open or committed one is acknowledged and the rest isn't, or may still come. Seek first, as
        the error says.

        Raises:
            SubscriptionBusyError: a consumer is connected.
            InvalidArgumentError: a transaction would be torn.
        """
        self._subscriptions.set_isolation_level(topic, name, level)

    def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a subscription; what it kept may be trimmed then. ``SubscriptionBusyError``: it has a consumer."""
        self._subscriptions.delete(topic, name)

    # Reading

    def scan(
        self,
        topic: str | Sequence[str],
        isolation_level: GivenLevel = IsolationLevel.READ_COMMITTED,
        columns: Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
        read_priority: GivenPriority | None = None,
        consistent_cut: bool = True,
        as_of: Any = None,
    ) -> pa.RecordBatchReader:
        """Read what is there now; DuckDB, Polars and pandas take the result as it is.

        Args:
            topic: a name or several; ``orders-partition-3`` is one partition.
            isolation_level: ``read_committed`` or ``read_uncommitted``.
            columns: payload and metadata columns, in this order; None: the payload, ``__partition, __ledger_id,
                __entry_id, __batch_index, __publish_time, __event_time`` and, of several topics, ``__topic``.
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
            Batches of about 64k rows, partition after partition, each in the order of its positions. Bytes are read
            when the next batch is asked for, so that this may raise the errors of reading, too.

        Raises:
            TopicNotFoundError: there is no such topic.
            InvalidArgumentError: a level, column, place or time that can't be.
            OutOfRangeError: a position that isn't one of its partition, or was trimmed.
            SchemaMismatchError: topics that are read together differ in a column.
            SegmentUnreadableError: no copy of what comes next can be read.
            DataLossError: what was planned is gone.
        """
        return scan(self._access, topic, isolation_level, columns, start, end, read_priority, consistent_cut, as_of)

    def count(
        self,
        topic: str | Sequence[str],
        isolation_level: GivenLevel = IsolationLevel.READ_COMMITTED,
        start: Any = None,
        end: Any = None,
        consistent_cut: bool = True,
        as_of: Any = None,
    ) -> int:
        """Return how many messages ``scan`` would read with the same arguments; none is read.

        The metadata knows; the footer of a ledger's object only where a range begins or ends inside an old ledger,
        whose entries have left it. It raises what ``scan`` does.
        """
        return count_messages(self._access, topic, isolation_level, start, end, consistent_cut, as_of)

    def cut(self, topics: str | Sequence[str], isolation_level: GivenLevel = IsolationLevel.READ_COMMITTED) -> Cut:
        """Return up to where topics could be read now, so that several reads see the same moment.

        ``scan(topic, end=cut)`` reads any of the topics up to there, and Spark with ``endingOffsets`` set to
        ``cut.json()``. Reads of several topics see each transaction in all of them, or in none.
        """
        return cut(self._access, topics, isolation_level)

    def metadata_table(self, name: TableName, topic: str | None = None) -> pa.Table:
        """Return a table about a topic or (None) all, as of one moment, to query with DuckDB, Polars or pandas.

        ``name`` is ``transactions``, ``ledgers``, ``subscriptions`` or ``partitions``; docs/metadata-tables.md has the
        columns.
        """
        return metadata_table(self._stub, name, topic)

    def copies_read(self, scanned: pa.RecordBatchReader) -> CopiesRead:
        """Return which copies a ``scan`` has read so far: ledgers by tier, and the copies that failed, with reasons."""
        return copies_read(scanned)
