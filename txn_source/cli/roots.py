"""``txnlog roots``: the roots that copies of hot entries lie in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, console, print_json, table
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
