"""``txnlog consume``: printing a topic's messages, and following it."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from txn_source.cli import completion, foreign
from txn_source.cli.connection import on_log
from txn_source.cli.following import pause, print_batches
from txn_source.cli.message_lines import Format, lines_of
from txn_source.cli.subscriptions import Kind
from txn_source.model.isolation import IsolationLevel
from txn_source.model.position import EARLIEST, LATEST
from txn_source.model.read_priority import ReadPriority

if TYPE_CHECKING:
    from txn_source.client.log import Log

_Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="orders, or orders-partition-3 for one partition.",
        show_default=False,
        autocompletion=completion.topics,
    ),
]
_Level = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="read_committed or read_uncommitted.",
        show_default="read_committed, or the subscription's",
        autocompletion=completion.levels,
    ),
]
_Start = Annotated[
    str | None,
    typer.Option(
        metavar="OFFSET",
        help="First position to print: earliest, latest, 12:40 (if one partition is read), JSON such as"
        ' {"orders": {"0": "12:40"}}, or a publish time (ISO 8601 with a zone, or milliseconds since the epoch). With'
        " --subscription only a new one takes it.",
        show_default="earliest",
    ),
]
_End = Annotated[
    str | None,
    typer.Option(metavar="OFFSET", help="Where to stop, exclusive, written likewise.", show_default="latest"),
]
_Most = Annotated[int | None, typer.Option(min=1, help="Stop after so many.", show_default=False)]
_Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what arrives, until Ctrl-C.")]
_Priority = Annotated[
    str | None,
    typer.Option(
        "--data-read-priority",
        "-drp",
        metavar="VALUE",
        show_default="the topic's",
        autocompletion=completion.priorities,
        help="Which copy of a ledger is read first: tiered-first or bookkeeper-first.",
    ),
]
_Subscription = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        show_default=False,
        autocompletion=completion.subscriptions,
        help="Go on where this subscription stands, and acknowledge what was printed. It is created if it isn't"
        " there. It has no --end, and reads at the topic's own --data-read-priority.",
    ),
]
_Type = Annotated[
    Kind | None, typer.Option(help="The subscription's type.", show_default="its own, or exclusive for a new one")
]
_Format = Annotated[
    Format, typer.Option(help="text: the value, or a typed topic's columns as JSON; json: all that is known.")
]
_Separator = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Print a raw topic's keys too, and this before the value.", show_default=False),
]


@on_log(foreign=foreign.consume)
def consume(
    log: Log,
    topic: _Topic,
    isolation_level: _Level = None,
    start: _Start = None,
    end: _End = None,
    max_messages: _Most = None,
    follow: _Follow = False,
    data_read_priority: _Priority = None,
    subscription: _Subscription = None,
    subscription_type: _Type = None,
    format: _Format = Format.TEXT,
    key_separator: _Separator = None,
) -> None:
    """Print a topic's messages, a line each, partition after partition.

    With --subscription they are acknowledged after they were written, so what is printed before a crash may come
    once more. Without --follow it ends where nothing is left, or all that is left is with other consumers.

    What is no UTF-8 is shown escaped in text, and as {"base64": "..."} in JSON.
    """
    if follow and end is not None:
        raise typer.BadParameter("It says where to stop, and --follow goes on. Give one of them.", param_hint="'--end'")
    level = None if isolation_level is None else IsolationLevel.parse(isolation_level)
    priority = None if data_read_priority is None else ReadPriority.parse(data_read_priority)
    if subscription is not None:
        _refuse("--end", end, "A subscription has none. Use --max-messages.")
        _refuse("--data-read-priority", priority, "A subscription reads at the topic's own.")
    else:
        _refuse("--subscription-type", subscription_type, "It is for --subscription.")
    left = sys.maxsize if max_messages is None else max_messages
    try:
        columns, render = lines_of(log, topic, format, key_separator)
        if subscription is not None:
            from txn_source.cli.receive import consumer_of, print_messages
            from txn_source.model.subscription import SubscriptionType

            kind = None if subscription_type is None else SubscriptionType.parse(subscription_type.value)
            with consumer_of(log, topic, subscription, kind, level, start) as consumer:
                print_messages(log, consumer, columns, render, left, partial(pause, 0) if follow else None)
        else:
            from txn_source.cli.tail import tail
            from txn_source.client.places import side_of_text
            from txn_source.reading.request import ReadRequest

            begin, stop = side_of_text(start, EARLIEST), side_of_text(end, LATEST)
            request = ReadRequest(level or IsolationLevel.READ_COMMITTED, begin, stop, read_priority=priority)
            print_batches(tail(log, topic, request, columns).read, render, max_messages, follow=follow)
    except KeyboardInterrupt:
        if not follow:
            raise


def _refuse(option: str, value: object, why: str) -> None:
    if value is not None:
        raise typer.BadParameter(why, param_hint=f"'{option}'")
