"""``txnlog import``: moving topics of Kafka's or Pulsar's into a log."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Annotated

import typer

from txn_source.cli.connection import metadata_of, options_of
from txn_source.cli.output import Json, console, print_json, repeatable, reports_errors, table
from txn_source.cli.progress import Progress
from txn_source.model.position import Position
from txn_source.model.units import format_count


@reports_errors
def import_(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="kafka:/var/lib/kafka/data, pulsar:/offloaded, or the same of a bucket, kafka:s3://bucket/prefix.",
            show_default=False,
        ),
    ],
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC...", help="Topics, imported together: transactions over them stay whole.", show_default=False
        ),
    ],
    to: Annotated[
        str | None, typer.Option("--to", metavar="PATH", help="Root of the log to import to; made if it isn't there.")
    ] = None,
    to_endpoint: Annotated[
        str | None, typer.Option(metavar="HOST:PORT[,...]", help="Service of the log to import to, instead of --to.")
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="NAME", help="Name in the target, once for each topic; else that of the source."),
    ] = None,
    undecided: Annotated[
        str,
        typer.Option(
            metavar="leave|keep|abort",
            help="Transactions that aren't decided: end below them, import them and keep them open for a later run"
            " within a week, or, of a source that ends here, import them as aborted.",
        ),
    ] = "leave",
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="NAME=VALUE", help="What the source's format has to be told, as an option of a read."
        ),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="NAME",
            help="Metadata of Pulsar's to keep as properties, such as __ordering_key or __message_id; all: all of it.",
        ),
    ] = None,
    typed: Annotated[
        bool, typer.Option("--typed", help="Give keys and values the types that Pulsar's option schema says.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be imported, and change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Import topics that Kafka or Pulsar wrote, with their transactions as transactions.

    Both logs show the same then, at both isolation levels. What is stopped, by whatever, goes on where it was when the
    command is run again: nothing comes twice. A later run brings what was added.
    """
    if (to is None) == (to_endpoint is None):
        given = "Neither is given" if to is None else "Both are given"
        raise typer.BadParameter(f"{given}. Name one log to import to.", param_hint="'--to' / '--to-endpoint'")
    from txn_source.client.connecting import connect
    from txn_source.importing import import_topics
    from txn_source.storage.object_uri import is_object_uri
    from txn_source.storage.root import LogRoot

    bring = partial(
        import_topics,
        source,
        topics,
        names=names or None,
        undecided=undecided,
        options=options_of(options or ()),
        metadata=metadata or (),
        typed=typed,
    )
    with ExitStack() as stack:
        stack.enter_context(repeatable())
        there = to is None or is_object_uri(to) or LogRoot.at(to).exists
        if not there:
            report = bring(None, dry_run=True)  # what can't be imported is refused before a log is made
        if there or not dry_run:
            makes = to is not None and not dry_run
            log = stack.enter_context(connect(to, endpoint=to_endpoint, create=makes, metadata=metadata_of(to)))
            shown = stack.enter_context(Progress("messages", later=source.startswith("kafka:")))
            if shown.wanted and source.startswith("kafka:"):  # whose offsets say how many there are, with markers
                shown.expect(sum(part.end.key - part.start.key for part in bring(log, dry_run=True).parts))
            report = bring(log, dry_run=dry_run, progress=shown.update)
    if as_json:
        print_json(report)
        return
    parts = table("", "TOPIC", "PARTITION", "FROM", "TO", "SOURCE ENDS AT", right=("PARTITION",))
    for part in report.parts:
        ends = [_position_in(source, position) for position in (part.start, part.end, part.source_end)]
        parts.add_row(part.topic, str(part.partition), *ends)
    console().print(parts)
    of = format_count(report.transactions, "transaction")
    if dry_run:
        print(f"{of} would be imported. Nothing was changed.")
    else:
        print(f"Imported {format_count(report.messages, 'message')}, {of}.")


def _position_in(source: str, position: Position) -> str:
    """Return a position as the source's users write it: an offset of Kafka's is a number."""
    return str(position.key) if source.startswith("kafka:") else str(position)
