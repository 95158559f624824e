"""What each call needs: a table from calls to roles, and to the fields that name topics and what belongs to them.

A call without a row is refused. The documentation's page "Calls and roles" is made of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from google.protobuf.message import Message

from txn_source.model.roles import Role


class Of(Enum):
    """What the values of a field name."""

    LOG = "the whole log"
    """Whatever the value is."""
    SOME_TOPIC = "any topic"
    """Whichever."""
    TOPIC = "topic"
    NAMESPACE = "namespace"
    """All of its topics."""
    PART_OF_NAMESPACE = "a topic of namespace"
    PARTITION = "partition"
    COPY = "copy"
    SUBSCRIPTION = "subscription"
    PRODUCER = "producer"
    TRANSACTION = "transaction"
    SEGMENT = "segment"
    """A hot segment of the request's ``topic``, which belongs to the owner of its producer."""
    PLACE = "place"
    """It must be one of ``AllowedPlaces``, whatever roles the caller has."""


class Own(Enum):
    """Whether what a field names must be the caller's own."""

    NO = ""
    ONLY = "own"
    OR = "own, or"
    """Who has the roles for all of its topics may use it, too; if it has none, who has them for the whole log."""


@dataclass(frozen=True, slots=True)
class Need:
    """One of some roles for each thing that a field names. Parts of the field's path stand between dots.

    Values of repeated fields all count, of a map its keys, or the value of the key behind the dot, and of what isn't
    set none. ``when``: a field that must be set (not 0, false or empty) for the need to apply, ``field=value``, or
    ``not field``; else it always applies.

    An id that names nothing, or something of topics that the caller has no role for, is refused with the same error.
    """

    of: Of
    field: str = ""
    roles: tuple[Role, ...] = ()
    own: Own = Own.NO
    when: str = ""

    def applies(self, request: Any) -> bool:
        """True if a request is one that the need is about."""
        return is_set(request, self.when)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a call needs, all of it.

    ``cut``: what the caller may not see is left out of the answer, or the answer refused, by ``visible.Sight``.
    ``quiet``: an id that names nothing is no error, and answered with nothing. ``within``: fields that name parts of
    what the needs name; the service itself checks that, in the database transaction of the call. ``audited``: the audit
    has a line for it; None: it has not; a text: if that applies, as ``Need.when``.
    """

    needs: tuple[Need, ...] = ()
    cut: bool = False
    quiet: bool = False
    within: tuple[str, ...] = ()
    audited: str | None = None


PRODUCE = (Role.PRODUCE,)
CONSUME = (Role.CONSUME, Role.ADMIN)
ADMIN = (Role.ADMIN,)
ANY = (Role.PRODUCE, Role.CONSUME, Role.ADMIN)


def _topic(roles: tuple[Role, ...], field: str = "topic", **more: Any) -> Rule:
    return Rule((Need(Of.TOPIC, field, roles),), **more)


def _read(field: str = "partition_id") -> Rule:
    return Rule((Need(Of.PARTITION, field, CONSUME),))


def _whole(*needs: Need, audited: str | None = None) -> Rule:
    return Rule((Need(Of.LOG, roles=ADMIN), *needs), audited=audited)


def _transaction(field: str) -> Need:
    return Need(Of.TRANSACTION, field, own=Own.ONLY)


def _producer(field: str = "producer_id") -> Need:
    return Need(Of.PRODUCER, field, PRODUCE, Own.ONLY)


def _acknowledged(field: str = "acknowledgements") -> Need:
    return Need(Of.SUBSCRIPTION, f"{field}.subscription_id", CONSUME)


def _entries(field: str) -> tuple[str, ...]:
    return f"{field}.partition_id", f"{field}.segment"


def _acknowledgements(field: str) -> tuple[str, ...]:
    return f"{field}.consumer_id", *_ranges(f"{field}.partitions")


def _ranges(field: str) -> tuple[str, ...]:
    return f"{field}.partition_id", f"{field}.up_to.partition_id"


REQUIREMENTS: Mapping[str, Rule] = {
    "GetLog": Rule(),
    "CreateTopic": Rule((Need(Of.TOPIC, "name", ADMIN), Need(Of.PLACE, "layered_policies.offload_uri")), audited=""),
    "UpdateTopic": _topic(ADMIN, "name", audited=""),
    "ListTopics": Rule(cut=True),
    "DeleteTopic": _topic(ADMIN, "name", audited=""),
    "RollLedger": _topic(ADMIN, "name", audited=""),
    "OpenProducer": _topic(PRODUCE, within=("transactional_id",), audited="transactional_id"),
    "Append": Rule((_producer(), _transaction("txn")), within=_entries("entries")),
    "CommitBatch": Rule(
        (Need(Of.SOME_TOPIC, roles=PRODUCE), Need(Of.TOPIC, "topics.name", PRODUCE), _producer("topics.producer_id")),
        within=("topics.topic_id", *_entries("topics.entries"), "query_id", "app_id", "transactional_id"),
    ),
    "ImportBatch": Rule(
        (
            Need(Of.TOPIC, "topics.name", PRODUCE),
            _producer("topics.producer_id"),
            _transaction("writes.txn.id"),
            _transaction("ends.txn.id"),
            _transaction("kept"),
        ),
        within=("topics.topic_id", *_entries("writes.entries")),
    ),
    "GetImport": _topic(PRODUCE),
    "BeginTransaction": Rule((Need(Of.SOME_TOPIC, roles=(Role.PRODUCE, Role.CONSUME)),)),
    "WriteTransaction": Rule(
        (_producer("appends.producer_id"), _acknowledged()),
        within=(*_entries("appends.entries"), *_acknowledgements("acknowledgements")),
    ),
    "WriteAll": Rule(
        (
            _producer("writes.append.producer_id"),
            _transaction("writes.append.txn"),
            _producer("writes.transaction.appends.producer_id"),
            _acknowledged("writes.transaction.acknowledgements"),
        ),
        within=(
            *_entries("writes.append.entries"),
            *_entries("writes.transaction.appends.entries"),
            *_acknowledgements("writes.transaction.acknowledgements"),
        ),
    ),
    "EndTransaction": Rule(
        (
            Need(Of.TRANSACTION, "id", own=Own.ONLY, when="not forced"),
            Need(Of.TRANSACTION, "id", ADMIN, Own.OR, when="forced"),
            _acknowledged(),
        ),
        within=_acknowledgements("acknowledgements"),
        audited="forced",
    ),
    "GetTransaction": Rule(cut=True),
    "ListTransactions": Rule((Need(Of.TOPIC, "topic", ANY),), cut=True),
    "GetView": _topic(ANY, "topics"),
    "FindCut": Rule((Need(Of.PARTITION, "bounds", CONSUME), Need(Of.PARTITION, "starts", CONSUME))),
    "FindPosition": _read("partition_ids"),
    "ListLedgers": _read(),
    "ListLedgersOfRanges": _read("ranges.partition_id"),
    "SplitRange": _read(),
    "CountRange": _read(),
    "ReadTable": Rule(
        (Need(Of.TOPIC, "topic", ANY), Need(Of.TOPIC, "topic", CONSUME, when="table=subscriptions")), cut=True
    ),
    "ListEntries": _read(),
    "ListDecisions": _read(),
    "ListSegments": _whole(),
    "CondemnSegments": _whole(audited=""),
    "JudgeFiles": _whole(audited=""),
    "CloseProducer": Rule((_producer(),), quiet=True),
    "ListCopies": _read(),
    "ListOffloadable": _topic(ADMIN),
    "BeginOffload": Rule((Need(Of.PARTITION, "partition_id", ADMIN),), within=("ledger_id", "uri"), audited=""),
    "CompleteOffload": Rule((Need(Of.COPY, "copy_id", ADMIN),), within=("copy.uri",), quiet=True),
    "AbandonOffload": Rule((Need(Of.COPY, "copy_id", ADMIN),), quiet=True),
    "DeleteCopies": _topic(ADMIN, within=("ledger_ids",), audited=""),
    "TrimTopic": _topic(ADMIN, audited=""),
    "ListDoomedFiles": Rule(cut=True),
    "ForgetDoomedFiles": Rule((Need(Of.LOG, "doomed_ids", ADMIN, when="doomed_ids"),)),
    "AddRoot": _whole(Need(Of.PLACE, "uri"), audited=""),
    "RemoveRoot": _whole(audited=""),
    "ListHotSegments": _topic((Role.PRODUCE, Role.ADMIN)),
    "ListSegmentEntries": _topic((Role.PRODUCE, Role.ADMIN), within=("path",)),
    "ChangeSegmentRoots": Rule(
        (
            Need(Of.TOPIC, "topic", (Role.PRODUCE, Role.ADMIN)),
            Need(Of.SEGMENT, "changes.path", ADMIN, Own.OR),
            Need(Of.TOPIC, "topic", ADMIN, when="changes.removed"),
        ),
        audited="changes.removed",
    ),
    "ChangePolicies": Rule(
        (
            Need(Of.LOG, roles=ADMIN, when="not scope"),
            Need(Of.NAMESPACE, "scope.namespace", ADMIN),
            Need(Of.TOPIC, "scope.topic", ADMIN),
            Need(Of.PLACE, "set.offload_uri"),
        ),
        audited="",
    ),
    "GetPolicies": Rule(
        (Need(Of.PART_OF_NAMESPACE, "scope.namespace", ANY), Need(Of.TOPIC, "scope.topic", ANY)),
    ),
    "CreateSubscription": _topic(CONSUME, within=("name", "place.points.partition_id"), audited=""),
    "ListSubscriptions": _topic(CONSUME, within=("name",)),
    "DeleteSubscription": _topic(CONSUME, within=("name",), audited=""),
    "SeekSubscription": _topic(CONSUME, within=("name", "place.points.partition_id"), audited=""),
    "SetSubscriptionIsolationLevel": _topic(CONSUME, within=("name",), audited=""),
    "CountMessages": _read("points.partition_id"),
    "Consume": Rule(
        (
            Need(Of.TOPIC, "subscribe.topic", CONSUME),
            _acknowledged("acknowledge"),
            Need(Of.TOPIC, "seek.topic", CONSUME),
        ),
        within=(
            *_acknowledgements("acknowledge"),
            *(f"{of}.{field}" for of in ("subscribe", "seek") for field in ("name", "place.points.partition_id")),
            *_ranges("subscribe.received.ranges"),
            *_ranges("redeliver.ranges"),
            *_ranges("leave.ranges"),
            *_ranges("count.ranges"),
        ),
    ),
}
"""By the name of the call; of a conversation, what each of its requests needs."""


def values(message: Message, field: str) -> Iterator[Any]:
    """Yield what a field of a request has, by its path."""
    name, _, rest = field.partition(".")
    described = message.DESCRIPTOR.fields_by_name[name]
    if described.has_presence and not message.HasField(name):
        return
    value = getattr(message, name)
    if rest and described.message_type is not None and described.message_type.GetOptions().map_entry:
        if rest in value:
            yield value[rest]
        return
    found = list(value) if described.is_repeated else [value]
    for each in found:
        if rest:
            yield from values(each, rest)
        else:
            yield each


def is_set(request: Message, condition: str) -> bool:
    """True if a condition, as of ``Need.when``, applies to a request."""
    field, _, value = condition.partition("=")
    negative, field = field.startswith("not "), field.removeprefix("not ")
    if not field:
        return True
    found = (each.ListFields() if isinstance(each, Message) else each for each in values(request, field))
    return any(each == value if value else each for each in found) != negative
