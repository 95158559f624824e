"""What a topic looks like right now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from txn_source.client.ledgers import ledgers_of
from txn_source.metadata.stub.metadata_stub import MetadataStub, TransactionInfo
from txn_source.metadata.stub.subscriptions import ConsumerInfo, SubscriptionInfo, SubscriptionPartition
from txn_source.model.bounds import Bounds
from txn_source.model.copies import Tier
from txn_source.model.isolation import IsolationLevel
from txn_source.model.ledger import Ledger
from txn_source.model.policies import EffectivePolicy
from txn_source.model.position import Position
from txn_source.model.subscription import SubscriptionType
from txn_source.model.topic_name import TopicName
from txn_source.model.transaction import TransactionState, TxnId
from txn_source.model.units import format_count


@dataclass(frozen=True, slots=True)
class LedgerStats:
    """A ledger; ``entries`` counts markers too, ``closed`` is False for the one that is appended to.

    ``tiers`` have a copy of it: ``bookkeeper``, ``tiered``. ``offloaded_at`` is when the tiered one was complete.
    """

    ledger_id: int
    entries: int
    messages: int
    bytes: int
    closed: bool
    tiers: tuple[Tier, ...] = (Tier.BOOKKEEPER,)
    offloaded_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class OngoingTransaction:
    """An open transaction on one partition, and what it holds back there from read_committed readers.

    One that has ended at or above the high watermark is there, too: it is unreplicated, and holds back likewise.

    Held back are the messages at or above ``first_position`` (inclusive) and below the high watermark (exclusive), its
    own among them. ``age`` and ``timeout`` are in seconds.
    """

    id: TxnId
    age: float
    timeout: float
    first_position: Position
    messages_held_back: int
    bytes_held_back: int
    producers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """A partition: its bounds (exclusive but ``log_start``), ledgers and open transactions.

    ``max_read_position`` is Pulsar's: the last position, inclusive, that read_committed may read (a marker's, too);
    its entry id is -1 while nothing is readable.
    """

    partition: int
    log_start: Position
    last_stable: Position
    high_watermark: Position
    log_end: Position
    max_read_position: Position
    messages: int
    bytes: int
    ledgers: tuple[LedgerStats, ...]
    ongoing_transactions: tuple[OngoingTransaction, ...]


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """A subscription: what its consumers have not acknowledged, and who they are.

    ``backlog`` counts the messages that its level shows. ``unacknowledged`` are those of them that consumers have.
    ``ignored_acknowledgements`` came from before a seek, or from a consumer that had lost its connection. ``held_by``
    are the open transactions behind which more of a read_committed subscription's messages wait, oldest first.
    """

    type: SubscriptionType
    subscription_isolation_level: IsolationLevel
    durable: bool
    epoch: int
    backlog: int
    unacknowledged: int
    ignored_acknowledgements: int
    consumers: tuple[ConsumerInfo, ...]
    partitions: tuple[SubscriptionPartition, ...]
    held_by: tuple[TxnId, ...]

    @classmethod
    def of(cls, info: SubscriptionInfo) -> SubscriptionStats:
        """Return the stats in what the service says."""
        return cls(
            info.type,
            info.isolation_level,
            info.durable,
            info.epoch,
            info.backlog,
            info.redeliverable + sum(c.unacknowledged for c in info.consumers),
            info.ignored_acknowledgements,
            info.consumers,
            info.partitions,
            info.held_by,
        )


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic and its partitions; ``policies`` by name, each with its effective value and where that comes from."""

    topic: str
    partitions: tuple[PartitionStats, ...]
    policies: Mapping[str, EffectivePolicy]
    subscriptions: Mapping[str, SubscriptionStats]

    def __repr__(self) -> str:
        counts = (
            (len(self.partitions), "partition"),
            (self.messages, "message"),
            (self.bytes, "byte"),
            (len(self.ongoing_transactions), "open transaction"),
        )
        return f"<TopicStats of {self.topic}: {', '.join(format_count(*each) for each in counts)}>"

    def _repr_html_(self) -> str:
        from txn_source.client.notebook import html_table  # which few need

        bounds = ("Log start", "Last stable", "High watermark", "Log end")
        rows = (
            (p.partition, p.log_start, p.last_stable, p.high_watermark, p.log_end, p.messages, p.bytes)
            for p in self.partitions
        )
        columns: tuple[str, ...] = ("Partition", *bounds, "Messages", "Bytes")
        shown = html_table(f"Topic {self.topic}", columns, rows, len(self.partitions))
        open_ones = self.ongoing_transactions
        if open_ones:
            held = (
                (t.id, f"{t.age:.1f} s", t.first_position, t.messages_held_back, t.bytes_held_back) for t in open_ones
            )
            columns = ("Transaction", "Age", "First position", "Messages held back", "Bytes held back")
            shown += html_table("Open transactions", columns, held, len(open_ones))
        return shown

    @property
    def data_read_priority(self) -> EffectivePolicy:
        """Which copy of a ledger is read first, and where that comes from."""
        return self.policies["data_read_priority"]

    @property
    def messages(self) -> int:
        """Messages still in the log, aborted ones among them."""
        return sum(p.messages for p in self.partitions)

    @property
    def bytes(self) -> int:
        """Bytes stored for them."""
        return sum(p.bytes for p in self.partitions)

    @property
    def ledgers(self) -> tuple[LedgerStats, ...]:
        """The ledgers of all partitions."""
        return tuple(ledger for p in self.partitions for ledger in p.ledgers)

    @property
    def ongoing_transactions(self) -> tuple[OngoingTransaction, ...]:
        """The open transactions of all partitions; one that wrote to several is there for each."""
        return tuple(txn for p in self.partitions for txn in p.ongoing_transactions)


def topic_stats(stub: MetadataStub, name: TopicName) -> TopicStats:
    """Ask the service for a topic's stats."""
    [view] = stub.get_view([name]).topics
    ongoing: dict[int, list[OngoingTransaction]] = {}
    highs = {partition.index: partition.bounds.high_watermark for partition in view.partitions}
    for txn in stub.list_transactions(TransactionState.OPEN, name):
        for index, info in _on_topic(txn, name, highs):
            ongoing.setdefault(index, []).append(info)
    partitions = []
    for partition in view.partitions:
        bounds = partition.bounds
        ledgers = tuple(_ledger_stats(ledger) for ledger in ledgers_of(stub, partition))
        partitions.append(
            PartitionStats(
                partition.index,
                bounds.log_start,
                bounds.last_stable,
                bounds.high_watermark,
                bounds.log_end,
                _last_readable(bounds, ledgers),
                partition.messages,
                partition.bytes,
                ledgers,
                tuple(sorted(ongoing.get(partition.index, ()), key=lambda t: t.first_position)),
            )
        )
    subscriptions = {info.name: SubscriptionStats.of(info) for info in stub.list_subscriptions(name)}
    return TopicStats(name.short, tuple(partitions), stub.policies_in_force(name), subscriptions)


def _on_topic(
    txn: TransactionInfo, name: TopicName, highs: Mapping[int, Position]
) -> list[tuple[int, OngoingTransaction]]:
    return [
        (
            p.partition,
            OngoingTransaction(
                txn.id, txn.age, txn.timeout, p.first_position, p.held_back_messages, p.held_back_bytes, txn.producers
            ),
        )
        for p in txn.partitions
        if p.topic == name.short
        if p.marker_position is None or p.marker_position >= highs.get(p.partition, p.first_position)
    ]


def _ledger_stats(ledger: Ledger) -> LedgerStats:
    there = ((Tier.BOOKKEEPER, ledger.hot), (Tier.TIERED, ledger.tiered))
    at_ms = ledger.offloaded_at_ms
    return LedgerStats(
        ledger.ledger_id,
        ledger.entries,
        ledger.messages,
        ledger.bytes,
        ledger.closed,
        tuple(tier for tier, has in there if has),
        None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC),
    )


def _last_readable(bounds: Bounds, ledgers: tuple[LedgerStats, ...]) -> Position:
    """Return the position before the exclusive bound; before entry 0 it is the last one of the ledger before."""
    bound = bounds.last_stable
    if bound.entry_id > 0 or bound == bounds.log_start:
        return Position(bound.ledger_id, bound.entry_id - 1)
    before = [ledger for ledger in ledgers if ledger.ledger_id < bound.ledger_id and ledger.entries]
    return Position(before[-1].ledger_id, before[-1].entries - 1) if before else Position(bound.ledger_id, -1)
