"""The tree of errors: one class per different thing that a caller would do.

TxnLogError
├── InvalidArgumentError            INVALID_ARGUMENT       a value we can't use; fix the call
├── SchemaMismatchError             SCHEMA_MISMATCH        data or columns don't fit the topic
├── LogNotFoundError                LOG_NOT_FOUND          nothing, or something else, lies there
├── LogVersionError                 LOG_VERSION            written by a newer release
├── TopicNotFoundError              TOPIC_NOT_FOUND
├── TopicExistsError                TOPIC_EXISTS
├── NamespaceNotFoundError          NAMESPACE_NOT_FOUND    no topic lies in it
├── OnlyCopyError                   ONLY_COPY              deleting it would lose messages
├── OutOfRangeError                 OUT_OF_RANGE           a position outside the log
├── TransactionNotFoundError        TXN_NOT_FOUND
├── TransactionEndedError           TXN_ENDED              committed or aborted already
│   └── TransactionTimedOutError    TXN_TIMED_OUT          aborted by the service at its deadline
├── AcknowledgedElsewhereError      ACKNOWLEDGED_ELSEWHERE another consumer was faster; the transaction can't commit
├── SubscriptionNotFoundError       SUBSCRIPTION_NOT_FOUND
├── SubscriptionExistsError         SUBSCRIPTION_EXISTS
├── SubscriptionBusyError           SUBSCRIPTION_BUSY      consumers hold it
├── SubscriptionIsolationMismatchError SUBSCRIPTION_ISOLATION_MISMATCH  it has the other isolation level
├── StaleEpochError                 STALE_EPOCH            a seek or redelivery came between
├── BatchRepeatedError              BATCH_REPEATED         committed before, and back out of turn or with other rows
├── ProducerFencedError             PRODUCER_FENCED        a newer producer took the transactional id
├── SegmentUnreadableError          SEGMENT_UNREADABLE     stored bytes are missing or damaged
├── StorageWriteError               STORAGE_WRITE_FAILED   the disk refused; nothing was registered
│   └── StaleSegmentError           STALE_SEGMENT          its file was deleted; producers write it anew by themselves
├── MessageUnreadableError          MESSAGE_UNREADABLE     a stored message can't be shown; the others can
├── DataLossError                   DATA_LOSS              what was asked for is gone
├── NoJarError                      NO_JAR                 Spark's catalog needs a jar that can't be built here
├── UnauthenticatedError            UNAUTHENTICATED        no token, or one that isn't taken
├── PermissionDeniedError           PERMISSION_DENIED      the token has no role for that
├── LimitExceededError              LIMIT_EXCEEDED         more than one identity may have, or send at once
│   └── RateLimitedError            RATE_LIMITED           too many calls; clients try again by themselves
├── FailedError                     FAILED                 an earlier call failed the object; open another one
├── UnavailableError                UNAVAILABLE            the service didn't answer; try again
└── InternalError                   INTERNAL               our bug, not your mistake
"""

from __future__ import annotations

from typing import Any, ClassVar


class TxnLogError(Exception):
    """An error that txnlog raises on purpose: ``[TXNLOG_<CODE>] fact with its operands. What to do.``"""

    code: ClassVar[str] = "INTERNAL"

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(fact, remedy)
        self.fact = fact
        self.remedy = remedy

    def __str__(self) -> str:
        return f"[TXNLOG_{self.code}] {self.fact} {self.remedy}"


class InvalidArgumentError(TxnLogError, ValueError):
    """A value that can't be used; nothing was changed."""

    code = "INVALID_ARGUMENT"


class SchemaMismatchError(TxnLogError, ValueError):
    """Data, or the columns asked for, don't fit the topic's schema."""

    code = "SCHEMA_MISMATCH"


class LogNotFoundError(TxnLogError):
    """There is no log at the path."""

    code = "LOG_NOT_FOUND"


class LogVersionError(TxnLogError):
    """The log was made by a release with a newer format."""

    code = "LOG_VERSION"


class TopicNotFoundError(TxnLogError):
    """The log has no topic, or the topic no partition, of that name."""

    code = "TOPIC_NOT_FOUND"


class TopicExistsError(TxnLogError):
    """A topic of that name is already there."""

    code = "TOPIC_EXISTS"


class NamespaceNotFoundError(TxnLogError):
    """No topic of the log lies in the namespace."""

    code = "NAMESPACE_NOT_FOUND"


class OnlyCopyError(TxnLogError):
    """What was to be deleted is the only copy of a ledger."""

    code = "ONLY_COPY"


class OutOfRangeError(TxnLogError):
    """A position below the log's start, above its end, or in no ledger of the partition."""

    code = "OUT_OF_RANGE"


class TransactionNotFoundError(TxnLogError):
    """The service doesn't know the transaction."""

    code = "TXN_NOT_FOUND"


class TransactionEndedError(TxnLogError):
    """The transaction has been committed or aborted."""

    code = "TXN_ENDED"


class TransactionTimedOutError(TransactionEndedError):
    """The transaction ran past its deadline and the service aborted it."""

    code = "TXN_TIMED_OUT"


class AcknowledgedElsewhereError(TxnLogError):
    """A message that a transaction acknowledges has been acknowledged already; the transaction can't commit."""

    code = "ACKNOWLEDGED_ELSEWHERE"


class SubscriptionNotFoundError(TxnLogError):
    """The topic has no subscription of that name."""

    code = "SUBSCRIPTION_NOT_FOUND"


class SubscriptionExistsError(TxnLogError):
    """The topic has a subscription of that name already, and not the same."""

    code = "SUBSCRIPTION_EXISTS"


class SubscriptionBusyError(TxnLogError):
    """Consumers are connected to the subscription, and it takes no more, or can't be changed under them."""

    code = "SUBSCRIPTION_BUSY"


class SubscriptionIsolationMismatchError(TxnLogError):
    """The subscription was made with the other isolation level."""

    code = "SUBSCRIPTION_ISOLATION_MISMATCH"


class StaleEpochError(TxnLogError):
    """The subscription has moved on to a newer epoch: a seek or a redelivery came between."""

    code = "STALE_EPOCH"


class BatchRepeatedError(TxnLogError):
    """A job's batch that was committed before came again when it can't, or with another number of rows."""

    code = "BATCH_REPEATED"


class ProducerFencedError(TxnLogError):
    """A newer producer has taken over the transactional id."""

    code = "PRODUCER_FENCED"


class SegmentUnreadableError(TxnLogError):
    """A stored copy is missing, truncated or fails its checksum."""

    code = "SEGMENT_UNREADABLE"


class StorageWriteError(TxnLogError):
    """Storage refused a write; nothing of it was registered."""

    code = "STORAGE_WRITE_FAILED"


class StaleSegmentError(StorageWriteError):
    """The segment file was deleted with its ledgers; producers catch this and write to a new one."""

    code = "STALE_SEGMENT"


class MessageUnreadableError(TxnLogError):
    """A message, or the part of it that was asked for, can't be shown to Python: it was stored damaged.

    ``message_id`` says which. ``message`` is the message itself, to be acknowledged or looked at as far as it goes.
    """

    code = "MESSAGE_UNREADABLE"
    message_id: Any = None
    message: Any = None


class DataLossError(TxnLogError):
    """Data that a read was promised no longer exists; ``lost`` is the range of positions, where there is just one."""

    code = "DATA_LOSS"
    lost: Any = None


class NoJarError(TxnLogError):
    """Spark's catalog needs a jar that isn't there and can't be built."""

    code = "NO_JAR"


class UnauthenticatedError(TxnLogError):
    """The service knows nobody by the token, or there is none."""

    code = "UNAUTHENTICATED"


class PermissionDeniedError(TxnLogError):
    """The identity of the token has no role for the call, or what it names belongs to another one."""

    code = "PERMISSION_DENIED"


class LimitExceededError(TxnLogError):
    """More than the service allows one identity: at once, or in one request."""

    code = "LIMIT_EXCEEDED"


class RateLimitedError(LimitExceededError):
    """More calls than the service allows one identity in this time; clients wait and try again."""

    code = "RATE_LIMITED"


class FailedError(TxnLogError):
    """The object failed in an earlier call, for example at a second Ctrl-C; open another one."""

    code = "FAILED"


class UnavailableError(TxnLogError):
    """The metadata service, or its database, didn't answer within the deadline."""

    code = "UNAVAILABLE"


class InternalError(TxnLogError):
    """A state that txnlog should never reach: our bug."""

    code = "INTERNAL"


_MAX_SHOWN = 80


def shown(value: Any) -> str:
    """Return a caller's value for a message, shortened to 80 characters."""
    text = repr(value[: _MAX_SHOWN + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _tree(root: type[TxnLogError]) -> list[type[TxnLogError]]:
    return [c for child in root.__subclasses__() for c in (child, *_tree(child))]


ERROR_CLASSES: dict[str, type[TxnLogError]] = {cls.code: cls for cls in _tree(TxnLogError)}
"""Every concrete class by its stable code."""
