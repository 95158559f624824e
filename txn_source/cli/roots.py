"""``txnlog roots``: the roots that copies of hot entries lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from txn_source.cli.connection import METADATA_VARIABLE, database_of, on_log
from txn_source.cli.output import Json, console, note, print_json, reports_errors, table
from txn_source.cli.recovery import print_recovered
from txn_source.cli.units import format_size

if TYPE_CHECKING:
    from txn_source.client.log import Log

app = typer.Typer(no_args_is_help=True, help="Add, list and remove roots for copies of hot entries.")

RootName = Annotated[str, typer.Argument(metavar="NAME", help="What hot_copies calls it.", show_default=False)]


@app.command("add")
@on_log()
def add(
    log: Log,
    name: RootName,
    uri: Annotated[
        str, typer.Argument(metavar="PATH|URI", help="An empty folder, or a prefix such as s3://bucket/copies.")
    ],
) -> None:
    """Add a root, or make one anew whose disk was lost; set the policy hot_copies to have copies there."""
    log.add_root(name, uri)
    print(f"Root {name} is at {uri.partition('?')[0]}.")


@app.command("list")
@on_log()
def list_(log: Log, as_json: Json = False) -> None:
    """Show all roots: whether they can be reached from here, what they have, and how many entries they lack."""
    found = log.roots()
    if as_json:
        print_json(found)
        return
    numbers = ("Segments", "Size", "Entries short")
    listing = table("", "Root", "Place", "State", *numbers, right=numbers)
    for root in found:
        state = "reachable" if root.reachable else f"not reachable: {root.why}"
        sizes = (f"{root.segments:,}", format_size(root.bytes), f"{root.short_entries:,}")
        listing.add_row(root.name, root.uri, state, *sizes)
    console().print(listing)


@app.command("remove")
@on_log()
def remove(log: Log, name: RootName) -> None:
    """Remove a root that no policy names; its files stay where they are."""
    log.remove_root(name)
    print(f"Root {name} is removed.")


@app.command("promote")
@reports_errors
def promote(
    place: Annotated[str, typer.Argument(metavar="PATH|URI", help="The root for copies.", show_default=False)],
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URL|PATH",
            help="The database, if it is PostgreSQL; of a root on an object store also the path of a SQLite file, which"
            f" is made of a snapshot if it isn't there (or set {METADATA_VARIABLE}).",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a root for copies the own root of its log, after that one was lost.

    It is another log then, so that the old root can do no harm should it come back. Where the metadata was lost, too,
    the newest snapshot in the place is taken, as `txnlog recover` does. What lay in the lost root alone is told as
    missing. Nobody may use the log meanwhile. It can be interrupted, and run again.

    Exit status: 0 if nothing is missing and nothing unknown, 3 if something is.
    """
    from txn_source.upkeep.promotion import promote as make

    done = make(place, database_of(metadata))
    for name, why in done.left:
        note(f"root {name} couldn't be told of it, so add it again: {why}")
    if as_json:
        print_json(done)
    else:
        print(f"{place} is the log's own root now; it was {done.name}.")
    print_recovered(done.log, as_json=as_json)
