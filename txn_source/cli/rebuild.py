"""``txnlog rebuild``: making a log's metadata again after its database was lost."""

from __future__ import annotations

from typing import Annotated

import typer

from txn_source.cli.connection import METADATA_VARIABLE, Root, database_of
from txn_source.cli.output import Json, note, print_json, reports_errors
from txn_source.cli.serve import root_of
from txn_source.model.units import format_count


@reports_errors
def rebuild(
    context: typer.Context,
    root: Root = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME", help="Only this topic; may be repeated.", show_default=False),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Make the database here, instead of in the root.", show_default=False),
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Empty PostgreSQL database, of a log that has its metadata there. Of a log on an object store a new"
            f" SQLite file's path will do, too. A URL with a password is better set as {METADATA_VARIABLE}.",
            show_default=False,
        ),
    ] = None,
    undecided: Annotated[
        str,
        typer.Option(
            metavar="END", help="What becomes of transactions whose end nobody has noted: refuse, abort or commit."
        ),
    ] = "refuse",
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Read all of it at both isolation levels before it counts.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Make a log's metadata again from its segments and offloaded ledgers, after the database was lost.

    A backup is better if there is one (`txnlog restore`): it knows all. Here entries, their positions and transactions
    are known as far as their writers have noted them, which is all but what they wrote last; what isn't known for sure
    is told. Subscriptions stand where they stood when the log was maintained last.

    The root, or the PostgreSQL database, must have no metadata: move what is damaged away. Nothing else that is there
    is changed. Stop everything that writes to the log before.
    """
    path = root_of(context, root)
    from txn_source.client.target import metadata_url
    from txn_source.storage.object_uri import is_object_uri
    from txn_source.storage.root import LogRoot
    from txn_source.upkeep.rebuild import rebuild as make

    named = metadata
    if metadata is None and into is None and (is_object_uri(path) or LogRoot.at(path).id_on_postgres is not None):
        named = database_of(None)
    if into is not None and metadata is not None:
        raise typer.BadParameter("Name a file by --into, or a database by --metadata.", param_hint="'--into'")
    url = metadata_url(named) if named else None
    done = make(path, topic or (), into=into, metadata=url, undecided=undecided, check=check, progress=note)
    for text in done.notes:
        note(text)
    if as_json:
        print_json(done)
        return
    for each in done.topics:
        print(f"{each.name}: {format_count(each.messages, 'message')} in {format_count(each.entries, 'entry')}.")
        if each.without_receipt:
            what = f"{format_count(each.without_receipt, 'entry')} had no receipt: placed by order and time"
            print(f"  {what}, {each.at_the_end} of them at the end.")
        if each.left_out:
            print(f"  {format_count(each.left_out, 'entry')} left out.")
        for name, places in (("nothing is known of", each.unknown_positions), ("lost", each.lost)):
            if places:
                print(f"  {name}: {', '.join(places)}")
    for txn, messages in done.undecided.items():
        print(f"Transaction {txn} ({format_count(messages, 'message')}): nobody noted its end; {undecided}.")
    print(f"Made {done.database}.")
