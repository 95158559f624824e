"""Kinds of values that the wire has numbers for, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.model.copies import Tier
from txn_source.model.errors import InternalError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.policies import DEFAULT
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.read_priority import ReadPriority
from txn_source.model.subscription import SubscriptionType
from txn_source.model.transaction import EndReason, TransactionState
from txn_source.model.verdict import Doom, Verdict

M = TypeVar("M")
W = TypeVar("W", bound=int)
_REMEDY = "Check that client and service are of the same release."


class WireEnum(Generic[M, W]):
    """The numbers of one kind of values; 0 stands for none. A request's numbers are checked before they come here."""

    def __init__(self, what: str, unspecified: W, numbers: Mapping[M, W]) -> None:
        """``what`` names the kind in errors."""
        self._what = what
        self._unspecified = unspecified
        self._numbers = dict(numbers)
        self._values = {number: value for value, number in self._numbers.items()}

    def to_wire(self, value: M | None) -> W:
        """Return the number of a value; None is "unspecified"."""
        return self._unspecified if value is None else self._numbers[value]

    def from_wire(self, number: W) -> M | None:
        """Return the value of a number, None for "unspecified"; raise INTERNAL if only newer releases know it."""
        if number == self._unspecified:
            return None
        if number not in self._values:
            raise InternalError(f"The wire carries {self._what} {number}, which this release doesn't know.", _REMEDY)
        return self._values[number]

    def given(self, number: W) -> M:
        """Return the value of a number that must be specified."""
        value = self.from_wire(number)
        if value is None:
            raise InternalError(f"The wire carries no {self._what} where there must be one.", _REMEDY)
        return value


TRANSACTION_STATE = WireEnum(
    "transaction state",
    pb.TRANSACTION_STATE_UNSPECIFIED,
    {
        TransactionState.OPEN: pb.TRANSACTION_STATE_OPEN,
        TransactionState.COMMITTED: pb.TRANSACTION_STATE_COMMITTED,
        TransactionState.ABORTED: pb.TRANSACTION_STATE_ABORTED,
    },
)
END_REASON = WireEnum(
    "end reason",
    pb.END_REASON_UNSPECIFIED,
    {
        EndReason.CLIENT: pb.END_REASON_CLIENT,
        EndReason.TIMEOUT: pb.END_REASON_TIMEOUT,
        EndReason.FORCED: pb.END_REASON_FORCED,
        EndReason.FENCED: pb.END_REASON_FENCED,
    },
)
ISOLATION_LEVEL = WireEnum(
    "isolation level",
    pb.ISOLATION_LEVEL_UNSPECIFIED,
    {
        IsolationLevel.READ_COMMITTED: pb.ISOLATION_LEVEL_READ_COMMITTED,
        IsolationLevel.READ_UNCOMMITTED: pb.ISOLATION_LEVEL_READ_UNCOMMITTED,
    },
)
SUBSCRIPTION_TYPE = WireEnum(
    "subscription type",
    pb.SUBSCRIPTION_TYPE_UNSPECIFIED,
    {
        SubscriptionType.EXCLUSIVE: pb.SUBSCRIPTION_TYPE_EXCLUSIVE,
        SubscriptionType.FAILOVER: pb.SUBSCRIPTION_TYPE_FAILOVER,
        SubscriptionType.SHARED: pb.SUBSCRIPTION_TYPE_SHARED,
    },
)
TIER = WireEnum("tier", pb.TIER_UNSPECIFIED, {Tier.BOOKKEEPER: pb.TIER_BOOKKEEPER, Tier.TIERED: pb.TIER_TIERED})
TOPIC_END = WireEnum(
    "end of a topic", pb.TOPIC_END_UNSPECIFIED, {EARLIEST: pb.TOPIC_END_EARLIEST, LATEST: pb.TOPIC_END_LATEST}
)
READ_PRIORITY = WireEnum(
    "read priority",
    pb.READ_PRIORITY_UNSPECIFIED,
    {
        ReadPriority.TIERED_FIRST: pb.READ_PRIORITY_TIERED_FIRST,
        ReadPriority.BOOKKEEPER_FIRST: pb.READ_PRIORITY_BOOKKEEPER_FIRST,
    },
)
POLICY_SOURCE = WireEnum(
    "source of a policy",
    pb.POLICY_SOURCE_UNSPECIFIED,
    {
        "topic": pb.POLICY_SOURCE_TOPIC,
        "namespace": pb.POLICY_SOURCE_NAMESPACE,
        "broker": pb.POLICY_SOURCE_BROKER,
        DEFAULT: pb.POLICY_SOURCE_DEFAULT,
    },
)
FILE_VERDICT = WireEnum(
    "verdict of a file",
    pb.FILE_VERDICT_UNSPECIFIED,
    {
        Verdict.KNOWN: pb.FILE_VERDICT_KNOWN,
        Verdict.WRITING: pb.FILE_VERDICT_WRITING,
        Verdict.RELEASED: pb.FILE_VERDICT_RELEASED,
        Verdict.LEFTOVER: pb.FILE_VERDICT_LEFTOVER,
        Verdict.UNKNOWN: pb.FILE_VERDICT_UNKNOWN,
        Verdict.AHEAD: pb.FILE_VERDICT_AHEAD,
    },
)
FILE_DOOM = WireEnum(
    "choice of files",
    pb.FILE_DOOM_UNSPECIFIED,
    {Doom.LEFTOVER: pb.FILE_DOOM_LEFTOVER, Doom.UNKNOWN: pb.FILE_DOOM_UNKNOWN},
)
