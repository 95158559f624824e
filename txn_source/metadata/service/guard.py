"""Calls of somebody, judged by its roles before the service carries them out.

1. What a call names (topics, and ids, which are looked up) needs a role each: ``requirements.py``.
2. What belongs to somebody is used by its owner alone: producers, and transactions until they end.
3. Lists are answered with what the caller may see.

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
from txn_source.metadata.service.requirements import ADMIN, ANY, CONSUME, REQUIREMENTS, Need, Of, Rule, values
from txn_source.metadata.service.service import MetadataService
from txn_source.metadata.service.visible import Sight
from txn_source.metadata.store import whereabouts
from txn_source.metadata.store.owners import not_yours
from txn_source.metadata.store.transactions import number_of
from txn_source.metadata.store.whereabouts import Whereabouts
from txn_source.model.caller import Caller, Ending
from txn_source.model.errors import LimitExceededError, PermissionDeniedError, RateLimitedError, TxnLogError, shown
from txn_source.model.roles import Role
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
_Call = Callable[[str, Message], Message]
Change = tuple[str, Message]
"""The name of a call and its request."""
_SUBSCRIBED = "CreateSubscription"
_WHAT = {Of.PRODUCER: "Producer", Of.TRANSACTION: "Transaction"}


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

    # Judging

    def _judged(self, name: str, request: Any, visitor: Visitor) -> Message:
        rule = REQUIREMENTS.get(name)
        if rule is None:
            raise PermissionDeniedError(f"{name} is a call that nobody has a role for.", "Report it, please.")
        self._check(rule, request, visitor)
        by_hand: Callable[[Any, Visitor], Message] | None = getattr(self, f"_{name}") if rule.by_hand else None
        with calling(self._caller(rule, request, visitor)):
            return self._service.call(name, request) if by_hand is None else by_hand(request, visitor)

    def _check(self, rule: Rule, request: Any, visitor: Visitor) -> None:
        if rule.whole_log:
            _need_whole_log(visitor, rule.whole_log)
        if rule.some and not visitor.roles.of(*rule.some):
            raise _denied(visitor, rule.some, "any topic")
        for need in rule.needs:
            if need.of is Of.TOPIC:
                for name in values(request, need.field):
                    _need_role(visitor, need.roles, TopicName.parse(name))
            elif need.of is Of.PLACE:
                for uri in values(request, need.field):
                    self._check_place(uri)
            else:
                self._check_ids(need, request, visitor)

    def _check_place(self, uri: str) -> None:
        log: Any = self._service.call("GetLog", pb.GetLogRequest())
        if not AllowedPlaces([log.storage_uri, *(root.uri for root in log.roots), *self._door.places]).has(uri):
            raise PermissionDeniedError(
                f"{uri.partition('?')[0]!r} lies in no place that a token may name: the service would go there with its"
                " own credentials.",
                "Use a folder in the log's root, or have whoever runs the service list the place: txnlog serve --place"
                " URI.",
            )

    def _check_ids(self, need: Need, request: Any, visitor: Visitor) -> None:
        if need.of is Of.TRANSACTION:
            ids = [number_of(convert.txn_from_wire(txn)) for txn in values(request, need.field)]
        else:
            ids = list(values(request, need.field))
        for key, found in self._look_up(need.of, ids).items():
            for topic in found.topics if need.roles else ():
                if not visitor.roles.allow(ANY, topic):  # the visitor must not learn the topic's name
                    which = id_of(key) if need.of is Of.TRANSACTION else key
                    raise _denied(visitor, need.roles, f"the topic of {need.of.value} {which}")
                _need_role(visitor, need.roles, topic)
            if need.of in _WHAT:
                _check_own(need.of, key, found, visitor)

    def _look_up(self, of: Of, ids: Iterable[int]) -> dict[int, Whereabouts]:
        """Return what is known of ids; where a transaction has written changes, so its topics aren't asked for here."""
        known = self._known[of]
        found = {key: known[key] for key in ids if key in known}
        missing = {key for key in ids if key not in found}
        if missing:
            asked = self._service.look(lambda connection: _LOOK_UPS[of](connection, missing))
            if len(known) + len(asked) > _KEPT:
                known.clear()
            known.update(asked)
            found |= asked
        return found

    def _caller(self, rule: Rule, request: Any, visitor: Visitor) -> Caller:
        named = [name for need in rule.needs if need.of is Of.TOPIC for name in values(request, need.field)]
        admin = bool(named) and all(visitor.roles.allow(ADMIN, TopicName.parse(name)) for name in named)
        of_all = visitor.roles.allow_everything(ADMIN)
        return Caller(visitor.name, admin or of_all, of_all, self._door.usage.limits.transactions)

    # Calls that say more than the table

    def _WriteAll(self, request: pb.WriteAllRequest, visitor: Visitor) -> pb.WriteAllResponse:
        """Carry out the writes that are allowed, and say of each of the others why it isn't."""
        refused: dict[int, TxnLogError] = {}
        allowed = pb.WriteAllRequest()
        for at, write in enumerate(request.writes):
            which = write.WhichOneof("write")
            try:
                if which is not None:
                    name = "Append" if which == "append" else "WriteTransaction"
                    with self._counted(name, visitor):
                        self._check(REQUIREMENTS[name], getattr(write, which), visitor)
            except PermissionDeniedError as error:
                refused[at] = error
            else:
                allowed.writes.append(write)
        if not refused:
            return self._service.call("WriteAll", request)  # type: ignore[return-value]
        done: Any = self._service.call("WriteAll", allowed) if allowed.writes else pb.WriteAllResponse()
        came = iter(done.writes)
        answer = pb.WriteAllResponse()
        for at in range(len(request.writes)):
            written = answer.writes.add()
            if at in refused:
                written.error.CopyFrom(convert.error_to_wire(refused[at]))
            else:
                written.CopyFrom(next(came))
        return answer

    def _EndTransaction(self, request: pb.EndTransactionRequest, visitor: Visitor) -> Message:
        txn = number_of(convert.txn_from_wire(request.id))
        found = self._service.look(lambda connection: whereabouts.of_transactions(connection, [txn])).get(txn)
        if found is not None and found.owner != visitor.name:
            if not request.forced or request.commit:
                raise not_yours(f"Transaction {id_of(txn)}", found.owner, visitor.name)
            if not found.topics:
                _need_whole_log(visitor, ADMIN)
            for topic in found.topics:
                _need_role(visitor, ADMIN, topic)
        return self._service.call("EndTransaction", request)

    def _GetTransaction(self, request: pb.GetTransactionRequest, visitor: Visitor) -> Message:
        answer: Any = self._service.call("GetTransaction", request)
        if not self._sight(visitor).keep_visible(answer.transaction):
            raise _denied(visitor, ANY, f"a topic that transaction {convert.txn_from_wire(request.id)} wrote to")
        return answer  # type: ignore[no-any-return]

    def _ChangeSegmentRoots(self, request: pb.ChangeSegmentRootsRequest, visitor: Visitor) -> Message:
        """A visitor with ``produce`` alone may only add copies of segments of their own producers."""
        topic = TopicName.parse(request.topic)
        if not visitor.roles.allow(ADMIN, topic):
            names = [SegmentName.parse(change.path) for change in request.changes]
            found = self._look_up(Of.PRODUCER, {name.producer_id for name in names if name is not None})
            for change, name in zip(request.changes, names, strict=True):
                if change.removed or name is None or name.producer_id not in found:
                    _need_role(visitor, ADMIN, topic)
                else:
                    _check_own(Of.PRODUCER, name.producer_id, found[name.producer_id], visitor)
        return self._service.call("ChangeSegmentRoots", request)

    def _ListTransactions(self, request: pb.ListTransactionsRequest, visitor: Visitor) -> Message:
        return self._sight(visitor).transactions(request)

    def _ListTopics(self, request: Any, visitor: Visitor) -> Message:
        return self._sight(visitor).topics(request)

    def _ReadTable(self, request: Any, visitor: Visitor) -> Message:
        roles = CONSUME if request.table == "subscriptions" else ANY
        if request.HasField("topic"):
            _need_role(visitor, roles, TopicName.parse(request.topic))
        return self._sight(visitor).table(request, roles)

    def _sight(self, visitor: Visitor) -> Sight:
        def is_own(txn: int) -> bool:
            found = self._look_up(Of.TRANSACTION, [txn]).get(txn)
            return found is not None and found.owner == visitor.name

        def written(txns: Iterable[int]) -> dict[int, Whereabouts]:
            return self._service.look(lambda connection: whereabouts.of_transactions(connection, txns))

        return Sight(self._service, visitor.roles, is_own, written)

    def _ListDoomedFiles(self, request: Any, visitor: Visitor) -> Message:
        """Show whoever may not delete files none: the service's own maintenance does it."""
        if not visitor.roles.allow_everything(ADMIN):
            return pb.ListDoomedFilesResponse()
        return self._service.call("ListDoomedFiles", request)

    def _ForgetDoomedFiles(self, request: Any, visitor: Visitor) -> Message:
        if request.doomed_ids:
            _need_whole_log(visitor, ADMIN)
        return self._service.call("ForgetDoomedFiles", request)

    def _ChangePolicies(self, request: Any, visitor: Visitor) -> Message:
        scope = request.scope.WhichOneof("scope")
        if scope is None:
            _need_whole_log(visitor, ADMIN)
        elif scope == "namespace":
            namespace = parse_namespace(request.scope.namespace)
            if not visitor.roles.allow_namespace(ADMIN, namespace):
                raise _denied(visitor, ADMIN, f"{namespace}/*")
        return self._service.call("ChangePolicies", request)

    def _GetPolicies(self, request: Any, visitor: Visitor) -> Message:
        if request.scope.WhichOneof("scope") == "namespace":
            namespace = parse_namespace(request.scope.namespace)
            if not any(pattern.touches_namespace(namespace) for pattern in visitor.roles.of(*ANY)):
                raise _denied(visitor, ANY, f"{namespace}/*")
        return self._service.call("GetPolicies", request)

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
        ordinary = (name == "EndTransaction" and not request.forced) or (
            name == "OpenProducer" and not self._takes_over(request, visitor)
        )
        if rule is None or not rule.audited or ordinary:
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
        if self._door.audit is None or not visitor.known or not request.HasField("transactional_id"):
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


def _check_own(of: Of, key: int, found: Whereabouts, visitor: Visitor) -> None:
    if found.owner != visitor.name:
        which = id_of(key) if of is Of.TRANSACTION else key
        raise not_yours(f"{_WHAT[of]} {which}", found.owner, visitor.name)


def _need_whole_log(visitor: Visitor, roles: tuple[Role, ...]) -> None:
    if not visitor.roles.allow_everything(roles):
        raise _denied(visitor, roles, "*")


def _denied(visitor: Visitor, roles: tuple[Role, ...], what: str) -> PermissionDeniedError:
    wanted = " or ".join(role.value for role in roles)
    return PermissionDeniedError(
        f"The token of {shown(visitor.name)} has no role {wanted} for {what}.",
        "Use one that was made with it; `txnlog tokens show` tells what a token has.",
    )
