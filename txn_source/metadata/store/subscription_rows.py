"""What the database knows of one subscription, and of one consumer that is connected to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

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
    def of(cls, row: Row[Any]) -> Subscription:
        """Return the subscription in a row of its table."""
        return cls(
            row.subscription_id,
            row.topic_id,
            row.name,
            SubscriptionType(row.type),
            IsolationLevel(row.isolation_level),
            bool(row.durable),
            row.epoch,
            row.ignored_acknowledgements,
        )


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

    @classmethod
    def of(cls, row: Row[Any]) -> ConnectedConsumer:
        """Return the consumer in a row of its table."""
        return cls(
            row.consumer_id,
            row.token,
            row.name,
            row.host,
            row.connected_at_ms,
            row.lease_until_ms,
            row.unacknowledged,
        )
