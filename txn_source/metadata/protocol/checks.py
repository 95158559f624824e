"""What a request may carry. Each field of each message has a rule here, and no call begins before all are kept.

The rules need nothing but the value: bounds that every later sum stays within 63 bits for, texts without control
characters, numbers of items. What depends on the log (whose file it is, whose partition) is checked where that is read,
in the same database transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from txn_source.model.errors import InvalidArgumentError, shown
from txn_source.model.transaction import MAX_TIMEOUT_MS
from txn_source.model.units import MAX_TOTAL

MAX_INT = (1 << 63) - 1
MAX_ENTRY_MESSAGES = 1 << 20
MAX_ENTRY_BYTES = 1 << 36
MIN_OFFSET = 8
"""An Arrow stream begins with its schema, whose message has a prefix of 8 bytes."""
MAX_ENTRIES = 1_000_000
"""Entries, ids or other small items in one request."""
MAX_WRITES = 1000
"""Writes in one request."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What values of a field are taken, and how many of them if the field repeats."""

    fits: Callable[[Any], bool]
    allowed: str
    items: int = 0


def _numbers(lowest: int, highest: int, items: int = 0) -> Rule:
    return Rule(lambda n: lowest <= n <= highest, f"a whole number from {lowest} to {highest}", items)


def _text(longest: int, items: int = 0) -> Rule:
    return Rule(
        lambda t: len(t) <= longest and (not t or t.isprintable()), f"at most {longest} printable characters", items
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A field that is a message itself, with rules of its own; it may have to be there."""

    needed: bool = False
    items: int = 0


@dataclass(frozen=True, slots=True)
class _Pairs:
    """A map's rules."""

    keys: Rule
    values: Rule
    items: int


_ANY = Rule(lambda _: True, "anything")
_ID = _numbers(1, MAX_INT)
_COUNT = _numbers(0, MAX_TOTAL)
_POSITION = _numbers(0, MAX_INT)
_INDEX = _numbers(0, (1 << 32) - 1)
_EPOCH = _numbers(0, MAX_TOTAL)
_TIME = _numbers(-MAX_TOTAL, MAX_TOTAL)
_NAME = _text(400)
_WORD = _text(100)
_URI = _text(4000)
_PROGRESS = _text(16 << 20)
_ROOTS = _numbers(0, (1 << 62) - 1)
_TYPE = _numbers(1, 3)
_LEVEL = _numbers(1, 2)
_POLICIES = _Pairs(_WORD, _URI, 100)
_POSITIONS = _Pairs(_ID, _POSITION, MAX_ENTRIES)
_RANGE = {"partition_id": _ID, "start": _POSITION, "end": _POSITION}
_OF_TOPIC = {"request_id": _NAME, "topic": _NAME}
_SUBSCRIPTION = Rule(lambda t: len(t) <= 400, "at most 200 printable characters")  # who makes one looks closer
_OF_SUBSCRIPTION = {**_OF_TOPIC, "name": _SUBSCRIPTION}

FIELDS: Mapping[str, Mapping[str, Rule | _Part | _Pairs]] = {
    "GetLogRequest": {},
    "TopicPolicies": {
        "ledger_max_entries": _numbers(-MAX_INT, (1 << 32) - 1),  # what is below 1 is refused by name
        "ledger_max_bytes": _numbers(-MAX_INT, MAX_TOTAL),
        "ledger_max_age_ms": _numbers(-MAX_INT, MAX_TOTAL),
    },
    "CreateTopicRequest": {
        "request_id": _NAME,
        "name": _NAME,
        "partitions": _ANY,
        "schema": Rule(lambda data: len(data) <= 4 << 20, "a serialized Arrow schema of at most 4 MiB"),
        "policies": _Part(),
        "layered_policies": _POLICIES,
    },
    "UpdateTopicRequest": {"request_id": _NAME, "name": _NAME, "partitions": _ANY},
    "ListTopicsRequest": {"namespace": _NAME},
    "DeleteTopicRequest": {"request_id": _NAME, "name": _NAME},
    "RollLedgerRequest": {"request_id": _NAME, "name": _NAME, "partition": _ANY},
    "OpenProducerRequest": {**_OF_TOPIC, "transactional_id": _NAME, "producer_name": _NAME},
    "NewEntry": {
        "partition_id": _ID,
        "base_sequence": _COUNT,
        "messages": _numbers(1, MAX_ENTRY_MESSAGES),
        "segment": _text(200),
        "offset": _numbers(MIN_OFFSET, MAX_TOTAL),
        "length": _numbers(1, MAX_ENTRY_BYTES),
        "crc32c": _ANY,  # 32 bits on the wire
        "roots": _ROOTS,
    },
    "AppendRequest": {"producer_id": _ID, "epoch": _EPOCH, "txn": _Part(), "entries": _Part(items=MAX_ENTRIES)},
    "CommitBatchRequest": {
        "request_id": _NAME,
        "query_id": _NAME,
        "batch_id": _COUNT,
        "producer_name": _NAME,
        "transactional_id": _NAME,
        "topics": _Part(items=10_000),
        "run_id": _NAME,
        "app_id": _NAME,
        "version": _numbers(0, MAX_INT),
    },
    "CommitBatchRequest.Topic": {
        "name": _NAME,
        "topic_id": _ID,
        "entries": _Part(items=MAX_ENTRIES),
        "producer_id": _ID,
        "epoch": _EPOCH,
        "content": _numbers(-MAX_INT, MAX_INT),
    },
    "ImportBatchRequest": {
        "request_id": _NAME,
        "topics": _Part(items=1000),
        "begun": _numbers(0, MAX_ENTRIES),
        "writes": _Part(items=MAX_ENTRIES),
        "ends": _Part(items=MAX_ENTRIES),
        "kept": _Part(items=MAX_ENTRIES),
    },
    "ImportBatchRequest.Topic": {
        "name": _NAME,
        "topic_id": _ID,
        "producer_id": _ID,
        "epoch": _EPOCH,
        "expected": _PROGRESS,
        "progress": _PROGRESS,
    },
    "ImportBatchRequest.Transaction": {"begun": _numbers(0, MAX_ENTRIES), "id": _Part()},
    "ImportBatchRequest.Write": {"topic": _numbers(0, 1000), "txn": _Part(), "entries": _Part(items=MAX_ENTRIES)},
    "ImportBatchRequest.End": {"txn": _Part(needed=True), "commit": _ANY},
    "GetImportRequest": {"topic": _NAME},
    "TxnId": {"most_sig_bits": _ANY, "least_sig_bits": _ANY},
    "BeginTransactionRequest": {"request_id": _NAME, "timeout_ms": _ANY, "age_ms": _numbers(0, MAX_TIMEOUT_MS)},
    "WriteTransactionRequest": {
        "timeout_ms": _ANY,
        "appends": _Part(items=10_000),
        "acknowledgements": _Part(items=10_000),
    },
    "WriteTransactionRequest.Append": {"producer_id": _ID, "epoch": _EPOCH, "entries": _Part(items=MAX_ENTRIES)},
    "WriteAllRequest": {"writes": _Part(items=MAX_WRITES)},
    "WriteAllRequest.Write": {"append": _Part(), "transaction": _Part()},
    "EndTransactionRequest": {
        "id": _Part(needed=True),
        "commit": _ANY,
        "forced": _ANY,
        "acknowledgements": _Part(items=10_000),
    },
    "GetTransactionRequest": {"id": _Part(needed=True)},
    "ListTransactionsRequest": {
        "state": _numbers(0, 3),
        "topic": _NAME,
        "limit": _numbers(0, (1 << 31) - 1),
        "oldest_first": _ANY,
        "after": _Part(),
    },
    "GetViewRequest": {"topics": _text(400, items=MAX_ENTRIES)},
    "FindCutRequest": {"bounds": _POSITIONS, "starts": _POSITIONS, "upward": _ANY},
    "FindPositionRequest": {"partition_ids": _numbers(1, MAX_INT, items=MAX_ENTRIES), "publish_time_us": _TIME},
    "ListLedgersRequest": {**_RANGE, "times": _ANY},
    "PartitionRange": _RANGE,
    "ListLedgersOfRangesRequest": {"ranges": _Part(items=MAX_ENTRIES), "times": _ANY},
    "SplitRangeRequest": {**_RANGE, "target_bytes": _COUNT},
    "CountRangeRequest": {**_RANGE, "isolation_level": _LEVEL},
    "ReadTableRequest": {"table": _WORD, "topic": _NAME, "next": _COUNT, "decisions": _COUNT},
    "ListEntriesRequest": _RANGE,
    "ListDecisionsRequest": {**_RANGE, "aborted_only": _ANY, "decisions": _COUNT},
    "ListSegmentsRequest": {"after_segment_id": _numbers(0, MAX_INT)},
    "CondemnSegmentsRequest": {"paths": _text(200, items=10_000)},
    "JudgeFilesRequest": {"uris": _text(2000, items=10_000), "doom": _numbers(0, 2), "settled": _ANY},
    "CloseProducerRequest": {"producer_id": _ID, "epoch": _EPOCH},
    "TieredCopy": {
        "uri": _URI,
        "size": _numbers(1, MAX_TOTAL),
        "footer_bytes": _numbers(1, MAX_TOTAL),
        "footer_crc32c": _ANY,
    },
    "ListCopiesRequest": _RANGE,
    "ListOffloadableRequest": {"topic": _NAME},
    "BeginOffloadRequest": {"request_id": _NAME, "partition_id": _ID, "ledger_id": _ID, "uri": _URI},
    "CompleteOffloadRequest": {"copy_id": _ID, "copy": _Part(needed=True)},
    "AbandonOffloadRequest": {"copy_id": _ID},
    "DeleteCopiesRequest": {**_OF_TOPIC, "tier": _numbers(1, 2), "ledger_ids": _numbers(1, MAX_INT, items=MAX_ENTRIES)},
    "TrimTopicRequest": {
        **_OF_TOPIC,
        "before": _Pairs(_numbers(0, (1 << 31) - 1), _POSITION, MAX_ENTRIES),
        "older_than_ms": _COUNT,
        "keep_bytes": _COUNT,
        "apply_retention": _ANY,
    },
    "ListDoomedFilesRequest": {},
    "ForgetDoomedFilesRequest": {"doomed_ids": _numbers(1, MAX_INT, items=MAX_ENTRIES)},
    "PolicyScope": {"topic": _NAME, "namespace": _NAME},
    "AddRootRequest": {"request_id": _NAME, "name": _NAME, "uri": _URI},
    "RemoveRootRequest": {"request_id": _NAME, "name": _NAME},
    "ListHotSegmentsRequest": {"topic": _NAME, "after_segment_id": _numbers(0, MAX_INT)},
    "ListSegmentEntriesRequest": {"topic": _NAME, "path": _text(200)},
    "ChangeSegmentRootsRequest": {"topic": _NAME, "changes": _Part(items=MAX_ENTRIES)},
    "ChangeSegmentRootsRequest.Change": {"path": _text(200), "added": _ROOTS, "removed": _ROOTS, "end": _COUNT},
    "ChangePoliciesRequest": {
        "request_id": _NAME,
        "scope": _Part(),
        "set": _POLICIES,
        "remove": _text(100, items=100),
    },
    "GetPoliciesRequest": {"scope": _Part()},
    "MessagePoint": {"partition_id": _ID, "position": _POSITION, "index": _INDEX},
    "MessageRange": {
        "start_position": _POSITION,
        "start_index": _INDEX,
        "end_position": _POSITION,
        "end_index": _INDEX,
        "messages": _numbers(0, 1 << 40),
    },
    "Acknowledgements": {"partition_id": _ID, "ranges": _Part(items=MAX_ENTRIES), "up_to": _Part()},
    "SubscriptionAcknowledgements": {
        "subscription_id": _ID,
        "consumer_id": _ID,
        "epoch": _EPOCH,
        "partitions": _Part(items=10_000),
    },
    "SubscriptionPlace": {"where": _numbers(0, 2), "points": _Part(items=MAX_ENTRIES)},
    "CreateSubscriptionRequest": {**_OF_SUBSCRIPTION, "type": _TYPE, "isolation_level": _LEVEL, "place": _Part()},
    "ListSubscriptionsRequest": {"topic": _NAME, "name": _SUBSCRIPTION, "brief": _ANY},
    "DeleteSubscriptionRequest": _OF_SUBSCRIPTION,
    "SeekSubscriptionRequest": {**_OF_SUBSCRIPTION, "place": _Part(), "epoch": _EPOCH},
    "SetSubscriptionIsolationLevelRequest": {**_OF_SUBSCRIPTION, "isolation_level": _LEVEL},
    "CountMessagesRequest": {"isolation_level": _LEVEL, "points": _Part(items=MAX_ENTRIES)},
    "ConsumeRequest": {
        "sequence": _numbers(0, MAX_INT),
        "subscribe": _Part(),
        "flow": _Part(),
        "acknowledge": _Part(),
        "redeliver": _Part(),
        "leave": _Part(),
        "count": _Part(),
        "seek": _Part(),
    },
    "ConsumeRequest.Subscribe": {
        "topic": _NAME,
        "name": _SUBSCRIPTION,
        "type": _TYPE,
        "isolation_level": _numbers(0, 2),
        "durable": _ANY,
        "place": _Part(),
        "consumer_name": _NAME,
        "token": _NAME,
        "received": _Part(),
        "counts": _ANY,
    },
    "ConsumeRequest.Flow": {"epoch": _EPOCH, "messages": _ANY},
    "ConsumeRequest.Redeliver": {"epoch": _EPOCH, "ranges": _Part(items=10_000)},
}
"""By message (without its package) and field. A test holds that no field of a request is without its rule."""


@dataclass(frozen=True, slots=True)
class _Together:
    """What fields of a message must keep together; the one named is to blame."""

    fits: Callable[[Any], bool]
    field: str
    allowed: str


def _forward(m: Any) -> bool:
    return bool(m.start <= m.end)


def _message_range_forward(m: Any) -> bool:
    return bool((m.start_position, m.start_index) <= (m.end_position, m.end_index))


_FORWARD = _Together(_forward, "end", "one at or behind the start")
TOGETHER: Mapping[str, _Together] = {
    # Not of decisions: their pages go on by marker, which may lie behind the end.
    **{f"List{what}Request": _FORWARD for what in ("Ledgers", "Entries", "Copies")},
    "PartitionRange": _FORWARD,
    "SplitRangeRequest": _FORWARD,
    "CountRangeRequest": _FORWARD,
    "MessageRange": _Together(_message_range_forward, "end_position", "one at or behind the start"),
    "TieredCopy": _Together(lambda m: m.footer_bytes <= m.size, "footer_bytes", "at most the object's size"),
    "FindCutRequest": _Together(
        lambda m: (not m.starts and not m.upward) or m.starts.keys() == m.bounds.keys(),
        "starts", "one for each bound; they may only be left out downwards",
    ),
}  # fmt: skip


def check(request: Message) -> None:
    """Raise INVALID_ARGUMENT unless every field of a request has a value that can be.

    Raises:
        InvalidArgumentError: names the field, its value and what is allowed.
    """
    if _fits(request.DESCRIPTOR)(request):
        return
    for name, value, allowed in _broken(request):
        text = value if value in ("missing", "too long") else shown(value)
        raise InvalidArgumentError(f"{request.DESCRIPTOR.name}.{name} is {text}.", f"Use {allowed}.")


@dataclass(frozen=True, slots=True)
class _Field:
    """A field's rule, ready to be asked; ``can_be_absent``: then there is nothing to ask."""

    name: str
    rule: Rule | _Part | _Pairs
    can_be_absent: bool
    fits: Callable[[Any], bool]


@cache
def _fields(described: Descriptor) -> tuple[_Field, ...]:
    """Return a message's fields but for those that take anything."""
    rules = FIELDS[described.full_name.removeprefix(f"{described.file.package}.")]
    return tuple(
        _Field(field.name, rule, field.has_presence, _asked(rule, field.message_type))
        for field in described.fields
        if (rule := rules[field.name]) is not _ANY
    )


def _asked(rule: Rule | _Part | _Pairs, described: Descriptor | None) -> Callable[[Any], bool]:
    """Return what tells whether a field's value is allowed; ``described`` is the message that it is, if it is one."""
    if isinstance(rule, _Pairs):
        keys, values, most = rule.keys.fits, rule.values.fits, rule.items
        return lambda found: len(found) <= most and all(keys(k) and values(v) for k, v in found.items())
    one, items = _fits(described) if isinstance(rule, _Part) else rule.fits, rule.items
    return (lambda found: len(found) <= items and all(map(one, found))) if items else one


@cache
def _fits(described: Any) -> Callable[[Any], bool]:
    """Return what tells whether all is allowed that is in a message of a kind."""
    fields = [
        (field.name, field.can_be_absent, isinstance(field.rule, _Part) and field.rule.needed, field.fits)
        for field in _fields(described)
    ]
    together = TOGETHER.get(described.name)

    def fits(message: Any) -> bool:
        for name, can_be_absent, needed, allowed in fields:
            if can_be_absent and not message.HasField(name):
                if needed:
                    return False
            elif not allowed(getattr(message, name)):
                return False
        return together is None or together.fits(message)

    return fits


def _broken(message: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield what breaks a rule: the field's path in the message, the value, and what is allowed."""
    for field in _fields(message.DESCRIPTOR):
        name, rule, value = field.name, field.rule, getattr(message, field.name)
        if field.can_be_absent and not message.HasField(name):
            if isinstance(rule, _Part) and rule.needed:
                yield name, "missing", "a value"
        elif field.fits(value):
            continue
        elif rule.items and len(value) > rule.items:
            yield name, "too long", f"{rule.items} items in one call at most, not {len(value)}"
        elif isinstance(rule, _Pairs):
            for key in value:
                if not rule.keys.fits(key):
                    yield f"{name}'s key", key, rule.keys.allowed
                if not rule.values.fits(value[key]):
                    yield f"{name}[{shown(key)}]", value[key], rule.values.allowed
        else:
            items = [(f"{name}[{n}]", item) for n, item in enumerate(value)] if rule.items else [(name, value)]
            for path, item in items:
                if isinstance(rule, _Part):
                    yield from ((f"{path}.{inner}", v, allowed) for inner, v, allowed in _broken(item))
                elif not rule.fits(item):
                    yield path, item, rule.allowed
    together = TOGETHER.get(message.DESCRIPTOR.name)
    if together is not None and not together.fits(message):
        yield together.field, getattr(message, together.field), together.allowed
