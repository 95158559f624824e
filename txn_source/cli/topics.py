"""``txnlog topics``: making, listing, describing, rolling and deleting topics."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, console, print_json, table
from txn_source.cli.units import format_count, format_duration, format_size, parse_duration, parse_size
from txn_source.model.errors import TopicNotFoundError
from txn_source.model.topic_name import TopicName

if TYPE_CHECKING:
    from txn_source.client.log import Log
    from txn_source.client.stats import TopicStats

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, roll and delete topics.")

_SHOWN_LEDGERS = 10
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="orders, or persistent://tenant/namespace/orders.", show_default=False),
]


@app.command("create")
@on_log(create=True)
def create(
    log: Log,
    name: Name,
    partitions: Annotated[int, typer.Option(min=1, help="How many; it can't be changed later.")] = 1,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS|FILE",
            show_default=False,
            help="Payload columns: \"id bigint, name string\" (Spark's and Arrow's types), the same as JSON, or a"
            " Parquet or Arrow file whose schema is taken. Without it the topic is raw: key and value are bytes.",
        ),
    ] = None,
    ledger_max_entries: Annotated[
        int | None, typer.Option(min=1, help="Roll the open ledger at so many entries.", show_default=False)
    ] = None,
    ledger_max_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Roll it at such a size: 64m, 1g.", show_default=False)
    ] = None,
    ledger_max_age: Annotated[
        str | None, typer.Option(metavar="AGE", help="Roll it at such an age: 10m, 4h.", show_default=False)
    ] = None,
) -> None:
    """Create a topic; a missing or empty --root becomes a new log."""
    policies: dict[str, Any] = {
        "ledger_max_entries": ledger_max_entries,
        "ledger_max_bytes": None if ledger_max_bytes is None else parse_size(ledger_max_bytes),
        "ledger_max_age": None if ledger_max_age is None else parse_duration(ledger_max_age),
    }
    columns = None
    if schema is not None:
        from txn_source.cli.schema_text import parse_schema

        columns = parse_schema(schema)
    log.create_topic(name, partitions, columns, **{key: value for key, value in policies.items() if value is not None})
    print(f"Created topic {TopicName.parse(name).short!r} with {format_count(partitions, 'partition')}.")


@app.command("list")
@on_log()
def list_topics(
    log: Log,
    namespace: Annotated[
        str | None, typer.Option(metavar="TENANT/NAMESPACE", help="Only this namespace's.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """List the topics with their partitions, messages and columns."""
    from txn_source.storage.schema import deserialize_schema

    rows: list[dict[str, Any]] = []
    for name in log.topics(namespace):
        try:
            [view] = log.metadata.get_view([TopicName.parse(name)]).topics
        except TopicNotFoundError:
            continue  # deleted since it was listed
        columns = None
        if view.topic.schema is not None:
            columns = {field.name: str(field.type) for field in deserialize_schema(view.topic.schema)}
        rows.append(
            {
                "topic": name,
                "partitions": len(view.partitions),
                "messages": sum(p.messages for p in view.partitions),
                "bytes": sum(p.bytes for p in view.partitions),
                "schema": columns,
            }
        )
    if as_json:
        print_json(rows)
    elif rows:
        numbers = ("Partitions", "Messages", "Size")
        listing = table("", "Topic", *numbers, "Columns", right=numbers)
        for row in rows:
            text = "raw" if row["schema"] is None else ", ".join(f"{k} {v}" for k, v in row["schema"].items())
            size = format_size(row["bytes"])
            listing.add_row(row["topic"], f"{row['partitions']:,}", f"{row['messages']:,}", size, text)
        console().print(listing)
    else:
        print("There are no topics." if namespace is None else f"There are no topics in {namespace}.")


@app.command("stats")
@on_log()
def stats(log: Log, name: Name, as_json: Json = False) -> None:
    """Show a topic's bounds, ledgers and open transactions, with what each of these holds back."""
    found = log.stats(name)
    if as_json:
        print_json(found)
        return
    counts = (format_count(len(found.partitions), "partition"), format_count(found.messages, "message"))
    print(f"{found.topic}: {', '.join(counts)}, {format_size(found.bytes)}\n")
    _print_partitions(found)
    _print_ledgers(found)
    _print_ongoing(found)


@app.command("delete")
@on_log()
def delete(log: Log, name: Name, yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False) -> None:
    """Delete a topic with all its messages; asks first."""
    found = log.stats(name)
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("There is no terminal to ask at. Give it if you are sure.", param_hint="'--yes'")
        question = f"Delete topic {found.topic!r} with its {format_count(found.messages, 'message')}?"
        typer.confirm(question, abort=True, err=True)
    log.delete_topic(name)
    print(f"Deleted topic {found.topic!r}.")


@app.command("roll")
@on_log()
def roll(
    log: Log,
    name: Name,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Close the open ledger of each partition now; an empty one stays open."""
    closed = log.roll_ledger(name, partition)
    if as_json:
        print_json({"closed_ledgers": closed})
    elif closed:
        print(f"Closed {format_count(len(closed), 'ledger')}: {', '.join(map(str, closed))}.")
    else:
        print("Nothing to close: the open ledgers are empty.")


def _print_partitions(found: TopicStats) -> None:
    bounds = ("Log start", "Last stable", "High watermark", "Log end", "Max read")
    numbers = ("Messages", "Size", "Open transactions")
    partitions = table("Partitions", "Partition", *bounds, *numbers, right=("Partition", *numbers))
    for p in found.partitions:
        positions = (p.log_start, p.last_stable, p.high_watermark, p.log_end, p.max_read_position)
        transactions = f"{len(p.ongoing_transactions):,}"
        partitions.add_row(
            str(p.partition), *map(str, positions), f"{p.messages:,}", format_size(p.bytes), transactions
        )
    console().print(partitions, "")


def _print_ledgers(found: TopicStats) -> None:
    numbers = ("Entries", "Messages", "Size")
    ledgers = table("Ledgers", "Partition", "Ledger", "State", *numbers, right=("Partition", "Ledger", *numbers))
    left_out = 0
    for p in found.partitions:
        left_out += len(p.ledgers[:-_SHOWN_LEDGERS])
        for ledger in p.ledgers[-_SHOWN_LEDGERS:]:
            state = "closed" if ledger.closed else "open"
            counts = (f"{ledger.entries:,}", f"{ledger.messages:,}", format_size(ledger.bytes))
            ledgers.add_row(str(p.partition), str(ledger.ledger_id), state, *counts)
    console().print(ledgers)
    if left_out:
        print(f"(the newest {_SHOWN_LEDGERS} of each partition; --json lists the {left_out:,} older ones too)")
    print()


def _print_ongoing(found: TopicStats) -> None:
    if not found.ongoing_transactions:
        print("No transaction is open: read_committed reads up to the log's end.")
        return
    numbers = ("Held back", "Held back size")
    ongoing = table(
        "Open transactions, and what each holds back from read_committed",
        "Partition", "Transaction", "Age", "Timeout", "First position", *numbers, "Producers",
        right=("Partition", "Age", "Timeout", *numbers),
    )  # fmt: skip
    for p in found.partitions:
        for txn in p.ongoing_transactions:
            ongoing.add_row(
                str(p.partition),
                str(txn.id),
                format_duration(txn.age),
                format_duration(txn.timeout),
                str(txn.first_position),
                f"{txn.messages_held_back:,}",
                format_size(txn.bytes_held_back),
                ", ".join(txn.producers),
            )
    console().print(ongoing)
