"""``txnlog gc``: removing segment files that nothing refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from txn_source.cli.connection import on_log
from txn_source.cli.output import Json, print_json, repeatable
from txn_source.cli.progress import Progress
from txn_source.cli.units import format_size
from txn_source.model.units import format_count, parse_duration

if TYPE_CHECKING:
    from txn_source.client.log import Log


@on_log()
def collect(
    log: Log,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="AGE",
            help="Only files last written so long ago, such as 24h or 90m.",
        ),
    ] = "24h",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove segment files from which nothing can be registered any more: what ended producers and failed jobs left.

    A producer has ended when it was closed, when a newer one took its transactional id, and when it hasn't written for
    a week. A file of which the log doesn't know whether somebody needs it stays: see `txnlog quarantine list`. If the
    log's database is older than its files, nothing is removed.

    Uploads of offloaded ledgers to S3 that were begun as long ago and never ended go, too.

    Files of deleted copies and of trimmed ledgers are not garbage: the log has a list of them, and the command that
    deleted them, or `txnlog maintain`, removes them.
    """
    from txn_source.client.tiering.garbage import collect_garbage

    with repeatable(), Progress("files", later=True) as shown:
        age = parse_duration(older_than)
        garbage = collect_garbage(log.access, age, dry_run=dry_run, told=shown.of)
    if as_json:
        print_json(garbage)
        return
    for path in garbage.paths:
        print(path)
    for uri in garbage.uploads:
        print(f"{uri} (unfinished upload)")
    verb = "would be removed" if dry_run else "removed"
    print(f"{format_count(len(garbage.paths), 'file')}, {format_size(garbage.bytes)} {verb}.")
    if garbage.unknown:
        print(f"{format_count(len(garbage.unknown), 'file')} that nobody knows: `txnlog quarantine list`.")
