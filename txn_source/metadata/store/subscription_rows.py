"""What the database knows of one subscription, and of one consumer that is connected to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from txn_source.model.isolation import IsolationLevel
from txn_source.model.subscription import SubscriptionType


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription as of one database transaction.

    ``durable`` False: it goes with its last consumer. ``ignored_acknowledgements`` counts those of an old epoch.
    """

    subscription_id: int
    topic_id: int
    name: str
    type: SubscriptionType
    isolation_level: IsolationLevel
    durable: bool
    epoch: int
    ignored_acknowledgements: int

    @classmethod
    def of_values(cls, values: Sequence[Any]) -> Subscription:
        """Return the subscription of values in the order of ``columns``."""
        subscription_id, topic_id, name, kind, level, durable, epoch, ignored = values
        parsed = SubscriptionType(kind), IsolationLevel(level), bool(durable)
        return cls(subscription_id, topic_id, name, *parsed, epoch, ignored)

    @classmethod
    def columns(cls) -> list[str]:
        """Return the names of the columns that are fields here, in order."""
        return [field.name for field in fields(cls)]


class Lease(NamedTuple):
    """A consumer's lease: until when it runs, and which process holds it."""

    subscription_id: int
    consumer_id: int
    lease_until_ms: int
    host: str


@dataclass(frozen=True, slots=True)
class ConnectedConsumer:
    """A consumer that is connected, or was when its lease ended; ids grow in the order in which consumers came.

    ``token`` is what a consumer shows that connects again. ``host`` names the process that holds the lease.
    ``unacknowledged`` messages are as of the last renewal, and of subscriptions that aren't shared.
    """

    consumer_id: int
    token: str
    name: str
    host: str
    connected_at_ms: int
    lease_until_ms: int
    unacknowledged: int
