"""``txnlog migrate``: moving a log's metadata from SQLite to PostgreSQL."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from txn_source.cli.connection import METADATA_VARIABLE, Root, database_of
from txn_source.cli.output import reports_errors
from txn_source.cli.serve import root_of
from txn_source.model.units import format_count


@reports_errors
def migrate(
    context: typer.Context,
    root: Root = None,
    metadata: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Empty PostgreSQL database, or schema of one, that takes the metadata:"
            f" postgresql://user@host/database. A URL with a password is better set as {METADATA_VARIABLE}: others on"
            " this machine see command lines.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Move a log's metadata from SQLite to PostgreSQL. Segments and tiered objects stay where they are.

    The log is held meanwhile: it is refused as long as any process has the log open, and none can open it until the
    end. The copy is compared with the original, table by table and by a scan at both isolation levels; only then the
    root notes where the metadata lies. The SQLite file stays, as metadata.db-migrated.

    What is interrupted leaves the log as it was, unless the root has noted the move, and can be run again. Consumers
    connect anew.
    """
    path = root_of(context, root)
    text = database_of(metadata)
    if not text:
        raise typer.BadParameter(
            f"Name the PostgreSQL database with --metadata URL (or {METADATA_VARIABLE}).", param_hint="'--metadata'"
        )
    from txn_source.metadata.store.database_url import DatabaseUrl
    from txn_source.model.errors import InvalidArgumentError
    from txn_source.storage.root import LogRoot

    url = DatabaseUrl(text)  # says if the driver is missing
    from txn_source.metadata.service.migration import migrate as move

    try:
        done = move(LogRoot.at(path), url, lambda line: print(line, flush=True))
    except InvalidArgumentError as error:  # a URL that can be used, of a database that can't
        print(" ".join(str(error).split()), file=sys.stderr)
        raise typer.Exit(1) from None
    print(
        f"Moved the log {done.log_id} to {url}: {format_count(done.scanned.topics, 'topic')},"
        f" {format_count(done.rows, 'row')}. Serve it with `txnlog serve --metadata`."
    )
