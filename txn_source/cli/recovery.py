"""``txnlog recover`` and ``txnlog salvage``."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from txn_source.cli.connection import METADATA_VARIABLE, Root, database_of, metadata_of
from txn_source.cli.output import Json, console, note, print_json, reports_errors, table
from txn_source.cli.serve import root_of
from txn_source.cli.units import format_size
from txn_source.model.errors import LogNotFoundError
from txn_source.model.moments import shown_time
from txn_source.model.units import format_count

if TYPE_CHECKING:
    from txn_source.upkeep.recovery import RecoveryReport


@reports_errors
def recover(
    context: typer.Context,
    root: Root = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help=f"The file that the database is to be, of a log on an object store (or set {METADATA_VARIABLE}).",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="ROOT", help="A root for copies that has the snapshots.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the database of a log of its newest sound snapshot, after the database was lost or moved away.

    It stays the same log. What it stored after the snapshot is lost; the files with these messages stay where they lie,
    and are listed. What the lost database may have given out is given out to nobody else, and open transactions are
    aborted. Nobody may use the log meanwhile. It can be interrupted, and run again.

    Exit status: 0 if nothing is missing and nothing unknown, 3 if something is, or a root couldn't be looked at, 1 if
    there is no sound snapshot.
    """
    path = root_of(context, root)
    from txn_source.upkeep.recovery import recover as make

    done = make(path, database_of(metadata), snapshots=source)
    if as_json:
        print_json(done)
    print_recovered(done, as_json=as_json)


def print_recovered(done: RecoveryReport, *, as_json: bool) -> None:
    """Print a recovery's report, unless it was printed as JSON; end with status 3 unless the log is whole."""
    if not as_json:
        for text in done.unsound:
            note(f"not sound: {text}")
        for text in done.away:
            note(f"not looked at: {text}")
        for path in done.missing:
            print(f"missing: {path}")
        for file in done.unknown:
            print(f"unknown: {file.uri.partition('?')[0]} ({format_size(file.size)}, in {file.place})")
        for file in done.tails:
            print(f"unknown: the last {format_size(file.size)} of {file.uri} (in {file.place})")
        print(
            f"Recovered the log {done.log_id} as of {shown_time(done.taken_at_s * 1_000_000)}:"
            f" {format_count(len(done.missing), 'file')} missing, {format_count(len(done.unknown), 'file')} unknown."
        )
        if done.unknown or done.tails:
            print("Look at what is unknown with `txnlog salvage`.")
    if not done.is_whole:
        raise typer.Exit(3)


@reports_errors
def salvage(
    context: typer.Context,
    root: Root = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Write the rows there as Parquet; new or empty.", show_default=False),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Send the rows to this topic, in one transaction.", show_default=False),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="FILE", help="Only this file; again for more.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Read the files that a log doesn't know, and list them with how many rows they have.

    They are of a time that the log has lost (recover, after-restore), or of jobs of earlier releases. What they have
    may have been committed, aborted or never finished: nobody knows that any more, and nothing here decides it. Nothing
    is changed or deleted in the log's places. Where the metadata is lost and there is no snapshot of it, all files are
    unknown.
    """
    path = root_of(context, root)
    from txn_source.client.connecting import connect
    from txn_source.client.log import Log
    from txn_source.upkeep.salvage import salvage as read

    with ExitStack() as stack:
        log: Log | str = path
        try:
            log = stack.enter_context(connect(path, metadata=metadata_of(path)))
        except LogNotFoundError:
            if metadata_of(path) is not None:
                raise
        found = read(log, files=file, to=to, topic=topic)
        if not isinstance(log, Log):
            note("The metadata of the log is lost, so none of its files is known. See `txnlog recover`.")
    if as_json:
        print_json(found)
        return
    if not found:
        print("There is nothing that the log doesn't know.")
        return
    shown = table(
        "Unknown files", "Topic", "Part.", "File", "From byte", "Last written", "Rows", right=("From byte", "Rows")
    )
    for each in found:
        number = "" if each.partition is None else str(each.partition)
        damaged = f" ({format_size(each.damaged)} damaged)" if each.damaged else ""
        name, at = each.uri.partition("?")[0], shown_time(int(each.modified_at_s) * 1_000_000)
        shown.add_row(each.topic or "?", number, name, str(each.start), at, f"{each.rows}{damaged}")
    console().print(shown)
    rows = format_count(sum(each.rows for each in found), "row")
    done = f" Written to {to}." if to else ""
    sent = f" Sent to {topic}." if topic else ""
    print(f"{rows} in {format_count(len(found), 'file')}. Nobody knows which of them were committed.{done}{sent}")
