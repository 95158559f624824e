"""The calls about subscriptions: making, listing, moving and deleting them, and connecting to them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from txn_source.client.access import Access
from txn_source.client.consuming.consumer import Consumer
from txn_source.client.consuming.dead_letters import SendDeadLetter
from txn_source.client.consuming.epoch_changes import sought_of
from txn_source.client.consuming.options import ConsumerOptions, is_text
from txn_source.client.consuming.reader import Reader
from txn_source.client.consuming.subscription_places import resolve_place
from txn_source.client.open_handles import OpenHandles
from txn_source.client.places import GivenPlace, Sought
from txn_source.metadata.stub.conversation import SubscribeRequest
from txn_source.metadata.stub.metadata_stub import MetadataStub
from txn_source.metadata.stub.subscriptions import SubscriptionInfo
from txn_source.model.errors import (
    InvalidArgumentError,
    SubscriptionIsolationMismatchError,
    SubscriptionNotFoundError,
)
from txn_source.model.isolation import GivenLevel, IsolationLevel
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.subscription import GivenType, Place, SubscriptionType
from txn_source.model.topic_name import TopicName
from txn_source.model.units import is_whole


class Unset(Enum):
    """Stands for an isolation level that isn't given."""

    LEVEL = "the stored level, or read_committed for a new subscription"


class Subscriptions:
    """What ``Log`` does about subscriptions; its methods of the same names have the arguments' meaning."""

    def __init__(self, access: Access, handles: OpenHandles) -> None:
        """Take the log, and what closes consumers with it."""
        self._access = access
        self._handles = handles
        self._stub = access.metadata

    def subscribe(
        self,
        topic: str,
        name: str,
        type: GivenType,
        isolation_level: GivenLevel | Unset | None,
        initial_position: GivenPlace,
        durable: bool,
        options: ConsumerOptions,
        send_dead_letter: SendDeadLetter,
    ) -> Consumer:
        """Connect a consumer to a subscription, which is made if it isn't there."""
        topic_name = _whole(topic)
        unset = isinstance(isolation_level, Unset)
        level = None
        if isolation_level is not None and not isinstance(isolation_level, Unset):
            level = IsolationLevel.parse(isolation_level)
        _check_name(name)
        if not isinstance(durable, bool):
            raise InvalidArgumentError(f"durable is {durable!r:.80}.", "Use True or False.")
        kind = SubscriptionType.parse(type)
        if unset:
            level = _stored_level(self._stub, topic_name, name)
        place = resolve_place(self._access, topic_name, initial_position, level)
        request = _request(topic_name, name, kind, level, durable, place, LATEST, options)
        try:
            return self._connect(request, options, send_dead_letter)
        except SubscriptionIsolationMismatchError:
            if not unset:
                raise
            request = replace(request, isolation_level=None)  # it was made by somebody else at this moment
            return self._connect(request, options, send_dead_letter)

    def reader(self, topic: str, start: GivenPlace, isolation_level: GivenLevel, queue_size: int | None) -> Reader:
        """Open a reader."""
        level, topic_name = IsolationLevel.parse(isolation_level), _whole(topic)
        place = resolve_place(self._access, topic_name, start, level)
        name, options = f"reader-{uuid.uuid4().hex[:12]}", ConsumerOptions(queue_size=queue_size)
        kind = SubscriptionType.EXCLUSIVE
        request = _request(topic_name, name, kind, level, False, place, EARLIEST, options)
        return Reader(self._connect(request, options, None))

    def create(
        self,
        topic: str,
        name: str,
        type: GivenType,
        isolation_level: GivenLevel,
        initial_position: GivenPlace,
    ) -> None:
        """Make a subscription without connecting a consumer."""
        _check_name(name)
        level, topic_name = IsolationLevel.parse(isolation_level), _whole(topic)
        place = resolve_place(self._access, topic_name, initial_position, level)
        kind = SubscriptionType.parse(type)
        self._stub.create_subscription(topic_name, name, kind, level, _or(place, LATEST))

    def all_of(self, topic: str) -> list[SubscriptionInfo]:
        """Return the subscriptions of a topic, by name."""
        from txn_source.client.notebook import Subscriptions as Found

        return Found(self._stub.list_subscriptions(_whole(topic)))

    def one(self, topic: str, name: str) -> SubscriptionInfo:
        """Return one subscription."""
        _check_name(name)
        [found] = self._stub.list_subscriptions(_whole(topic), name)
        return found

    def seek(self, topic: str, name: str, to: GivenPlace, epoch: int | None) -> Sought:
        """Move a subscription as an operator."""
        if epoch is not None and (not is_whole(epoch) or abs(epoch) >= 1 << 63):
            raise InvalidArgumentError(f"{epoch!r:.80} can't be a new epoch.", "Use a number above the current one.")
        _check_name(name)
        topic_name = _whole(topic)
        [info] = self._stub.list_subscriptions(topic_name, name, brief=True)
        place = resolve_place(self._access, topic_name, to, info.isolation_level)
        answer = self._stub.seek_subscription(topic_name, name, place, epoch)
        if len(answer.messages) > len(info.partitions):  # some were added meanwhile
            info = self.one(topic, name)
        return sought_of(answer, {p.partition_id: p.partition for p in info.partitions})

    def set_isolation_level(self, topic: str, name: str, level: GivenLevel) -> None:
        """Change the isolation level of a subscription that no consumer is connected to."""
        _check_name(name)
        self._stub.set_subscription_isolation_level(_whole(topic), name, IsolationLevel.parse(level))

    def _connect(
        self, request: SubscribeRequest, options: ConsumerOptions, send_dead_letter: SendDeadLetter | None
    ) -> Consumer:
        return self._handles.add_consumer(Consumer(self._access, request, options, send_dead_letter))

    def delete(self, topic: str, name: str) -> None:
        """Delete a subscription that no consumer is connected to."""
        _check_name(name)
        self._stub.delete_subscription(_whole(topic), name)


def given_options(options: Any, named: Mapping[str, Any]) -> ConsumerOptions:
    """Return a consumer's options, which are given as one value or field by field."""
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


def _request(
    topic: TopicName,
    name: str,
    kind: SubscriptionType,
    level: IsolationLevel | None,
    durable: bool,
    place: Place,
    otherwise: str,
    options: ConsumerOptions,
) -> SubscribeRequest:
    """Return what is asked for; a new subscription begins ``otherwise`` in partitions that the place doesn't name."""
    token = uuid.uuid4().hex
    return SubscribeRequest(
        str(topic),
        name,
        kind,
        level,
        durable,
        _or(place, otherwise),
        options.consumer_name or f"consumer-{token[:8]}",
        token,
        counts=options.max_redeliveries is not None,
    )


def _or(place: Place, otherwise: str) -> Place:
    """Return a place whose partitions that aren't named are ``otherwise``, unless it says where they are."""
    return place if place.where else replace(place, where=otherwise)


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
