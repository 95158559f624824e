"""Calls of somebody, judged by its roles before the service carries them out.

1. What a call names (topics, and ids, which are looked up) needs a role each, and some of it must be the caller's own:
   ``requirements.py``.
2. An id of what the caller has no role for is answered like one that names nothing.
3. Lists are answered with what the caller may see: ``visible.py``.

The service that has no tokens asks nobody, and the embedded log has no guard.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
from google.protobuf.message import Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.access.door import Door, Visitor
from txn_source.metadata.access.tokens import Identity, expired
from txn_source.metadata.protocol import convert
from txn_source.metadata.service.callers import calling
from txn_source.metadata.service.requirements import (
    ADMIN,
    ANY,
    CONSUME,
    REQUIREMENTS,
    Need,
    Of,
    Own,
    Rule,
    is_set,
    values,
)
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.service.visible import Sight, absent
from txn_source.metadata.store import whereabouts
from txn_source.metadata.store.owners import not_yours
from txn_source.metadata.store.transactions import number_of
from txn_source.metadata.store.whereabouts import Whereabouts
from txn_source.model.caller import Caller, Ending
from txn_source.model.errors import LimitExceededError, PermissionDeniedError, RateLimitedError, TxnLogError, shown
from txn_source.model.roles import Pattern, Role
from txn_source.model.topic_name import TopicName, parse_namespace
from txn_source.model.transaction import id_of
from txn_source.storage.allowed_places import AllowedPlaces
from txn_source.storage.segment import SegmentName

_PAUSE_S = 0.05
_KEPT = 100_000
_LOOK_UPS: Mapping[Of, Callable[..., dict[int, Whereabouts]]] = {
    Of.PARTITION: whereabouts.of_partitions,
    Of.COPY: whereabouts.of_copies,
    Of.SUBSCRIPTION: whereabouts.of_subscriptions,
    Of.PRODUCER: whereabouts.of_producers,
    Of.TRANSACTION: whereabouts.of_transactions,
}
Change = tuple[str, Message]
"""The name of a call and its request."""
_SUBSCRIBED = "CreateSubscription"


class Guard:
    """The calls of a service for whom its door let in."""

    def __init__(self, service: MetadataService, door: Door) -> None:
        self._service = service
        self._door = door
        self._known: dict[Of, dict[int, Whereabouts]] = {of: {} for of in _LOOK_UPS}

    def visitor(self, name: str, context: grpc.ServicerContext) -> Visitor:
        """Return who makes a call, or begins a conversation.

        Raises:
            UnauthenticatedError, LimitExceededError: the service doesn't let them in.
            PermissionDeniedError: they may hold no conversation, whatever they would ask.
        """
        visitor = self._door.admit(name, context)
        if name == "Consume" and visitor.known and not visitor.roles.of(*CONSUME):
            with self._counted(name, visitor):
                raise _denied(visitor, CONSUME, "any topic")
        return visitor

    def call_of(self, name: str, visitor: Visitor, request_bytes: int) -> Callable[[str, Message], Message]:
        """Return what makes a call for a visitor.

        Raises:
            LimitExceededError: the visitor asks for too much, or too often.
        """
        with self._limited(name, visitor):
            self._door.usage.call(visitor.name, request_bytes)
        return lambda name, request: self.call(name, request, visitor)

    @contextmanager
    def conversation_of(
        self, name: str, visitor: Visitor, is_active: Callable[[], bool]
    ) -> Iterator[Callable[[str, Iterable[Any]], Iterator[Message]]]:
        """Let a visitor hold a conversation, as one of its consumers, inside of the block.

        Raises:
            LimitExceededError: the visitor has as many as it may have.
        """
        with ExitStack() as held:
            with self._limited(name, visitor):
                held.enter_context(self._door.usage.consumer(visitor.name))
            yield lambda name, requests: self.converse(name, requests, visitor, is_active)

    @contextmanager
    def _limited(self, name: str, visitor: Visitor) -> Iterator[None]:
        try:
            yield
        except LimitExceededError as error:
            self._door.refused_by_limit(error, name, visitor.peer)
            raise

    def call(self, name: str, request: Message, visitor: Visitor) -> Message:
        """Make a call and return its answer.

        Raises:
            PermissionDeniedError: the visitor has no role for it, or what it names is another's.
            TxnLogError: as the service.
        """
        with self._audited(name, request, visitor):
            if not visitor.known:
                answer = self._service.call(name, request)
            else:
                with self._counted(name, visitor):
                    answer = self._judged(name, request, visitor)
        self._door.usage.answered(visitor.name, answer.ByteSize())
        return answer

    def converse(
        self, name: str, requests: Iterable[Any], visitor: Visitor, is_active: Callable[[], bool] = lambda: True
    ) -> Iterator[Message]:
        """Hold a conversation, until the visitor's token ends at most; nothing is held up once it isn't active.

        Raises:
            UnauthenticatedError: it has ended.
            PermissionDeniedError, TxnLogError: as ``call``.
        """
        ending = None
        if visitor.known:
            error = expired(Identity(visitor.name, visitor.roles, visitor.ends_at)).error
            ending = Ending(visitor.ends_at, error)
        changes: list[tuple[int, Change]] = []
        for answer in self._service.converse(name, self._admitted(name, requests, visitor, changes), ending):
            self._note_change(visitor, answer, changes)
            while is_active() and self._door.usage.is_overdrawn(visitor.name):  # not refused, but held up
                time.sleep(_PAUSE_S)
            self._door.usage.answered(visitor.name, answer.ByteSize())
            yield answer

    def _admitted(
        self, name: str, requests: Iterable[Any], visitor: Visitor, changes: list[tuple[int, Change]]
    ) -> Iterator[Any]:
        """Yield the allowed requests of a conversation; raise at the first other one. ``changes`` gets those that the
        audit records, with their sequence, which a client may use twice."""
        for request in requests:
            self._wait_for_room(visitor, request.ByteSize())
            change = _change_in(request)
            try:
                if visitor.known:
                    with self._counted(name, visitor):
                        self._check(REQUIREMENTS[name], request, visitor)
            except TxnLogError as error:
                if change is not None:
                    self._note(visitor, *change, error.code)
                raise
            if change is not None and self._door.audit is not None:
                changes.append((request.sequence, change))
            yield request

    def _note_change(self, visitor: Visitor, answer: Any, changes: list[tuple[int, Change]]) -> None:
        subscribed = answer.HasField("subscribed")
        if not subscribed and not answer.HasField("receipt"):
            return
        for at, (sequence, (call, request)) in enumerate(changes):
            if (call == _SUBSCRIBED) == subscribed and (subscribed or sequence == answer.receipt.sequence):
                del changes[at]
                failed = not subscribed and answer.receipt.HasField("error")
                if not subscribed or answer.subscribed.created:
                    self._note(visitor, call, request, answer.receipt.error.code if failed else "ok")
                return

    def _wait_for_room(self, visitor: Visitor, request_bytes: int) -> None:
        """Wait until the visitor's limit lets one more through."""
        while True:
            try:
                self._door.usage.call(visitor.name, request_bytes)
            except RateLimitedError:
                time.sleep(_PAUSE_S)
            else:
                return

    def check_partition(self, partition_id: int, visitor: Visitor) -> None:
        """Raise unless a visitor may read a partition.

        Raises:
            PermissionDeniedError, TopicNotFoundError: the visitor may not.
        """
        need = Need(Of.PARTITION, roles=CONSUME)
        if visitor.known and self._absent(need, [partition_id], visitor) is not None:
            raise absent(need.of, partition_id)

    # Judging

    def _judged(self, name: str, request: Any, visitor: Visitor) -> Message:
        rule = REQUIREMENTS.get(name)
        if rule is None:
            raise PermissionDeniedError(f"{name} is a call that nobody has a role for.", "Report it, please.")
        if not self._check(rule, request, visitor):
            return getattr(pb, f"{name}Response")()  # type: ignore[no-any-return]
        with calling(self._caller(rule, request, visitor)):
            return (
                Sight(self._service, visitor).answer(name, request) if rule.cut else self._service.call(name, request)
            )

    def _check(self, rule: Rule, request: Any, visitor: Visitor) -> bool:
        """Raise unless a visitor may make a request. Return False if it is about nothing, and the rule is quiet."""
        for need in rule.needs:
            if need.when and not need.applies(request):
                continue
            if need.of is Of.LOG:
                _need_whole_log(visitor, need.roles)
            elif need.of is Of.SOME_TOPIC:
                if not visitor.roles.of(*need.roles):
                    raise _denied(visitor, need.roles, "any topic")
            elif need.of is Of.TOPIC:
                for name in values(request, need.field):
                    _need_role(visitor, need.roles, TopicName.parse(name))
            elif need.of in (Of.NAMESPACE, Of.PART_OF_NAMESPACE):
                for name in values(request, need.field):
                    _need_namespace(visitor, need, parse_namespace(name))
            elif need.of is Of.PLACE:
                for uri in values(request, need.field):
                    self._check_place(uri)
            elif need.of is Of.SEGMENT:
                self._check_segments(need, request, visitor)
            elif (key := self._absent(need, values(request, need.field), visitor)) is not None:
                if rule.quiet:
                    return False
                raise absent(need.of, key)
        return True

    def _check_place(self, uri: str) -> None:
        log: Any = self._service.call("GetLog", pb.GetLogRequest())
        if not AllowedPlaces([log.storage_uri, *(root.uri for root in log.roots), *self._door.places]).has(uri):
            raise PermissionDeniedError(
                f"{uri.partition('?')[0]!r} lies in no place that a token may name: the service would go there with its"
                " own credentials.",
                "Use a folder in the log's root, or ask the operator to list the place: txnlog serve --place URI.",
            )

    def _check_segments(self, need: Need, request: Any, visitor: Visitor) -> None:
        topic = TopicName.parse(request.topic)
        if visitor.roles.allow(need.roles, topic):
            return
        names = [SegmentName.parse(path) for path in values(request, need.field)]
        found = self._look_up(Of.PRODUCER, {name.producer_id for name in names if name is not None}, visitor)
        owners = {key: where.owner for key, where in found.items() if where is not None}
        if any(name is None or owners.get(name.producer_id) != visitor.name for name in names):
            _need_role(visitor, need.roles, topic)

    def _absent(self, need: Need, ids: Iterable[Any], visitor: Visitor) -> int | None:
        """Raise unless a visitor may use what some ids name. Return one that names nothing that it may know of."""
        if need.of is Of.TRANSACTION:
            ids = (number_of(convert.txn_from_wire(txn)) for txn in ids)
        keys, sees_all = list(ids), visitor.roles.allow_everything(ANY)
        for key, where in self._look_up(need.of, keys, visitor).items():
            if where is not None and (sees_all or where.owner == visitor.name or _sees(visitor, where)):
                _check_one(need, key, where, visitor)
            elif not sees_all:  # otherwise the service may say that there is none
                return key
        return None

    def _look_up(self, of: Of, ids: Iterable[int], visitor: Visitor) -> dict[int, Whereabouts | None]:
        """Return what ids name, None: nothing. Of a visitor's own transactions it doesn't tell all topics."""
        known, found = self._known[of], dict[int, Whereabouts | None]()
        for key in ids:
            where = known.get(key)
            changes = of is Of.TRANSACTION and where is not None and where.owner != visitor.name
            found[key] = None if changes else where
        missing = [key for key, where in found.items() if where is None]
        if missing:
            asked = self._service.look(lambda connection: _LOOK_UPS[of](connection, missing))
            if len(known) + len(asked) > _KEPT:
                known.clear()
            known.update(asked)
            found.update(asked)
        return found

    def _caller(self, rule: Rule, request: Any, visitor: Visitor) -> Caller:
        named = [name for need in rule.needs if need.of is Of.TOPIC for name in values(request, need.field)]
        admin = bool(named) and all(visitor.roles.allow(ADMIN, TopicName.parse(name)) for name in named)
        of_all = visitor.roles.allow_everything(ADMIN)
        return Caller(visitor.name, admin or of_all, of_all, self._door.usage.limits.transactions)

    # Telling

    @contextmanager
    def _counted(self, name: str, visitor: Visitor) -> Iterator[None]:
        try:
            yield
        except PermissionDeniedError as error:
            self._door.refusals.count("denied", name, visitor.peer, error.fact)
            raise

    @contextmanager
    def _audited(self, name: str, request: Any, visitor: Visitor) -> Iterator[None]:
        rule = REQUIREMENTS.get(name)
        is_change = rule is not None and rule.audited is not None and is_set(request, rule.audited)
        if not is_change or (name == "OpenProducer" and not self._takes_over(request, visitor)):
            yield
            return
        try:
            yield
        except BaseException as error:
            outcome = error.code if isinstance(error, TxnLogError) else type(error).__name__
            self._note(visitor, name, request, outcome)
            raise
        self._note(visitor, name, request, "ok")

    def _takes_over(self, request: pb.OpenProducerRequest, visitor: Visitor) -> bool:
        """True if a transactional id belongs to somebody else: the takeover aborts his open transactions."""
        if self._door.audit is None or not visitor.known:
            return False
        topic, id_ = TopicName.parse(request.topic), request.transactional_id
        owner = self._service.look(lambda connection: whereabouts.owner_of_transactional_id(connection, topic, id_))
        return owner not in (None, visitor.name)

    def _note(self, visitor: Visitor, name: str, request: Any, outcome: str) -> None:
        if self._door.audit is not None:
            self._door.audit.note(visitor.name, visitor.peer, name, request, outcome)


def _change_in(request: Any) -> Change | None:
    """Return the change in a conversation's request that the audit records, as the call that would make it."""
    if request.HasField("seek"):
        return "SeekSubscription", request.seek
    if not request.HasField("subscribe") or not request.subscribe.durable:
        return None
    of = request.subscribe
    made = pb.CreateSubscriptionRequest(
        topic=of.topic, name=of.name, type=of.type, isolation_level=of.isolation_level, place=of.place
    )
    return _SUBSCRIBED, made


def _need_role(visitor: Visitor, roles: tuple[Role, ...], topic: TopicName) -> None:
    if not visitor.roles.allow(roles, topic):
        raise _denied(visitor, roles, f"{topic.tenant}/{topic.namespace}/{topic.name}")


def _sees(visitor: Visitor, where: Whereabouts) -> bool:
    return any(visitor.roles.allow(ANY, topic) for topic in where.topics)


def _check_one(need: Need, key: int, where: Whereabouts, visitor: Visitor) -> None:
    which = f"{need.of.value} {id_of(key) if need.of is Of.TRANSACTION else key}"
    own = where.owner == visitor.name
    if own and need.own is Own.OR:
        return
    if need.own is Own.OR and not where.topics:
        _need_whole_log(visitor, need.roles)
    for topic in where.topics if need.roles else ():
        if visitor.roles.allow(ANY, topic):
            _need_role(visitor, need.roles, topic)
        else:  # the visitor must not learn the topic's name
            raise _denied(visitor, need.roles, f"a topic of {which}")
    if need.own is Own.ONLY and not own:
        raise not_yours(which.capitalize(), where.owner, visitor.name)


def _need_namespace(visitor: Visitor, need: Need, namespace: str) -> None:
    patterns = visitor.roles.of(*need.roles)
    covers = Pattern.covers_namespace if need.of is Of.NAMESPACE else Pattern.touches_namespace
    if not any(covers(pattern, namespace) for pattern in patterns):
        raise _denied(visitor, need.roles, f"{namespace}/*")


def _need_whole_log(visitor: Visitor, roles: tuple[Role, ...]) -> None:
    if not visitor.roles.allow_everything(roles):
        raise _denied(visitor, roles, "*")


def _denied(visitor: Visitor, roles: tuple[Role, ...], what: str) -> PermissionDeniedError:
    wanted = " or ".join(role.value for role in roles)
    return PermissionDeniedError(
        f"The token of {shown(visitor.name)} has no role {wanted} for {what}.",
        "Use one that was made with it; `txnlog tokens show` tells what a token has.",
    )
