"""What each call needs: one table from the calls of the service to roles and to the fields that name the topics.

A call that has no row is refused. ``docs/access.md`` has it for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

from google.protobuf.message import Message

from txn_source.model.roles import Role
from txn_source.model.values import dataclass


class Of(Enum):
    """What the values of a field name. An id that names nothing needs no role: the service says that it isn't there."""

    TOPIC = "topic"
    PARTITION = "partition"
    COPY = "copy"
    SUBSCRIPTION = "subscription"
    PRODUCER = "producer"
    """Its topic; and it must be the caller's own."""
    TRANSACTION = "transaction"
    """It must be the caller's own."""
    PLACE = "place"
    """It must be one of ``AllowedPlaces``, whatever roles the caller has."""


@dataclass(frozen=True, slots=True)
class Need:
    """One of some roles for each topic that a field names. Parts of the field's path stand between dots.

    Values of repeated fields all count, of a map its keys, or the value of the key behind the dot, and of what isn't
    set none.
    """

    of: Of
    field: str
    roles: tuple[Role, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """What a call needs, all of it.

    ``whole_log``: a role for ``*``. ``some``: a role for some topic, whichever. ``by_hand``: the guard has a method of
    its own for the call, which checks the rest, or leaves out of the answer what the caller may not see.
    ``audited``: it is an administrative change.
    """

    needs: tuple[Need, ...] = ()
    whole_log: tuple[Role, ...] = ()
    some: tuple[Role, ...] = ()
    by_hand: bool = False
    audited: bool = False


PRODUCE = (Role.PRODUCE,)
CONSUME = (Role.CONSUME, Role.ADMIN)
ADMIN = (Role.ADMIN,)
ANY = (Role.PRODUCE, Role.CONSUME, Role.ADMIN)


def _topic(roles: tuple[Role, ...], field: str = "topic", *, audited: bool = False) -> Rule:
    return Rule((Need(Of.TOPIC, field, roles),), audited=audited)


def _read(field: str = "partition_id") -> Rule:
    return Rule((Need(Of.PARTITION, field, CONSUME),))


_ACKNOWLEDGED = Need(Of.SUBSCRIPTION, "acknowledgements.subscription_id", CONSUME)

REQUIREMENTS: Mapping[str, Rule] = {
    "GetLog": Rule(),
    "CreateTopic": Rule((Need(Of.TOPIC, "name", ADMIN), Need(Of.PLACE, "layered_policies.offload_uri")), audited=True),
    "UpdateTopic": _topic(ADMIN, "name", audited=True),
    "ListTopics": Rule(by_hand=True),
    "DeleteTopic": _topic(ADMIN, "name", audited=True),
    "RollLedger": _topic(ADMIN, "name", audited=True),
    "OpenProducer": _topic(PRODUCE, audited=True),
    "Append": Rule((Need(Of.PRODUCER, "producer_id", PRODUCE), Need(Of.TRANSACTION, "txn"))),
    "CommitBatch": Rule(
        (Need(Of.TOPIC, "topics.name", PRODUCE), Need(Of.PRODUCER, "topics.producer_id", PRODUCE)), some=PRODUCE
    ),
    "ImportBatch": Rule(
        (
            Need(Of.TOPIC, "topics.name", PRODUCE),
            Need(Of.PRODUCER, "topics.producer_id", PRODUCE),
            Need(Of.TRANSACTION, "writes.txn.id"),
            Need(Of.TRANSACTION, "ends.txn.id"),
            Need(Of.TRANSACTION, "kept"),
        )
    ),
    "GetImport": _topic(PRODUCE),
    "BeginTransaction": Rule(some=(Role.PRODUCE, Role.CONSUME)),
    "WriteTransaction": Rule((Need(Of.PRODUCER, "appends.producer_id", PRODUCE), _ACKNOWLEDGED)),
    "WriteAll": Rule(by_hand=True),
    "EndTransaction": Rule((_ACKNOWLEDGED,), by_hand=True, audited=True),
    "GetTransaction": Rule(by_hand=True),
    "ListTransactions": Rule((Need(Of.TOPIC, "topic", ANY),), by_hand=True),
    "GetView": _topic(ANY, "topics"),
    "FindCut": Rule((Need(Of.PARTITION, "bounds", CONSUME), Need(Of.PARTITION, "starts", CONSUME))),
    "FindPosition": _read("partition_ids"),
    "ListLedgers": _read(),
    "ListLedgersOfRanges": _read("ranges.partition_id"),
    "SplitRange": _read(),
    "CountRange": _read(),
    "ReadTable": Rule((Need(Of.TOPIC, "topic", ANY),), by_hand=True),
    "ListEntries": _read(),
    "ListDecisions": _read(),
    "ListSegments": Rule(whole_log=ADMIN),
    "CondemnSegments": Rule(whole_log=ADMIN, audited=True),
    "JudgeFiles": Rule(whole_log=ADMIN, audited=True),
    "CloseProducer": Rule((Need(Of.PRODUCER, "producer_id", PRODUCE),)),
    "ListCopies": _read(),
    "ListOffloadable": _topic(ADMIN),
    "BeginOffload": Rule((Need(Of.PARTITION, "partition_id", ADMIN),)),
    "CompleteOffload": Rule((Need(Of.COPY, "copy_id", ADMIN),)),
    "AbandonOffload": Rule((Need(Of.COPY, "copy_id", ADMIN),)),
    "DeleteCopies": _topic(ADMIN, audited=True),
    "TrimTopic": _topic(ADMIN, audited=True),
    "ListDoomedFiles": Rule(by_hand=True),
    "ForgetDoomedFiles": Rule(by_hand=True),
    "AddRoot": Rule((Need(Of.PLACE, "uri"),), whole_log=ADMIN, audited=True),
    "RemoveRoot": Rule(whole_log=ADMIN, audited=True),
    "ListHotSegments": _topic((Role.PRODUCE, Role.ADMIN)),
    "ListSegmentEntries": _topic((Role.PRODUCE, Role.ADMIN)),
    "ChangeSegmentRoots": Rule((Need(Of.TOPIC, "topic", (Role.PRODUCE, Role.ADMIN)),), by_hand=True),
    "ChangePolicies": Rule(
        (Need(Of.TOPIC, "scope.topic", ADMIN), Need(Of.PLACE, "set.offload_uri")), by_hand=True, audited=True
    ),
    "GetPolicies": Rule((Need(Of.TOPIC, "scope.topic", ANY),), by_hand=True),
    "CreateSubscription": _topic(CONSUME, audited=True),
    "ListSubscriptions": _topic(CONSUME),
    "DeleteSubscription": _topic(CONSUME, audited=True),
    "SeekSubscription": _topic(CONSUME, audited=True),
    "SetSubscriptionIsolationLevel": _topic(CONSUME, audited=True),
    "CountMessages": _read("points.partition_id"),
    "Consume": Rule(
        (
            Need(Of.TOPIC, "subscribe.topic", CONSUME),
            Need(Of.SUBSCRIPTION, "acknowledge.subscription_id", CONSUME),
            Need(Of.TOPIC, "seek.topic", CONSUME),
        )
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
