"""Printing what a subscription delivers, and acknowledging it: ``txnlog consume --subscription``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import typer

from txn_source.cli.output import write
from txn_source.cli.subscription_stats import backlog
from txn_source.model.errors import SubscriptionNotFoundError, UnavailableError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST
from txn_source.model.subscription import SubscriptionType

if TYPE_CHECKING:
    from txn_source.client.consuming.consumer import Consumer
    from txn_source.client.consuming.messages import MessageBatch
    from txn_source.client.log import Log

_PAUSE_S = 0.2
COLUMNS_LEFT_OUT = ("__producer_name", "__sequence_id", "__txn_status")
"""What a consumer isn't told about its messages."""


def consumer_of(
    log: Log,
    topic: str,
    subscription: str,
    kind: SubscriptionType | None,
    level: IsolationLevel | None,
    start: str | None,
) -> Consumer:
    """Connect to a subscription; what is None it decides itself, or is the default of a new one.

    A new one begins at ``start``, None for earliest; one that is there has its own place.
    """
    name = _own_name()
    try:
        info = log.subscription(topic, subscription)
    except SubscriptionNotFoundError:
        kind = kind or SubscriptionType.EXCLUSIVE
        level = level or IsolationLevel.READ_COMMITTED
        return log.subscribe(topic, subscription, kind, level, start or EARLIEST, consumer_name=name)
    if start is not None:
        raise typer.BadParameter(
            f"Subscription {subscription!r} exists and goes on where it stands. Leave it out, or move the subscription"
            " with `txnlog subscriptions seek`.",
            param_hint="'--start'",
        )
    return log.subscribe(topic, subscription, kind or info.type, level, consumer_name=name)


def print_messages(
    log: Log,
    consumer: Consumer,
    columns: Sequence[str],
    render: Callable[[pa.RecordBatch], bytes],
    left: int,
    still_wanted: Callable[[], None] | None,
) -> None:
    """Print up to ``left`` messages, and acknowledge what was written.

    ``still_wanted`` is called again and again while there are none, and raises when nobody wants more; with None the
    end is where nothing is left that isn't with another consumer.
    """
    while left > 0:
        batch = consumer.receive_batch(_PAUSE_S)
        if batch is not None:
            batch = batch.head(left)
            write(render(_printable(batch, columns)))
            sys.stdout.flush()
            consumer.acknowledge(batch)
            left -= len(batch)
        elif still_wanted is not None:
            still_wanted()
        elif _nothing_left(log, consumer):
            return


def _printable(batch: MessageBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """Return messages with the columns that are to be printed."""
    data, constant = batch.data, {"__topic": batch.topic, "__partition": batch.partition}
    for name in constant.keys() & set(columns):
        data = data.append_column(name, pa.repeat(constant[name], len(batch)))
    return data.select([name for name in columns if name not in COLUMNS_LEFT_OUT])


def _nothing_left(log: Log, consumer: Consumer) -> bool:
    with suppress(UnavailableError):  # it connects again by itself, and sends them then
        consumer.flush()
    info = log.subscription(consumer.topic, consumer.subscription)
    elsewhere = sum(c.unacknowledged for c in info.consumers if c.name != _own_name())
    return backlog(info) <= (0 if info.type.in_order else elsewhere)


def _own_name() -> str:
    return f"txnlog-consume-{os.getpid()}"
