"""``txnlog quarantine``: files of which a log doesn't know whether somebody needs them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from txn_source.cli.arguments import Yes, confirm
from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, console, print_json, repeatable, table
from txn_source.cli.units import format_size
from txn_source.model.units import format_count, parse_duration

if TYPE_CHECKING:
    from txn_source.client.log import Log

app = typer.Typer(help="Files of which the log doesn't know whether somebody needs them.", no_args_is_help=True)


@app.command("list")
@on_log()
def list_(log: Log, as_json: Json = False) -> None:
    """List the files in the log's places of which it doesn't know whether somebody needs them, oldest first.

    They are of a time that the log has lost (after-restore, recover), or of jobs of earlier releases. They stay where
    they lie; one that becomes known again, since the newer database was put back, drops off the list.
    """
    found = log.unknown_files()
    if as_json:
        print_json(found)
        return
    if not found:
        print("No unknown files.")
        return
    shown = table("Unknown files", "Place", "File", "Size", "Last written", right=("Size",))
    for file in found:
        at = datetime.fromtimestamp(file.modified_at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        shown.add_row(file.place, file.uri.partition("?")[0], format_size(file.size), at)
    console().print(shown)
    print(f"{format_count(len(found), 'file')}, {format_size(sum(file.size for file in found))}.")


@app.command("empty")
@on_log()
def empty(
    log: Log,
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Only files last written so long ago, such as 7d or 24h.")
    ] = "7d",
    recovered: Annotated[
        bool,
        typer.Option(
            "--recovered",
            help="The log was put back to an earlier moment, and what lies there of the time that it lost was looked"
            " at: it is to go, too.",
        ),
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete unknown files; asks first. Look at them before, with `txnlog quarantine list`."""
    age = parse_duration(older_than)
    confirm("Delete the unknown files? Nothing can bring their messages back.", yes=yes)
    with repeatable():
        gone = log.delete_unknown(age, recovered=recovered)
    if as_json:
        print_json(gone)
        return
    for path in gone.paths:
        print(path)
    print(f"{format_count(len(gone.paths), 'file')}, {format_size(gone.bytes)} removed.")
