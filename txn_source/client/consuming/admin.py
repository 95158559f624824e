"""What a log does with subscriptions: consumers, readers, and the calls for operators."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from txn_source.client.access import Access
from txn_source.client.consuming.consumer import Consumer
from txn_source.client.consuming.options import ConsumerOptions, is_text
from txn_source.client.consuming.reader import Reader
from txn_source.client.consuming.upkeep import Upkeep
from txn_source.client.reading.footers import TieredPlanning
from txn_source.client.reading.offsets import Offsets
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.subscriptions import SeekAnswer, SubscriptionInfo
from txn_source.model.door import guarded
from txn_source.model.errors import (
    InvalidArgumentError,
    SubscriptionIsolationMismatchError,
    SubscriptionNotFoundError,
)
from txn_source.model.isolation import IsolationLevel
from txn_source.model.message_ranges import message_key
from txn_source.model.position import EARLIEST, LATEST, MessageId, Position, PositionRange
from txn_source.model.subscription import SubscriptionType
from txn_source.model.topic import PartitionView
from txn_source.model.topic_name import TopicName

if TYPE_CHECKING:
    from txn_source.client.log import Log


class _Unset(Enum):
    LEVEL = "the stored level, or read_committed for a new subscription"


_HINT = 'Use earliest, latest, a message id such as "12:40:3", a position, a time, or {"orders": {"0": "12:40"}}.'


@guarded
class SubscriptionCalls:
    """Part of ``Log``."""

    _stub: MetadataStub
    _root: Path
    _consumers: weakref.WeakSet[Consumer | Upkeep]

    def subscribe(
        self,
        topic: str,
        name: str,
        type: SubscriptionType | str = SubscriptionType.EXCLUSIVE,
        isolation_level: IsolationLevel | str | _Unset | None = _Unset.LEVEL,
        initial_position: Any = LATEST,
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
        log, topic_name = cast("Log", self), _whole(topic)
        unset = isolation_level is _Unset.LEVEL
        level = None if isolation_level is None or unset else IsolationLevel.parse(isolation_level)  # type: ignore[arg-type]
        options = _options(options, named)
        _check_name(name)
        if not isinstance(durable, bool):
            raise InvalidArgumentError(f"durable is {durable!r:.80}.", "Use True or False.")
        kind = SubscriptionType.parse(type)
        if unset:
            level = _stored_level(self._stub, topic_name, name)
        where, points = placed(self._stub, self._root, topic_name, initial_position, level)
        try:
            consumer = Consumer(log, topic_name, name, kind, level, where or LATEST, points, options, durable=durable)
        except SubscriptionIsolationMismatchError:
            if not unset:
                raise
            # it was made by somebody else at this moment
            consumer = Consumer(log, topic_name, name, kind, None, where or LATEST, points, options, durable=durable)
        self._keep(consumer)
        return consumer

    def reader(
        self,
        topic: str,
        start: Any = EARLIEST,
        isolation_level: IsolationLevel | str = IsolationLevel.READ_COMMITTED,
        *,
        queue_size: int | None = None,
    ) -> Reader:
        """Open a reader: it reads a topic from anywhere on, and leaves nothing behind.

        Args:
            topic: whose messages.
            start: the first message to read: whatever ``Consumer.seek`` takes.
            isolation_level: what it sees.
            queue_size: so many messages are delivered ahead of the caller; None is 100,000.
        """
        level, name = IsolationLevel.parse(isolation_level), _whole(topic)
        where, points = placed(self._stub, self._root, name, start, level)
        reader = Reader(
            cast("Log", self), name, level, where or EARLIEST, points, ConsumerOptions(queue_size=queue_size)
        )
        self._keep(reader._consumer)
        return reader

    def _keep(self, consumer: Consumer) -> None:
        """Have a consumer closed with the log; one that was forgotten before then has its end waited for."""
        try:
            self._consumers.add(consumer)
            self._consumers.add(consumer._upkeep)
        except BaseException:
            consumer._upkeep.leave()
            raise

    def create_subscription(
        self,
        topic: str,
        name: str,
        type: SubscriptionType | str = SubscriptionType.EXCLUSIVE,
        isolation_level: IsolationLevel | str = IsolationLevel.READ_COMMITTED,
        initial_position: Any = LATEST,
    ) -> None:
        """Make a subscription without connecting a consumer: from now on it keeps what isn't acknowledged."""
        _check_name(name)
        level, topic_name = IsolationLevel.parse(isolation_level), _whole(topic)
        where, points = placed(self._stub, self._root, topic_name, initial_position, level)
        self._stub.create_subscription(topic_name, name, SubscriptionType.parse(type), level, where or LATEST, points)

    def subscriptions(self, topic: str) -> list[SubscriptionInfo]:
        """Return the subscriptions of a topic, by name."""
        return self._stub.list_subscriptions(_whole(topic))

    def subscription(self, topic: str, name: str) -> SubscriptionInfo:
        """Return one subscription."""
        _check_name(name)
        [found] = self._stub.list_subscriptions(_whole(topic), name)
        return found

    def seek(self, topic: str, name: str, to: Any, epoch: int | None = None) -> SeekAnswer:
        """Move a subscription as an operator; consumers that are connected go on from there in a new epoch.

        Args:
            topic: whose.
            name: the subscription.
            to: as ``Consumer.seek`` takes it.
            epoch: the new epoch, which must be larger than the current one; None is the next.

        Raises:
            StaleEpochError: the epoch isn't larger.
        """
        if epoch is not None and (not isinstance(epoch, int) or abs(epoch) >= 1 << 63):
            raise InvalidArgumentError(f"{epoch!r:.80} can't be a new epoch.", "Use a number above the current one.")
        _check_name(name)
        topic_name = _whole(topic)
        [info] = self._stub.list_subscriptions(topic_name, name, brief=True)
        where, points = placed(self._stub, self._root, topic_name, to, info.isolation_level)
        return self._stub.seek_subscription(topic_name, name, where, points, epoch)

    def set_subscription_isolation_level(self, topic: str, name: str, level: IsolationLevel | str) -> None:
        """Change the isolation level of a subscription that no consumer is connected to.

        What it has acknowledged stays so. A change to ``read_committed`` is refused where it would tear a transaction:
        where a part of an open or committed one is acknowledged and the rest isn't, or may still come. Seek first, as
        the error says.

        Raises:
            SubscriptionBusyError: a consumer is connected.
            InvalidArgumentError: a transaction would be torn.
        """
        _check_name(name)
        self._stub.set_subscription_isolation_level(_whole(topic), name, IsolationLevel.parse(level))

    def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a subscription that no consumer is connected to; what it kept may be trimmed then."""
        _check_name(name)
        self._stub.delete_subscription(_whole(topic), name)


def _options(options: Any, named: Mapping[str, Any]) -> ConsumerOptions:
    if options is None:
        try:
            return ConsumerOptions(**named)
        except TypeError:
            known = ", ".join(ConsumerOptions.__dataclass_fields__)
            raise InvalidArgumentError(
                f"One of {', '.join(named)} is not an option of consumers.", f"Use {known}."
            ) from None
    if named:
        raise InvalidArgumentError("Both options and their fields are given.", "Give one of them.")
    if not isinstance(options, ConsumerOptions):
        raise InvalidArgumentError(f"{options!r:.80} are not options of consumers.", "Use ConsumerOptions(...).")
    return options


def _stored_level(stub: MetadataStub, topic: TopicName, name: str) -> IsolationLevel:
    """Return the level of a subscription, or the one that it will have when it is made."""
    try:
        [found] = stub.list_subscriptions(topic, name, brief=True)
    except SubscriptionNotFoundError:
        return IsolationLevel.READ_COMMITTED
    return found.isolation_level


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not is_text(name):
        raise InvalidArgumentError(f"{name!r:.80} can't be the name of a subscription.", "Use text.")


def _whole(topic: str) -> TopicName:
    """Return a topic's name, or raise the error that says that one partition can't be subscribed to."""
    name = TopicName.parse(topic)
    if name.split_partition() is not None:
        raise InvalidArgumentError(
            f"{name.short!r} names one partition, and a subscription belongs to a whole topic.", "Name the topic."
        )
    return name


def placed(
    stub: MetadataStub, root: Path, topic: TopicName, to: Any, level: IsolationLevel | None
) -> tuple[str, dict[int, int]]:
    """Return where a value means to go: ``earliest`` or ``latest``, and places (``message_key``) by partition id.

    A time stands for the first message published at or after it; where there is none below the level's bound, for the
    bound.
    """
    if isinstance(to, str):
        to = _parsed(to.strip())
        if isinstance(to, str):
            return to, {}
    [view] = stub.get_view([topic]).topics
    partitions = view.partitions
    match to:
        case datetime() | Offsets():
            micros = Offsets.parse(to, LATEST).publish_time_us
            assert micros is not None
            found = TieredPlanning(Access(stub, root)).find_positions([p.partition_id for p in partitions], micros)
            bounds = {p.partition_id: p.bounds.upper(level or IsolationLevel.READ_COMMITTED) for p in partitions}
            return "", {
                partition_id: message_key(min(at or bounds[partition_id], bounds[partition_id]))
                for partition_id, at in found.items()
            }
        case MessageId() | Position():
            return "", {_partition_of(stub, topic, partitions, to): _place(to)}
        case Mapping():
            return "", _named(topic, partitions, to, level)
    raise InvalidArgumentError(f"{to!r:.120} is no place in a topic.", _HINT)


def _parsed(text: str) -> Any:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if text.startswith("{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidArgumentError(f"{text!r:.120} is not JSON ({error}).", _HINT) from None
    digits = text.replace(":", "").isdigit()
    if digits and text.count(":") == 2:
        return MessageId.parse(text)
    if digits and text.count(":") == 1:
        return Position.parse(text)
    try:
        return Offsets.at_time(text, LATEST)
    except InvalidArgumentError:
        raise InvalidArgumentError(f"{text!r:.120} is no place in a topic.", _HINT) from None


def _place(at: MessageId | Position) -> int:
    return message_key(at.position, at.batch_index) if isinstance(at, MessageId) else message_key(at)


def _partition_of(
    stub: MetadataStub, topic: TopicName, partitions: tuple[PartitionView, ...], at: MessageId | Position
) -> int:
    """Return the partition that a place is in: ledger ids are unique in the log."""
    if len(partitions) == 1:
        return partitions[0].partition_id
    position = at.position if isinstance(at, MessageId) else at
    for partition in partitions:
        if len(stub.list_ledgers(partition.partition_id, PositionRange(position, position))):
            return partition.partition_id
    raise InvalidArgumentError(
        f"No partition of topic {topic.short!r} has ledger {position.ledger_id}, so {at} names none.",
        'Name it: {"orders": {"0": "12:40"}}.',
    )


def _named(
    topic: TopicName, partitions: tuple[PartitionView, ...], to: Mapping[Any, Any], level: IsolationLevel | None
) -> dict[int, int]:
    if set(map(str, to)) - {topic.short, str(topic)} or len(to) != 1:
        raise InvalidArgumentError(f"{to!r:.120} doesn't name topic {topic.short!r} alone.", _HINT)
    [of_topic] = to.values()
    if not isinstance(of_topic, Mapping):
        raise InvalidArgumentError(f"{of_topic!r:.120} are no partitions and places.", _HINT)
    by_index = {str(p.index): p for p in partitions}
    found = {}
    for index, at in of_topic.items():
        partition = by_index.get(str(index))
        if partition is None:
            raise InvalidArgumentError(
                f"Topic {topic.short!r} has no partition {index!r}.", f"It has 0 to {len(partitions) - 1}."
            )
        if isinstance(at, str):
            at = _parsed(at.strip())
        if at == EARLIEST:
            at = partition.bounds.log_start
        elif at == LATEST:
            at = partition.bounds.upper(level or IsolationLevel.READ_COMMITTED)
        if not isinstance(at, MessageId | Position):
            raise InvalidArgumentError(f"{at!r:.120} is no place in a partition.", _HINT)
        found[partition.partition_id] = _place(at)
    return found
