"""``txnlog topics``: making, changing, listing, rolling and deleting topics; commands of other modules hang here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn_source.cli import foreign, iceberg, tiers, topic_policies, topic_stats
from txn_source.cli.arguments import Name, Yes, confirm
from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, console, print_json, table
from txn_source.cli.policies import takes_policies
from txn_source.cli.units import format_size
from txn_source.model.errors import TopicNotFoundError
from txn_source.model.topic_name import TopicName
from txn_source.model.units import format_count, parse_duration, parse_size

if TYPE_CHECKING:
    from txn_source.client.log import Log

app = typer.Typer(no_args_is_help=True, help="Create, describe and delete topics, and say where their ledgers lie.")


@app.command("create")
@on_log(create=True)
@takes_policies
def create(
    log: Log,
    name: Name,
    policies: dict[str, Any],
    partitions: Annotated[int, typer.Option(min=1, help="How many; `topics update` adds more.")] = 1,
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
    limits: dict[str, Any] = {
        "ledger_max_entries": ledger_max_entries,
        "ledger_max_bytes": None if ledger_max_bytes is None else parse_size(ledger_max_bytes),
        "ledger_max_age": None if ledger_max_age is None else parse_duration(ledger_max_age),
    }
    policies |= {name: value for name, value in limits.items() if value is not None}
    columns = None
    if schema is not None:
        from txn_source.cli.schema_text import parse_schema

        columns = parse_schema(schema)
    log.create_topic(name, partitions, columns, **policies)
    print(f"Created topic {TopicName.parse(name).short!r} with {format_count(partitions, 'partition')}.")


@app.command("update")
@on_log()
def update(
    log: Log,
    name: Name,
    partitions: Annotated[int, typer.Option(min=1, help="How many it is to have in all; none can be taken away.")],
) -> None:
    """Add partitions to a topic.

    Messages with a key may go to another partition from then on: those of one key keep their order up to the change,
    and from it on. Readers, streams and consumers that run take the new partitions from their start.
    """
    added = log.update_topic(name, partitions)
    topic, there = TopicName.parse(name).short, format_count(partitions, "partition")
    if added:
        print(f"{topic} has {there} now; messages with a key may go to another partition from here on.")
    else:
        print(f"{topic} has {there} already; nothing was changed.")


@app.command("list")
@on_log(foreign=foreign.list_topics)
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


@app.command("delete")
@on_log()
def delete(log: Log, name: Name, yes: Yes = False) -> None:
    """Delete a topic with all its messages; asks first."""
    found = log.stats(name)
    confirm(f"Delete topic {found.topic!r} with its {format_count(found.messages, 'message')}?", yes=yes)
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


app.command("stats")(topic_stats.stats)
app.command("offload")(tiers.offload)
app.command("export-iceberg")(iceberg.export_iceberg)
app.command("delete-offloaded")(tiers.delete_offloaded)
app.command("delete-hot")(tiers.delete_hot)
app.command("trim")(tiers.trim)
app.command("set-policies")(topic_policies.set_policies)
app.command("get-policies")(topic_policies.get_policies)
app.command("set-data-read-priority")(topic_policies.set_data_read_priority)
app.command("get-data-read-priority")(topic_policies.get_data_read_priority)
app.command("remove-data-read-priority")(topic_policies.remove_data_read_priority)
