"""``txnlog subscriptions``: making, listing, moving and deleting subscriptions, and what each still has before it."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn_source.cli import completion, subscription_stats
from txn_source.cli.arguments import Name, Yes, confirm
from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, console, print_json, table
from txn_source.model.errors import TopicNotFoundError
from txn_source.model.isolation import IsolationLevel
from txn_source.model.topic_name import TopicName
from txn_source.model.units import format_count

if TYPE_CHECKING:
    from txn_source.client.log import Log
    from txn_source.metadata.stub.subscriptions import SubscriptionInfo

app = typer.Typer(no_args_is_help=True, help="Create, describe, move and delete subscriptions.")

Subscription = Annotated[
    str,
    typer.Argument(
        metavar="SUBSCRIPTION",
        help="Its name, such as booking.",
        show_default=False,
        autocompletion=completion.subscriptions,
    ),
]
AnyName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="orders, or persistent://tenant/namespace/orders; without it those of all topics are listed.",
        show_default=False,
        autocompletion=completion.topics,
    ),
]
_PLACE = (
    "earliest, latest, a message id (12:40:3) or position (12:40), JSON such as"
    ' {"orders": {"0": "12:40:3"}}, or a publish time (ISO 8601 with a zone, or milliseconds since the epoch)'
)


class Kind(enum.Enum):
    """The types that can be asked for."""

    EXCLUSIVE = "exclusive"
    FAILOVER = "failover"
    SHARED = "shared"


@app.command("create")
@on_log()
def create(
    log: Log,
    name: Name,
    subscription: Subscription,
    type: Annotated[
        Kind, typer.Option(help="One consumer, one at a time with others waiting, or all together.")
    ] = Kind.EXCLUSIVE,
    isolation_level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="read_committed or read_uncommitted; it stays with the subscription.",
            autocompletion=completion.levels,
        ),
    ] = IsolationLevel.READ_COMMITTED.value,
    at: Annotated[str, typer.Option(metavar="PLACE", help=f"Its first message: {_PLACE}.")] = "latest",
) -> None:
    """Create a subscription; from now on it knows what has not been acknowledged."""
    level = IsolationLevel.parse(isolation_level)
    log.create_subscription(name, subscription, type.value, level, at)
    print(
        f"Created subscription {subscription!r} of topic {TopicName.parse(name).short!r}: {type.value}, {level.value}."
    )


@app.command("list")
@on_log()
def list_subscriptions(log: Log, name: AnyName = None, as_json: Json = False) -> None:
    """List the subscriptions of a topic, or of all topics, with their levels, epochs and backlogs."""
    names = log.topics() if name is None else [name]
    found = [(topic, info) for topic in names for info in _of(log, topic, gone=name is None)]
    if as_json:
        print_json([subscription_stats.facts(log, topic, info) for topic, info in found])
    elif found:
        topics = None if name is not None else [topic for topic, _ in found]
        console().print(subscription_stats.listing("", [info for _, info in found], topics))
    elif name is None:
        print("No topic has subscriptions.")
    else:
        print(f"Topic {TopicName.parse(name).short!r} has no subscriptions.")


def _of(log: Log, topic: str, *, gone: bool) -> list[SubscriptionInfo]:
    """Return a topic's subscriptions; none if it was deleted since topics were listed, where it may be ``gone``."""
    try:
        return log.subscriptions(topic)
    except TopicNotFoundError:
        if not gone:
            raise
        return []


@app.command("stats")
@on_log()
def stats(log: Log, name: Name, subscription: Subscription, as_json: Json = False) -> None:
    """Show a subscription: where it stands, its consumers, and which transaction holds its backlog."""
    info = log.subscription(name, subscription)
    if as_json:
        print_json(subscription_stats.facts(log, name, info))
    else:
        subscription_stats.print_stats(log, name, info)


@app.command("seek")
@on_log()
def seek(
    log: Log,
    name: Name,
    subscription: Subscription,
    to: Annotated[
        str, typer.Option(metavar="PLACE", help=f"The next message to deliver: {_PLACE}.", show_default=False)
    ],
    epoch: Annotated[
        int | None,
        typer.Option(
            min=1, help="The new epoch; refused unless it is larger than the current one.", show_default="the next"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Move a subscription, and with it its consumers and the stream that reads it.

    Nothing from before is delivered any more, and acknowledgements from before are ignored. A message id moves its
    own partition; the others go back to what they have not acknowledged. By time it is the first message published
    then or later. Before the start or beyond the end the nearest place is taken.
    """
    sought = log.seek(name, subscription, to, epoch)
    topic = TopicName.parse(name).short
    if as_json:
        print_json(
            {
                "topic": topic,
                "subscription": subscription,
                "epoch": sought.epoch,
                "positions": {partition: str(at) for partition, at in sought.items()},
                "nearest_taken": sorted(sought.moved),
            }
        )
        return
    print(f"Subscription {subscription!r} of topic {topic!r} is in epoch {sought.epoch}.\n")
    shown = table("", "Partition", "Next message", "", right=("Partition",))
    for partition, at in sought.items():
        remark = "the nearest place: what was asked for is not there" if partition in sought.moved else ""
        shown.add_row(str(partition), str(at), remark)
    console().print(shown)


@app.command("set-isolation-level")
@on_log()
def set_isolation_level(
    log: Log,
    name: Name,
    subscription: Subscription,
    level: Annotated[
        str,
        typer.Argument(
            metavar="LEVEL",
            help="read_committed or read_uncommitted.",
            show_default=False,
            autocompletion=completion.levels,
        ),
    ],
) -> None:
    """Change the isolation level of a subscription that no consumer is connected to.

    What it has acknowledged stays acknowledged.
    """
    parsed = IsolationLevel.parse(level)
    log.set_subscription_isolation_level(name, subscription, parsed)
    print(f"Subscription {subscription!r} of topic {TopicName.parse(name).short!r} is {parsed.value}.")


@app.command("delete")
@on_log()
def delete(log: Log, name: Name, subscription: Subscription, yes: Yes = False) -> None:
    """Delete a subscription that no consumer is connected to; asks first."""
    info: Any = log.subscription(name, subscription)
    backlog = format_count(subscription_stats.backlog(info), "message")
    topic = TopicName.parse(name).short
    confirm(f"Delete subscription {subscription!r} of topic {topic!r} with a backlog of {backlog}?", yes=yes)
    log.delete_subscription(name, subscription)
    print(f"Deleted subscription {subscription!r} of topic {topic!r}.")
